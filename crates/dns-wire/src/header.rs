//! The twelve octets that open every message (RFC 1035, 4.1.1; RFC 6895, 2).

/// Octets of the header.
pub const HEADER_LEN: usize = 12;

/// Bits of the header's second 16-bit word.
pub mod flag {
    /// The message is a response.
    pub const QR: u16 = 0x8000;
    /// The responder has authority for the name in question.
    pub const AA: u16 = 0x0400;
    /// The message was cut to fit the transport.
    pub const TC: u16 = 0x0200;
    /// Recursion is desired; copied into the response.
    pub const RD: u16 = 0x0100;
    /// Checking is disabled (RFC 4035); copied into the response.
    pub const CD: u16 = 0x0010;
    /// The four bits of the opcode.
    pub const OPCODE: u16 = 0x7800;
}

/// Response codes, with the upper eight bits of the extended ones (RFC 6891, 6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Rcode {
    /// No error.
    NoError = 0,
    /// The query could not be understood.
    FormErr = 1,
    /// The server failed.
    ServFail = 2,
    /// The name does not exist.
    NxDomain = 3,
    /// The kind of query is not implemented.
    NotImp = 4,
    /// The server does not serve this.
    Refused = 5,
    /// A name became too long by substitution (RFC 6672, 2.2).
    YxDomain = 6,
    /// A set of records exists, and an update demands that it does not (RFC 2136, 3.2).
    YxRrset = 7,
    /// A set of records does not exist as an update demands it (RFC 2136, 3.2).
    NxRrset = 8,
    /// The server is not responsible for the zone, or does not accept a signature (RFC 8945, 5.2).
    NotAuth = 9,
    /// An update names a record outside of the zone (RFC 2136, 3.2).
    NotZone = 10,
    /// The EDNS version is not supported.
    BadVers = 16,
    /// The cookie of the client is missing or wrong (RFC 7873, 5.2.3).
    BadCookie = 23,
}

impl Rcode {
    /// Every response code that Sidestep sends.
    pub const ALL: [Rcode; 13] = [
        Rcode::NoError,
        Rcode::FormErr,
        Rcode::ServFail,
        Rcode::NxDomain,
        Rcode::NotImp,
        Rcode::Refused,
        Rcode::YxDomain,
        Rcode::YxRrset,
        Rcode::NxRrset,
        Rcode::NotAuth,
        Rcode::NotZone,
        Rcode::BadVers,
        Rcode::BadCookie,
    ];

    /// The mnemonic of the IANA registry.
    pub const fn name(self) -> &'static str {
        match self {
            Rcode::NoError => "NOERROR",
            Rcode::FormErr => "FORMERR",
            Rcode::ServFail => "SERVFAIL",
            Rcode::NxDomain => "NXDOMAIN",
            Rcode::NotImp => "NOTIMP",
            Rcode::Refused => "REFUSED",
            Rcode::YxDomain => "YXDOMAIN",
            Rcode::YxRrset => "YXRRSET",
            Rcode::NxRrset => "NXRRSET",
            Rcode::NotAuth => "NOTAUTH",
            Rcode::NotZone => "NOTZONE",
            Rcode::BadVers => "BADVERS",
            Rcode::BadCookie => "BADCOOKIE",
        }
    }

    /// The four bits that stand in the header.
    pub const fn low(self) -> u16 {
        self as u16 & 0xf
    }

    /// The eight bits that stand in the OPT record.
    pub const fn high(self) -> u8 {
        (self as u16 >> 4) as u8
    }
}

/// Shows the code of a response that somebody else sent: by its mnemonic, if it has one here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedRcode(pub u16);

impl core::fmt::Display for ReceivedRcode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match Rcode::ALL.into_iter().find(|rcode| *rcode as u16 == self.0) {
            Some(rcode) => f.write_str(rcode.name()),
            None => write!(f, "code {}", self.0),
        }
    }
}

/// Numbers of records in the four sections, question first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// QDCOUNT.
    pub question: u16,
    /// ANCOUNT.
    pub answer: u16,
    /// NSCOUNT.
    pub authority: u16,
    /// ARCOUNT.
    pub additional: u16,
}

/// Writes everything of a header but the message's ID, which a response leaves where the query had it.
///
/// # Panics
/// If `message` is shorter than a header.
#[inline(always)]
pub fn write_header(message: &mut [u8], flags: u16, counts: Counts) {
    let header: &mut [u8; HEADER_LEN] = message.first_chunk_mut().expect("a response has room for a header");
    // Two stores instead of five.
    let first = [flags, counts.question, counts.answer, counts.authority];
    let word = first.iter().fold(0u64, |word, field| word << 16 | u64::from(*field));
    header[2..10].copy_from_slice(&word.to_be_bytes());
    header[10..12].copy_from_slice(&counts.additional.to_be_bytes());
}
