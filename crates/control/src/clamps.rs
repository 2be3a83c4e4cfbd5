//! The largest TCP segments by the kernel's routes (`advmss` of ip-route(8)). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::mirror::{Mirror, Route, RouteKey, RouteKind};

/// Clamps at most: stacks search them one by one for each connection, and they fit one message to a program.
pub const CLAMPS_MAX: usize = 256;

/// The largest TCP segment for a network, by the kernel's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentClamp {
    /// Destination prefix.
    pub network: IpAddr,
    /// Bits of it that count.
    pub prefix_len: u8,
    /// Octets; `u16::MAX` where a narrower route inside a clamped one has no such limit.
    pub mss: u16,
}

impl SegmentClamp {
    /// Whether `other` is the same network or lies within it.
    fn covers(&self, other: &SegmentClamp) -> bool {
        let leading = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let differing = leading(self.network) ^ leading(other.network);
        self.network.is_ipv4() == other.network.is_ipv4()
            && self.prefix_len <= other.prefix_len
            && differing.leading_zeros() >= u32::from(self.prefix_len)
    }
}

/// Tells when the clamps change.
#[derive(Debug, Default)]
pub struct ClampWatch {
    clamps: Vec<SegmentClamp>,
    is_old: bool,
}

impl ClampWatch {
    /// The clamps, if they are others than before; at first there are none. `has_news` says whether the routes may have changed.
    pub fn compare(&mut self, mirror: &Mirror, has_news: bool) -> Option<&[SegmentClamp]> {
        if self.is_old && !has_news {
            return None;
        }
        self.is_old = true;
        let clamps = segment_clamps(mirror);
        if clamps == self.clamps {
            return None;
        }
        self.clamps = clamps;
        Some(&self.clamps)
    }

    /// The clamps as last compared.
    pub fn clamps(&self) -> &[SegmentClamp] {
        &self.clamps
    }
}

/// What the main table's routes say of segment sizes, at most [`CLAMPS_MAX`] clamps; of several routes to one network, the one that is
/// preferred counts. Where routes make more clamps, the smallest of each IP version holds for all its addresses: segments are smaller
/// than they could be, and none is too large.
pub(crate) fn segment_clamps(mirror: &Mirror) -> Vec<SegmentClamp> {
    if !mirror.may_limit_segments() {
        return Vec::new();
    }
    let clamps = clamps_of(mirror.routes());
    if clamps.len() > CLAMPS_MAX { smallest_of_all(&clamps) } else { clamps }
}

/// Routes come by table, and in it by destination, length and metric: each behind those that cover it.
fn clamps_of<'m>(routes: impl Iterator<Item = (&'m RouteKey, &'m Route)>) -> Vec<SegmentClamp> {
    const MAIN_TABLE: u32 = 254;
    let main = routes.filter(|(key, route)| key.table == MAIN_TABLE && route.kind == RouteKind::Unicast);
    let mut routes = main.peekable();
    let mut clamps = Vec::new();
    // Those of `clamps` that cover the place, the narrowest last.
    let mut around: Vec<SegmentClamp> = Vec::new();
    while let Some((first, route)) = routes.next() {
        let mut preferred = (first.priority, limit(route));
        let is_same = |(key, _): &(&RouteKey, &Route)| {
            (key.destination, key.prefix_len) == (first.destination, first.prefix_len)
        };
        while let Some((key, route)) = routes.next_if(is_same) {
            preferred = preferred.min((key.priority, limit(route)));
        }
        let clamp =
            SegmentClamp { network: first.destination, prefix_len: first.prefix_len, mss: preferred.1 };
        while around.pop_if(|outer| !outer.covers(&clamp)).is_some() {}
        if clamp.mss != around.last().map_or(u16::MAX, |outer| outer.mss) {
            clamps.push(clamp);
            around.push(clamp);
        }
    }
    clamps
}

fn limit(route: &Route) -> u16 {
    route.advmss.unwrap_or(u16::MAX)
}

fn smallest_of_all(clamps: &[SegmentClamp]) -> Vec<SegmentClamp> {
    let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
    let smallest_of = |network: IpAddr| {
        let of_version = clamps.iter().filter(|clamp| clamp.network.is_ipv4() == network.is_ipv4());
        let mss = of_version.map(|clamp| clamp.mss).min()?;
        Some(SegmentClamp { network, prefix_len: 0, mss })
    };
    all.into_iter().filter_map(smallest_of).collect()
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage::NewRoute;

    use super::*;
    use crate::mirror::tests::route_to;

    /// A mirror with these routes of the main table.
    fn mirror<'r>(routes: impl IntoIterator<Item = (&'r str, u8, Option<u32>)>) -> Mirror {
        let mut mirror = Mirror::default();
        for (network, prefix_len, advmss) in routes {
            mirror.on_message(&NewRoute(route_to(network, prefix_len, advmss)));
        }
        mirror
    }

    fn told(clamps: &[SegmentClamp]) -> Vec<(String, u8, u16)> {
        clamps.iter().map(|clamp| (clamp.network.to_string(), clamp.prefix_len, clamp.mss)).collect()
    }

    fn clamps_by<'r>(routes: impl IntoIterator<Item = (&'r str, u8, Option<u32>)>) -> Vec<(String, u8, u16)> {
        told(&segment_clamps(&mirror(routes)))
    }

    #[test]
    fn routes_clamp_segments_unless_a_narrower_one_does_not() {
        let mut mirror =
            mirror([("192.0.2.0", 24, Some(1200)), ("192.0.2.64", 26, None), ("198.51.100.0", 24, None)]);
        let expected = [("192.0.2.0".to_owned(), 24, 1200), ("192.0.2.64".to_owned(), 26, u16::MAX)];
        assert_eq!(told(&segment_clamps(&mirror)), expected);
        mirror.on_message(&NewRoute(route_to("192.0.2.0", 24, None)));
        assert!(segment_clamps(&mirror).is_empty());
    }

    #[test]
    fn a_route_that_says_the_same_as_the_one_around_it_is_left_out() {
        let clamps = clamps_by([
            ("10.0.0.0", 8, Some(1400)),
            ("10.1.0.0", 16, Some(1400)),
            ("10.1.2.0", 24, Some(1300)),
            ("10.1.2.128", 25, Some(1300)),
            ("10.1.3.0", 24, Some(1400)),
            ("10.2.0.0", 16, None),
            ("10.2.3.0", 24, None),
            ("11.0.0.0", 8, None),
        ]);
        let expected = [("10.0.0.0", 8, 1400), ("10.1.2.0", 24, 1300), ("10.2.0.0", 16, u16::MAX)];
        assert_eq!(clamps, expected.map(|(network, len, mss)| (network.to_owned(), len, mss)));
    }

    #[test]
    fn where_there_are_too_many_the_smallest_holds_for_all() {
        let many: Vec<String> = (0..=CLAMPS_MAX).map(|n| format!("10.{}.{}.0", n >> 8, n & 255)).collect();
        let unlimited = |many: &'static [String]| many.iter().map(|network| (network.as_str(), 24, None));
        let many: &'static [String] = many.leak();
        let limits = [("0.0.0.0", 0, Some(1400)), ("203.0.113.0", 24, Some(1200))];
        assert_eq!(clamps_by(limits.into_iter().chain(unlimited(many))), [("0.0.0.0".to_owned(), 0, 1200)]);
        assert_eq!(clamps_by(limits.into_iter().chain(unlimited(&many[3..]))).len(), CLAMPS_MAX);
    }

    #[test]
    fn a_watch_tells_of_changes_and_looks_only_if_there_are_news() {
        let mut watch = ClampWatch::default();
        let with = mirror([("192.0.2.0", 24, Some(1200))]);
        assert_eq!(watch.compare(&with, false).map(<[_]>::len), Some(1), "at first it looks");
        assert_eq!(watch.compare(&with, true), None);
        assert_eq!(watch.compare(&Mirror::default(), false), None);
        assert_eq!(watch.compare(&Mirror::default(), true), Some(&[][..]));
        assert!(watch.clamps().is_empty());
    }
}
