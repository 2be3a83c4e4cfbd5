//! The message that asks.

use anyhow::Context;
use dns_message::{add_to_count, push_record, question_message};
use dns_wire::header::flag;
use dns_wire::{Class, Name, NameBuf, Rtype};
use rustix::rand::{GetRandomFlags, getrandom};

use super::answer::COOKIE;

/// DO, in the TTL of the OPT record (RFC 6891, 6.1.4).
const DO: u32 = 1 << 15;

/// What is asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) name: NameBuf,
    pub(super) qtype: Rtype,
    pub(super) class: Class,
    /// RD, CD, AD.
    pub(super) flags: u16,
    /// None: without an OPT record.
    pub(super) edns: Option<Edns>,
}

/// The OPT record (RFC 6891, 6.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edns {
    pub(super) payload: u16,
    pub(super) dnssec: bool,
    /// Whether the client shows a cookie, and the server's when it has told one (RFC 7873, 5.1).
    pub(super) has_cookie: bool,
    /// Code and data of each option.
    pub(super) options: Vec<(u16, Vec<u8>)>,
}

/// Octets that nobody can guess.
pub(super) fn random<const LEN: usize>() -> anyhow::Result<[u8; LEN]> {
    let mut octets = [0; LEN];
    getrandom(&mut octets, GetRandomFlags::empty()).context("random numbers")?;
    Ok(octets)
}

impl Question {
    /// The message, with an ID that nobody can guess, and with this cookie if it has one.
    pub(super) fn message(&self, cookie: &[u8]) -> anyhow::Result<Vec<u8>> {
        let id = u16::from_be_bytes(random()?);
        let mut message = question_message(id, self.flags, self.name.as_name(), self.qtype);
        let class = message.len() - 2;
        message[class..].copy_from_slice(&self.class.0.to_be_bytes());
        if let Some(edns) = &self.edns {
            let mut data = Vec::new();
            let cookie = edns.has_cookie.then_some((COOKIE, cookie));
            let options = edns.options.iter().map(|(code, octets)| (*code, &octets[..]));
            for (code, octets) in options.chain(cookie) {
                data.extend_from_slice(&code.to_be_bytes());
                data.extend_from_slice(&(octets.len() as u16).to_be_bytes()); // Options are short.
                data.extend_from_slice(octets);
            }
            let ttl = if edns.dnssec { DO } else { 0 };
            push_record(&mut message, Name::ROOT, Rtype::OPT, Class(edns.payload), ttl, &data);
            add_to_count(&mut message, 2, 1);
        }
        Ok(message)
    }

    /// The same question to a server that has the zone, or refers.
    pub(super) fn without_recursion(&self) -> Question {
        Question { flags: self.flags & !flag::RD, ..self.clone() }
    }

    /// Another question, asked in the same way.
    pub(super) fn about(&self, name: NameBuf, qtype: Rtype) -> Question {
        Question { name, qtype, ..self.clone() }
    }
}
