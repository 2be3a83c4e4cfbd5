//! Replays the fuzz corpus, and checks what becomes of each packet in it.
//!
//! The named cases below are the source of the files; others may be added beside them. After a change here:
//! `SIDESTEP_WRITE_CORPUS=1 cargo test -p wire --test fuzz_corpus`.

use std::path::PathBuf;
use std::{env, fs};

use wire::checksum::Sum;
use wire::ip::Ip;
use wire::{
    ChecksumPolicy, DropReason, Endpoints, Envelope, MacAddress, VlanTag, fuzz_wire, icmp, ipv4, ipv6,
    parse_udp, protocol, tcp, write_udp,
};

/// A frame, and why the hot path drops it; `None` if it does not.
type Case = (&'static str, Vec<u8>, Option<DropReason>);

const MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
const TAG: VlanTag = VlanTag { tpid: 0x8100, control: 100 };
const SERVICE_TAG: VlanTag = VlanTag { tpid: 0x88a8, control: 200 };
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";

#[test]
fn every_file_of_the_corpus_is_survived() {
    let mut replayed = 0;
    for file in fs::read_dir(corpus()).unwrap() {
        fuzz_wire(&fs::read(file.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 40, "only {replayed} files");
}

#[test]
fn the_named_cases_are_in_the_corpus_and_end_as_they_should() {
    for (name, frame, expected) in cases() {
        let path = corpus().join(name);
        if env::var_os("SIDESTEP_WRITE_CORPUS").is_some() {
            fs::write(&path, &frame).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), frame, "{name} differs from its file");
        assert_eq!(parse_udp(&frame, ChecksumPolicy::default()).err(), expected, "{name}");
    }
}

fn corpus() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "wire"].iter().collect()
}

fn cases() -> Vec<Case> {
    [ethernet_cases(), v4_cases(), v6_cases(), udp_cases(), tcp_cases(), icmp_cases()].concat()
}

fn ethernet_cases() -> Vec<Case> {
    use DropReason::*;
    let mut third_tag = query4([Some(SERVICE_TAG), Some(TAG)]);
    third_tag[20..22].copy_from_slice(&[0x81, 0]);
    vec![
        ("ethernet_empty", vec![], Some(EthernetTruncated)),
        ("ethernet_short", vec![2; 13], Some(EthernetTruncated)),
        ("ethernet_only", query4([None; 2])[..14].to_vec(), Some(IpTruncated)),
        ("ethernet_arp", changed(query4([None; 2]), &[(13, 6)]), Some(EthertypeUnknown)),
        ("ethernet_broadcast", changed(query4([None; 2]), &[(0, 0xff)]), Some(EthernetGroupDestination)),
        ("ethernet_from_group", changed(query4([None; 2]), &[(6, 1)]), Some(EthernetGroupSource)),
        ("vlan_one_tag", query4([Some(TAG), None]), None),
        ("vlan_two_tags", query4([Some(SERVICE_TAG), Some(TAG)]), None),
        ("vlan_two_tags_v6", query6([Some(SERVICE_TAG), Some(TAG)]), None),
        ("vlan_three_tags", third_tag, Some(VlanTooManyTags)),
        ("vlan_cut_off", query4([Some(TAG), None])[..16].to_vec(), Some(EthernetTruncated)),
    ]
}

fn v4_cases() -> Vec<Case> {
    use DropReason::*;
    let query = || query4([None; 2]);
    let with_options = {
        let mut payload = vec![0x94, 4, 0, 0];
        payload.extend_from_slice(&query()[34..]);
        changed(v4_frame(protocol::UDP, &payload), &[(14, 0x46)])
    };
    vec![
        ("v4_query", query(), None),
        ("v4_query_padded", [query(), vec![0; 18]].concat(), None),
        ("v4_options", with_options, Some(Ipv4Options)),
        ("v4_header_too_short", changed(query(), &[(14, 0x44)]), Some(Ipv4HeaderLength)),
        ("v4_header_beyond_packet", changed(query()[..34].to_vec(), &[(14, 0x4f)]), Some(UdpTruncated)),
        ("v4_version_of_v6", changed(query(), &[(14, 0x65)]), Some(IpVersion)),
        ("v4_bad_header_checksum", changed(query(), &[(24, 0)]), Some(Ipv4Checksum)),
        ("v4_total_length_too_long", changed(query(), &[(16, 0x7f)]), Some(IpLength)),
        ("v4_total_length_too_short", changed(query(), &[(17, 20)]), Some(IpLength)),
        ("v4_first_fragment", changed(query(), &[(20, 0x20)]), Some(IpFragment)),
        ("v4_last_fragment", changed(query(), &[(20, 0), (21, 9)]), Some(IpFragment)),
        (
            "v4_from_broadcast",
            changed(query(), &[(26, 255), (27, 255), (28, 255), (29, 255)]),
            Some(SourceAddress),
        ),
        ("v4_to_multicast", changed(query(), &[(30, 239)]), Some(DestinationAddress)),
        ("v4_cut_off_in_ip", query()[..30].to_vec(), Some(IpTruncated)),
        ("v4_cut_off_in_payload", query()[..60].to_vec(), Some(IpLength)),
    ]
}

fn v6_cases() -> Vec<Case> {
    use DropReason::*;
    let query = || query6([None; 2]);
    let extended = |kind: u8, headers: &[u8]| v6_frame(kind, &[headers, &query()[54..]].concat());
    let chain = [43, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    vec![
        ("v6_query", query(), None),
        ("v6_query_padded", [query(), vec![0xff; 7]].concat(), None),
        ("v6_extension_chain", extended(0, &chain), Some(Ipv6ExtensionHeaders)),
        (
            "v6_authentication",
            extended(51, &[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
            Some(Ipv6ExtensionHeaders),
        ),
        ("v6_atomic_fragment", extended(44, &[17, 0, 0, 0, 0, 0, 0, 7]), Some(IpFragment)),
        ("v6_later_fragment", extended(44, &[17, 0, 0, 9, 0, 0, 0, 7]), Some(IpFragment)),
        ("v6_extension_too_long", extended(60, &[17, 0xff, 0, 0, 0, 0, 0, 0]), Some(Ipv6ExtensionHeaders)),
        ("v6_endless_chain", v6_frame(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(20)), Some(Ipv6ExtensionHeaders)),
        ("v6_no_next_header", v6_frame(59, b""), Some(ProtocolUnknown)),
        ("v6_version_of_v4", changed(query(), &[(14, 0x45)]), Some(IpVersion)),
        ("v6_payload_length_too_long", changed(query(), &[(18, 1)]), Some(IpLength)),
        (
            "v6_from_unspecified",
            changed(query(), &[(22, 0), (23, 0), (24, 0), (25, 0), (37, 0)]),
            Some(SourceAddress),
        ),
        ("v6_to_multicast", changed(query(), &[(38, 0xff)]), Some(DestinationAddress)),
        ("v6_cut_off_in_ip", query()[..50].to_vec(), Some(IpTruncated)),
    ]
}

fn udp_cases() -> Vec<Case> {
    use DropReason::*;
    let (v4, v6) = (|| query4([None; 2]), || query6([None; 2]));
    vec![
        ("udp_v4_bad_checksum", changed(v4(), &[(50, 0xff)]), Some(UdpChecksum)),
        ("udp_v6_bad_checksum", changed(v6(), &[(70, 0xff)]), Some(UdpChecksum)),
        ("udp_v4_no_checksum", changed(v4(), &[(40, 0), (41, 0)]), None),
        ("udp_v6_no_checksum", changed(v6(), &[(60, 0), (61, 0)]), Some(UdpChecksumMissing)),
        ("udp_v4_unfinished_checksum", unfinished(v4(), 26..34, 40), Some(UdpChecksum)),
        ("udp_v6_unfinished_checksum", unfinished(v6(), 22..54, 60), Some(UdpChecksum)),
        ("udp_length_too_short", changed(v4(), &[(39, 7)]), Some(UdpLength)),
        ("udp_length_too_long", changed(v4(), &[(38, 1)]), Some(UdpLength)),
        ("udp_v6_header_cut_off", v6_frame(17, &[0, 53, 0, 53]), Some(UdpTruncated)),
        ("udp_from_port_zero", changed(v4(), &[(34, 0), (35, 0)]), Some(SourcePortZero)),
        ("udp_to_port_zero", changed(v4(), &[(37, 0)]), Some(DestinationPortZero)),
        ("udp_v4_empty", udp("192.0.2.1:4000", "192.0.2.53:53", [None; 2], b""), None),
        ("udp_v6_empty", udp("[2001:db8::1]:4000", "[2001:db8::53]:53", [None; 2], b""), None),
    ]
}

fn tcp_cases() -> Vec<Case> {
    let unknown = Some(DropReason::ProtocolUnknown);
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let sack = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 9];
    vec![
        ("tcp_v4_syn", v4_frame(6, &segment(&options, b"")), unknown),
        ("tcp_v6_syn", v6_frame(6, &segment(&options, b"")), unknown),
        ("tcp_v4_sack_and_data", v4_frame(6, &segment(&sack, b"data")), unknown),
        ("tcp_option_of_length_zero", v4_frame(6, &segment(&[2, 0, 0, 0], b"")), unknown),
        ("tcp_option_too_long", v4_frame(6, &segment(&[2, 40, 0, 0], b"")), unknown),
        ("tcp_data_offset_too_large", v4_frame(6, &changed(segment(&[], b""), &[(12, 0xf0)])), unknown),
        ("tcp_cut_off", v4_frame(6, &segment(&[], b"")[..19]), unknown),
    ]
}

fn icmp_cases() -> Vec<Case> {
    let unknown = Some(DropReason::ProtocolUnknown);
    let (v4, v6) = (&query4([None; 2])[14..], &query6([None; 2])[14..]);
    vec![
        ("icmp_v4_port_unreachable", v4_frame(1, &icmp_message(3, 3, 0, v4, Sum::ZERO)), unknown),
        ("icmp_v4_too_big", v4_frame(1, &icmp_message(3, 4, 1400, &v4[..28], Sum::ZERO)), unknown),
        ("icmp_v4_quote_cut_off", v4_frame(1, &icmp_message(11, 0, 0, &v4[..24], Sum::ZERO)), unknown),
        ("icmp_v4_echo", v4_frame(1, &icmp_message(8, 0, 1, b"ping", Sum::ZERO)), unknown),
        (
            "icmp_v4_bad_checksum",
            changed(v4_frame(1, &icmp_message(3, 3, 0, v4, Sum::ZERO)), &[(36, 1)]),
            unknown,
        ),
        ("icmp_v6_too_big", icmp6_frame(2, 0, 1280, v6), unknown),
        ("icmp_v6_unreachable", icmp6_frame(1, 4, 0, v6), unknown),
        ("icmp_v6_quotes_v4", icmp6_frame(1, 4, 0, v4), unknown),
    ]
}

fn udp(source: &str, destination: &str, tags: [Option<VlanTag>; 2], payload: &[u8]) -> Vec<u8> {
    let endpoints = Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let envelope = Envelope { source_mac: MAC[0], destination_mac: MAC[1], tags, endpoints };
    let mut frame = vec![0; envelope.header_len() + payload.len()];
    write_udp(&mut frame, &envelope, payload).unwrap();
    frame
}

fn query4(tags: [Option<VlanTag>; 2]) -> Vec<u8> {
    udp("192.0.2.1:4000", "192.0.2.53:53", tags, QUERY)
}

fn query6(tags: [Option<VlanTag>; 2]) -> Vec<u8> {
    udp("[2001:db8::1]:4000", "[2001:db8::53]:53", tags, QUERY)
}

fn changed(mut octets: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    changes.iter().for_each(|&(at, value)| octets[at] = value);
    octets
}

/// Leaves the checksum as veth does: the sum of the pseudo-header.
fn unfinished(mut frame: Vec<u8>, addresses: std::ops::Range<usize>, field: usize) -> Vec<u8> {
    let udp_len = (frame.len() + 6 - field) as u16;
    let sum = Sum::of(&frame[addresses]) + Sum::of_u16(17) + Sum::of_u16(udp_len);
    frame[field..field + 2].copy_from_slice(&sum.fold().to_be_bytes());
    frame
}

fn ethernet_header(ethertype: u16) -> Vec<u8> {
    let mut header = vec![0; 14];
    wire::ethernet::write(&mut header, MAC[1], MAC[0], [None; 2], ethertype).unwrap();
    header
}

fn v4_frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 53].into());
    let mut header = vec![0; 20];
    let payload_len = payload.len();
    let fields = ipv4::Fields { source, destination, protocol, ttl: 64, traffic_class: 0, payload_len };
    ipv4::write(&mut header, &fields).unwrap();
    [ethernet_header(0x0800), header, payload.to_vec()].concat()
}

fn v6_frame(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = ("2001:db8::1".parse().unwrap(), "2001:db8::53".parse().unwrap());
    let mut header = vec![0; 40];
    let payload_len = payload.len();
    let fields =
        ipv6::Fields { source, destination, next_header, hop_limit: 64, traffic_class: 0, payload_len };
    ipv6::write(&mut header, &fields).unwrap();
    [ethernet_header(0x86dd), header, payload.to_vec()].concat()
}

fn segment(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let fields = tcp::Fields {
        source_port: 4000,
        destination_port: 80,
        sequence_number: 7,
        flags: tcp::flag::SYN,
        window: 0xffff,
        options,
        ..tcp::Fields::default()
    };
    let mut segment = [vec![0; 20 + options.len()], payload.to_vec()].concat();
    tcp::write(&mut segment, &fields, Some(Sum::ZERO)).unwrap();
    segment
}

fn icmp_message(kind: u8, code: u8, rest: u32, quoted: &[u8], pseudo_header: Sum) -> Vec<u8> {
    let mut message = [&[0; 8], quoted].concat();
    icmp::write(&mut message, &icmp::Fields { kind, code, rest }, pseudo_header).unwrap();
    message
}

fn icmp6_frame(kind: u8, code: u8, rest: u32, quoted: &[u8]) -> Vec<u8> {
    let empty = v6_frame(protocol::ICMPV6, &[&[0; 8], quoted].concat());
    let pseudo_header = Ip::parse_quoted(&empty[14..]).unwrap().pseudo_header(8 + quoted.len());
    v6_frame(protocol::ICMPV6, &icmp_message(kind, code, rest, quoted, pseudo_header))
}
