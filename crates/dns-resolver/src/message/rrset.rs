//! Record sets as they are passed on: one owner, one type, one TTL, the data packed into one allocation.

use std::collections::BTreeSet;
use std::sync::Arc;

use dns_wire::{Name, NameBuf, Rtype};

use crate::dnssec::Security;

/// The data of the records of a set, uncompressed: a length of two octets and the data, for each record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rdatas(Arc<[u8]>);

impl Rdatas {
    /// Packs `rdatas`, each at most 65535 octets. A record that is there twice is kept once (RFC 2181, 5).
    pub(crate) fn pack<'a>(rdatas: impl IntoIterator<Item = &'a [u8]>) -> Rdatas {
        let mut seen = BTreeSet::new();
        let distinct: Vec<&[u8]> = rdatas.into_iter().filter(|rdata| seen.insert(*rdata)).collect();
        let mut packed = Vec::with_capacity(distinct.iter().map(|rdata| rdata.len() + 2).sum());
        for rdata in distinct {
            packed.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
            packed.extend_from_slice(rdata);
        }
        Rdatas(packed.into())
    }

    /// The data of each record.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (len, tail) = rest.split_first_chunk::<2>()?;
            let (rdata, tail) = tail.split_at(usize::from(u16::from_be_bytes(*len)));
            rest = tail;
            Some(rdata)
        })
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        self.0.len()
    }
}

/// A set of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rrset {
    /// In the case of the zone.
    pub(crate) owner: NameBuf,
    pub(crate) rtype: Rtype,
    /// Seconds.
    pub(crate) ttl: u32,
    pub(crate) rdatas: Rdatas,
    /// What validation made of it.
    pub(crate) security: Security,
    /// Its signatures; `None` if it came without.
    pub(crate) proof: Option<Arc<Proof>>,
}

/// What lets a client validate a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The data of the RRSIG records over the set.
    pub(crate) sigs: Rdatas,
    /// NSEC or NSEC3 sets: behind the SOA record of a denial they prove it; behind an answer from a wildcard, that no name is closer.
    pub(crate) absence: Vec<Rrset>,
}

impl Rrset {
    /// A set without signatures that nobody needs to validate.
    pub(crate) fn unsigned(owner: NameBuf, rtype: Rtype, ttl: u32, rdatas: Rdatas) -> Rrset {
        Rrset { owner, rtype, ttl, rdatas, security: Security::Insecure(None), proof: None }
    }

    /// The data of its RRSIG records.
    pub(crate) fn sigs(&self) -> impl Iterator<Item = &[u8]> {
        self.proof.iter().flat_map(|proof| proof.sigs.iter())
    }

    /// The NSEC or NSEC3 sets behind it.
    pub(crate) fn absence(&self) -> &[Rrset] {
        self.proof.as_ref().map_or(&[], |proof| &proof.absence)
    }

    /// The name that the first record's data consists of: the target of a CNAME or DNAME.
    pub(crate) fn target(&self) -> Option<NameBuf> {
        let rdata = self.rdatas.iter().next()?;
        Name::from_wire(rdata).ok().map(NameBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_their_order_and_once() {
        let rdatas = Rdatas::pack([&b"one"[..], b"", b"two", b"one"]);
        assert_eq!(rdatas.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"two"]);
    }
}
