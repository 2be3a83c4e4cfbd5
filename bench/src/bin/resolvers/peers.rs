//! The resolvers, each with its own defaults but for what makes them comparable: one thread, validation, and expired data for a day after
//! 1.8 s, as RFC 8767 recommends, where there is such an option.

use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::process::Command;

use lab::{CLIENT_INTERFACE, Lab, LabError, ResolverMake, ResolverSetting, RunningResolver, Side};

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
    _running: RunningResolver,
}

impl Peer {
    /// All of them.
    pub(crate) const ALL: [Peer; 5] = [Peer::Sidestep, Peer::Unbound, Peer::Bind, Peer::PowerDns, Peer::Knot];

    fn make(self) -> ResolverMake {
        match self {
            Peer::Sidestep => ResolverMake::Sidestep,
            Peer::Unbound => ResolverMake::Unbound,
            Peer::Bind => ResolverMake::Bind,
            Peer::PowerDns => ResolverMake::PowerDns,
            Peer::Knot => ResolverMake::Knot,
        }
    }

    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        self.make().name()
    }

    /// What makes them comparable.
    fn more(self) -> &'static str {
        match self {
            Peer::Sidestep => "",
            Peer::Unbound => {
                " serve-expired: yes\n serve-expired-client-timeout: 1800\n serve-expired-ttl: 86400"
            }
            Peer::Bind => "stale-cache-enable yes; stale-answer-enable yes; max-stale-ttl 86400;",
            // An extension is half a minute.
            Peer::PowerDns => "serve-stale-extensions=2880",
            Peer::Knot => "modules.load('serve_stale < cache')",
        }
    }

    /// Name and version.
    pub(crate) fn versioned(self) -> String {
        let option = match self {
            Peer::Unbound => "-V",
            Peer::Bind => "-v",
            _ => "--version",
        };
        let output = Command::new(self.make().program()).arg(option).output();
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
        let setting =
            ResolverSetting { port: self.address().port(), source, hints, anchor, more: self.more() };
        let running = self.make().start(lab, Side::Client, &setting)?;
        Ok(Resolver { _running: running })
    }
}
