//! What holds for every packet, tried on many.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use wire::checksum::{Sum, checksum, update};
use wire::ethernet::{Ethernet, ethertype};
use wire::{
    ChecksumPolicy, Endpoints, Envelope, MacAddress, VlanTag, fuzz_wire, parse_udp, turn_around, write_udp,
};

const STRICT: ChecksumPolicy = ChecksumPolicy { verified: false, accept_partial: false };

/// RFC 1071 as its text has it: sixteen bits at a time, carry added at once.
fn naive_sum(octets: &[u8]) -> u16 {
    octets.chunks(2).fold(0, |sum, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = u16::overflowing_add(sum, word);
        sum + u16::from(carry)
    })
}

fn tag() -> impl Strategy<Value = VlanTag> {
    (any::<bool>(), any::<u16>()).prop_map(|(service, control)| VlanTag {
        tpid: if service { ethertype::VLAN_SERVICE } else { ethertype::VLAN },
        control,
    })
}

fn tags() -> impl Strategy<Value = [Option<VlanTag>; 2]> {
    prop_oneof![
        Just([None, None]),
        tag().prop_map(|tag| [Some(tag), None]),
        (tag(), tag()).prop_map(|(outer, inner)| [Some(outer), Some(inner)]),
    ]
}

/// Two unicast addresses of one version.
fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = || (1u8..224, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| IpAddr::from([a, b, c, d]));
    let v6 = || {
        (1u8..255, any::<[u8; 15]>()).prop_map(|(first, rest)| {
            let mut octets = [first; 16];
            octets[1..].copy_from_slice(&rest);
            IpAddr::from(octets)
        })
    };
    prop_oneof![(v4(), v4()), (v6(), v6())]
}

prop_compose! {
    fn envelope()(
        mut source_mac: [u8; 6],
        mut destination_mac: [u8; 6],
        tags in tags(),
        (source, destination) in addresses(),
        ports in (1u16.., 1u16..),
    ) -> Envelope {
        source_mac[0] &= !1;
        destination_mac[0] &= !1;
        let source = SocketAddr::new(source, ports.0);
        let destination = SocketAddr::new(destination, ports.1);
        Envelope {
            source_mac: MacAddress(source_mac),
            destination_mac: MacAddress(destination_mac),
            tags,
            endpoints: Endpoints::new(source, destination).unwrap(),
        }
    }
}

fn ends(envelope: &Envelope) -> (SocketAddr, SocketAddr) {
    match envelope.endpoints {
        Endpoints::V4 { source, destination } => (source.into(), destination.into()),
        Endpoints::V6 { source, destination } => (source.into(), destination.into()),
    }
}

fn written(envelope: &Envelope, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xa5; envelope.header_len() + payload.len()];
    assert_eq!(write_udp(&mut frame, envelope, payload), Some(frame.len()));
    frame
}

/// Octets of the IP header that no checksum covers: traffic class, flow label and hop limit of IPv6.
fn is_uncovered(envelope: &Envelope, at_in_packet: usize, bit: usize) -> bool {
    let v6 = matches!(envelope.endpoints, Endpoints::V6 { .. });
    v6 && (at_in_packet == 0 && bit < 4 || matches!(at_in_packet, 1..=3 | 7))
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_parsed(envelope in envelope(), payload in vec(any::<u8>(), 0..200), padding in 0usize..20) {
        let mut frame = written(&envelope, &payload);
        frame.resize(frame.len() + padding, 0xee);
        let headers = parse_udp(&frame, STRICT).unwrap();
        prop_assert_eq!(&frame[headers.payload_range()], &payload[..]);
        prop_assert_eq!((headers.source(&frame), headers.destination(&frame)), ends(&envelope));
        let ethernet = Ethernet::parse(&frame).unwrap();
        prop_assert_eq!(ethernet.tags(), envelope.tags);
        prop_assert_eq!(ethernet.source(), envelope.source_mac);
        prop_assert_eq!(ethernet.destination(), envelope.destination_mac);
        fuzz_wire(&frame);
    }

    #[test]
    fn a_flipped_bit_is_noticed(envelope in envelope(), payload in vec(any::<u8>(), 0..64), at: prop::sample::Index, bit in 0usize..8) {
        let mut frame = written(&envelope, &payload);
        let start = envelope.header_len() - if matches!(envelope.endpoints, Endpoints::V4 { .. }) { 28 } else { 48 };
        let at_in_packet = at.index(frame.len() - start);
        prop_assume!(!is_uncovered(&envelope, at_in_packet, bit));
        frame[start + at_in_packet] ^= 1 << bit;
        let checksum_at = envelope.header_len() - 2;
        prop_assume!(frame[checksum_at..checksum_at + 2] != [0, 0]); // That would mean "no checksum".
        prop_assert!(parse_udp(&frame, STRICT).is_err());
    }

    #[test]
    fn two_turns_lead_back_to_the_start(envelope in envelope(), payload in vec(any::<u8>(), 0..100), reply_len in 0usize..150) {
        let len = envelope.header_len() + payload.len();
        let mut frame = written(&envelope, &payload);
        frame.resize(len.max(envelope.header_len() + reply_len), 0);
        let request = parse_udp(&frame, STRICT).unwrap();
        let reply_end = turn_around(&mut frame, &request, reply_len, false);
        let reply = parse_udp(&frame[..reply_end], STRICT).unwrap();
        let (source, destination) = ends(&envelope);
        prop_assert_eq!((reply.source(&frame), reply.destination(&frame)), (destination, source));
        let again = turn_around(&mut frame, &reply, payload.len(), false);
        prop_assert_eq!(again, len);
        let start = envelope.header_len();
        frame[start..len].copy_from_slice(&payload);
        let headers = parse_udp(&frame[..len], ChecksumPolicy { verified: true, ..STRICT }).unwrap();
        turn_around(&mut frame, &headers, payload.len(), false);
        let headers = parse_udp(&frame[..len], STRICT).unwrap();
        turn_around(&mut frame, &headers, payload.len(), false);
        prop_assert_eq!(&frame[..len], &written(&envelope, &payload)[..]);
    }

    #[test]
    fn no_octets_make_a_parser_panic(octets in vec(any::<u8>(), 0..200)) {
        fuzz_wire(&octets);
    }

    #[test]
    fn no_damage_makes_a_parser_panic(envelope in envelope(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), keep: prop::sample::Index) {
        let mut frame = written(&envelope, &[7; 60]);
        for (at, value) in damage {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        fuzz_wire(&frame);
        frame.truncate(keep.index(frame.len()));
        fuzz_wire(&frame);
    }

    #[test]
    fn the_fast_sum_is_the_plain_sum(octets in vec(any::<u8>(), 0..3000), from: prop::sample::Index) {
        let octets = &octets[from.index(octets.len() + 1)..];
        prop_assert_eq!(Sum::of(octets).fold(), naive_sum(octets));
        prop_assert_eq!(checksum(octets), !naive_sum(octets));
    }

    #[test]
    fn sums_of_pieces_add_up(mut octets in vec(any::<u8>(), 8..100), at: prop::sample::Index) {
        let at = at.index(octets.len() / 2) * 2;
        prop_assert_eq!((Sum::of(&octets[..at]) + Sum::of(&octets[at..])).fold(), naive_sum(&octets));
        octets.truncate(8);
        let eight: [u8; 8] = octets[..].try_into().unwrap();
        prop_assert_eq!(Sum::of_eight(eight).fold(), naive_sum(&eight));
        prop_assert_eq!(Sum::of_four([eight[0], eight[1], eight[2], eight[3]]).fold(), naive_sum(&eight[..4]));
        prop_assert_eq!(Sum::of_u16(u16::from_be_bytes([eight[0], eight[1]])).fold(), naive_sum(&eight[..2]));
    }

    #[test]
    fn an_updated_checksum_is_the_computed_one(mut octets in vec(any::<u8>(), 4..100), at: prop::sample::Index, new: u16) {
        octets[0] |= 1; // A sum of zero has two forms; packets are never all zeros.
        let at = 2 + at.index((octets.len() - 2) / 2) * 2;
        let before = checksum(&octets);
        let old = u16::from_be_bytes([octets[at], octets[at + 1]]);
        octets[at..at + 2].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(update(before, old, new), checksum(&octets));
    }
}
