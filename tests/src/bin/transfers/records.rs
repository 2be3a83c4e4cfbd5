//! One record, as text for tools and files, and as octets to compare.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};

use dns_message::{Record, lowercase_names};
use dns_wire::{NameBuf, Rtype};

/// A record of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Absolute, in lower case.
    pub(crate) owner: String,
    pub(crate) ttl: u32,
    pub(crate) data: Data,
}

/// Its type and data; names are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(String),
    Mx(u16, String),
    Ns(String),
    Txt(String),
}

impl Data {
    pub(crate) fn rtype(&self) -> Rtype {
        match self {
            Data::A(_) => Rtype::A,
            Data::Aaaa(_) => Rtype::AAAA,
            Data::Cname(_) => Rtype::CNAME,
            Data::Mx(..) => Rtype::MX,
            Data::Ns(_) => Rtype::NS,
            Data::Txt(_) => Rtype::TXT,
        }
    }

    fn octets(&self) -> Vec<u8> {
        match self {
            Data::A(address) => address.octets().to_vec(),
            Data::Aaaa(address) => address.octets().to_vec(),
            Data::Cname(name) | Data::Ns(name) => wire(name),
            Data::Mx(preference, name) => [&preference.to_be_bytes()[..], &wire(name)].concat(),
            Data::Txt(text) => [&[text.len() as u8], text.as_bytes()].concat(), // The model's are short.
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.rtype().mnemonic().expect("all types of the model have names");
        match self {
            Data::A(address) => write!(to, "{name} {address}"),
            Data::Aaaa(address) => write!(to, "{name} {address}"),
            Data::Cname(target) | Data::Ns(target) => write!(to, "{name} {target}"),
            Data::Mx(preference, target) => write!(to, "{name} {preference} {target}"),
            Data::Txt(text) => write!(to, "{name} \"{text}\""),
        }
    }
}

impl Entry {
    /// The octets that stand for it; equal records have equal ones.
    pub(crate) fn key(&self) -> Vec<u8> {
        key_of(&wire(&self.owner), self.data.rtype(), self.ttl, &self.data.octets())
    }
}

/// The same for a record that a server has sent.
pub(crate) fn key_of_record(record: &Record) -> Vec<u8> {
    let mut rdata = record.rdata.clone();
    lowercase_names(record.rtype, &mut rdata);
    let mut owner = record.owner.as_name().as_bytes().to_vec();
    owner.make_ascii_lowercase(); // Length octets are below 64 and so never letters.
    key_of(&owner, record.rtype, record.ttl, &rdata)
}

fn key_of(owner: &[u8], rtype: Rtype, ttl: u32, rdata: &[u8]) -> Vec<u8> {
    [owner, &rtype.0.to_be_bytes(), &ttl.to_be_bytes(), rdata].concat()
}

/// A number of a record. The sum of those of a version says what is in it, in whatever order that comes.
pub(crate) fn weight(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// What a key says, for people.
pub(crate) fn describe(key: &[u8]) -> String {
    let mut labels = Vec::new();
    let mut rest = key;
    while let Some((&len, tail)) = rest.split_first() {
        let Some((label, behind)) = tail.split_at_checked(usize::from(len)) else { break };
        rest = behind;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).into_owned());
    }
    let (rtype, ttl_and_data) = rest.split_at(2.min(rest.len()));
    format!("{}. type {rtype:?}, TTL and data {ttl_and_data:?}", labels.join("."))
}

/// An absolute name in the form of messages.
pub(crate) fn wire(name: &str) -> Vec<u8> {
    let name = NameBuf::from_text(name.as_bytes(), None).expect("names of the model are well formed");
    name.as_name().as_bytes().to_vec()
}
