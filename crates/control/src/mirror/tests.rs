use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMetric, RouteType};

use super::*;

fn link(index: u32, name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, index as u8]),
    ];
    message
}

fn vlan(index: u32, name: &str, parent: u32, id: u16) -> LinkMessage {
    let mut message = link(index, name);
    message.attributes.push(LinkAttribute::Link(parent));
    let data = InfoData::Vlan(vec![InfoVlan::Id(id)]);
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Data(data)]));
    message
}

fn address(index: u32, text: &str) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Address(text.parse().unwrap())];
    message
}

fn local(text: &str, outer: u16, inner: u16) -> LocalAddress {
    LocalAddress { address: text.parse().unwrap(), vlan: VlanTags { outer, inner } }
}

fn mirror(messages: impl IntoIterator<Item = RouteNetlinkMessage>) -> Mirror {
    let mut mirror = Mirror::default();
    for message in messages {
        mirror.on_message(&message);
    }
    mirror
}

use RouteNetlinkMessage::{
    DelAddress, DelLink, DelNeighbour, DelRoute, NewAddress, NewLink, NewNeighbour, NewRoute,
};

#[test]
fn a_repeated_message_changes_nothing() {
    let mut mirror = Mirror::default();
    assert_eq!(mirror.on_message(&NewLink(link(2, "eth0"))), Some(Change::Link(2)));
    assert_eq!(mirror.on_message(&NewLink(link(2, "eth0"))), None);
    assert_eq!(mirror.on_message(&NewAddress(address(2, "192.0.2.1"))), Some(Change::Addresses(2)));
    assert_eq!(mirror.on_message(&NewAddress(address(2, "192.0.2.1"))), None);
    assert_eq!(mirror.link("eth0").unwrap().mac, Some([2, 0, 0, 0, 0, 2]));
}

#[test]
fn addresses_of_stacked_vlans_carry_their_tags() {
    let mirror = mirror([
        NewLink(link(2, "eth0")),
        NewLink(vlan(3, "eth0.7", 2, 7)),
        NewLink(vlan(4, "eth0.7.9", 3, 9)),
        NewLink(vlan(5, "too-deep", 4, 11)),
        NewLink(link(6, "eth1")),
        NewAddress(address(2, "192.0.2.1")),
        NewAddress(address(3, "192.0.2.2")),
        NewAddress(address(4, "2001:db8::4")),
        NewAddress(address(5, "192.0.2.5")),
        NewAddress(address(6, "192.0.2.6")),
    ]);
    let expected =
        BTreeSet::from([local("192.0.2.1", 0, 0), local("192.0.2.2", 7, 0), local("2001:db8::4", 7, 9)]);
    assert_eq!(mirror.local_addresses("eth0"), expected);
    assert!(mirror.local_addresses("eth9").is_empty());
}

#[test]
fn a_vlan_that_is_down_or_stands_on_another_namespace_has_no_local_addresses() {
    let mut down = vlan(3, "eth0.7", 2, 7);
    down.header.flags = LinkFlags::empty();
    let mut foreign = vlan(4, "eth0.8", 2, 8);
    foreign.attributes.push(LinkAttribute::LinkNetNsId(1));
    let mirror = mirror([
        NewLink(link(2, "eth0")),
        NewLink(down),
        NewLink(foreign),
        NewAddress(address(3, "192.0.2.3")),
        NewAddress(address(4, "192.0.2.4")),
    ]);
    assert!(mirror.local_addresses("eth0").is_empty());
}

#[test]
fn a_deleted_link_takes_its_addresses_along() {
    let mut mirror = mirror([NewLink(link(2, "eth0")), NewAddress(address(2, "192.0.2.1"))]);
    assert_eq!(mirror.on_message(&DelLink(link(2, "eth0"))), Some(Change::LinkGone(2)));
    assert_eq!(mirror.on_message(&DelAddress(address(2, "192.0.2.1"))), None);
    mirror.on_message(&NewLink(link(9, "eth0")));
    assert!(mirror.local_addresses("eth0").is_empty());
}

#[test]
fn an_address_is_there_until_its_last_prefix_is_gone() {
    let with_prefix = |prefix_len| {
        let mut message = address(2, "192.0.2.1");
        message.header.prefix_len = prefix_len;
        message
    };
    let mut mirror = mirror([NewLink(link(2, "eth0")), NewAddress(with_prefix(24))]);
    mirror.on_message(&NewAddress(with_prefix(16)));
    mirror.on_message(&DelAddress(with_prefix(24)));
    assert_eq!(mirror.local_addresses("eth0"), BTreeSet::from([local("192.0.2.1", 0, 0)]));
    mirror.on_message(&DelAddress(with_prefix(16)));
    assert!(mirror.local_addresses("eth0").is_empty());

    let with_peer = |peer: &str| {
        let mut message = address(2, peer);
        message.attributes.push(AddressAttribute::Local("192.0.2.1".parse().unwrap()));
        message
    };
    mirror.on_message(&NewAddress(with_peer("192.0.2.2")));
    mirror.on_message(&NewAddress(with_peer("192.0.2.3")));
    mirror.on_message(&DelAddress(with_peer("192.0.2.2")));
    assert_eq!(mirror.local_addresses("eth0"), BTreeSet::from([local("192.0.2.1", 0, 0)]));
}

#[test]
fn a_bridges_message_about_its_port_is_not_about_the_link() {
    let mut mirror = mirror([NewLink(link(2, "eth0"))]);
    let mut leaves_bridge = link(2, "eth0");
    leaves_bridge.header.interface_family = AddressFamily::Bridge;
    assert_eq!(mirror.on_message(&DelLink(leaves_bridge)), None);
    assert!(mirror.link("eth0").is_some());
}

#[test]
fn on_a_point_to_point_link_the_local_address_is_ours() {
    let mut message = address(2, "192.0.2.99");
    message.attributes.push(AddressAttribute::Local("192.0.2.1".parse().unwrap()));
    let mirror = mirror([NewLink(link(2, "ppp0")), NewAddress(message)]);
    assert_eq!(mirror.local_addresses("ppp0"), BTreeSet::from([local("192.0.2.1", 0, 0)]));
}

#[test]
fn a_neighbour_is_looked_for_unless_it_is_confirmed_or_others_care_for_it() {
    let peer = "192.0.2.9";
    let mut message = NeighbourMessage::default();
    message.header.ifindex = 2;
    message.header.state = NeighbourState::Stale;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(peer.parse().unwrap())),
        NeighbourAttribute::LinkLayerAddress(vec![1, 2, 3, 4, 5, 6]),
    ];
    let is_looked_for = |message: &NeighbourMessage| {
        let mirror = mirror([NewNeighbour(message.clone())]);
        mirror.neighbour(2, peer.parse().unwrap()).is_some_and(Neighbour::is_to_be_looked_for)
    };
    assert!(is_looked_for(&message));
    message.header.flags = NeighbourFlags::ExtLearned;
    assert!(!is_looked_for(&message), "a routing daemon knows it");
    message.header.flags = NeighbourFlags::empty();
    message.attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
    assert!(!is_looked_for(&message), "the kernel looks by itself");
    message.header.state = NeighbourState::Failed;
    assert!(is_looked_for(&message), "it is not there");
    message.attributes.pop();
    message.header.state = NeighbourState::Reachable;
    assert!(!is_looked_for(&message), "it answered");
}

#[test]
fn a_neighbour_is_usable_once_it_was_found_and_confirmed_once_it_answered() {
    let peer = "192.0.2.9";
    let mut message = NeighbourMessage::default();
    message.header.ifindex = 2;
    message.header.state = NeighbourState::Incomplete;
    message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(peer.parse().unwrap()))];
    let mut mirror = mirror([NewNeighbour(message.clone())]);
    let seen = |mirror: &Mirror| mirror.neighbour(2, peer.parse().unwrap());
    assert_eq!(
        seen(&mirror),
        Some(Neighbour { mac: None, usable: false, confirmed: false, cared_for: false })
    );
    message.header.state = NeighbourState::Stale;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(mirror.on_message(&NewNeighbour(message.clone())), Some(Change::Neighbours(2)));
    let found = Neighbour { mac: Some([1, 2, 3, 4, 5, 6]), usable: true, confirmed: false, cared_for: false };
    assert_eq!(seen(&mirror), Some(found));
    message.header.state = NeighbourState::Reachable;
    mirror.on_message(&NewNeighbour(message.clone()));
    assert_eq!(seen(&mirror), Some(Neighbour { confirmed: true, ..found }));
    mirror.on_message(&DelNeighbour(message));
    assert_eq!(seen(&mirror), None);
}

#[test]
fn a_route_is_known_by_table_prefix_metric_and_tos() {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = 254;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Gateway(RouteAddress::Inet("192.0.2.254".parse().unwrap())),
        RouteAttribute::Oif(2),
        RouteAttribute::Priority(100),
    ];
    let mut mirror = mirror([NewRoute(message.clone())]);
    let (key, route) = mirror.routes().next().unwrap();
    assert_eq!((key.destination.to_string().as_str(), key.prefix_len, key.priority), ("0.0.0.0", 0, 100));
    let gateway = Some("192.0.2.254".parse().unwrap());
    assert_eq!(route.next_hops, [NextHop { gateway, interface: Some(2) }]);
    assert_eq!(mirror.on_message(&DelRoute(message)), Some(Change::Routes));
    assert_eq!(mirror.routes().count(), 0);
}

/// A route of the main table.
pub(crate) fn route_to(network: &str, prefix_len: u8, advmss: Option<u32>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = prefix_len;
    message.header.table = 254;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(network.parse().unwrap())),
        RouteAttribute::Oif(2),
    ];
    message.attributes.extend(advmss.map(|mss| RouteAttribute::Metrics(vec![RouteMetric::Advmss(mss)])));
    message
}

#[test]
fn the_default_interface_is_that_of_the_main_table_with_the_least_metric() {
    let default = |table, metric, interface| {
        let mut message = route_to("0.0.0.0", 0, None);
        message.header.table = table;
        message.attributes = vec![RouteAttribute::Priority(metric), RouteAttribute::Oif(interface)];
        RouteNetlinkMessage::NewRoute(message)
    };
    let mut mirror = Mirror::default();
    assert_eq!(mirror.default_interfaces(), []);
    for message in [default(100, 0, 7), default(254, 200, 3), default(254, 100, 4)] {
        mirror.on_message(&message);
    }
    assert_eq!(
        mirror.default_interfaces(),
        [4, 3],
        "the one of table 100 is for those that its rule chooses"
    );
}
