//! From which addresses packets may come on a link, and to which packets may go back there.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use wire::VlanTag;

use crate::path::{LinkHeader, LinkId};

/// The source addresses that packets may have which arrive behind certain VLAN tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFilter {
    /// VLAN identifiers, outer first; 0 where there is no tag.
    pub vlan: [u16; 2],
    /// Ranges that do not overlap, in ascending order; those of IPv4 come first.
    pub allowed: Vec<RangeInclusive<IpAddr>>,
    /// The addresses to which the way back is the way that such packets come; ranges as above.
    pub routed: Vec<RangeInclusive<IpAddr>>,
}

fn contain(ranges: &[RangeInclusive<IpAddr>], address: IpAddr) -> bool {
    let behind = ranges.partition_point(|range| *range.start() <= address);
    behind.checked_sub(1).is_some_and(|at| ranges[at].contains(&address))
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
        self.filter(link, header).is_none_or(|filter| contain(&filter.allowed, source))
    }

    /// Whether the way to `remote` leads over `link`, behind the tags of `header`.
    pub(crate) fn lead_back(&self, link: LinkId, header: &LinkHeader, remote: IpAddr) -> bool {
        self.filter(link, header).is_none_or(|filter| contain(&filter.routed, remote))
    }

    fn filter(&self, link: LinkId, header: &LinkHeader) -> Option<&SourceFilter> {
        let vlan = header.tags.map(|tag| tag.map_or(0, |tag: VlanTag| tag.control & 0x0fff));
        let (_, filters) = self.0.iter().find(|(other, _)| *other == link)?;
        filters.iter().find(|filter| filter.vlan == vlan)
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
        let routed = vec![ip("192.0.2.0")..=ip("192.0.2.9")];
        sources.set(LINK, vec![SourceFilter { vlan: [7, 0], allowed, routed }]);
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
        assert!(sources.lead_back(LINK, &tagged, ip("192.0.2.9")));
        assert!(
            !sources.lead_back(LINK, &tagged, ip("192.0.2.20")),
            "it may come here, and is answered elsewhere"
        );
        assert!(sources.lead_back(LINK, &LinkHeader::default(), ip("192.0.2.20")), "nothing was said");
    }
}
