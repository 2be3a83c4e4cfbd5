//! Filters for packets and sockets: `tcp and port 80 and not host 192.0.2.1`.
//!
//! ```text
//! filter  = terms { "or" terms }                    also  ||
//! terms   = term { [ "and" ] term }                 also  &&
//! term    = "not" term | "(" filter ")" | test      also  !
//! test    = "tcp" | "udp" | "icmp" | "ip" | "ip6"
//!         | [ "src" | "dst" ] ( "host" ADDRESS | "net" ADDRESS/LENGTH | "port" NUMBER | "portrange" FIRST-LAST )
//! ```
//!
//! The words are tcpdump's. Without a direction a test applies to both ends. For sockets `src` is the local end and `dst` the peer, as
//! in ss; `icmp` matches both versions of IP. An empty filter matches everything. Names are not looked up.

mod lexer;
mod parser;
mod subject;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use wire::protocol;

pub use subject::Subject;

/// Octets of a filter's text at most.
pub const TEXT_MAX: usize = 2048;
/// Tests in a filter at most, which bounds the cost of each packet.
pub const TESTS_MAX: usize = 64;
/// Nested parentheses and negations at most.
pub const DEPTH_MAX: usize = 16;

/// A parsed filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    root: Node,
    text: String,
}

/// Why a filter cannot be parsed, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter: {problem}\n  {text}\n  {:>width$}", "^", width = .text[..*.at].chars().count() + 1)]
pub struct FilterError {
    /// The problem.
    pub problem: String,
    /// The filter.
    pub text: String,
    /// Octets before the problem.
    pub at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Protocol(Protocol),
    Net(Side, Net),
    Port(Side, RangeInclusive<u16>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
    Icmp,
    Ipv4,
    Ipv6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
}

/// Addresses whose first `length` bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Net {
    address: IpAddr,
    length: u8,
}

impl Filter {
    /// Matches everything.
    pub fn everything() -> Filter {
        Filter { root: Node::All(Vec::new()), text: String::new() }
    }

    /// Whether it matches everything, without evaluating.
    pub fn is_everything(&self) -> bool {
        self.root == Node::All(Vec::new())
    }

    /// Whether `subject` matches.
    pub fn matches(&self, subject: &Subject) -> bool {
        self.root.matches(subject)
    }

    /// Whether an Ethernet frame matches. A frame without an IP packet matches only the empty filter and filters for what
    /// it is not.
    pub fn matches_frame(&self, frame: &[u8]) -> bool {
        self.is_everything() || self.matches(&Subject::of_frame(frame))
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        Ok(Filter { root: parser::parse(text)?, text: text.to_owned() })
    }
}

/// The text as it was given.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    fn matches(&self, subject: &Subject) -> bool {
        match self {
            Node::All(nodes) => nodes.iter().all(|node| node.matches(subject)),
            Node::Any(nodes) => nodes.iter().any(|node| node.matches(subject)),
            Node::Not(node) => !node.matches(subject),
            Node::Test(test) => test.matches(subject),
        }
    }
}

impl Test {
    fn matches(&self, subject: &Subject) -> bool {
        match self {
            Test::Protocol(wanted) => wanted.is_that_of(subject),
            Test::Net(side, net) => {
                side.any(subject.source, subject.destination, |address| net.contains(address))
            }
            Test::Port(side, ports) => {
                side.any(subject.source_port, subject.destination_port, |port| ports.contains(&port))
            }
        }
    }
}

impl Protocol {
    fn is_that_of(self, subject: &Subject) -> bool {
        match self {
            Protocol::Tcp => subject.protocol == Some(protocol::TCP),
            Protocol::Udp => subject.protocol == Some(protocol::UDP),
            Protocol::Icmp => matches!(subject.protocol, Some(protocol::ICMP | protocol::ICMPV6)),
            Protocol::Ipv4 => subject.source.is_some_and(|address| address.is_ipv4()),
            Protocol::Ipv6 => subject.source.is_some_and(|address| address.is_ipv6()),
        }
    }
}

impl Side {
    fn any<T>(self, source: Option<T>, destination: Option<T>, is_wanted: impl Fn(T) -> bool) -> bool {
        let source = source.filter(|_| self != Side::Destination);
        let destination = destination.filter(|_| self != Side::Source);
        source.is_some_and(&is_wanted) || destination.is_some_and(is_wanted)
    }
}

impl Net {
    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = u32::from(own) ^ u32::from(other);
                differs.checked_shr(32 - u32::from(self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = u128::from(own) ^ u128::from(other);
                differs.checked_shr(128 - u32::from(self.length)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}
