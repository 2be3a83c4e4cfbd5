//! Signatures and denials made for one answer at a time (RFC 4034, RFC 4470).

use dns_message::{push_canonical_set, signed_label_count};
use dns_sign::Key;
use dns_wire::name::{LABEL_LEN_MAX, NAME_LEN_MAX};
use dns_wire::{Name, NameBuf, Rtype};

use super::spec::Signature;

const HOUR: u32 = 3600;
const DAY: u32 = 24 * HOUR;

/// What a zone is signed with.
#[derive(Clone, Copy)]
pub(super) struct Pen<'k> {
    pub(super) key: &'k Key,
    pub(super) origin: Name<'k>,
    pub(super) now_s: u32,
}

impl Pen<'_> {
    /// The data of the RRSIG record of a set; `None` if the key cannot sign.
    pub(super) fn sign(
        &self,
        owner: Name<'_>,
        rtype: Rtype,
        ttl: u32,
        rdatas: &[Vec<u8>],
        signature: Signature,
    ) -> Option<Vec<u8>> {
        let (inception, expiration) = match signature {
            Signature::Good | Signature::Bogus => (HOUR, self.now_s.wrapping_add(DAY)),
            // Validators may forgive a day, as clocks differ.
            Signature::Expired => (30 * DAY, self.now_s.wrapping_sub(3 * DAY)),
        };
        let mut rdata = rtype.0.to_be_bytes().to_vec();
        rdata.extend([self.key.algorithm(), signed_label_count(owner) as u8]); // At most 127 labels.
        rdata.extend(ttl.to_be_bytes());
        rdata.extend(expiration.to_be_bytes());
        rdata.extend(self.now_s.wrapping_sub(inception).to_be_bytes());
        rdata.extend(self.key.tag().to_be_bytes());
        let mut lower = [0; NAME_LEN_MAX];
        rdata.extend(self.origin.lowercase(&mut lower).as_bytes());
        let mut signed = rdata.clone();
        push_canonical_set(&mut signed, owner, rtype, ttl, rdatas.iter().map(|rdata| &rdata[..]));
        rdata.extend(self.key.sign(&signed)?);
        if let (Signature::Bogus, Some(last)) = (signature, rdata.last_mut()) {
            *last ^= 1;
        }
        Some(rdata)
    }
}

/// The data of the NSEC record of a name that exists, with no name between it and the next (RFC 4470, 4).
pub(super) fn nsec_at(owner: Name<'_>, types: &[Rtype]) -> Vec<u8> {
    let mut next = NameBuf::from(owner);
    let next = if next.prepend(b"\0").is_ok() { next } else { NameBuf::from(owner) };
    [next.as_name().as_bytes(), &bitmap(types)].concat()
}

/// An NSEC record whose range has `label` below `parent` and hardly another name (RFC 4470, 4): owner and data.
pub(super) fn nsec_over(parent: Name<'_>, label: &[u8]) -> Option<(NameBuf, Vec<u8>)> {
    let mut before = label.to_ascii_lowercase();
    let last = before.last_mut()?;
    *last = last.checked_sub(1)?;
    if before.len() < LABEL_LEN_MAX {
        before.push(b'~');
    }
    let mut owner = NameBuf::from(parent);
    owner.prepend(&before).ok()?;
    let mut after = label.to_ascii_lowercase();
    if after.len() < LABEL_LEN_MAX {
        after.push(0);
    } else {
        let last = after.last_mut()?;
        *last = last.checked_add(1)?;
    }
    // Not a name below `label`: that would say that `label` exists, with nothing but names below it.
    let mut next = NameBuf::from(parent);
    next.prepend(&after).ok()?;
    Some((owner, [next.as_name().as_bytes(), &bitmap(&[Rtype::RRSIG, Rtype::NSEC])].concat()))
}

/// RFC 4034, 4.1.2; types below 256, in ascending order.
fn bitmap(types: &[Rtype]) -> Vec<u8> {
    let mut octets = [0u8; 32];
    for rtype in types.iter().filter(|rtype| rtype.0 < 256) {
        octets[usize::from(rtype.0 / 8)] |= 0x80 >> (rtype.0 % 8);
    }
    let len = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    [&[0, len as u8], &octets[..len]].concat()
}
