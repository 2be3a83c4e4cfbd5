//! The addresses that notices and questions to primaries leave from: those that `source-addresses` names, or else the one that is served.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::bail;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::config::DeviceChoice;

/// The option.
pub(crate) const OPTION: &str = "source-addresses";

/// What is known of IPv4 and of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// By the configuration.
    named: [Option<IpAddr>; 2],
    /// Those of `listen`, where it has just one of a family.
    served: [Option<IpAddr>; 2],
}

/// Where something leaves from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// What the configuration says, and nothing else.
    Named(IpAddr),
    /// The address that is served, if this host has it now.
    Served(IpAddr),
    /// What the kernel chooses, an address of IPv4 or of IPv6.
    Any(IpAddr),
}

fn family_of(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

fn any_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// It says nothing about which interface it is of.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl Sources {
    /// Reads the option: one address of each family at most.
    pub(crate) fn parse(texts: &[String]) -> anyhow::Result<Sources> {
        let mut named = [None; 2];
        for text in texts {
            let Ok(address) = text.parse::<IpAddr>().map(|address| address.to_canonical()) else {
                bail!(
                    "{OPTION}: {text:?} is not an address without a port, such as 192.0.2.1 or 2001:db8::1"
                );
            };
            let is_shared = address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
            if address.is_unspecified() || is_shared || is_link_local(address) {
                bail!("{OPTION}: nothing can leave from {address}: expected an address that this host has");
            }
            if let Some(first) = named[family_of(address)].replace(address) {
                bail!("{OPTION}: {first} and {address} are of one family: expected one of each at most");
            }
        }
        Ok(Sources { named, ..Sources::default() })
    }

    /// The same, and what `others` name where these name nothing.
    pub(crate) fn or(self, others: Sources) -> Sources {
        let named = [0, 1].map(|family| self.named[family].or(others.named[family]));
        Sources { named, ..self }
    }

    /// The same with what a server of these addresses leaves from otherwise.
    pub(crate) fn or_served(self, device: &DeviceChoice) -> Sources {
        let listens: Vec<Option<IpAddr>> = match device {
            DeviceChoice::Kernel(addresses) => addresses.iter().map(|address| Some(address.ip())).collect(),
            DeviceChoice::Interface(_, listens) => listens.iter().map(|listen| listen.address).collect(),
        };
        let has_any = listens.contains(&None);
        let served = [0, 1].map(|family| {
            let mut own: Vec<IpAddr> =
                listens.iter().flatten().copied().filter(|address| family_of(*address) == family).collect();
            own.sort();
            own.dedup();
            let only = if own.len() == 1 && !has_any { own.pop() } else { None };
            only.filter(|address| !address.is_unspecified() && !is_link_local(*address))
        });
        Sources { served, ..self }
    }

    /// Where something to `target` leaves from.
    pub(crate) fn to(&self, target: IpAddr) -> Source {
        let family = family_of(target);
        if let Some(named) = self.named[family] {
            return Source::Named(named);
        }
        // Nobody beyond this host could answer to its loopback.
        let served = self.served[family].filter(|own| !own.is_loopback() || target.is_loopback());
        served.map_or(Source::Any(any_like(target)), Source::Served)
    }

    /// All that something may leave from.
    pub(crate) fn all(&self) -> Vec<Source> {
        let targets: [IpAddr; 4] = [
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::BROADCAST.into(),
            Ipv6Addr::LOCALHOST.into(),
            Ipv6Addr::UNSPECIFIED.into(),
        ];
        let mut all: Vec<Source> = targets.into_iter().map(|target| self.to(target)).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Why nothing can leave from addresses that the configuration names, or nothing to one of `targets`.
    pub(crate) fn problems<'s>(
        &'s self,
        targets: impl Iterator<Item = SocketAddr> + 's,
    ) -> impl Iterator<Item = String> + 's {
        let named = self.named.into_iter().flatten();
        let unusable =
            named.filter_map(|address| Source::Named(address).bind().err().map(|error| error.to_string()));
        unusable.chain(targets.filter_map(|target| self.problem_with(target)))
    }

    /// Why nothing that leaves from the address that is named can come to `target`.
    fn problem_with(&self, target: SocketAddr) -> Option<String> {
        let named = self.named[family_of(target.ip())]?;
        (named.is_loopback() && !target.ip().is_loopback())
            .then(|| format!("{OPTION}: nothing can go from {named} to {}, beyond this host", target.ip()))
    }
}

impl Source {
    pub(crate) fn address(self) -> IpAddr {
        let (Source::Named(address) | Source::Served(address) | Source::Any(address)) = self;
        address
    }

    /// A socket that questions leave from.
    pub(crate) fn bind(self) -> io::Result<UdpSocket> {
        self.open(|address| UdpSocket::bind(SocketAddr::new(address, 0)))
    }

    /// A connection from there.
    pub(crate) fn connect(self, target: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        if matches!(self, Source::Any(_)) {
            return TcpStream::connect_timeout(&target, patience);
        }
        let socket = self.open(|address| {
            let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
            socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?;
            Ok(socket)
        })?;
        socket.connect_timeout(&SockAddr::from(target), patience)?;
        Ok(socket.into())
    }

    fn open<S>(self, open: impl Fn(IpAddr) -> io::Result<S>) -> io::Result<S> {
        let address = self.address();
        let with_name = |error: io::Error, what: &dyn Display| {
            io::Error::new(error.kind(), format!("{OPTION}: {what}: {error}"))
        };
        open(address).or_else(|error| match self {
            Source::Named(_) if error.kind() == ErrorKind::AddrNotAvailable => {
                Err(with_name(error, &format_args!("this host has no address {address}")))
            }
            Source::Named(_) => Err(with_name(error, &address)),
            // It may come later, as that of a server that stands by does.
            Source::Served(_) if error.kind() == ErrorKind::AddrNotAvailable => open(any_like(address)),
            _ => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(texts: &[&str]) -> anyhow::Result<Sources> {
        Sources::parse(&texts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn served(listens: &[&str]) -> Sources {
        let listens = listens.iter().map(|text| text.parse().unwrap()).collect();
        Sources::default().or_served(&DeviceChoice::Kernel(listens))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_of_each_family_may_be_named() {
        let sources = named(&["192.0.2.1", "2001:db8::1"]).unwrap();
        assert_eq!(sources.to(address("198.51.100.1")), Source::Named(address("192.0.2.1")));
        assert_eq!(sources.to(address("::1")), Source::Named(address("2001:db8::1")));
        let both = named(&["192.0.2.9"]).unwrap().or(sources);
        assert_eq!(both.to(address("198.51.100.1")), Source::Named(address("192.0.2.9")));
        assert_eq!(both.to(address("::1")), Source::Named(address("2001:db8::1")));
        for (texts, why) in [
            (&["192.0.2.1:53"][..], "is not an address without a port"),
            (&["192.0.2.1", "192.0.2.2"], "are of one family"),
            (&["0.0.0.0"], "nothing can leave from"),
            (&["fe80::1"], "nothing can leave from"),
            (&["255.255.255.255"], "nothing can leave from"),
        ] {
            let error = named(texts).unwrap_err().to_string();
            assert!(error.starts_with("source-addresses: ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_one_address_that_is_served_is_the_source_and_loopback_of_loopback_alone() {
        let any = Source::Any(Ipv4Addr::UNSPECIFIED.into());
        let to = |listens: &[&str], target: &str| served(listens).to(address(target));
        let own = Source::Served(address("192.0.2.1"));
        let listens = ["192.0.2.1:53", "192.0.2.1:54", "[::]:53"];
        assert_eq!((to(&listens, "198.51.100.1"), to(&listens, "127.0.0.1")), (own, own));
        assert_eq!(to(&listens, "2001:db8::1"), Source::Any(Ipv6Addr::UNSPECIFIED.into()));
        assert_eq!(to(&["192.0.2.1:53", "192.0.2.2:53"], "198.51.100.1"), any);
        assert_eq!(to(&["192.0.2.1:53", "0.0.0.0:54"], "198.51.100.1"), any);
        assert_eq!(to(&["[fe80::1]:53"], "2001:db8::1"), Source::Any(Ipv6Addr::UNSPECIFIED.into()));
        let loopback = ["127.0.0.7:53"];
        assert_eq!(to(&loopback, "127.0.0.1"), Source::Served(address("127.0.0.7")));
        assert_eq!(to(&loopback, "198.51.100.1"), any);
        assert_eq!(served(&loopback).all().len(), 3, "both of IPv4, and one of IPv6");
    }

    #[test]
    fn an_address_that_the_host_lacks_is_an_error_if_it_is_named_and_else_left_to_the_kernel() {
        let lacking = address("203.0.113.77");
        let error = Source::Named(lacking).bind().unwrap_err().to_string();
        assert!(error.starts_with("source-addresses: this host has no address 203.0.113.77"), "{error}");
        assert_eq!(named(&["203.0.113.77", "::1"]).unwrap().problems([].into_iter()).count(), 1);
        let socket = Source::Served(lacking).bind().unwrap();
        assert!(socket.local_addr().unwrap().ip().is_unspecified());
    }

    #[test]
    fn an_address_from_which_a_peer_cannot_be_reached_is_a_problem() {
        let problems = |source: &str, target: &str| -> Vec<String> {
            let sources = named(&[source]).unwrap();
            sources.problems([SocketAddr::new(address(target), 53)].into_iter()).collect()
        };
        let problem = "source-addresses: nothing can go from 127.0.0.7 to 198.51.100.1, beyond this host";
        assert_eq!(problems("127.0.0.7", "198.51.100.1"), [problem]);
        assert_eq!(problems("::ffff:127.0.0.7", "198.51.100.1"), [problem]);
        assert_eq!(problems("127.0.0.7", "127.0.0.1"), [""; 0]);
        assert_eq!(problems("127.0.0.7", "2001:db8::1"), [""; 0], "of the other family");
    }

    #[test]
    fn connections_and_datagrams_leave_from_there() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let source = Source::Named(address("127.0.0.66"));
        let patience = Duration::from_secs(10);
        let stream = source.connect(listener.local_addr().unwrap(), patience).unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), source.address());
        assert_eq!(listener.accept().unwrap().1.ip(), source.address());
        assert_eq!(source.bind().unwrap().local_addr().unwrap().ip(), source.address());
    }
}
