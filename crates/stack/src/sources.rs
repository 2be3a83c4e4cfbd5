//! From which addresses peers on a link may open connections.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use wire::VlanTag;

use crate::path::{LinkHeader, LinkId};

/// The source addresses that a SYN may have which arrives behind certain VLAN tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFilter {
    /// VLAN identifiers, outer first; 0 where there is no tag.
    pub vlan: [u16; 2],
    /// Ranges that do not overlap, in ascending order; those of IPv4 come first.
    pub allowed: Vec<RangeInclusive<IpAddr>>,
}

impl SourceFilter {
    fn allows(&self, source: IpAddr) -> bool {
        let behind = self.allowed.partition_point(|range| *range.start() <= source);
        behind.checked_sub(1).is_some_and(|at| self.allowed[at].contains(&source))
    }
}

/// The filters of all links. Where none was set, every source is allowed.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<(LinkId, Vec<SourceFilter>)>);

impl Sources {
    pub(crate) fn set(&mut self, link: LinkId, filters: Vec<SourceFilter>) {
        self.0.retain(|(other, _)| *other != link);
        self.0.push((link, filters));
    }

    pub(crate) fn allow(&self, link: LinkId, header: &LinkHeader, source: IpAddr) -> bool {
        let vlan = header.tags.map(|tag| tag.map_or(0, |tag: VlanTag| tag.control & 0x0fff));
        let filters = self.0.iter().find(|(other, _)| *other == link).map(|(_, filters)| filters);
        let filter = filters.and_then(|filters| filters.iter().find(|filter| filter.vlan == vlan));
        filter.is_none_or(|filter| filter.allows(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(1);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_count_by_link_and_tags() {
        let mut sources = Sources::default();
        let allowed = vec![
            ip("192.0.2.0")..=ip("192.0.2.9"),
            ip("192.0.2.20")..=ip("192.0.2.20"),
            ip("::1")..=ip("::5"),
        ];
        sources.set(LINK, vec![SourceFilter { vlan: [7, 0], allowed }]);
        let tagged = LinkHeader {
            tags: [Some(VlanTag { tpid: 0x8100, control: 0xe007 }), None],
            ..LinkHeader::default()
        };
        for (source, expected) in [
            ("192.0.1.255", false),
            ("192.0.2.0", true),
            ("192.0.2.9", true),
            ("192.0.2.10", false),
            ("192.0.2.20", true),
            ("192.0.2.21", false),
            ("::", false),
            ("::5", true),
            ("::6", false),
        ] {
            assert_eq!(sources.allow(LINK, &tagged, ip(source)), expected, "{source}");
            assert!(sources.allow(LinkId(0), &tagged, ip(source)), "{source} on a link without filter");
            assert!(sources.allow(LINK, &LinkHeader::default(), ip(source)), "{source} without tag");
        }
    }
}
