//! A copy of the kernel's links, addresses, neighbours and routes.
//!
//! Pure: messages come in, from dumps or as events, and changes come out. Applying a message twice changes nothing.

mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use steering::{LocalAddress, VlanTags};

/// The routing table of those without a rule of their own: RT_TABLE_MAIN of rtnetlink(7).
const MAIN_TABLE: u32 = 254;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Never reused, unlike the name.
    pub index: u32,
    /// Such as `eth0`.
    pub name: String,
    /// Largest IP packet in octets.
    pub mtu: u32,
    /// Administratively up: IFF_UP.
    pub up: bool,
    /// A carrier is there: IFF_LOWER_UP.
    pub carrier: bool,
    /// Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Receive queues that the interface was made with; it may use fewer now.
    pub rx_queues_max: u32,
    /// The interface below, if this one is a VLAN in the same network namespace.
    pub vlan: Option<Vlan>,
}

/// What makes a link a VLAN interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Index of the interface below.
    pub parent: u32,
    /// VLAN identifier.
    pub id: u16,
}

/// The link-layer address of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// `None` while the kernel looks for it, and if it is not found.
    pub mac: Option<[u8; 6]>,
    /// Packets may be sent to it: it was found, or is configured.
    pub usable: bool,
    /// The kernel has heard from it lately, or it is configured.
    pub confirmed: bool,
    /// Another party keeps it right: a routing daemon (`NTF_EXT_LEARNED`) or the kernel itself (`NTF_EXT_MANAGED`).
    pub cared_for: bool,
}

impl Neighbour {
    /// Whether to ask the kernel to look for it before or while it is used. Not if another party keeps it right: that would remove the
    /// marks by which it recognises its entries.
    pub fn is_to_be_looked_for(self) -> bool {
        !self.usable || !self.confirmed && !self.cared_for
    }
}

/// A route's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// Routing table.
    pub table: u32,
    /// Destination prefix.
    pub destination: IpAddr,
    /// Octets of the prefix, in bits.
    pub prefix_len: u8,
    /// Metric: lower is preferred.
    pub priority: u32,
    /// Type of service.
    pub tos: u8,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What becomes of packets to it.
    pub kind: RouteKind,
    /// Source address that the kernel would choose.
    pub preferred_source: Option<IpAddr>,
    /// More than one: multipath.
    pub next_hops: Vec<NextHop>,
    /// Largest TCP segment to announce to who is there (`advmss` of ip-route(8)).
    pub advmss: Option<u16>,
}

/// What a route does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sends them to next hops.
    Unicast,
    /// Takes them: the destination is this host.
    Local,
    /// Sends them to several hosts, or to one of several: broadcast, multicast, anycast.
    Group,
    /// Sends them nowhere: unreachable, blackhole, prohibit, throw.
    None,
}

/// One next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// `None`: the destination itself is the neighbour.
    pub gateway: Option<IpAddr>,
    /// Index of the interface to leave by.
    pub interface: Option<u32>,
}

/// What a message changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link is new, or differs.
    Link(u32),
    /// A link is gone, with everything that belonged to it.
    LinkGone(u32),
    /// Addresses of this link.
    Addresses(u32),
    /// Neighbours on this link.
    Neighbours(u32),
    /// Routes.
    Routes,
    /// Messages were lost, and everything was read again.
    Resynchronised,
}

/// See the module's page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<u32, BTreeSet<parse::Address>>,
    neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    routes: BTreeMap<RouteKey, Route>,
    limits_segments: bool,
}

impl Mirror {
    /// Applies one message; `None` if it changed nothing.
    pub fn on_message(&mut self, message: &RouteNetlinkMessage) -> Option<Change> {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.on_new_link(link),
            RouteNetlinkMessage::DelLink(link) => self.on_deleted_link(link),
            RouteNetlinkMessage::NewAddress(address) => self.on_address(address, true),
            RouteNetlinkMessage::DelAddress(address) => self.on_address(address, false),
            RouteNetlinkMessage::NewNeighbour(neighbour) => self.on_neighbour(neighbour, true),
            RouteNetlinkMessage::DelNeighbour(neighbour) => self.on_neighbour(neighbour, false),
            RouteNetlinkMessage::NewRoute(route) => self.on_route(route, true),
            RouteNetlinkMessage::DelRoute(route) => self.on_route(route, false),
            _ => None,
        }
    }

    /// The interface with this index.
    pub fn link_at(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// The interface of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// All interfaces, by index.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Addresses of one interface, including tentative and deprecated ones; an address appears as often as the kernel has it.
    pub fn addresses(&self, index: u32) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.get(&index).into_iter().flatten().map(|address| address.local)
    }

    /// All neighbours, by interface and address.
    pub fn neighbours(&self) -> impl Iterator<Item = ((u32, IpAddr), Neighbour)> + '_ {
        self.neighbours.iter().map(|(&key, &neighbour)| (key, neighbour))
    }

    /// The interfaces whose packets come by interface `name`, each with the tags in front of them: itself, and VLAN interfaces on it, up to
    /// two levels, that are up.
    pub fn links_on(&self, name: &str) -> impl Iterator<Item = (VlanTags, &Link)> {
        let device = self.link(name).map(|device| device.index);
        self.links.values().filter_map(move |link| Some((self.tags_on(link, device?)?, link)))
    }

    /// Indices of the interfaces whose packets arrive on interface `name`: itself, and its VLAN interfaces that are up.
    pub fn interfaces_on(&self, name: &str) -> BTreeSet<u32> {
        self.links_on(name).map(|(_, link)| link.index).collect()
    }

    /// The neighbour `address` on one interface.
    pub fn neighbour(&self, index: u32, address: IpAddr) -> Option<Neighbour> {
        self.neighbours.get(&(index, address)).copied()
    }

    /// All routes, by table, destination, length and metric.
    pub fn routes(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.routes.iter()
    }

    /// The interfaces of default routes, the one that the kernel prefers first. Tables of policies do not count: they are for packets that their
    /// rules choose, as those of a VPN.
    pub fn default_interfaces(&self) -> Vec<u32> {
        let is_default = |key: &RouteKey| key.prefix_len == 0 && key.table == MAIN_TABLE;
        let mut defaults: Vec<_> = self.routes().filter(|(key, _)| is_default(key)).collect();
        defaults.sort_by_key(|(key, _)| (key.destination.is_ipv6(), key.priority));
        defaults.iter().flat_map(|(_, route)| &route.next_hops).filter_map(|hop| hop.interface).collect()
    }

    /// Whether a route has, or had, a limit of segment sizes. Few hosts have one, and the others need not look for it.
    pub(crate) fn may_limit_segments(&self) -> bool {
        self.limits_segments
    }

    /// Destination addresses of packets on interface `name`: its own, and behind their tags those of its VLAN
    /// interfaces that are up, up to two levels deep.
    pub fn local_addresses(&self, name: &str) -> BTreeSet<LocalAddress> {
        let of_link = |(vlan, link): (VlanTags, &Link)| {
            self.addresses(link.index).map(move |address| LocalAddress { address, vlan })
        };
        self.links_on(name).flat_map(of_link).collect()
    }

    /// The tags in front of packets for `link` on the interface `device`; `None` if its packets do not arrive there.
    fn tags_on(&self, link: &Link, device: u32) -> Option<VlanTags> {
        if link.index == device {
            return Some(VlanTags::default());
        }
        let inner = link.vlan.filter(|_| link.up)?;
        if inner.parent == device {
            return Some(VlanTags { outer: inner.id, inner: 0 });
        }
        let between = self.links.get(&inner.parent)?;
        let outer = between.vlan.filter(|_| between.up)?;
        (outer.parent == device).then_some(VlanTags { outer: outer.id, inner: inner.id })
    }

    #[cfg(test)]
    pub(crate) fn set_neighbour(&mut self, index: u32, address: IpAddr, neighbour: Neighbour) {
        self.neighbours.insert((index, address), neighbour);
    }

    fn on_new_link(&mut self, message: &LinkMessage) -> Option<Change> {
        let link = parse::link(message)?;
        let index = link.index;
        let differs = self.links.get(&index) != Some(&link);
        if !link.up {
            self.forget_routes_by(index);
        }
        self.links.insert(index, link);
        differs.then_some(Change::Link(index))
    }

    fn on_deleted_link(&mut self, message: &LinkMessage) -> Option<Change> {
        let index = parse::link(message)?.index;
        self.addresses.remove(&index);
        self.neighbours.retain(|&(interface, _), _| interface != index);
        self.forget_routes_by(index);
        self.links.remove(&index).map(|_| Change::LinkGone(index))
    }

    /// An interface went down: the kernel forgets the routes of IPv4 by it and tells nobody (`fib_sync_down_dev`).
    fn forget_routes_by(&mut self, index: u32) {
        let leads_by_it = |route: &Route| route.next_hops.iter().all(|hop| hop.interface == Some(index));
        self.routes.retain(|key, route| key.destination.is_ipv6() || !leads_by_it(route));
    }

    fn on_address(&mut self, message: &AddressMessage, present: bool) -> Option<Change> {
        let index = message.header.index;
        let address = parse::address(message)?;
        let addresses = self.addresses.entry(index).or_default();
        let changed = if present { addresses.insert(address) } else { addresses.remove(&address) };
        changed.then_some(Change::Addresses(index))
    }

    fn on_neighbour(&mut self, message: &NeighbourMessage, present: bool) -> Option<Change> {
        let (key, neighbour) = parse::neighbour(message)?;
        let changed = if present {
            self.neighbours.insert(key, neighbour) != Some(neighbour)
        } else {
            self.neighbours.remove(&key).is_some()
        };
        changed.then_some(Change::Neighbours(key.0))
    }

    fn on_route(&mut self, message: &RouteMessage, present: bool) -> Option<Change> {
        let (key, route) = parse::route(message)?;
        self.limits_segments |= route.advmss.is_some();
        let changed = if present {
            self.routes.get(&key) != Some(&route) && {
                self.routes.insert(key, route);
                true
            }
        } else {
            self.routes.remove(&key).is_some()
        };
        changed.then_some(Change::Routes)
    }
}

#[cfg(test)]
pub(crate) mod tests;
