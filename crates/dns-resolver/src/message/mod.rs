//! Messages: responses of authorities read, queries and answers written.

mod reader;
mod rrset;
mod writer;

use dns_wire::Edns;

pub(crate) use reader::{Message, Question};
pub(crate) use rrset::{Proof, Rdatas, Rrset};
pub(crate) use writer::{
    AnswerHead, Ede, Section, TtlAt, UpstreamQuery, Written, option, write_answer, write_error, write_query,
};

/// Code of the option that says where a client is (RFC 7871, 6).
pub(crate) const CLIENT_SUBNET: u16 = Edns::CLIENT_SUBNET;

/// Bits of the header that `dns_wire` does not name: only a resolver sets or reads them.
pub(crate) mod flag {
    /// Recursion is available.
    pub(crate) const RA: u16 = 0x0080;
    /// The data is authentic (RFC 4035, 3.2.3; RFC 6840, 5.7 and 5.8).
    pub(crate) const AD: u16 = 0x0020;
    /// Recursion is desired.
    pub(crate) const RD: u16 = dns_wire::header::flag::RD;
}
