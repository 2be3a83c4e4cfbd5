//! One entry for fuzzers: every parser on the same octets.

use crate::ethernet::Ethernet;
use crate::icmp::IcmpError;
use crate::ip::Ip;
use crate::tcp::{Tcp, TcpOption};
use crate::udp::Udp;
use crate::{ChecksumPolicy, UdpHeaders, parse_udp, protocol, turn_around};

/// Runs every parser on `data`, taken as a frame and as a bare packet, and checks what they promise of each other.
///
/// # Panics
/// If a parser is wrong: that is what fuzzers look for.
pub fn fuzz_wire(data: &[u8]) {
    let packet = Ethernet::parse(data).and_then(|ethernet| {
        let _ = (ethernet.source(), ethernet.destination(), ethernet.tags());
        Ip::in_frame(&ethernet)
    });
    if let Ok(ip) = &packet {
        visit_transport(ip);
    }
    if let Ok(ip) = Ip::parse_quoted(data) {
        visit_transport(&ip);
    }
    let strict = ChecksumPolicy::default();
    for policy in [
        strict,
        ChecksumPolicy { verified: true, ..strict },
        ChecksumPolicy { accept_partial: true, ..strict },
    ] {
        if let Ok(headers) = parse_udp(data, policy) {
            let ip = packet.as_ref().expect("what the hot path accepts, the views accept");
            compare_with_views(data, &headers, ip);
            answer(data, &headers);
        }
    }
}

fn visit_transport(ip: &Ip<'_>) {
    let pseudo_header = ip.pseudo_header(ip.payload().len());
    let _ = (ip.source(), ip.destination(), ip.is_fragment());
    if let Ok(udp) = Udp::parse(ip.payload()) {
        let _ = (udp.source_port(), udp.destination_port(), udp.checksum_is_valid(pseudo_header));
    }
    if let Ok(tcp) = Tcp::parse(ip.payload()) {
        let _ = (tcp.flags(), tcp.sequence_number(), tcp.payload(), tcp.checksum_is_valid(pseudo_header));
        for option in tcp.options() {
            if let TcpOption::Sack(blocks) = option {
                assert!(blocks.iter().count() <= 4, "options have at most 40 octets");
            }
        }
    }
    let _ = IcmpError::parse(ip);
}

fn compare_with_views(frame: &[u8], headers: &UdpHeaders, ip: &Ip<'_>) {
    assert_eq!(ip.protocol(), protocol::UDP);
    assert!(!ip.is_fragment());
    let udp = Udp::parse(ip.payload()).expect("what the hot path accepts, the views accept");
    assert_eq!(&frame[headers.payload_range()], udp.payload());
    assert_eq!(headers.source(frame), (ip.source(), udp.source_port()).into());
    assert_eq!(headers.destination(frame), (ip.destination(), udp.destination_port()).into());
}

/// Answers with the request's own payload: the reply must be valid, and go back.
fn answer(request: &[u8], headers: &UdpHeaders) {
    let mut room = [0; 2048];
    let Some(frame) = room.get_mut(..request.len()) else { return };
    frame.copy_from_slice(request);
    let len = turn_around(frame, headers, headers.payload_range().len(), false);
    let frame = &mut frame[..len];
    let reply = parse_udp(frame, ChecksumPolicy::default()).expect("a reply is valid");
    assert_eq!(reply.source(frame), headers.destination(request));
    assert_eq!(reply.destination(frame), headers.source(request));
}
