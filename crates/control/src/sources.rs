//! From which addresses packets may come on an interface: those from which the kernel would take them there. And to which addresses it
//! would send packets there.
//!
//! For IPv4 the routes decide, as `__fib_validate_source` in net/ipv4/fib_frontend.c does: with `rp_filter` the way back must lead
//! there, and an address of this host is a source only with `accept_local` (both in ip-sysctl.rst of the kernel's documentation). For IPv6
//! the kernel has no such check, and every source is allowed, addresses of this host as well.
//!
//! The rules of `ip rule` are not followed: a source is allowed where any table would. So none is refused that the kernel takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use steering::VlanTags;

use crate::mirror::{Mirror, Route, RouteKey, RouteKind};

/// What the kernel asks of IPv4 sources on an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceChecks {
    /// Of the way back (`rp_filter`).
    pub reverse_path: ReversePath,
    /// Addresses of this host are sources like others (`accept_local`).
    pub accepts_local: bool,
}

impl SourceChecks {
    /// The settings of an interface in this network namespace: of each the larger one of its own and that of `all`. Without `/proc` the
    /// defaults.
    fn of_interface(name: &str) -> SourceChecks {
        let read = |whose: &str, setting: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{whose}/{setting}"));
            text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        let larger = |setting: &str| read("all", setting).max(read(name, setting));
        let reverse_path = match larger("rp_filter") {
            0 => ReversePath::Unchecked,
            1 => ReversePath::Strict,
            _ => ReversePath::Loose,
        };
        SourceChecks { reverse_path, accepts_local: larger("accept_local") > 0 }
    }
}

/// What the kernel asks of the way back to a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Nothing (0).
    #[default]
    Unchecked,
    /// The best route leads there by the interface that the packet came from (1).
    Strict,
    /// There is a route (2).
    Loose,
}

/// The sources that are allowed behind certain VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The tags.
    pub vlan: VlanTags,
    /// Ranges that do not overlap, in ascending order; those of IPv4 come first.
    pub allowed: Vec<RangeInclusive<IpAddr>>,
    /// The addresses to which the best route leads there; ranges as above.
    pub routed: Vec<RangeInclusive<IpAddr>>,
}

/// Tells when the sources of an interface change.
#[derive(Debug, Default)]
pub struct SourceWatch {
    /// What was asked of each interface, by index.
    settings: Vec<(u32, SourceChecks)>,
    sources: Vec<Sources>,
}

impl SourceWatch {
    /// The sources on the interface `name`, if they are others than before. `has_news` says whether the mirror may have changed.
    pub fn compare(&mut self, mirror: &Mirror, name: &str, has_news: bool) -> Option<Vec<Sources>> {
        let on_it = mirror.links_on(name);
        let settings: Vec<_> =
            on_it.map(|(_, link)| (link.index, SourceChecks::of_interface(&link.name))).collect();
        if !has_news && self.settings == settings {
            return None;
        }
        self.settings = settings;
        let sources = sources(mirror, name, &self.settings);
        let is_new = self.sources != sources;
        self.sources.clone_from(&sources);
        is_new.then_some(sources)
    }
}

/// The sources on the interface `name`, for the interface itself and for each VLAN interface on it.
fn sources(mirror: &Mirror, name: &str, settings: &[(u32, SourceChecks)]) -> Vec<Sources> {
    let of_link = |(vlan, index): (VlanTags, u32)| {
        let setting = settings.iter().find(|(other, _)| *other == index);
        let checks = setting.map(|(_, checks)| *checks).unwrap_or_default();
        let all_of_v6 = Ipv6Addr::UNSPECIFIED.into()..=Ipv6Addr::from_bits(u128::MAX).into();
        let allowed = allowed_of_v4(mirror, index, checks).chain([all_of_v6]).collect();
        Sources { vlan, allowed, routed: routed(mirror, index) }
    };
    mirror.links_on(name).map(|(vlan, link)| of_link((vlan, link.index))).collect()
}

/// What is reached by the interface `index`.
fn routed(mirror: &Mirror, index: u32) -> Vec<RangeInclusive<IpAddr>> {
    let leads_there = |route: &Route| {
        let mut ways = route.next_hops.iter().filter_map(|hop| hop.interface);
        route.kind == RouteKind::Unicast && ways.any(|way| way == index)
    };
    let of_family = |is_v4: bool| {
        let routes = mirror.routes().filter(move |(key, _)| key.destination.is_ipv4() == is_v4);
        admitted(routes, leads_there)
    };
    let v4 = of_family(true).into_iter().map(|(first, last)| v4_range(first, last));
    let v6 = |number| IpAddr::from(Ipv6Addr::from_bits(number));
    v4.chain(of_family(false).into_iter().map(|(first, last)| v6(first)..=v6(last))).collect()
}

fn v4_range(first: u128, last: u128) -> RangeInclusive<IpAddr> {
    let ip = |number: u128| IpAddr::from(Ipv4Addr::from_bits(number as u32));
    ip(first)..=ip(last)
}

/// The sources of IPv4 on the interface `index`.
fn allowed_of_v4(
    mirror: &Mirror,
    index: u32,
    checks: SourceChecks,
) -> impl Iterator<Item = RangeInclusive<IpAddr>> {
    let SourceChecks { reverse_path, accepts_local } = checks;
    let is_up = |index: u32| mirror.link_at(index).is_some_and(|link| link.up);
    let leads_back = |route: &Route| {
        let mut ways = route.next_hops.iter().filter_map(|hop| hop.interface);
        reverse_path == ReversePath::Unchecked
            || ways.any(|way| is_up(way) && (reverse_path == ReversePath::Loose || way == index))
    };
    let admits = |route: &Route| match route.kind {
        RouteKind::Unicast => leads_back(route),
        RouteKind::Local => accepts_local && leads_back(route),
        RouteKind::Group | RouteKind::None => false,
    };
    let is_denied = |route: &Route| match route.kind {
        RouteKind::Local => !admits(route),
        RouteKind::Group => reverse_path != ReversePath::Unchecked,
        RouteKind::Unicast | RouteKind::None => false,
    };
    let routes = || mirror.routes().filter(|(key, _)| key.destination.is_ipv4());
    let denied = routes().filter(|(_, route)| is_denied(route)).map(|(key, _)| span_of(key));
    // Each of them has a local route, which decides if such sources are taken.
    let own = mirror.links().filter(|_| !accepts_local).flat_map(|link| mirror.addresses(link.index));
    let own = own.filter(IpAddr::is_ipv4).map(|address| span(address, u8::MAX));
    let denied = union(own.chain(denied).collect());
    let admitted = match reverse_path {
        ReversePath::Unchecked => vec![span(Ipv4Addr::UNSPECIFIED.into(), 0)],
        ReversePath::Strict | ReversePath::Loose => admitted(routes(), admits),
    };
    subtract(&admitted, &denied).into_iter().map(|(first, last)| v4_range(first, last))
}

/// Addresses as numbers: the first and the last.
type Span = (u128, u128);

fn span_of(key: &RouteKey) -> Span {
    span(key.destination, key.prefix_len)
}

fn span(address: IpAddr, prefix_len: u8) -> Span {
    let (number, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let free = width - u32::from(prefix_len).min(width);
    let rest = 1u128.checked_shl(free).map_or(u128::MAX, |count| count - 1);
    (number & !rest, number | rest)
}

/// Where the best route of some table is one that `admits`. Routes come by table, and in it by destination and length.
fn admitted<'m>(
    routes: impl Iterator<Item = (&'m RouteKey, &'m Route)>,
    admits: impl Fn(&Route) -> bool,
) -> Vec<Span> {
    let routes: Vec<_> = routes.collect();
    let of_table = routes.chunk_by(|(one, _), (other, _)| one.table == other.table);
    union(of_table.flat_map(|table| admitted_by_table(table, &admits)).collect())
}

fn admitted_by_table(routes: &[(&RouteKey, &Route)], admits: impl Fn(&Route) -> bool) -> Vec<Span> {
    let mut sweep = Sweep::default();
    for same in routes.chunk_by(|(one, _), (other, _)| span_of(one) == span_of(other)) {
        // The lowest metric counts; a route for a type of service counts for packets of that type.
        let best = same[0].0.priority;
        let mut counting = same.iter().filter(|(key, _)| key.priority == best || key.tos != 0);
        sweep.enter(span_of(same[0].0), counting.any(|(_, route)| admits(route)));
    }
    sweep.leave_until(None);
    sweep.admitted
}

/// Goes over nested prefixes from the lowest address to the highest.
#[derive(Default)]
struct Sweep {
    /// Prefixes around the place, the narrowest last: where each ends, and whether it admits.
    around: Vec<(u128, bool)>,
    /// What is in front of it is decided.
    place: u128,
    admitted: Vec<Span>,
}

impl Sweep {
    fn enter(&mut self, (first, last): Span, admits: bool) {
        self.leave_until(Some(first));
        if let Some(before) = first.checked_sub(1) {
            self.decide_up_to(before);
        }
        self.place = first;
        self.around.push((last, admits));
    }

    /// Leaves all prefixes that end in front of `first`.
    fn leave_until(&mut self, first: Option<u128>) {
        while let Some(&(last, _)) = self.around.last()
            && first.is_none_or(|first| last < first)
        {
            self.decide_up_to(last);
            self.place = self.place.max(last.saturating_add(1));
            self.around.pop();
        }
    }

    fn decide_up_to(&mut self, last: u128) {
        if self.around.last().is_some_and(|(_, admits)| *admits) && self.place <= last {
            self.admitted.push((self.place, last));
        }
    }
}

/// The same addresses in spans that neither overlap nor touch, in order.
fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for (first, last) in spans {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// What is in `spans` and not in `others`; both as [`union`] makes them.
fn subtract(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    for &(mut first, last) in spans {
        let mut is_used_up = false;
        let begin = others.partition_point(|other| other.1 < first);
        for &(other_first, other_last) in others[begin..].iter().take_while(|other| other.0 <= last) {
            if first < other_first {
                left.push((first, other_first - 1));
            }
            is_used_up = other_last >= last;
            first = other_last.saturating_add(1);
        }
        if !is_used_up {
            left.push((first, last));
        }
    }
    left
}

#[cfg(test)]
mod tests;
