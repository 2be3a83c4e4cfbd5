//! The octets of a record set that signatures cover (RFC 4034, 6).

use std::collections::BTreeSet;

use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Class, Name, Rtype};

use crate::lowercase_names;

/// Appends the records of a set as they are signed: owners and the names in their data in lower case, in the order of the data, each once.
pub fn push_canonical_set<'r>(
    octets: &mut Vec<u8>,
    owner: Name<'_>,
    rtype: Rtype,
    original_ttl: u32,
    rdatas: impl Iterator<Item = &'r [u8]>,
) {
    let lowercase = |rdata: &[u8]| {
        let mut rdata = rdata.to_vec();
        lowercase_names(rtype, &mut rdata);
        rdata
    };
    let rdatas: BTreeSet<Vec<u8>> = rdatas.map(lowercase).collect();
    let mut lower = [0; NAME_LEN_MAX];
    let owner = owner.lowercase(&mut lower);
    for rdata in rdatas {
        octets.extend_from_slice(owner.as_bytes());
        octets.extend_from_slice(&rtype.0.to_be_bytes());
        octets.extend_from_slice(&Class::IN.0.to_be_bytes());
        octets.extend_from_slice(&original_ttl.to_be_bytes());
        octets.extend_from_slice(&(rdata.len() as u16).to_be_bytes()); // Records carry their lengths in 16 bits.
        octets.extend_from_slice(&rdata);
    }
}

/// Labels as RRSIG records count them: without the root's and a leading asterisk (RFC 4034, 3.1.3).
pub fn signed_label_count(name: Name<'_>) -> usize {
    name.label_count() - usize::from(name.is_wildcard())
}
