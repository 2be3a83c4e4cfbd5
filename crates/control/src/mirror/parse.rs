//! Netlink messages as values of the mirror; `None` for messages that it ignores.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType,
};

use super::{Link, Neighbour, NextHop, Route, RouteKey, RouteKind, Vlan};

/// The link of an RTM_NEWLINK or RTM_DELLINK. Messages of other families, such as a bridge's about its ports, say nothing
/// about the link itself.
pub(super) fn link(message: &LinkMessage) -> Option<Link> {
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        mac: None,
        rx_queues_max: 1,
        vlan: None,
    };
    let (mut parent, mut vlan_id, mut foreign_parent) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(octets) => link.mac = octets.as_slice().try_into().ok(),
            LinkAttribute::NumRxQueues(queues) => link.rx_queues_max = *queues,
            LinkAttribute::Link(index) => parent = Some(*index),
            LinkAttribute::LinkNetNsId(_) => foreign_parent = true,
            LinkAttribute::LinkInfo(infos) => vlan_id = vlan_identifier(infos),
            _ => (),
        }
    }
    if !foreign_parent && let (Some(parent), Some(id)) = (parent, vlan_id) {
        link.vlan = Some(Vlan { parent, id });
    }
    Some(link)
}

fn vlan_identifier(infos: &[LinkInfo]) -> Option<u16> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(vlan)) => vlan.iter().find_map(|entry| match entry {
            InfoVlan::Id(id) => Some(*id),
            _ => None,
        }),
        _ => None,
    })
}

/// The local address. On a point-to-point link IFA_ADDRESS is the peer's, and IFA_LOCAL ours; IPv6 sends only the former
/// otherwise.
/// An address as the kernel identifies it. It may exist with several prefixes and peers, until the last of them is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) local: IpAddr,
    peer: Option<IpAddr>,
    prefix_len: u8,
}

pub(super) fn address(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut peer) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => peer = Some(*address),
            _ => (),
        }
    }
    Some(Address { local: local.or(peer)?, peer, prefix_len: message.header.prefix_len })
}

pub(super) fn neighbour(message: &NeighbourMessage) -> Option<((u32, IpAddr), Neighbour)> {
    let (mut address, mut mac) = (None, None);
    let mut cared_for = message.header.flags.contains(NeighbourFlags::ExtLearned);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::ExtFlags(flags) => cared_for |= flags.contains(NeighbourExtFlags::Managed),
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(octets) => mac = octets.as_slice().try_into().ok(),
            _ => (),
        }
    }
    let unusable = [NeighbourState::Incomplete, NeighbourState::Failed, NeighbourState::None];
    let usable = mac.is_some() && !unusable.contains(&message.header.state);
    let known = [NeighbourState::Reachable, NeighbourState::Permanent, NeighbourState::Noarp];
    let confirmed = usable && known.contains(&message.header.state);
    Some(((message.header.ifindex, address?), Neighbour { mac, usable, confirmed, cared_for }))
}

/// A route of either IP version; clones in the route cache are not routes.
pub(super) fn route(message: &RouteMessage) -> Option<(RouteKey, Route)> {
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let mut key = RouteKey {
        table: u32::from(header.table),
        destination: unspecified,
        prefix_len: header.destination_prefix_length,
        priority: 0,
        tos: header.tos,
    };
    let kind = match header.kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::Broadcast | RouteType::Multicast | RouteType::Anycast => RouteKind::Group,
        _ => RouteKind::None,
    };
    let mut route = Route { kind, preferred_source: None, next_hops: Vec::new(), advmss: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => key.table = *table,
            RouteAttribute::Priority(priority) => key.priority = *priority,
            RouteAttribute::Destination(address) => key.destination = ip(address)?,
            RouteAttribute::PrefSource(address) => route.preferred_source = ip(address),
            RouteAttribute::Metrics(metrics) => route.advmss = advmss(metrics),
            RouteAttribute::MultiPath(hops) => {
                let hops = hops.iter().map(|hop| next_hop(Some(hop.interface_index), &hop.attributes));
                route.next_hops.extend(hops);
            }
            _ => (),
        }
    }
    if route.next_hops.is_empty() {
        route.next_hops.push(next_hop(None, &message.attributes));
    }
    Some((key, route))
}

fn advmss(metrics: &[RouteMetric]) -> Option<u16> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Advmss(octets) => u16::try_from(*octets).ok(),
        _ => None,
    })
}

fn next_hop(interface: Option<u32>, attributes: &[RouteAttribute]) -> NextHop {
    let mut hop = NextHop { gateway: None, interface };
    for attribute in attributes {
        match attribute {
            RouteAttribute::Gateway(address) => hop.gateway = ip(address),
            RouteAttribute::Oif(index) => hop.interface = Some(*index),
            _ => (),
        }
    }
    hop
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}
