//! Packets as a script describes them.

/// Bits of a TCP header's flags, with the accurate-ECN bit above the octet.
pub mod flag {
    pub use wire::tcp::flag::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

    /// The bit that RFC 9768 calls AE, in front of CWR.
    pub const AE: u16 = 0x100;
}

/// Which way a packet goes, seen from the stack under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `<`: the script sends it to the stack.
    Inbound,
    /// `>`: the stack is expected to send it.
    Outbound,
}

/// One packet.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketSpec {
    /// Which way it goes.
    pub direction: Direction,
    /// What is said of its IP header.
    pub ip: IpSpec,
    /// Source and destination port where the script names them, instead of the connection's.
    pub ports: Option<(u16, u16)>,
    /// What it carries.
    pub body: Body,
}

/// What a script says of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpSpec {
    /// The congestion marks.
    pub ecn: Option<Ecn>,
    /// The whole type-of-service or traffic-class octet.
    pub tos: Option<u8>,
    /// Time to live, or hop limit.
    pub ttl: Option<u8>,
    /// IPv6's flow label. A script's labels are names: equal ones stand for equal labels.
    pub flow_label: Option<u32>,
}

/// Congestion marks (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not capable.
    NotEct,
    /// Capable, codepoint 0.
    Ect0,
    /// Capable, codepoint 1.
    Ect1,
    /// Capable with either codepoint; only to expect.
    Ect01,
    /// Congestion was experienced.
    Ce,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A TCP segment.
    Tcp(TcpSpec),
    /// A UDP datagram of this many octets of payload.
    Udp(u16),
    /// An ICMP message of the IP version that the script is played with.
    Icmp(IcmpSpec),
}

/// A TCP segment.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSpec {
    /// Its flags.
    pub flags: Flags,
    /// Its sequence numbers: of SYN segments as they are, of others relative to the initial one.
    pub sequence: SequenceRange,
    /// The acknowledgement number, counted as the sequence numbers are; zero where nothing is said.
    pub ack: u32,
    /// The window, not scaled. Nothing said: any to expect, zero to send.
    pub window: Option<u16>,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options.
    pub options: OptionsSpec,
}

/// The flags of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Bits of [`flag`].
    pub bits: u16,
    /// Whether the three ECN bits were written as a number, the counter of RFC 9768.
    pub counts_ce: bool,
}

/// The sequence numbers that a segment covers, SYN and FIN not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceRange {
    /// Number of the first octet.
    pub start: u32,
    /// Octets of payload.
    pub len: u32,
}

/// What a script says of TCP options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsSpec {
    /// `<...>`: any; only to expect.
    Any,
    /// Exactly these, in this order.
    Exactly(Vec<OptionSpec>),
}

/// One TCP option. `None` in a field stands for any value; only to expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSpec {
    /// No operation.
    NoOperation,
    /// End of the list.
    EndOfList,
    /// Maximum segment size.
    MaximumSegmentSize(u16),
    /// Window scale.
    WindowScale(Option<u8>),
    /// Selective acknowledgements permitted.
    SackPermitted,
    /// Selective acknowledgements.
    Sack(Vec<(u32, u32)>),
    /// Timestamps.
    Timestamps {
        /// The sender's clock.
        value: Option<u32>,
        /// The receiver's clock, echoed.
        echo_reply: Option<u32>,
    },
    /// Fast Open (RFC 7413); an empty cookie asks for one.
    FastOpen {
        /// The cookie.
        cookie: Vec<u8>,
        /// Whether it is the experimental option, kind 254 with magic f989.
        experimental: bool,
    },
    /// A signature of RFC 2385.
    Md5(Vec<u8>),
    /// Any other option; no script can name one, but a packet may carry it.
    Other {
        /// Its kind.
        kind: u8,
        /// What follows kind and length.
        data: Vec<u8>,
    },
}

/// An ICMP message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpSpec {
    /// Name of its type, as in `unreachable`.
    pub kind: String,
    /// Name of its code, as in `frag_needed`.
    pub code: Option<String>,
    /// The MTU that it reports.
    pub mtu: Option<u32>,
    /// The identifier of an echo.
    pub echo_id: Option<u16>,
    /// The packet that it is about.
    pub quote: Quote,
}

/// The packet that an ICMP error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// A TCP segment, with sequence numbers relative to the initial one.
    Tcp(SequenceRange),
    /// A UDP datagram with this many octets of payload.
    Udp(u16),
    /// No packet: this many octets of zeros.
    Raw(u16),
}
