//! The octets that are signed (RFC 4034, 3.1.8.1 and 6).

use dns_message::{push_canonical_set, signed_label_count};
use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Name, NameBuf};

use super::signature::Rrsig;
use crate::iterator::last_labels;
use crate::message::Rrset;

/// What the signature of `rrsig` over `set` is made of. `None` if the owner has fewer labels than the signature says.
pub(super) fn signed_data(rrsig: &Rrsig<'_>, set: &Rrset) -> Option<Vec<u8>> {
    let owner = signed_owner(set.owner.as_name(), rrsig.labels)?;
    let mut lower = [0; NAME_LEN_MAX];
    let mut data = rrsig.fixed.to_vec();
    data.extend_from_slice(rrsig.signer.lowercase(&mut lower).as_bytes());
    let rdatas = set.rdatas.iter();
    push_canonical_set(&mut data, owner.as_name(), set.rtype, rrsig.original_ttl, rdatas);
    Some(data)
}

/// The owner under which a set was signed: itself, or the wildcard that it was made from (RFC 4035, 5.3.2).
fn signed_owner(owner: Name<'_>, labels: u8) -> Option<NameBuf> {
    let (labels, own) = (usize::from(labels), signed_label_count(owner));
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
