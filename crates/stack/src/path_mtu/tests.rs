use core::net::Ipv4Addr;

use super::*;

const NOW: Instant = Instant::from_nanos(1 << 40);

fn v4() -> PathMtu {
    PathMtu::new(1500, IpVersion::V4)
}

fn v6() -> PathMtu {
    PathMtu::new(1500, IpVersion::V6)
}

/// Sends probes until there are no more, over a path that takes packets of `limit` octets; how many were sent.
fn search(path: &mut PathMtu, limit: u16, now: Instant) -> usize {
    let mut count = 0;
    while let Some(probe) = path.next_probe(now, u16::MAX) {
        assert!(path.next_probe(now, u16::MAX).is_none() && path.probe_in_flight() == Some(probe));
        if probe <= limit {
            path.on_probe_acked()
        } else {
            path.on_probe_lost()
        }
        count += 1;
    }
    count
}

#[test]
fn the_link_is_used_in_full_until_the_path_objects() {
    let mut path = v4();
    assert_eq!((path.mtu(), path.next_probe(NOW, u16::MAX)), (1500, None));
    assert!(!path.on_packet_too_big(1500, 1500 + 1, NOW));
    assert!(path.on_packet_too_big(1400, 1500, NOW));
    assert_eq!(path.mtu(), 1400);
}

#[test]
fn an_icmp_message_never_raises_the_mtu_rfc_1191_section_3() {
    let mut path = v4();
    assert!(path.on_packet_too_big(1400, 1500, NOW));
    assert!(!path.on_packet_too_big(1450, 1500, NOW));
    assert_eq!(path.mtu(), 1400);
}

#[test]
fn a_router_that_does_not_tell_means_the_next_plateau_rfc_1191_section_7() {
    let mut path = v4();
    assert!(path.on_packet_too_big(0, 1500, NOW));
    assert_eq!(path.mtu(), 1492);
    assert!(path.on_packet_too_big(1492, 1492, NOW)); // as useless as none
    assert_eq!(path.mtu(), 1006);
}

#[test]
fn a_tiny_mtu_of_ipv4_stops_at_the_floor() {
    let mut path = v4();
    assert!(path.on_packet_too_big(68, 1500, NOW));
    assert_eq!(path.mtu(), 552);
    let mut path = PathMtu::with_floor(1500, 68);
    assert!(path.on_packet_too_big(20, 1500, NOW));
    assert_eq!(path.mtu(), 68);
}

#[test]
fn less_than_1280_is_discarded_over_ipv6_rfc_8201_section_4() {
    let mut path = v6();
    assert!(!path.on_packet_too_big(1279, 1500, NOW));
    assert_eq!(path.mtu(), 1500);
    assert!(path.on_packet_too_big(1280, 1500, NOW));
    assert_eq!(path.mtu(), 1280);
    assert!(!path.on_black_hole_suspected());
}

#[test]
fn after_ten_minutes_a_larger_size_is_tried_rfc_1191_section_6_3() {
    let mut path = v4();
    path.on_packet_too_big(1400, 1500, NOW);
    assert_eq!(path.next_probe(NOW + Duration::from_secs(599), u16::MAX), None);
    assert_eq!(path.next_probe(NOW + RAISE_AFTER, u16::MAX), Some(1500));
    path.on_probe_acked();
    assert_eq!((path.mtu(), path.next_probe(NOW + 2 * RAISE_AFTER, u16::MAX)), (1500, None));
}

#[test]
fn a_router_answers_a_probe_with_the_size_to_try_next() {
    let mut path = v4();
    path.on_packet_too_big(1400, 1500, NOW);
    let later = NOW + RAISE_AFTER;
    assert_eq!(path.next_probe(later, u16::MAX), Some(1500));
    assert!(!path.on_packet_too_big(1460, 1500, later));
    assert_eq!((path.mtu(), path.next_probe(later, u16::MAX)), (1400, Some(1460)));
    path.on_probe_acked();
    assert_eq!((path.mtu(), path.next_probe(later, u16::MAX)), (1460, None));
}

#[test]
fn a_black_hole_is_found_by_search_rfc_4821_section_7() {
    for limit in 1280..=1500 {
        for mut path in [v4(), v6()] {
            assert!(path.on_black_hole_suspected());
            assert_eq!(path.mtu(), 1280);
            let probes = search(&mut path, limit, NOW);
            assert!(path.mtu() <= limit && limit - path.mtu() < GAIN_MIN, "{limit}: {}", path.mtu());
            assert!(probes <= 20, "{probes} probes");
        }
    }
}

#[test]
fn an_outage_that_looked_like_a_black_hole_costs_one_probe() {
    let mut path = v4();
    path.on_black_hole_suspected();
    assert_eq!((search(&mut path, 1500, NOW), path.mtu()), (1, 1500));
    while path.on_black_hole_suspected() {} // A long one.
    assert_eq!((search(&mut path, 1500, NOW), path.mtu()), (1, 1500));
}

#[test]
fn a_narrow_path_of_ipv4_is_halved_down_to_the_floor() {
    let mut path = v4();
    let sizes = core::array::from_fn(|_| (path.on_black_hole_suspected(), path.mtu()));
    assert_eq!(sizes, [(true, 1280), (true, 640), (true, 552), (false, 552)]);
}

#[test]
fn a_search_that_found_less_than_the_link_is_repeated_after_ten_minutes_rfc_8899_section_5_1_1() {
    let mut path = v4();
    path.on_black_hole_suspected();
    search(&mut path, 1400, NOW);
    assert!(!path.is_probe_due(NOW + Duration::from_secs(599)));
    assert!(search(&mut path, 1500, NOW + RAISE_AFTER) == 1 && path.mtu() == 1500);
}

#[test]
fn a_size_fails_after_three_losses_rfc_8899_section_5_1_2() {
    let mut path = v4();
    path.on_black_hole_suspected();
    for _ in 0..2 {
        assert_eq!(path.next_probe(NOW, u16::MAX), Some(1500));
        path.on_probe_lost();
    }
    assert_eq!(path.next_probe(NOW, u16::MAX), Some(1500));
    path.on_probe_lost();
    path.on_probe_lost(); // There is none.
    assert_eq!(path.next_probe(NOW, u16::MAX), Some(1280 + (1499_u16 - 1280).div_ceil(2)));
}

#[test]
fn the_link_may_change_under_a_connection() {
    let mut path = v4();
    assert!(path.on_link_mtu(1400));
    assert!(!path.on_link_mtu(9000));
    assert_eq!(path.mtu(), 9000);
    path.on_packet_too_big(1300, 9000, NOW);
    assert!(!path.on_link_mtu(1500));
    assert_eq!((path.mtu(), path.next_probe(NOW, u16::MAX)), (1300, Some(1500)));
    assert!(path.on_link_mtu(400));
    assert_eq!((path.mtu(), path.next_probe(NOW, u16::MAX), path.probe_in_flight()), (400, None, None));
}

#[test]
fn a_new_connection_begins_with_what_another_found() {
    let remote = IpAddr::from(Ipv4Addr::LOCALHOST);
    let mut cache = PathMtuCache::new(2, [1, 2]);
    cache.insert(remote, 1300, NOW);
    let mut path = v4();
    path.start_at(cache.get(remote, NOW).unwrap());
    assert_eq!((path.mtu(), path.next_probe(NOW, u16::MAX)), (1300, None));
    assert_eq!(path.next_probe(NOW + RAISE_AFTER, u16::MAX), Some(1500));
    assert_eq!(cache.get(remote, NOW + RAISE_AFTER), None);
    cache.remove(remote);
    assert_eq!(cache.get(remote, NOW), None);
}

#[test]
fn a_probe_is_never_larger_than_what_the_peer_takes() {
    let mut path = PathMtu::new(9000, IpVersion::V4);
    assert!(path.on_packet_too_big(1300, 9000, NOW));
    let later = NOW + RAISE_AFTER;
    assert_eq!(path.next_probe(later, 1500), Some(1500));
    path.on_probe_acked();
    assert_eq!((path.mtu(), path.next_probe(later, 1500)), (1500, None));
}
