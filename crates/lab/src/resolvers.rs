//! Resolvers as Debian packages them, each with its own defaults but for where it listens, where its queries come from, and which root it trusts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::{Child, Directory, Lab, LabError, Side, message, sidestep_binary};

/// Time to start.
const START_MAX: Duration = Duration::from_secs(30);

/// A make of resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolverMake {
    /// `sidestep dns resolve`.
    Sidestep,
    /// Unbound.
    Unbound,
    /// BIND.
    Bind,
    /// PowerDNS Recursor.
    PowerDns,
    /// Knot Resolver.
    Knot,
    /// dnsmasq, which forwards.
    Dnsmasq,
}

/// What a resolver has to know.
#[derive(Clone, Debug)]
pub struct ResolverSetting<'s> {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// Where its queries come from.
    pub source: Ipv4Addr,
    /// The root's servers, as records.
    pub hints: &'s str,
    /// The DS record of the root's key: owner, class, type and data.
    pub anchor: &'s str,
    /// More lines of its configuration; of BIND's, in its options.
    pub more: &'s str,
}

/// One that runs.
pub struct RunningResolver {
    /// Its make.
    pub make: ResolverMake,
    /// Where it is asked.
    pub address: SocketAddr,
    process: Child,
    _directory: Directory,
}

/// The files of one.
struct Files<'s> {
    setting: &'s ResolverSetting<'s>,
    directory: &'s Directory,
    own: String,
    hints: String,
    anchor_file: String,
}

impl ResolverMake {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            ResolverMake::Sidestep => "Sidestep",
            ResolverMake::Unbound => "Unbound",
            ResolverMake::Bind => "BIND",
            ResolverMake::PowerDns => "PowerDNS",
            ResolverMake::Knot => "Knot Resolver",
            ResolverMake::Dnsmasq => "dnsmasq",
        }
    }

    /// The program.
    pub fn program(self) -> String {
        match self {
            ResolverMake::Sidestep => sidestep_binary().display().to_string(),
            ResolverMake::Unbound => "unbound".to_owned(),
            ResolverMake::Bind => "named".to_owned(),
            ResolverMake::PowerDns => "pdns_recursor".to_owned(),
            ResolverMake::Knot => "kresd".to_owned(),
            ResolverMake::Dnsmasq => "dnsmasq".to_owned(),
        }
    }

    /// Starts it in a namespace, and waits until it answers.
    pub fn start(
        self,
        lab: &Lab,
        side: Side,
        setting: &ResolverSetting<'_>,
    ) -> Result<RunningResolver, LabError> {
        let directory = Directory::new()?;
        let files = Files {
            setting,
            own: directory.path().display().to_string(),
            hints: directory.write("hints", setting.hints)?.display().to_string(),
            anchor_file: directory.write("anchor", &format!("{}\n", setting.anchor))?.display().to_string(),
            directory: &directory,
        };
        let (file, config) = match self {
            ResolverMake::Sidestep => ("resolver.toml", files.sidestep()),
            ResolverMake::Unbound => ("unbound.conf", files.unbound()),
            ResolverMake::Bind => ("named.conf", files.bind()),
            ResolverMake::PowerDns => ("recursor.conf", files.powerdns()?),
            ResolverMake::Knot => ("kresd.conf", files.knot()),
            ResolverMake::Dnsmasq => ("dnsmasq.conf", files.dnsmasq()),
        };
        let config = directory.write(file, &config)?.display().to_string();
        let words = self.words(&config, &files.own);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let process = lab.spawn_in(side, &self.program(), &words)?;
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), setting.port);
        let resolver = RunningResolver { make: self, address, process, _directory: directory };
        resolver.wait(lab, side)?;
        Ok(resolver)
    }

    /// The command line behind the program.
    fn words(self, config: &str, own: &str) -> Vec<String> {
        let words = match self {
            ResolverMake::Sidestep => vec!["dns", "resolve", "--config", config],
            ResolverMake::Unbound => vec!["-d", "-c", config],
            ResolverMake::Bind => vec!["-g", "-4", "-n", "1", "-c", config],
            ResolverMake::PowerDns => return vec![format!("--config-dir={own}"), "--daemon=no".to_owned()],
            ResolverMake::Knot => vec!["-n", "-q", "-c", config, own],
            ResolverMake::Dnsmasq => return vec!["-k".to_owned(), format!("--conf-file={config}")],
        };
        words.into_iter().map(str::to_owned).collect()
    }
}

impl RunningResolver {
    /// What it has written.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Until it answers for a name that needs no servers.
    fn wait(&self, lab: &Lab, side: Side) -> Result<(), LabError> {
        let query = message::query(1, "localhost", message::A);
        let deadline = Instant::now() + START_MAX;
        let ask = || lab.inside(side, || message::ask(self.address, &query, Duration::from_millis(500)));
        while ask().is_err() {
            if Instant::now() > deadline {
                let output = format!("does not answer: {}", self.output());
                return Err(LabError::Command { command: self.make.name().to_owned(), output });
            }
        }
        Ok(())
    }
}

impl Files<'_> {
    fn sidestep(&self) -> String {
        let (ResolverSetting { port, source, more, .. }, Files { own, hints, anchor_file, .. }) =
            (self.setting, self);
        format!(
            "listen = [\"127.0.0.1:{port}\"]\nroot-hints = \"{hints}\"\nsource-addresses = [\"{source}\"]\nipv6 = false\n\
             user = \"root\"\ncontrol = \"{own}/control.sock\"\n{more}\n[dnssec]\ntrust-anchors = \"{anchor_file}\"\n"
        )
    }

    fn unbound(&self) -> String {
        let (ResolverSetting { port, source, more, .. }, Files { own, hints, anchor_file, .. }) =
            (self.setting, self);
        format!(
            "server:\n interface: 127.0.0.1@{port}\n outgoing-interface: {source}\n do-ip6: no\n num-threads: 1\n \
             do-daemonize: no\n username: \"\"\n chroot: \"\"\n directory: \"{own}\"\n pidfile: \"\"\n use-syslog: no\n \
             root-hints: \"{hints}\"\n trust-anchor-file: \"{anchor_file}\"\n{more}\nremote-control:\n control-enable: no\n"
        )
    }

    fn bind(&self) -> String {
        let (ResolverSetting { port, source, more, anchor, .. }, Files { own, hints, .. }) =
            (self.setting, self);
        // Owner, IN, DS, tag, algorithm, digest type, digest.
        let words: Vec<&str> = anchor.split_whitespace().collect();
        let [.., tag, algorithm, kind, digest] = words[..] else {
            unreachable!("a DS record has four fields")
        };
        format!(
            "options {{ directory \"{own}\"; pid-file none; session-keyfile none; listen-on port {port} {{ 127.0.0.1; }}; \
             listen-on-v6 {{ none; }}; query-source address {source}; recursion yes; dnssec-validation yes; {more} }};\n\
             controls {{ }};\ntrust-anchors {{ . static-ds {tag} {algorithm} {kind} \"{digest}\"; }};\n\
             zone \".\" {{ type hint; file \"{hints}\"; }};\n"
        )
    }

    fn powerdns(&self) -> Result<String, LabError> {
        let (ResolverSetting { port, source, more, anchor, .. }, Files { own, hints, .. }) =
            (self.setting, self);
        let (_, data) = anchor.split_once("DS ").unwrap_or_default();
        let lua = self.directory.write("anchor.lua", &format!("clearTA()\naddTA('.', \"{data}\")\n"))?;
        // 10.0.0.0/8 is not asked by default.
        Ok(format!(
            "local-address=127.0.0.1\nlocal-port={port}\nquery-local-address={source}\nhint-file={hints}\ndnssec=validate\n\
             lua-config-file={}\nthreads=1\nsocket-dir={own}\ndont-query=\nquiet=yes\nsetuid=root\nsetgid=root\n{more}\n",
            lua.display()
        ))
    }

    fn knot(&self) -> String {
        let (ResolverSetting { port, source, more, anchor, .. }, Files { hints, .. }) = (self.setting, self);
        format!(
            "net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})\nnet.outgoing_v4('{source}')\nnet.ipv6 = false\n\
             modules = {{ 'hints > iterate' }}\nhints.root_file('{hints}')\ntrust_anchors.add('{anchor}')\n\
             cache.size = 100 * MB\n{more}\n"
        )
    }

    fn dnsmasq(&self) -> String {
        let ResolverSetting { port, more, .. } = self.setting;
        format!(
            "port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\npid-file=\nuser=root\nlog-facility=-\n{more}\n"
        )
    }
}
