//! The octets that are signed (RFC 4034, 3.1.8.1 and 6).

use std::collections::BTreeSet;

use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Class, Name, NameBuf};

use super::signature::Rrsig;
use crate::iterator::last_labels;
use crate::message::Rrset;
use dns_message::lowercase_names;

/// What the signature of `rrsig` over `set` is made of. `None` if the owner has fewer labels than the signature says.
pub(super) fn signed_data(rrsig: &Rrsig<'_>, set: &Rrset) -> Option<Vec<u8>> {
    let owner = signed_owner(set.owner.as_name(), rrsig.labels)?;
    let mut lower = [0; NAME_LEN_MAX];
    let mut data = rrsig.fixed.to_vec();
    data.extend_from_slice(rrsig.signer.lowercase(&mut lower).as_bytes());
    let rdatas: BTreeSet<Vec<u8>> = set
        .rdatas
        .iter()
        .map(|rdata| {
            let mut rdata = rdata.to_vec();
            lowercase_names(set.rtype, &mut rdata);
            rdata
        })
        .collect(); // In order and each once (RFC 4034, 6.3).
    let owner = owner.as_name().lowercase(&mut lower);
    for rdata in rdatas {
        data.extend_from_slice(owner.as_bytes());
        data.extend_from_slice(&set.rtype.0.to_be_bytes());
        data.extend_from_slice(&Class::IN.0.to_be_bytes());
        data.extend_from_slice(&rrsig.original_ttl.to_be_bytes());
        data.extend_from_slice(&(rdata.len() as u16).to_be_bytes()); // It came with a length of 16 bits.
        data.extend_from_slice(&rdata);
    }
    Some(data)
}

/// The owner under which a set was signed: itself, or the wildcard that it was made from (RFC 4035, 5.3.2).
fn signed_owner(owner: Name<'_>, labels: u8) -> Option<NameBuf> {
    let (labels, own) = (usize::from(labels), label_count(owner));
    if labels > own {
        return None;
    }
    let mut name = NameBuf::from(owner);
    if labels < own {
        name = last_labels(owner, labels).into();
        name.prepend(b"*").ok()?;
    }
    Some(name)
}

/// Labels as RRSIG records count them: without the root's and a leading asterisk (RFC 4034, 3.1.3).
pub(super) fn label_count(name: Name<'_>) -> usize {
    name.label_count() - usize::from(name.is_wildcard())
}
