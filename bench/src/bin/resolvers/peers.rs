//! The resolvers, each with its own defaults but for what makes them comparable: one thread, validation, and expired data for a day after
//! 1.8 s, as RFC 8767 recommends, where there is such an option.

use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{CLIENT_INTERFACE, Child, Directory, Lab, LabError, Side, sidestep_binary};

/// Time to start.
const START_MAX: Duration = Duration::from_secs(30);

/// One make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Sidestep,
    Unbound,
    Bind,
    PowerDns,
    Knot,
}

/// One that runs.
pub(crate) struct Resolver {
    pub(crate) peer: Peer,
    _process: Child,
    _directory: Directory,
}

/// What a resolver of the laboratory's Internet has to know.
struct Setting {
    /// Where it listens.
    port: u16,
    /// Where its queries come from.
    source: Ipv4Addr,
    directory: Directory,
    /// Its own directory, the file with the root's servers and the one with its DS record.
    own: String,
    hints: String,
    anchor_file: String,
    anchor: String,
}

impl Peer {
    /// All of them.
    pub(crate) const ALL: [Peer; 5] = [Peer::Sidestep, Peer::Unbound, Peer::Bind, Peer::PowerDns, Peer::Knot];

    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Sidestep => "Sidestep",
            Peer::Unbound => "Unbound",
            Peer::Bind => "BIND",
            Peer::PowerDns => "PowerDNS",
            Peer::Knot => "Knot Resolver",
        }
    }

    fn program(self) -> String {
        match self {
            Peer::Sidestep => sidestep_binary().display().to_string(),
            Peer::Unbound => "unbound".to_owned(),
            Peer::Bind => "named".to_owned(),
            Peer::PowerDns => "pdns_recursor".to_owned(),
            Peer::Knot => "kresd".to_owned(),
        }
    }

    /// Name and version.
    pub(crate) fn versioned(self) -> String {
        let option = match self {
            Peer::Unbound => "-V",
            Peer::Bind => "-v",
            _ => "--version",
        };
        let output = Command::new(self.program()).arg(option).output();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_version =
            |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
        let version = text.split_whitespace().find(is_version).unwrap_or("missing");
        format!("{} {}", self.name(), version.split('-').next().unwrap_or(version))
    }

    fn number(self) -> u8 {
        self as u8
    }

    /// Where clients ask it.
    pub(crate) fn address(self) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 5300 + u16::from(self.number()))
    }

    /// Where its queries come from.
    pub(crate) fn source(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 53, 0, 100 + self.number())
    }

    /// Starts it.
    pub(crate) fn start(self, lab: &Lab, hints: &str, anchor: &str) -> Result<Resolver, LabError> {
        let source = self.source();
        lab.ip(Side::Client, &format!("address add {source}/16 dev {CLIENT_INTERFACE}"))?;
        let directory = Directory::new()?;
        let hints = directory.write("hints", hints)?.display().to_string();
        let anchor_file = directory.write("anchor", &format!("{anchor}\n"))?.display().to_string();
        let own = directory.path().display().to_string();
        let (port, anchor) = (self.address().port(), anchor.to_owned());
        let setting = Setting { port, source, directory, own, hints, anchor_file, anchor };
        let process = match self {
            Peer::Sidestep => setting.sidestep(lab),
            Peer::Unbound => setting.unbound(lab),
            Peer::Bind => setting.bind(lab),
            Peer::PowerDns => setting.powerdns(lab),
            Peer::Knot => setting.knot(lab),
        }?;
        let resolver = Resolver { peer: self, _process: process, _directory: setting.directory };
        resolver.wait(lab)?;
        Ok(resolver)
    }
}

impl Resolver {
    /// Until it answers for a name that needs no servers.
    fn wait(&self, lab: &Lab) -> Result<(), LabError> {
        let query = lab::message::query(1, "localhost", lab::message::A);
        let deadline = Instant::now() + START_MAX;
        let ask = || {
            lab.inside(Side::Client, || {
                lab::message::ask(self.peer.address(), &query, Duration::from_millis(500))
            })
        };
        while ask().is_err() {
            if Instant::now() > deadline {
                let output = format!("does not answer: {}", self._process.output());
                return Err(LabError::Command { command: self.peer.name().to_owned(), output });
            }
        }
        Ok(())
    }
}

impl Setting {
    fn spawn(
        &self,
        lab: &Lab,
        peer: Peer,
        file: &str,
        config: &str,
        words: &[&str],
    ) -> Result<Child, LabError> {
        let file = self.directory.write(file, config)?.display().to_string();
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "CONFIG" { &file } else { *word }).collect();
        lab.spawn_in(Side::Client, &peer.program(), &words)
    }

    fn sidestep(&self, lab: &Lab) -> Result<Child, LabError> {
        let Setting { port, source, own, hints, anchor_file, .. } = self;
        let config = format!(
            "listen = [\"127.0.0.1:{port}\"]\nroot-hints = \"{hints}\"\nsource-addresses = [\"{source}\"]\nipv6 = false\n\
             user = \"root\"\ncontrol = \"{own}/control.sock\"\n[dnssec]\ntrust-anchors = \"{anchor_file}\"\n"
        );
        self.spawn(lab, Peer::Sidestep, "resolver.toml", &config, &["dns", "resolve", "--config", "CONFIG"])
    }

    fn unbound(&self, lab: &Lab) -> Result<Child, LabError> {
        let Setting { port, source, own, hints, anchor_file, .. } = self;
        let config = format!(
            "server:\n interface: 127.0.0.1@{port}\n outgoing-interface: {source}\n do-ip6: no\n num-threads: 1\n \
             do-daemonize: no\n username: \"\"\n chroot: \"\"\n directory: \"{own}\"\n pidfile: \"\"\n use-syslog: no\n \
             root-hints: \"{hints}\"\n trust-anchor-file: \"{anchor_file}\"\n serve-expired: yes\n \
             serve-expired-client-timeout: 1800\n serve-expired-ttl: 86400\nremote-control:\n control-enable: no\n"
        );
        self.spawn(lab, Peer::Unbound, "unbound.conf", &config, &["-d", "-c", "CONFIG"])
    }

    fn bind(&self, lab: &Lab) -> Result<Child, LabError> {
        let Setting { port, source, own, hints, anchor, .. } = self;
        // Owner, IN, DS, tag, algorithm, digest type, digest.
        let words: Vec<&str> = anchor.split_whitespace().collect();
        let [.., tag, algorithm, kind, digest] = words[..] else {
            unreachable!("a DS record has four fields")
        };
        let config = format!(
            "options {{ directory \"{own}\"; pid-file none; session-keyfile none; listen-on port {port} {{ 127.0.0.1; }}; \
             listen-on-v6 {{ none; }}; query-source address {source}; recursion yes; dnssec-validation yes; \
             stale-cache-enable yes; stale-answer-enable yes; max-stale-ttl 86400; }};\ncontrols {{ }};\n\
             trust-anchors {{ . static-ds {tag} {algorithm} {kind} \"{digest}\"; }};\n\
             zone \".\" {{ type hint; file \"{hints}\"; }};\n"
        );
        self.spawn(lab, Peer::Bind, "named.conf", &config, &["-g", "-4", "-n", "1", "-c", "CONFIG"])
    }

    fn powerdns(&self, lab: &Lab) -> Result<Child, LabError> {
        let Setting { port, source, own, hints, anchor, .. } = self;
        let (_, data) = anchor.split_once("DS ").unwrap_or_default();
        let lua = self.directory.write("anchor.lua", &format!("clearTA()\naddTA('.', \"{data}\")\n"))?;
        // An extension is half a minute; 10.0.0.0/8 is not asked by default.
        let config = format!(
            "local-address=127.0.0.1\nlocal-port={port}\nquery-local-address={source}\nhint-file={hints}\ndnssec=validate\n\
             lua-config-file={}\nthreads=1\nserve-stale-extensions=2880\nsocket-dir={own}\ndont-query=\nquiet=yes\n\
             setuid=root\nsetgid=root\n",
            lua.display()
        );
        let directory = format!("--config-dir={own}");
        self.spawn(lab, Peer::PowerDns, "recursor.conf", &config, &[&directory, "--daemon=no"])
    }

    fn knot(&self, lab: &Lab) -> Result<Child, LabError> {
        let Setting { port, source, own, hints, anchor, .. } = self;
        let config = format!(
            "net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})\nnet.outgoing_v4('{source}')\nnet.ipv6 = false\n\
             modules = {{ 'hints > iterate', 'serve_stale < cache' }}\nhints.root_file('{hints}')\n\
             trust_anchors.add('{anchor}')\ncache.size = 100 * MB\n"
        );
        self.spawn(lab, Peer::Knot, "kresd.conf", &config, &["-n", "-q", "-c", "CONFIG", own])
    }
}
