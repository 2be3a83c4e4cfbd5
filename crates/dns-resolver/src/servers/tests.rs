//! The rules of selection, one a test.

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::new([192, 0, 2, last].into(), 53)
}

fn v6(last: u16) -> SocketAddr {
    SocketAddr::new(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into(), 53)
}

/// Servers 1, 2, ... that answered in these times.
fn measured(times: &[u64]) -> (Servers, Random) {
    let mut servers = Servers::new(Selection::default(), at(0));
    for (index, time) in times.iter().enumerate() {
        servers.on_answer(address(index as u8 + 1), ms(*time), false, at(0));
    }
    (servers, Random::new([1; 16]))
}

fn candidates(count: u8) -> Vec<Candidate> {
    (1..=count).map(|last| Candidate { address: address(last), tries: 0 }).collect()
}

#[test]
fn the_best_gets_the_query() {
    let (mut servers, mut random) = measured(&[60, 5, 12]);
    assert_eq!(servers.choose(&candidates(3), &mut random, at(0)), [address(2)]);
    assert_eq!(servers.choose(&[], &mut random, at(0)), []);
}

#[test]
fn one_that_was_asked_already_comes_after_the_others() {
    let (mut servers, mut random) = measured(&[60, 5, 12]);
    let mut candidates = candidates(3);
    candidates[1].tries = 1;
    assert_eq!(servers.choose(&candidates, &mut random, at(0)), [address(3)]);
}

#[test]
fn a_silent_server_comes_last_until_it_answers() {
    let (mut servers, mut random) = measured(&[60, 5, 12]);
    servers.on_loss(address(2), at(0));
    for later in [0, 1000, 600_000] {
        assert_eq!(servers.choose(&candidates(3), &mut random, at(later)), [address(3)]);
    }
    servers.on_answer(address(2), ms(5), true, at(600_000));
    assert_eq!(servers.choose(&candidates(3), &mut random, at(600_000)), [address(2)]);
}

#[test]
fn unknown_servers_race_where_none_is_measured() {
    let (mut servers, mut random) = measured(&[]);
    assert_eq!(servers.choose(&candidates(4), &mut random, at(0)).len(), 2);
    let (mut servers, mut random) = measured(&[300]);
    assert_eq!(servers.choose(&candidates(4), &mut random, at(0)), [address(1)], "one is measured");
}

#[test]
fn load_spreads_only_beyond_the_rate_and_only_within_the_band() {
    let (mut servers, mut random) = measured(&[5, 12, 60]);
    let mut shares = [0; 3];
    let queries_a_second = 300;
    for number in 0..3 * queries_a_second {
        let now = at(number * 1000 / queries_a_second);
        let chosen = servers.choose(&candidates(3), &mut random, now)[0];
        servers.on_sent(chosen, false, now);
        (1..=3).for_each(|last| {
            if chosen == address(last) {
                shares[usize::from(last) - 1] += 1
            }
        });
    }
    assert_eq!(shares[2], 0, "60 ms is beyond the band");
    assert!((590..=640).contains(&shares[0]), "{shares:?}");

    let (mut servers, mut random) = measured(&[5, 12]);
    for number in 0..150 {
        let now = at(number * 1000 / 150);
        let chosen = servers.choose(&candidates(2), &mut random, now);
        assert_eq!(chosen, [address(1)], "below the rate nothing spreads");
        servers.on_sent(chosen[0], false, now);
    }
}

#[test]
fn beyond_everybodys_rate_the_band_shares_evenly() {
    let (mut servers, mut random) = measured(&[5, 12]);
    let mut first = 0;
    for number in 0..2000 {
        let now = at(number);
        let chosen = servers.choose(&candidates(2), &mut random, now)[0];
        servers.on_sent(chosen, false, now);
        first += usize::from(chosen == address(1));
    }
    assert!((980..=1040).contains(&first), "{first} of 2000");
}

#[test]
fn state_ends_after_a_quarter_of_an_hour_without_an_answer() {
    let (mut servers, _) = measured(&[5, 12]);
    servers.on_answer(address(2), ms(12), false, at(60_000));
    servers.sweep(at(899_999));
    assert_eq!(servers.report(at(899_999)).len(), 2);
    servers.sweep(at(900_000));
    assert_eq!(servers.report(at(900_000))[0].address, address(2));
    servers.sweep(at(960_000));
    assert!(servers.report(at(960_000)).is_empty());
}

#[test]
fn the_table_is_bounded() {
    let options = Selection { servers_max: 10, ..Selection::default() };
    let mut servers = Servers::new(options, at(0));
    for last in 0..=255 {
        servers.on_sent(address(last), false, at(last.into()));
        assert!(servers.table.len() <= 10 && servers.by_age.len() <= 10);
    }
    assert!(servers.table.contains_key(&address(255)));
}

#[test]
fn probes_are_bounded_in_rate() {
    let options = Selection { probe_rate_max: 10, ..Selection::default() };
    let mut servers = Servers::new(options, at(0));
    let all: Vec<SocketAddr> = (0..=255).map(address).collect();
    assert_eq!(servers.due_probes(&all, &[], at(0)).len(), 10);
    assert_eq!(servers.due_probes(&all, &[], at(0)).len(), 0);
    assert_eq!(servers.due_probes(&all, &[], at(500)).len(), 5);
}

#[test]
fn a_measured_server_is_probed_at_intervals_and_what_is_asked_anyway_is_not() {
    let (mut servers, _) = measured(&[5, 12]);
    let all = [address(1), address(2)];
    all.iter().for_each(|address| servers.on_sent(*address, false, at(0)));
    assert!(servers.due_probes(&all, &[], at(1999)).is_empty());
    assert_eq!(servers.due_probes(&all, &[address(1)], at(2000)), [address(2)]);
}

#[test]
fn ipv6_that_is_broken_as_a_whole_is_out_of_favour_until_one_answers() {
    let (mut servers, mut random) = measured(&[50]);
    (1..=4).for_each(|last| servers.on_loss(v6(last), at(0)));
    let choice = [Candidate { address: v6(9), tries: 0 }, Candidate { address: address(9), tries: 0 }];
    for _ in 0..20 {
        assert_eq!(servers.choose(&choice, &mut random, at(0)), [address(9)]);
    }
    servers.on_answer(v6(2), ms(5), true, at(1));
    assert_eq!(servers.choose(&choice, &mut random, at(1)).len(), 2, "both are unknown, and race");
}

#[test]
fn ipv6_that_returns_is_noticed_however_long_it_was_broken() {
    let (mut servers, _) = measured(&[50]);
    (1..=4).for_each(|last| servers.on_loss(v6(last), at(0)));
    let day = 86_400_000;
    servers.sweep(at(day));
    assert!(servers.report(at(day)).is_empty());
    let all = [v6(7), v6(8), address(9)];
    assert_eq!(servers.due_probes(&all, &[address(9)], at(day)), [v6(7)], "one at a time");
    assert!(servers.due_probes(&all, &[address(9)], at(day + 3999)).is_empty());
    assert_eq!(servers.due_probes(&all, &[address(9)], at(day + 4000)).len(), 1);
    servers.on_answer(v6(7), ms(5), true, at(day + 4010));
    assert!(!servers.is_family_broken(v6(8)));
}

#[test]
fn where_ipv4_is_silent_too_no_family_is_blamed() {
    let (mut servers, mut random) = measured(&[]);
    for last in 1..=4 {
        servers.on_loss(v6(last.into()), at(0));
        servers.on_loss(address(last), at(0));
    }
    let choice = [Candidate { address: v6(9), tries: 0 }];
    assert_eq!(servers.rank(v6(9), at(0)).0, Class::Unknown);
    assert_eq!(servers.choose(&choice, &mut random, at(0)), [v6(9)]);
}
