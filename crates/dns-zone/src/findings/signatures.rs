//! Record sets of a signed zone that validators will refuse, as far as times tell. Keys are not looked at.

use dns_wire::Rtype;

use super::{Finding, FindingKind, finding};
use crate::tree::{Node, Rrset, Zone};

/// What is wrong with the signatures of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureFault {
    /// There is none.
    Missing,
    /// All have expired.
    Expired,
    /// All are for later.
    Early,
    /// The last one expires soon.
    ExpiresSoon,
}

/// How much time an operator should have to sign anew, in seconds.
const SOON: i32 = 3 * 24 * 3600;

/// One finding for each fault, at the first set that has it. A zone whose signer stopped would have as many as sets.
pub(super) fn of_zone(zone: &Zone, now: u32) -> Vec<Finding> {
    let mut found: Vec<(SignatureFault, Node<'_>, Rtype, usize)> = Vec::new();
    if !zone.is_signed() {
        return Vec::new();
    }
    let nodes = zone.nodes().filter(|node| !node.is_occluded() || node.is_hashed());
    for (node, rrset) in nodes.flat_map(|node| node.rrsets().map(move |rrset| (node, rrset))) {
        let is_signed = rrset.rtype() != Rtype::RRSIG && is_authoritative(node, rrset.rtype());
        let Some(fault) = is_signed.then(|| fault(node.signatures(rrset.rtype()), now)).flatten() else {
            continue;
        };
        match found.iter_mut().find(|(other, ..)| *other == fault) {
            Some((.., count)) => *count += 1,
            None => found.push((fault, node, rrset.rtype(), 1)),
        }
    }
    let to_finding =
        |(fault, node, rtype, count)| finding(node, FindingKind::Signatures(fault, rtype, count));
    let no_chain = zone.denial().is_none().then(|| finding(zone.apex(), FindingKind::NoDenial));
    no_chain.into_iter().chain(found.into_iter().map(to_finding)).collect()
}

/// RFC 4035, 2.2: the zone above signs neither the servers of the zone below nor their addresses.
fn is_authoritative(node: Node<'_>, rtype: Rtype) -> bool {
    !node.is_cut() || matches!(rtype, Rtype::DS | Rtype::NSEC)
}

/// What is wrong with the best of the signatures. Times are compared as serial numbers (RFC 4034, 3.1.5).
fn fault(signatures: Option<Rrset<'_>>, now: u32) -> Option<SignatureFault> {
    let Some(signatures) = signatures else { return Some(SignatureFault::Missing) };
    let time = |rdata: &[u8], at: usize| Some(u32::from_be_bytes(rdata.get(at..at + 4)?.try_into().ok()?));
    let left = |rdata: &[u8]| Some(time(rdata, 8)?.wrapping_sub(now).cast_signed());
    let has_begun =
        |rdata: &&[u8]| time(rdata, 12).is_some_and(|begin| now.wrapping_sub(begin).cast_signed() >= 0);
    match signatures.records().filter(has_begun).filter_map(left).max() {
        None => Some(SignatureFault::Early),
        Some(..0) => Some(SignatureFault::Expired),
        Some(..SOON) => Some(SignatureFault::ExpiresSoon),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load_zone;
    use crate::text::{Files, Limits, TextFile};

    struct Only(String);

    impl Files for Only {
        fn open(&mut self, _: &Path) -> std::io::Result<TextFile> {
            Ok(self.0.clone().into_bytes().into())
        }
    }

    /// Signed from 2025-01-01 to 2050-01-01.
    const SIGNED: &str = include_str!("../../../../specs/dns/dnssec/ed25519-nsec.zone");
    const BEGIN: u32 = 1_735_689_600;
    const END: u32 = 2_524_608_000;

    fn faults(text: &str, now: u32) -> Vec<(String, SignatureFault, Rtype, usize)> {
        let mut files = Only(text.to_owned());
        let zone = load_zone(&mut files, Path::new("zone"), None, &Limits::default(), 1).unwrap();
        let fault = |found: Finding| match found.kind {
            FindingKind::Signatures(fault, rtype, count) => (found.owner.to_string(), fault, rtype, count),
            other => panic!("{other}"),
        };
        of_zone(&zone, now).into_iter().map(fault).collect()
    }

    #[test]
    fn signatures_count_between_their_times() {
        assert_eq!(faults(SIGNED, BEGIN), []);
        assert_eq!(faults(SIGNED, END - 4 * 86_400), []);
        for (now, fault) in [
            (BEGIN - 1, SignatureFault::Early),
            (END - 2 * 86_400, SignatureFault::ExpiresSoon),
            (END + 1, SignatureFault::Expired),
        ] {
            let found = faults(SIGNED, now);
            assert!(
                matches!(&found[..], [(_, found, _, count)] if *found == fault && *count > 20),
                "{found:?}"
            );
        }
    }

    #[test]
    fn signatures_without_a_chain_are_found() {
        let lines = SIGNED.lines().filter(|line| !line.contains(" NSEC ") && !line.contains("RRSIG NSEC"));
        let mut files = Only(lines.collect::<Vec<_>>().join("\n"));
        let zone = load_zone(&mut files, Path::new("zone"), None, &Limits::default(), 1).unwrap();
        let kinds: Vec<_> = of_zone(&zone, BEGIN).into_iter().map(|found| found.kind).collect();
        assert_eq!(kinds, [FindingKind::NoDenial]);
    }

    #[test]
    fn a_set_without_signature_is_found_in_a_signed_zone_only() {
        let lines = SIGNED.lines().filter(|line| !(line.starts_with("www.") && line.contains("RRSIG A ")));
        let text: Vec<&str> = lines.collect();
        let missing = ("www.ed25519-nsec.tld.".to_owned(), SignatureFault::Missing, Rtype::A, 1);
        assert_eq!(faults(&text.join("\n"), BEGIN), [missing]);
        let unsigned = SIGNED.lines().filter(|line| !line.contains(" RRSIG ") && !line.contains(" NSEC "));
        assert_eq!(faults(&unsigned.collect::<Vec<_>>().join("\n"), BEGIN), []);
    }
}
