//! An answer, read for people: sections, and what the OPT record says.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use dns_message::{Malformed, Message, Question, Record};
use dns_wire::header::flag;
use dns_wire::{Edns, Rcode, Rtype};

use super::Source;

/// Bits of the header and their names, in the order of the header.
const FLAGS: [(u16, &str); 7] = [
    (flag::QR, "qr"),
    (flag::AA, "aa"),
    (flag::TC, "tc"),
    (flag::RD, "rd"),
    (0x0080, "ra"),
    (0x0020, "ad"),
    (flag::CD, "cd"),
];

/// Codes of options (IANA's registry of EDNS options).
pub(super) const NSID: u16 = 3;
pub(super) const CLIENT_SUBNET: u16 = Edns::CLIENT_SUBNET;
pub(super) const COOKIE: u16 = 10;
/// Octets of a cookie with a server's part (RFC 7873, 4).
const COOKIE_LEN: RangeInclusive<usize> = 16..=40;
/// Octets of a client's part of a cookie (RFC 7873, 4).
pub(super) const COOKIE_OF_CLIENT: usize = 8;
const EXTENDED_ERROR: u16 = 15;

/// What a server said.
pub(super) struct Answer {
    pub(super) id: u16,
    pub(super) flags: u16,
    /// With the upper bits of the OPT record.
    pub(super) rcode: u16,
    pub(super) question: Option<Question>,
    /// Answer, authority and additional section, without the OPT record.
    pub(super) sections: [Vec<Record>; 3],
    pub(super) edns: Option<Said>,
    pub(super) len: usize,
    pub(super) source: Source,
}

/// What an OPT record said.
pub(super) struct Said {
    pub(super) payload: u16,
    pub(super) version: u8,
    pub(super) dnssec: bool,
    pub(super) options: Vec<(u16, Vec<u8>)>,
}

impl Answer {
    pub(super) fn read(octets: &[u8], source: Source) -> Result<Answer, Malformed> {
        let mut message = Message::parse(octets)?;
        let mut answer = Answer {
            id: message.id(),
            flags: message.flags(),
            rcode: message.flags() & 0xf,
            question: message.question().cloned(),
            sections: Default::default(),
            edns: None,
            len: octets.len(),
            source,
        };
        for (section, count) in message.counts().into_iter().enumerate() {
            for _ in 0..count {
                let record = message.next_record()?;
                if record.rtype == Rtype::OPT {
                    answer.rcode |= ((record.ttl >> 24) as u16) << 4;
                    answer.edns = Some(Said::read(&record).ok_or(Malformed)?);
                } else {
                    answer.sections[section].push(record);
                }
            }
        }
        Ok(answer)
    }

    pub(super) fn is_authoritative(&self) -> bool {
        self.flags & flag::AA != 0
    }

    /// The cookie that the server wants to see, with the client's before it, if it answers nothing without (RFC 7873, 5.2.3).
    pub(super) fn wanted_cookie(&self, ours: &[u8]) -> Option<&[u8]> {
        let edns = self.edns.as_ref().filter(|_| self.rcode == Rcode::BadCookie as u16)?;
        let (_, data) = edns.options.iter().find(|(code, _)| *code == COOKIE)?;
        // Any other is to be ignored (RFC 7873, 4 and 5.3).
        (COOKIE_LEN.contains(&data.len()) && data.starts_with(ours)).then_some(data)
    }

    /// Its flags' names.
    pub(super) fn flags(&self) -> impl Iterator<Item = &'static str> {
        flag_names(self.flags)
    }

    /// Its response code's name.
    pub(super) fn rcode(&self) -> String {
        rcode_text(self.rcode)
    }
}

/// The names of the flags in the second word of a header.
pub(in crate::dns) fn flag_names(flags: u16) -> impl Iterator<Item = &'static str> {
    FLAGS.into_iter().filter(move |(bit, _)| flags & bit != 0).map(|(_, name)| name)
}

/// The mnemonic of a response code, or its number.
pub(in crate::dns) fn rcode_text(code: u16) -> String {
    let known = Rcode::ALL.into_iter().find(|rcode| *rcode as u16 == code);
    known.map_or_else(|| format!("RCODE{code}"), |rcode| rcode.name().to_owned())
}

/// The info codes of the extended errors in an OPT record (RFC 8914, 2); `None` if it does not have its form.
pub(in crate::dns) fn extended_errors(opt: &Record) -> Option<Vec<u16>> {
    let options = Said::read(opt)?.options;
    let errors = options.iter().filter(|(code, _)| *code == EXTENDED_ERROR);
    Some(errors.filter_map(|(_, data)| Some(u16::from_be_bytes(*data.first_chunk()?))).collect())
}

/// Whether a message says that it is cut.
pub(super) fn is_truncated(octets: &[u8]) -> bool {
    octets.get(2..4).is_some_and(|word| u16::from_be_bytes([word[0], word[1]]) & flag::TC != 0)
}

impl Said {
    fn read(record: &Record) -> Option<Said> {
        let (mut options, mut rest) = (Vec::new(), &record.rdata[..]);
        while !rest.is_empty() {
            let (fixed, tail) = rest.split_first_chunk::<4>()?;
            let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            let (data, behind) = tail.split_at_checked(len)?;
            options.push((u16::from_be_bytes([fixed[0], fixed[1]]), data.to_vec()));
            rest = behind;
        }
        Some(Said {
            payload: record.class.0,
            version: (record.ttl >> 16) as u8,
            dnssec: record.ttl & 0x8000 != 0,
            options,
        })
    }
}

/// An option of EDNS for people.
pub(super) fn option_text(code: u16, data: &[u8]) -> String {
    match code {
        NSID => format!("NSID {}", readable(data)),
        COOKIE => format!("COOKIE {}", hex(data)),
        CLIENT_SUBNET => subnet(data).unwrap_or_else(|| format!("CLIENT-SUBNET {}", hex(data))),
        EXTENDED_ERROR if data.len() >= 2 => {
            let info = u16::from_be_bytes([data[0], data[1]]);
            let text = if data.len() > 2 { format!(": {}", readable(&data[2..])) } else { String::new() };
            let name = domain::base::iana::ExtendedErrorCode::from_int(info);
            format!("EDE {info} ({name}){text}")
        }
        _ => format!("option {code} {}", hex(data)),
    }
}

/// RFC 7871, 6: family, source and scope length, address.
fn subnet(data: &[u8]) -> Option<String> {
    let (&[0, family, source, scope], octets) = data.split_first_chunk::<4>()? else { return None };
    let address: IpAddr = match family {
        1 => Ipv4Addr::from(padded::<4>(octets)?).into(),
        2 => Ipv6Addr::from(padded::<16>(octets)?).into(),
        _ => return None,
    };
    Some(format!("CLIENT-SUBNET {address}/{source}, scope {scope}"))
}

fn padded<const LEN: usize>(octets: &[u8]) -> Option<[u8; LEN]> {
    let mut whole = [0; LEN];
    whole.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(whole)
}

/// Text that a server chose: nothing of it reaches the terminal as a command.
fn readable(octets: &[u8]) -> String {
    format!("\"{}\"", octets.escape_ascii())
}

pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}"); // A string takes everything.
        text
    })
}
