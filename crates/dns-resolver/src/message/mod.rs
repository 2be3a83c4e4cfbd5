//! Messages: responses of authorities read, queries and answers written.

mod reader;
mod rrset;
mod writer;

pub(crate) use reader::{Message, Question};
pub(crate) use rrset::{Rdatas, Rrset};
pub(crate) use writer::{AnswerHead, Ede, Section, UpstreamQuery, write_answer, write_error, write_query};

/// Bits of the header that `dns_wire` does not name: only a resolver sets or reads them.
pub(crate) mod flag {
    /// Recursion is available.
    pub(crate) const RA: u16 = 0x0080;
    /// Recursion is desired.
    pub(crate) const RD: u16 = dns_wire::header::flag::RD;
}
