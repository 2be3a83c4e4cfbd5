//! Where trust starts (RFC 4035, 4.4), and where it is suspended (RFC 7646).

use dns_wire::{Name, NameBuf, Rtype};

use super::keys;
use crate::message::Rdatas;

/// The DS records of the root's keys, as IANA publishes them: tag, algorithm, digest type and digest of KSK-2017 and KSK-2024.
const ROOT_KEYS: [&[u8]; 2] = [
    b"\x4f\x66\x08\x02\xe0\x6d\x44\xb8\x0b\x8f\x1d\x39\xa9\x5c\x0b\x0d\x7c\x65\xd0\x84\x58\xe8\x80\x40\x9b\xbc\x68\x34\x57\x10\x42\x37\xc7\xf8\xec\x8d",
    b"\x97\x28\x08\x02\x68\x3d\x2d\x0a\xcb\x8c\x9b\x71\x2a\x19\x48\xb2\x7f\x74\x12\x19\x29\x8d\x0a\x45\x0d\x61\x2c\x48\x3a\xf4\x44\xa4\xc0\xfb\x2b\x16",
];

/// A zone, and DS records of keys that are trusted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustAnchor {
    zone: NameBuf,
    ds: Rdatas,
}

impl TrustAnchor {
    /// The root of the Internet, by the keys of 2017 and 2024.
    #[must_use]
    pub fn root() -> TrustAnchor {
        TrustAnchor { zone: NameBuf::root(), ds: Rdatas::pack(ROOT_KEYS) }
    }

    /// `zone`, by the data of its DS or DNSKEY records. `None` if one of them is neither.
    pub fn new<'a>(
        zone: Name<'_>,
        records: impl IntoIterator<Item = (Rtype, &'a [u8])>,
    ) -> Option<TrustAnchor> {
        let ds = records.into_iter().map(|(rtype, rdata)| match rtype {
            Rtype::DS => Some(rdata.to_vec()),
            Rtype::DNSKEY => keys::ds_of(zone, rdata),
            _ => None,
        });
        let ds: Vec<Vec<u8>> = ds.collect::<Option<_>>()?;
        Some(TrustAnchor { zone: zone.into(), ds: Rdatas::pack(ds.iter().map(|rdata| &rdata[..])) })
    }

    /// The zone.
    #[must_use]
    pub fn zone(&self) -> &NameBuf {
        &self.zone
    }

    pub(super) fn ds(&self) -> &Rdatas {
        &self.ds
    }
}

/// A zone that is not validated, nor what is below it: a negative trust anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegativeAnchor {
    /// The zone.
    pub zone: NameBuf,
    /// When it ends, in seconds since 1970; `None` for zones that are never to be validated.
    pub until: Option<u64>,
}

/// What is trusted, and what is not to be validated. Without an anchor, nothing is validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Where validation starts.
    pub anchors: Vec<TrustAnchor>,
    /// Where it is suspended.
    pub negative: Vec<NegativeAnchor>,
}

impl Trust {
    /// Whether anything is validated.
    pub(crate) fn is_on(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// The anchor that a chain of trust to `name` starts at: the deepest one above it, unless a negative one is as deep.
    pub(crate) fn anchor_for(&self, name: Name<'_>, wall_secs: u64) -> Option<&TrustAnchor> {
        let above = self.anchors.iter().filter(|anchor| name.ends_with(anchor.zone.as_name()));
        let anchor = above.max_by_key(|anchor| anchor.zone.as_name().len())?;
        let suspends = |negative: &NegativeAnchor| {
            let zone = negative.zone.as_name();
            let lasts = negative.until.is_none_or(|until| wall_secs < until);
            lasts && name.ends_with(zone) && zone.ends_with(anchor.zone.as_name())
        };
        (!self.negative.iter().any(suspends)).then_some(anchor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn the_root_has_its_two_keys() {
        let root = TrustAnchor::root();
        let tags = root.ds().iter().map(|ds| (u16::from_be_bytes([ds[0], ds[1]]), ds.len()));
        assert_eq!(tags.collect::<Vec<_>>(), [(20326, 36), (38696, 36)]);
    }

    #[test]
    fn a_negative_anchor_suspends_its_zone_until_it_ends() {
        let negative = NegativeAnchor { zone: name("broken.example."), until: Some(100) };
        let trust = Trust { anchors: vec![TrustAnchor::root()], negative: vec![negative] };
        let is_validated = |text: &str, at| trust.anchor_for(name(text).as_name(), at).is_some();
        assert!(is_validated("example.", 0) && is_validated("xbroken.example.", 0));
        assert!(!is_validated("broken.example.", 99) && !is_validated("a.broken.example.", 99));
        assert!(is_validated("a.broken.example.", 100));
    }

    #[test]
    fn a_deeper_anchor_counts_in_spite_of_a_negative_one_above() {
        let zone = name("island.example.");
        let ds = [&b"\0\x01\x08\x02"[..], &[7; 32]].concat();
        let island = TrustAnchor::new(zone.as_name(), [(Rtype::DS, &ds[..])]).unwrap();
        let negative = NegativeAnchor { zone: name("example."), until: None };
        let trust = Trust { anchors: vec![TrustAnchor::root(), island.clone()], negative: vec![negative] };
        assert_eq!(trust.anchor_for(name("a.island.example.").as_name(), 0), Some(&island));
        assert_eq!(trust.anchor_for(name("a.example.").as_name(), 0), None);
        assert_eq!(TrustAnchor::new(zone.as_name(), [(Rtype::A, &b"abcd"[..])]), None);
    }
}
