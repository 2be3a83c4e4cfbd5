use super::*;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage::{NewAddress, NewLink, NewRoute};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};

/// The interface that packets come from, and another one.
const HERE: u32 = 2;
const ELSEWHERE: u32 = 3;
/// Routing tables: `local`, `main`, and one that rules lead to.
const LOCAL: u8 = 255;
const MAIN: u8 = 254;
const OTHER: u8 = 100;

fn link(index: u32, name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![LinkAttribute::IfName(name.into())];
    message
}

fn address(index: u32, text: &str) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Address(text.parse().unwrap())];
    message
}

/// `prefix` in `table` by `interface`.
fn route(table: u8, kind: RouteType, prefix: &str, interface: u32, metric: u32) -> RouteMessage {
    let (network, prefix_len) = prefix.split_once('/').unwrap();
    let network: IpAddr = network.parse().unwrap();
    let mut message = RouteMessage::default();
    message.header.address_family =
        if network.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.table = table;
    message.header.kind = kind;
    message.header.destination_prefix_length = prefix_len.parse().unwrap();
    message.attributes = vec![
        RouteAttribute::Destination(match network {
            IpAddr::V4(network) => RouteAddress::Inet(network),
            IpAddr::V6(network) => RouteAddress::Inet6(network),
        }),
        RouteAttribute::Oif(interface),
        RouteAttribute::Priority(metric),
    ];
    message
}

fn unicast(prefix: &str, interface: u32) -> RouteMessage {
    route(MAIN, RouteType::Unicast, prefix, interface, 0)
}

/// A host with two interfaces, an address on each, and these routes.
fn mirror(routes: impl IntoIterator<Item = RouteMessage>) -> Mirror {
    let mut mirror = Mirror::default();
    for message in [NewLink(link(HERE, "eth0")), NewLink(link(ELSEWHERE, "eth1"))] {
        mirror.on_message(&message);
    }
    mirror.on_message(&NewAddress(address(HERE, "192.0.2.1")));
    mirror.on_message(&NewAddress(address(ELSEWHERE, "198.51.100.1")));
    mirror.on_message(&NewAddress(address(ELSEWHERE, "2001:db8::1")));
    for message in routes {
        mirror.on_message(&NewRoute(message));
    }
    mirror
}

/// Which of `sources` are allowed on the first interface, where addresses of this host are none.
fn allowed_of<'s>(mirror: &Mirror, reverse_path: ReversePath, sources: &[&'s str]) -> Vec<&'s str> {
    allowed_with(mirror, SourceChecks { reverse_path, accepts_local: false }, sources)
}

fn allowed_with<'s>(mirror: &Mirror, checks: SourceChecks, sources: &[&'s str]) -> Vec<&'s str> {
    let found = super::sources(mirror, "eth0", &[(HERE, checks)]);
    assert_eq!(found.len(), 1);
    let ranges = &found[0].allowed;
    assert!(ranges.is_sorted_by(|one, other| one.end() < other.start()), "{ranges:?}");
    let is_allowed =
        |source: &&str| ranges.iter().any(|range| range.contains(&source.parse::<IpAddr>().unwrap()));
    sources.iter().copied().filter(is_allowed).collect()
}

#[test]
fn what_goes_back_by_an_interface_is_what_its_routes_lead_to() {
    let mirror = mirror([
        unicast("0.0.0.0/0", HERE),
        unicast("198.51.100.0/24", ELSEWHERE),
        unicast("2001:db8:1::/48", HERE),
        unicast("2001:db8:1:2::/64", ELSEWHERE),
    ]);
    for setting in [ReversePath::Unchecked, ReversePath::Strict, ReversePath::Loose] {
        let checks = SourceChecks { reverse_path: setting, accepts_local: false };
        let found = super::sources(&mirror, "eth0", &[(HERE, checks)]);
        let is_routed =
            |to: &str| found[0].routed.iter().any(|range| range.contains(&to.parse::<IpAddr>().unwrap()));
        let cases = [
            ("203.0.113.9", true),
            ("198.51.100.9", false),
            ("198.51.101.0", true),
            ("2001:db8:1::9", true),
            ("2001:db8:1:2::9", false),
            ("2001:db8:2::9", false),
        ];
        for (to, expected) in cases {
            assert_eq!(is_routed(to), expected, "{to} with {setting:?}");
        }
    }
}

#[test]
fn an_address_of_this_host_is_no_source() {
    let mirror = mirror([unicast("0.0.0.0/0", HERE), route(LOCAL, RouteType::Local, "203.0.113.0/24", 1, 0)]);
    let sources = ["192.0.2.1", "198.51.100.1", "203.0.113.9"];
    let others = ["192.0.2.0", "192.0.2.2", "198.51.100.2", "203.0.114.0"];
    for setting in [ReversePath::Unchecked, ReversePath::Strict, ReversePath::Loose] {
        assert_eq!(allowed_of(&mirror, setting, &sources), [""; 0], "{setting:?}");
        assert_eq!(allowed_of(&mirror, setting, &others), others, "{setting:?}");
    }
}

#[test]
fn an_address_of_this_host_is_a_source_with_accept_local_if_its_route_leads_back() {
    let mirror = mirror([
        unicast("0.0.0.0/0", HERE),
        route(LOCAL, RouteType::Local, "192.0.2.1/32", HERE, 0),
        route(LOCAL, RouteType::Local, "198.51.100.1/32", ELSEWHERE, 0),
    ]);
    let sources = ["192.0.2.1", "198.51.100.1", "203.0.113.9"];
    for (reverse_path, expected) in [
        (ReversePath::Unchecked, &sources[..]),
        (ReversePath::Loose, &sources),
        (ReversePath::Strict, &["192.0.2.1", "203.0.113.9"]),
    ] {
        let checks = SourceChecks { reverse_path, accepts_local: true };
        assert_eq!(allowed_with(&mirror, checks, &sources), expected, "{reverse_path:?}");
    }
}

#[test]
fn the_best_route_leads_back_by_the_interface_if_the_check_is_strict() {
    let mirror = mirror([
        unicast("192.0.2.0/24", HERE),
        unicast("198.51.100.0/24", ELSEWHERE),
        unicast("10.0.0.0/8", ELSEWHERE),
        unicast("10.1.0.0/16", HERE),
        unicast("10.1.2.0/24", ELSEWHERE),
    ]);
    let sources = [
        "192.0.2.9",
        "198.51.100.9",
        "10.0.0.1",
        "10.1.1.255",
        "10.1.2.0",
        "10.1.2.255",
        "10.1.3.0",
        "10.2.0.0",
        "11.0.0.0",
    ];
    assert_eq!(allowed_of(&mirror, ReversePath::Unchecked, &sources), sources);
    assert_eq!(allowed_of(&mirror, ReversePath::Strict, &sources), ["192.0.2.9", "10.1.1.255", "10.1.3.0"]);
    assert_eq!(allowed_of(&mirror, ReversePath::Loose, &sources), sources[..8]);
}

#[test]
fn what_is_unreachable_is_no_source_and_groups_are_none() {
    let mirror = mirror([
        unicast("0.0.0.0/0", HERE),
        route(MAIN, RouteType::BlackHole, "203.0.113.0/24", 0, 0),
        route(LOCAL, RouteType::Broadcast, "192.0.2.255/32", HERE, 0),
    ]);
    let sources =
        ["203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0", "192.0.2.254", "192.0.2.255"];
    for setting in [ReversePath::Strict, ReversePath::Loose] {
        let expected = ["203.0.112.255", "203.0.114.0", "192.0.2.254"];
        assert_eq!(allowed_of(&mirror, setting, &sources), expected, "{setting:?}");
    }
}

#[test]
fn the_lowest_metric_counts() {
    let both = |here, elsewhere| {
        mirror([
            route(MAIN, RouteType::Unicast, "0.0.0.0/0", HERE, here),
            route(MAIN, RouteType::Unicast, "0.0.0.0/0", ELSEWHERE, elsewhere),
        ])
    };
    let source = ["203.0.113.9"];
    assert_eq!(allowed_of(&both(10, 20), ReversePath::Strict, &source), source);
    assert_eq!(allowed_of(&both(20, 10), ReversePath::Strict, &source), [""; 0]);
}

#[test]
fn a_route_of_any_table_is_enough_since_rules_may_lead_there() {
    let mirror =
        mirror([route(OTHER, RouteType::Unicast, "0.0.0.0/0", HERE, 0), unicast("0.0.0.0/0", ELSEWHERE)]);
    assert_eq!(allowed_of(&mirror, ReversePath::Strict, &["203.0.113.9"]), ["203.0.113.9"]);
}

#[test]
fn routes_by_an_interface_that_is_down_do_not_count() {
    let mut mirror = mirror([unicast("0.0.0.0/0", HERE), unicast("203.0.113.0/24", ELSEWHERE)]);
    let source = ["203.0.113.9"];
    assert_eq!(allowed_of(&mirror, ReversePath::Strict, &source), [""; 0]);
    let mut down = link(ELSEWHERE, "eth1");
    down.header.flags = LinkFlags::empty();
    mirror.on_message(&NewLink(down));
    assert_eq!(allowed_of(&mirror, ReversePath::Strict, &source), source);
    mirror.on_message(&NewLink(link(ELSEWHERE, "eth1")));
    assert_eq!(allowed_of(&mirror, ReversePath::Strict, &source), source, "the kernel has forgotten them");
}

#[test]
fn ipv6_has_no_such_checks() {
    let mirror = mirror([
        unicast("2001:db8:7::/48", ELSEWHERE),
        route(LOCAL, RouteType::Local, "2001:db8:1::/48", 1, 0),
    ]);
    let sources = ["2001:db8:7::1", "2001:db8::1", "2001:db8:1::9"];
    assert_eq!(allowed_of(&mirror, ReversePath::Strict, &sources), sources);
}

#[test]
fn sets_of_addresses_end_at_the_ends_of_the_space() {
    let last = u128::MAX;
    assert_eq!(union(vec![(5, 9), (10, 12), (0, 3), (2, 2)]), [(0, 3), (5, 12)]);
    assert_eq!(union(vec![(last, last), (0, last)]), [(0, last)]);
    assert_eq!(subtract(&[(0, last)], &[(0, 0), (5, 6), (last, last)]), [(1, 4), (7, last - 1)]);
    assert_eq!(subtract(&[(3, 4), (6, 9)], &[(2, 4), (9, 20)]), [(6, 8)]);
}
