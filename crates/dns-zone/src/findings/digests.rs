//! Digests that are too short or too long for how they were made: such a record matches nothing, and some servers refuse a whole zone for it.

use dns_wire::Rtype;

use super::{Finding, FindingKind, finding};
use crate::tree::Node;

/// Where a type has the number of the function that made its digest, which is the rest behind that.
const FUNCTION_AT: [(Rtype, usize); 6] = [
    (Rtype::DS, 3),
    (Rtype::CDS, 3),
    (Rtype::SSHFP, 1),
    (Rtype::TLSA, 2),
    (Rtype::SMIMEA, 2),
    (Rtype::ZONEMD, 5),
];

/// The records at a node whose digests have another length than their function makes.
pub(super) fn at_node(node: Node<'_>) -> impl Iterator<Item = Finding> {
    FUNCTION_AT.into_iter().flat_map(move |(rtype, at)| {
        let set = node.rrset(rtype).into_iter();
        let wrong = set.flat_map(|set| set.records()).find_map(move |rdata| {
            let (len, expected) = (rdata.len().checked_sub(at + 1)?, expected_len(rtype, rdata[at])?);
            (len != expected).then_some(FindingKind::DigestLength { rtype, len, expected })
        });
        wrong.map(|kind| finding(node, kind))
    })
}

/// Octets of a digest; `None` if the function is not known here.
fn expected_len(rtype: Rtype, function: u8) -> Option<usize> {
    const SHA1: usize = 20;
    const SHA256: usize = 32;
    const SHA384: usize = 48;
    const SHA512: usize = 64;
    Some(match (rtype, function) {
        (Rtype::DS | Rtype::CDS | Rtype::SSHFP, 1) => SHA1,
        (Rtype::DS | Rtype::CDS | Rtype::SSHFP, 2) => SHA256, // RFC 4509; RFC 6594.
        (Rtype::DS | Rtype::CDS, 4) => SHA384,                // RFC 6605.
        (Rtype::TLSA | Rtype::SMIMEA, 1) => SHA256,           // RFC 6698, 2.1.3.
        (Rtype::TLSA | Rtype::SMIMEA, 2) => SHA512,
        (Rtype::ZONEMD, 1) => SHA384, // RFC 8976, 2.2.3.
        (Rtype::ZONEMD, 2) => SHA512,
        _ => return None,
    })
}
