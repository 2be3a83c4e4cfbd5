use std::net::SocketAddr;

use wire::ethernet::ethertype;
use wire::{Endpoints, Envelope, MacAddress, VlanTag, write_udp};

use super::*;

const SERVER: &str = "192.0.2.1:53";
const SERVER_V6: &str = "[2001:db8::1]:53";

fn claim(transport: Transport, address: &str, vlan: VlanTags) -> Claim {
    let address: SocketAddr = address.parse().unwrap();
    Claim { transport, local: LocalAddress { address: address.ip(), vlan }, port: address.port() }
}

/// UDP and TCP at the two addresses of SERVER, and UDP at 198.51.100.1 behind the tag 7.
fn table() -> ClaimTable {
    let untagged = VlanTags::default();
    let both = [Transport::Udp, Transport::Tcp].into_iter();
    let claims = both.flat_map(|t| [claim(t, SERVER, untagged), claim(t, SERVER_V6, untagged)]);
    let tagged = claim(Transport::Udp, "198.51.100.1:53", VlanTags { outer: 7, inner: 0 });
    ClaimTable::new(&claims.chain([tagged]).collect())
}

fn datagram(destination: &str, tag: Option<u16>) -> Vec<u8> {
    let source = if destination.starts_with('[') { "[2001:db8::9]:5353" } else { "203.0.113.9:5353" };
    let endpoints = Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let mut envelope = Envelope::untagged(endpoints);
    envelope.tags = [tag.map(|control| VlanTag { tpid: 0x8100, control }), None];
    let mut frame = vec![0; 200];
    let len = write_udp(&mut frame, &envelope, b"question").unwrap();
    frame.truncate(len);
    frame
}

/// The same with another transport's number: ports are at the same place.
fn segment(destination: &str) -> Vec<u8> {
    let mut frame = datagram(destination, None);
    frame[if destination.starts_with('[') { 20 } else { 23 }] = protocol::TCP;
    frame
}

#[test]
fn claimed_is_what_goes_to_a_claimed_address_and_port() {
    let table = table();
    for server in [SERVER, SERVER_V6] {
        assert_eq!(table.verdict(&datagram(server, None)), Verdict::Claimed, "{server}");
        assert_eq!(table.verdict(&segment(server)), Verdict::Claimed, "{server}");
    }
    assert_eq!(table.verdict(&datagram("192.0.2.1:54", None)), Verdict::UnclaimedPort);
    assert_eq!(table.verdict(&datagram("192.0.2.2:53", None)), Verdict::UnclaimedAddress);
}

#[test]
fn an_address_of_a_vlan_is_claimed_behind_its_tag_only() {
    let table = table();
    let verdict = |tag| table.verdict(&datagram("198.51.100.1:53", tag));
    assert_eq!(
        [Some(7), Some(7 | 5 << 13), Some(8), None].map(verdict),
        [Verdict::Claimed, Verdict::Claimed, Verdict::UnclaimedAddress, Verdict::UnclaimedAddress],
        "the priority of a tag does not matter"
    );
    assert_eq!(table.verdict(&datagram(SERVER, Some(7))), Verdict::UnclaimedAddress);
}

#[test]
fn fragments_and_options_are_the_kernels_unless_they_are_claimed_tcp() {
    let table = table();
    let mut first_part = datagram(SERVER, None);
    first_part[20] = 0x20; // More fragments.
    let mut later_part = datagram(SERVER, None);
    later_part[21] = 9;
    assert_eq!(table.verdict(&first_part), Verdict::FragmentOrOptions);
    assert_eq!(table.verdict(&later_part), Verdict::FragmentOrOptions);
    for part in [&mut first_part, &mut later_part] {
        part[23] = protocol::TCP;
    }
    assert_eq!(table.verdict(&first_part), Verdict::UnreadableTcp, "the kernel would reset the connection");
    assert_eq!(table.verdict(&later_part), Verdict::FragmentOrOptions, "it has no ports");
    let mut elsewhere = segment("192.0.2.9:53");
    elsewhere[20] = 0x20;
    assert_eq!(table.verdict(&elsewhere), Verdict::FragmentOrOptions);
}

#[test]
fn an_icmp_error_is_claimed_if_it_quotes_a_packet_of_ours() {
    let quote = |from: &str| {
        let to = "203.0.113.9:5353".parse().unwrap();
        let endpoints = Endpoints::new(from.parse().unwrap(), to).unwrap();
        let mut frame = vec![0; 200];
        let len = write_udp(&mut frame, &Envelope::untagged(endpoints), b"answer").unwrap();
        frame[14..len].to_vec()
    };
    let error = |quoted: &[u8]| {
        let mut frame = vec![0; 200];
        let mac = MacAddress([2, 0, 0, 0, 0, 1]);
        let link = wire::ethernet::write(&mut frame, mac, mac, [None, None], ethertype::IPV4).unwrap();
        let message = wire::icmp::HEADER_LEN + quoted.len();
        let fields = wire::ipv4::Fields {
            traffic_class: 0,
            ttl: 64,
            protocol: protocol::ICMP,
            source: "203.0.113.1".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            payload_len: message,
        };
        let ip = wire::ipv4::write(&mut frame[link..], &fields).unwrap();
        let at = link + ip;
        frame[at + 8..at + message].copy_from_slice(quoted);
        let unreachable = wire::icmp::Fields { kind: 3, code: 3, rest: 0 };
        wire::icmp::write(&mut frame[at..at + message], &unreachable, wire::checksum::Sum::ZERO).unwrap();
        frame.truncate(at + message);
        frame
    };
    assert_eq!(table().verdict(&error(&quote(SERVER))), Verdict::Claimed);
    assert_eq!(table().verdict(&error(&quote("192.0.2.1:5000"))), Verdict::UnclaimedPort);
    assert_eq!(table().verdict(&error(&quote("192.0.2.2:53"))), Verdict::OtherProtocol, "sent by another");
    assert_eq!(table().verdict(&error(b"nothing")), Verdict::OtherProtocol);
}

#[test]
fn what_is_not_ip_or_is_cut_off_is_the_kernels() {
    let table = table();
    let mut arp = datagram(SERVER, None);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(table.verdict(&arp), Verdict::NotIp);
    let whole = datagram(SERVER, None);
    for len in 0..whole.len() {
        assert_ne!(table.verdict(&whole[..len]), Verdict::Claimed, "cut to {len} octets");
    }
}

#[test]
fn without_claims_nothing_is_claimed() {
    let none = ClaimTable::new(&BTreeSet::new());
    assert_eq!(none.verdict(&datagram(SERVER, None)), Verdict::UnclaimedPort);
}
