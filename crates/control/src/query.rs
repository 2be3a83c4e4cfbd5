//! Single queries to the kernel: rtnetlink(7).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::SocketType;
use rustix::net::netdevice::name_to_index;

use crate::{Mirror, Neighbour};

/// IFLA_ALT_IFNAME (linux/if_link.h).
const ALTERNATIVE_NAME: u16 = 53;

/// The kernel's own name for an interface that a user may have named by an alternative one (`altname` of ip-link(8)): /sys and netlink's
/// events know that name alone. What names no interface stays as it is, for whoever looks for it to complain of.
pub fn kernel_name(given: &str) -> String {
    let mut message = LinkMessage::default();
    // The kernel looks for names of both kinds.
    let mut octets = given.as_bytes().to_vec();
    octets.push(0);
    message.attributes.push(LinkAttribute::Other(DefaultNla::new(ALTERNATIVE_NAME, octets)));
    let Ok(Some(RouteNetlinkMessage::NewLink(link))) =
        ask(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)
    else {
        return given.to_owned();
    };
    let name = link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    name.unwrap_or_else(|| given.to_owned())
}

/// How the kernel would send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Index of the interface that it leaves by.
    pub interface: u32,
    /// The next hop; `None`: the destination itself.
    pub gateway: Option<IpAddr>,
    /// The source address.
    pub source: IpAddr,
}

/// The route to `remote`, by all rules and tables of the kernel (RTM_GETROUTE). The error is the kernel's, such as
/// `ENETUNREACH`.
pub fn route_to(remote: IpAddr) -> io::Result<KernelRoute> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(remote);
    message.header.destination_prefix_length = if remote.is_ipv4() { 32 } else { 128 };
    message.attributes.push(RouteAttribute::Destination(match remote {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }));
    match ask(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST)? {
        Some(RouteNetlinkMessage::NewRoute(route)) => {
            read_route(&route).ok_or(io::ErrorKind::InvalidData.into())
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn read_route(route: &RouteMessage) -> Option<KernelRoute> {
    let (mut interface, mut gateway, mut source) = (None, None, None);
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    };
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(address) => gateway = ip(address),
            RouteAttribute::PrefSource(address) => source = ip(address),
            _ => (),
        }
    }
    Some(KernelRoute { interface: interface?, gateway, source: source? })
}

/// Makes the kernel look for a neighbour as if it had a packet for it (RTM_NEWNEIGH with NTF_USE). Needs CAP_NET_ADMIN. The
/// mirror shows the result.
pub fn look_for_neighbour(interface: u32, address: IpAddr) -> io::Result<()> {
    let mut message = about_neighbour(interface, address);
    message.header.flags = NeighbourFlags::Use;
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK;
    ask(RouteNetlinkMessage::NewNeighbour(message), flags).map(drop)
}

/// What the kernel knows of the neighbour `address` on an interface (RTM_GETNEIGH). The error is the kernel's: `ENOENT` if it knows nothing.
pub fn neighbour(interface: u32, address: IpAddr) -> io::Result<Option<Neighbour>> {
    let request = RouteNetlinkMessage::GetNeighbour(about_neighbour(interface, address));
    let mut mirror = Mirror::default();
    if let Some(answer) = ask(request, NLM_F_REQUEST)? {
        mirror.on_message(&answer);
    }
    Ok(mirror.neighbour(interface, address))
}

fn about_neighbour(interface: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = interface;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    }));
    message
}

/// Has an interface up, with this address in this prefix (RTM_NEWLINK, RTM_NEWADDR). Needs CAP_NET_ADMIN. It may have both already. An
/// address of IPv6 is good at once: nobody is asked whether somebody else has it (RFC 4862, 5.4).
pub fn bring_up(interface: &str, address: IpAddr, prefix_length: u8) -> io::Result<()> {
    let any = rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::DGRAM, None)?;
    let interface = name_to_index(any, interface)?;
    let mut link = LinkMessage::default();
    link.header.index = interface;
    (link.header.flags, link.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    ask(RouteNetlinkMessage::SetLink(link), NLM_F_REQUEST | NLM_F_ACK)?;
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.index = interface;
    message.header.prefix_len = prefix_length;
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    // IPv4 tells the two apart, on links between two hosts.
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
    ask(RouteNetlinkMessage::NewAddress(message), flags).map(drop)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Sends one request and waits for its answer; `None` for a plain acknowledgement.
fn ask(request: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    let mut message = NetlinkMessage::from(request);
    message.header.flags = flags;
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    socket.send_to(&octets, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::InnerMessage(inner) => Ok(Some(inner)),
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_name_and_one_of_no_interface_stay() {
        for name in ["lo", "no-such-if", "", "a name that is much too long to be one of the kernel's", "l\0o"]
        {
            assert_eq!(kernel_name(name), name);
        }
    }

    #[test]
    fn loopback_is_reached_by_loopback() {
        for address in [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])] {
            let route = route_to(address).unwrap();
            assert_eq!((route.gateway, route.source), (None, address));
        }
    }
}
