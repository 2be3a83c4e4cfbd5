//! What a UDP service may rely on: requests are found or refused with the right reason, replies go back whence they came.

use wire::{
    ChecksumPolicy, DropReason, Endpoints, Envelope, MacAddress, VlanTag, parse_udp, turn_around, write_udp,
};

const STRICT: ChecksumPolicy = ChecksumPolicy { verified: false, accept_partial: false };

fn envelope(source: &str, destination: &str) -> Envelope {
    Envelope {
        source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
        tags: [Some(VlanTag { tpid: 0x8100, control: 7 }), None],
        endpoints: Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap(),
    }
}

fn v4() -> Envelope {
    envelope("192.0.2.1:4000", "198.51.100.53:53")
}

fn v6() -> Envelope {
    envelope("[2001:db8::1]:4000", "[2001:db8::53]:53")
}

fn frame(envelope: &Envelope, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 2048];
    let len = write_udp(&mut frame, envelope, payload).unwrap();
    frame.truncate(len);
    frame
}

/// The reason for which the frame, changed by `change`, is dropped.
fn refused(envelope: Envelope, change: impl FnOnce(&mut [u8])) -> DropReason {
    let mut frame = frame(&envelope, b"question");
    change(&mut frame[4..]); // A tag's length: offsets below are those of an untagged frame.
    parse_udp(&frame, STRICT).unwrap_err()
}

#[test]
fn a_reply_leaves_for_the_sender_of_the_request() {
    for envelope in [v4(), v6()] {
        let mut frame = frame(&envelope, b"question");
        let request = parse_udp(&frame, STRICT).unwrap();
        assert_eq!(&frame[request.payload_range()], b"question");
        let (client, server) = (request.source(&frame), request.destination(&frame));
        frame.resize(256, 0xee); // Padding and room.
        let start = request.payload_offset();
        frame[start..start + 11].copy_from_slice(b"the answer!");
        let len = turn_around(&mut frame, &request, 11, false);
        frame.truncate(len);
        let reply = parse_udp(&frame, STRICT).unwrap();
        assert_eq!(reply.payload_range().end, len);
        assert_eq!(&frame[reply.payload_range()], b"the answer!");
        assert_eq!((reply.source(&frame), reply.destination(&frame)), (server, client));
        assert_eq!(frame[..6], envelope.source_mac.0);
        assert_eq!(frame[6..12], envelope.destination_mac.0);
        assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
    }
}

#[test]
fn a_reply_has_a_fresh_ip_header() {
    let mut frame = frame(&v4(), b"question");
    frame[18 + 1] = 0xff; // DSCP and ECN
    frame[18 + 4..18 + 6].fill(0x77); // Identification
    frame[18 + 8] = 3; // TTL
    let policy = ChecksumPolicy { verified: true, ..STRICT };
    let request = parse_udp(&frame, policy).unwrap();
    turn_around(&mut frame, &request, 8, false);
    assert!(parse_udp(&frame, STRICT).is_ok());
    assert_eq!(frame[18..18 + 10], [0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17]);
}

#[test]
fn the_udp_checksum_is_left_to_the_device_that_offloads_it() {
    let mut frame = frame(&v6(), b"question");
    let request = parse_udp(&frame, STRICT).unwrap();
    let before = frame[request.udp_offset() + 6..][..2].to_vec();
    turn_around(&mut frame, &request, 8, true);
    assert_eq!(frame[request.udp_offset() + 6..][..2], before);
}

#[test]
fn ethernet_padding_is_not_payload() {
    let mut frame = frame(&v4(), b"q");
    frame.resize(64, 0);
    let headers = parse_udp(&frame, STRICT).unwrap();
    assert_eq!(&frame[headers.payload_range()], b"q");
}

#[test]
fn an_unfinished_checksum_is_right_only_where_the_device_says_so() {
    for envelope in [v4(), v6()] {
        let mut frame = frame(&envelope, b"question");
        let headers = parse_udp(&frame, STRICT).unwrap();
        let ip = headers.ip_offset();
        let addresses = if ip + 20 == headers.udp_offset() { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
        let pseudo = wire::checksum::Sum::of(&frame[addresses])
            + wire::checksum::Sum::of_u16(17)
            + wire::checksum::Sum::of_u16(16);
        let field = headers.udp_offset() + 6;
        frame[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        assert_eq!(parse_udp(&frame, STRICT), Err(DropReason::UdpChecksum));
        assert!(parse_udp(&frame, ChecksumPolicy { accept_partial: true, ..STRICT }).is_ok());
    }
}

#[test]
fn no_udp_checksum_is_allowed_on_ipv4_and_refused_on_ipv6() {
    let mut plain = frame(&v4(), b"question");
    plain[18 + 26..18 + 28].fill(0);
    assert!(parse_udp(&plain, STRICT).is_ok());
    assert_eq!(refused(v6(), |frame| frame[14 + 46..14 + 48].fill(0)), DropReason::UdpChecksumMissing);
}

#[test]
fn what_is_not_a_unicast_datagram_to_a_service_is_refused_for_its_reason() {
    use DropReason::*;
    type Case = (Envelope, fn(&mut [u8]), DropReason);
    let cases: [Case; 20] = [
        (v4(), |frame| frame[14] = 0x65, IpVersion),
        (v4(), |frame| frame[14] = 0x44, Ipv4HeaderLength),
        (v4(), |frame| frame[14] = 0x46, Ipv4Options),
        (v4(), |frame| frame[16..18].copy_from_slice(&[0xff, 0xff]), IpLength),
        (v4(), |frame| frame[16..18].copy_from_slice(&[0, 27]), IpLength),
        (v4(), |frame| frame[20] = 0x20, IpFragment),
        (v4(), |frame| frame[21] = 1, IpFragment),
        (v4(), |frame| frame[22] = 63, Ipv4Checksum),
        (v4(), |frame| frame[23] = 6, ProtocolUnknown),
        (v4(), |frame| frame[26..30].fill(0), SourceAddress),
        (v4(), |frame| frame[26] = 224, SourceAddress),
        (v4(), |frame| frame[30..34].fill(255), DestinationAddress),
        (v4(), |frame| frame[34..36].fill(0), SourcePortZero),
        (v4(), |frame| frame[36..38].fill(0), DestinationPortZero),
        (v4(), |frame| frame[38..40].copy_from_slice(&[0, 7]), UdpLength),
        (v4(), |frame| frame[42] ^= 1, UdpChecksum),
        (v6(), |frame| frame[20] = 0, Ipv6ExtensionHeaders),
        (v6(), |frame| frame[20] = 44, IpFragment),
        (v6(), |frame| frame[38] = 0xff, DestinationAddress),
        (v6(), |frame| frame[18] = 0xff, IpLength),
    ];
    for (number, (envelope, change, reason)) in cases.into_iter().enumerate() {
        assert_eq!(refused(envelope, change), reason, "case {number}");
    }
}

#[test]
fn a_frame_to_a_group_is_refused() {
    let group = Envelope { destination_mac: MacAddress::BROADCAST, ..v4() };
    assert_eq!(refused(group, |_| ()), DropReason::EthernetGroupDestination);
}

#[test]
fn a_frame_from_a_group_is_refused_lest_everybody_gets_the_answer() {
    let group = Envelope { source_mac: MacAddress::BROADCAST, ..v4() };
    assert_eq!(refused(group, |_| ()), DropReason::EthernetGroupSource);
}

#[test]
fn every_truncation_is_refused() {
    for envelope in [v4(), v6()] {
        let frame = frame(&envelope, b"question");
        for len in 0..frame.len() {
            assert!(parse_udp(&frame[..len], STRICT).is_err(), "{len} octets");
        }
    }
}

#[test]
fn the_longest_reply_fills_the_mtu() {
    let v4 = parse_udp(&frame(&v4(), b""), STRICT).unwrap();
    let v6 = parse_udp(&frame(&v6(), b""), STRICT).unwrap();
    assert_eq!((v4.max_payload(1500), v6.max_payload(1280)), (1472, 1232));
    assert_eq!(v4.max_payload(20), 0);
}
