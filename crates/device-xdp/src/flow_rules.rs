//! Rules in the NIC that steer flows to queues, where it has such: ETHTOOL_SRXCLSRLINS and its siblings (linux/ethtool.h); and which fields of packets it
//! hashes for all others. Netlink has no messages for the rules, and before Linux 6.17 none for the fields.

use std::io;
use std::os::fd::AsFd;

use steering::Transport;

use crate::syscalls;

/// Packets to a port of any address, from source ports with certain low bits, and their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// TCP or UDP.
    pub transport: Transport,
    /// IPv6 instead of IPv4.
    pub is_v6: bool,
    /// Destination port.
    pub port: u16,
    /// Bits of the source port.
    pub source: u16,
    /// Which of them count.
    pub source_mask: u16,
    /// The queue.
    pub queue: u32,
}

const HASHED_FIELDS: u32 = 0x29;
const RULE_COUNT: u32 = 0x2e;
const RULE: u32 = 0x2f;
const RULE_LIST: u32 = 0x30;
const RULE_DELETE: u32 = 0x31;
const RULE_INSERT: u32 = 0x32;

/// RX_CLS_LOC_SPECIAL: the driver finds a place for a rule itself; RX_CLS_LOC_ANY asks it to.
const CHOOSES_PLACES: u64 = 1 << 31;
const ANY_PLACE: u32 = u32::MAX;

/// `struct ethtool_rxnfc` with the first entry of its list, which is where the structure's padding would be.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Request {
    command: u32,
    flow_type: u32,
    data: u64,
    rule: Specification,
    count: u32,
    first_place: u32,
}

/// `struct ethtool_rx_flow_spec`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Specification {
    flow_type: u32,
    value: Header,
    _value_extension: [u32; 5],
    mask: Header,
    _mask_extension: [u32; 5],
    queue: u64,
    place: u32,
    _padding: u32,
}

/// `union ethtool_flow_union`: the fields of a packet's header, 52 octets.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Header([u32; 13]);

/// A request with room for a list of places.
const LIST_MAX: usize = 1024;

#[repr(C)]
struct ListRequest {
    request: Request,
    places: [u32; LIST_MAX],
}

const _: () = assert!(size_of::<Request>() == 192 && std::mem::offset_of!(Request, rule) == 16);
const _: () = assert!(std::mem::offset_of!(Specification, queue) == 152 && size_of::<Specification>() == 168);
const _: () = assert!(std::mem::offset_of!(Request, first_place) == 188);

impl Header {
    /// Ports, in network order: after two addresses of 4 or 16 octets.
    fn with_ports(is_v6: bool, source: u16, destination: u16) -> Header {
        let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
        let mut header = Header::default();
        header.0[Header::place(is_v6)] = u32::from_ne_bytes([ports[0], ports[1], ports[2], ports[3]]);
        header
    }

    fn ports(&self, is_v6: bool) -> (u16, u16) {
        let [a, b, c, d] = self.0[Header::place(is_v6)].to_ne_bytes();
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    fn place(is_v6: bool) -> usize {
        if is_v6 { 8 } else { 2 }
    }
}

impl FlowRule {
    /// TCP_V4_FLOW, UDP_V4_FLOW, TCP_V6_FLOW, UDP_V6_FLOW.
    const TYPES: [(u32, Transport, bool); 4] = [
        (1, Transport::Tcp, false),
        (2, Transport::Udp, false),
        (5, Transport::Tcp, true),
        (6, Transport::Udp, true),
    ];

    fn specification(&self) -> Specification {
        let is_same = |(_, transport, is_v6): &&(u32, Transport, bool)| {
            (*transport, *is_v6) == (self.transport, self.is_v6)
        };
        let (flow_type, ..) = FlowRule::TYPES.iter().find(is_same).expect("the table has all four");
        Specification {
            flow_type: *flow_type,
            value: Header::with_ports(self.is_v6, self.source, self.port),
            mask: Header::with_ports(self.is_v6, self.source_mask, u16::MAX),
            queue: self.queue.into(),
            place: ANY_PLACE,
            ..Specification::default()
        }
    }

    /// `None` for a rule of another kind.
    fn of(specification: &Specification) -> Option<FlowRule> {
        let (_, transport, is_v6) = FlowRule::TYPES.into_iter().find(|it| it.0 == specification.flow_type)?;
        let (source, port) = specification.value.ports(is_v6);
        let (source_mask, _) = specification.mask.ports(is_v6);
        let queue = u32::try_from(specification.queue).ok()?;
        let rule = FlowRule { transport, is_v6, port, source, source_mask, queue };
        let ours = rule.specification();
        let is_ours = (ours.value.0, ours.mask.0) == (specification.value.0, specification.mask.0);
        is_ours.then_some(rule)
    }
}

/// What of a packet of TCP decides by which queue it comes, if that is its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashedFields {
    /// Both addresses.
    Addresses,
    /// Both addresses and both ports.
    AddressesAndPorts,
    /// Others, or others besides.
    Other,
}

impl HashedFields {
    /// RXH_IP_SRC and RXH_IP_DST; RXH_L4_B_0_1 and RXH_L4_B_2_3.
    const ADDRESSES: u64 = 1 << 4 | 1 << 5;
    const PORTS: u64 = 1 << 6 | 1 << 7;

    fn of(fields: u64) -> HashedFields {
        const BOTH: u64 = HashedFields::ADDRESSES | HashedFields::PORTS;
        match fields {
            HashedFields::ADDRESSES => HashedFields::Addresses,
            BOTH => HashedFields::AddressesAndPorts,
            _ => HashedFields::Other,
        }
    }
}

/// What an interface hashes of packets of TCP over IPv4 or IPv6.
pub fn tcp_hashed_fields(interface: &str, is_v6: bool) -> io::Result<HashedFields> {
    let is_it = |(_, transport, v6): &&(u32, Transport, bool)| (*transport, *v6) == (Transport::Tcp, is_v6);
    let (flow_type, ..) = FlowRule::TYPES.iter().find(is_it).expect("the table has all four");
    let mut request = Request { command: HASHED_FIELDS, flow_type: *flow_type, ..Request::default() };
    ask(interface, &mut request)?;
    Ok(HashedFields::of(request.data))
}

/// The rules of an interface that are of this kind, with their places. Others are left out.
pub fn flow_rules(interface: &str) -> io::Result<Vec<(u32, FlowRule)>> {
    let (places, _) = places(interface)?;
    let mut rules = Vec::new();
    for place in places {
        let mut request = Request { command: RULE, ..Request::default() };
        request.rule.place = place;
        ask(interface, &mut request)?;
        rules.extend(FlowRule::of(&request.rule).map(|rule| (place, rule)));
    }
    Ok(rules)
}

/// Puts a rule into the NIC. Where the driver does not choose places, it goes to the last free one.
pub fn insert_flow_rule(interface: &str, rule: &FlowRule) -> io::Result<()> {
    let (taken, size) = places(interface)?;
    let mut request = Request { command: RULE_INSERT, rule: rule.specification(), ..Request::default() };
    if let Some(size) = size {
        let free = (0..size).rev().find(|place| !taken.contains(place));
        request.rule.place = free.ok_or_else(|| io::Error::other("the NIC has no room for another rule"))?;
    }
    ask(interface, &mut request)
}

/// Takes the rule at a place out of the NIC.
pub fn remove_flow_rule(interface: &str, place: u32) -> io::Result<()> {
    let mut request = Request { command: RULE_DELETE, ..Request::default() };
    request.rule.place = place;
    ask(interface, &mut request)
}

/// The places that have rules, and how many places there are, unless the driver chooses them itself.
fn places(interface: &str) -> io::Result<(Vec<u32>, Option<u32>)> {
    let mut request = Request { command: RULE_COUNT, ..Request::default() };
    ask(interface, &mut request)?;
    let (count, chooses) = (request.count, request.data & CHOOSES_PLACES != 0);
    let request = Request { command: RULE_LIST, count, ..Request::default() };
    let mut list = Box::new(ListRequest { request, places: [0; LIST_MAX] });
    if count as usize > LIST_MAX {
        return Err(io::Error::other("the NIC has more rules than Sidestep reads"));
    }
    ask(interface, &mut *list)?;
    let mut places = vec![list.request.first_place];
    places.extend_from_slice(&list.places);
    places.truncate(list.request.count.min(count) as usize);
    let size = u32::try_from(list.request.data).unwrap_or(u32::MAX);
    Ok((places, (!chooses).then_some(size)))
}

/// A request that ETHTOOL_*RXCLSRL* take.
trait RuleRequest {}
impl RuleRequest for Request {}
impl RuleRequest for ListRequest {}

fn ask<R: RuleRequest>(interface: &str, request: &mut R) -> io::Result<()> {
    let socket = syscalls::query_socket()?;
    // SAFETY: both kinds of request begin with `struct ethtool_rxnfc`, whose layout is asserted above, and hold integers only. The
    // kernel writes beyond it for RULE_LIST alone, at most `count` places, for which `ListRequest` has room.
    unsafe { syscalls::ethtool(socket.as_fd(), interface, request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: FlowRule =
        FlowRule { transport: Transport::Udp, is_v6: false, port: 53, source: 1, source_mask: 1, queue: 3 };

    #[test]
    fn fields_are_understood_if_they_are_addresses_with_ports_or_without() {
        let of = [0x30, 0xf0, 0x10, 0x70, 0x34, 0xf4, 0].map(HashedFields::of);
        assert_eq!(of[..2], [HashedFields::Addresses, HashedFields::AddressesAndPorts]);
        assert!(of[2..].iter().all(|fields| *fields == HashedFields::Other));
    }

    #[test]
    fn loopback_does_not_say_what_it_hashes() {
        assert!([false, true].iter().all(|is_v6| tcp_hashed_fields("lo", *is_v6).is_err()));
    }

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        for rule in [RULE, FlowRule { is_v6: true, transport: Transport::Tcp, ..RULE }] {
            assert_eq!(FlowRule::of(&rule.specification()), Some(rule));
        }
    }

    #[test]
    fn ports_are_where_the_kernel_has_them() {
        // `struct ethtool_tcpip4_spec`: two addresses, source port, destination port.
        let words = RULE.specification().value.0;
        assert_eq!(words[2].to_ne_bytes(), [0, 1, 0, 53]);
        let words = FlowRule { is_v6: true, ..RULE }.specification().mask.0;
        assert_eq!(words[8].to_ne_bytes(), [0, 1, 0xff, 0xff]);
    }

    #[test]
    fn a_rule_of_another_kind_is_none_of_ours() {
        let mut other = RULE.specification();
        other.mask.0[0] = u32::MAX; // It has a source address.
        assert_eq!(FlowRule::of(&other), None);
        let ether = Specification { flow_type: 0x12, ..RULE.specification() };
        assert_eq!(FlowRule::of(&ether), None);
    }

    #[test]
    fn an_interface_without_rules_refuses_them() {
        assert!(flow_rules("lo").is_err());
        assert!(insert_flow_rule("lo", &RULE).is_err());
        assert!(remove_flow_rule("lo", 0).is_err());
    }
}
