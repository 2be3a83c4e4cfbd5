//! Much data, one way and both, and many flows at once.

use std::thread;
use std::time::Instant;

use super::{Peer, VERSIONS, assert_echo_returns, assert_sink_takes, assert_source_gives, pattern};

const LEN: u64 = 16 << 20;

/// Says how fast it went, for those who ask with `--nocapture`.
fn timed(what: &str, act: impl FnOnce()) {
    pattern(LEN); // Not to be computed meanwhile.
    let start = Instant::now();
    act();
    let rate = LEN as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9;
    println!("{what}: {rate:.2} Gb/s");
}

#[test]
fn bulk_arrives_unchanged_one_way_and_the_other_in_both_roles() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        let behaviour = format!("source {LEN}");
        for (role, mut stream) in ["server", "client"].iter().zip(peer.in_both_roles(version, "sink")) {
            timed(&format!("{} as {role}, kernel to stack", version.0), || {
                assert_sink_takes(&mut stream, LEN)
            });
        }
        for (role, mut stream) in ["server", "client"].iter().zip(peer.in_both_roles(version, &behaviour)) {
            timed(&format!("{} as {role}, stack to kernel", version.0), || {
                assert_source_gives(&mut stream, LEN);
            });
        }
    }
    peer.assert_nothing_leaked();
}

#[test]
fn bulk_both_ways_at_once_arrives_unchanged() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        for stream in peer.in_both_roles(version, "echo") {
            timed(&format!("{}, there and back", version.0), || assert_echo_returns(&stream, LEN));
        }
    }
    peer.assert_nothing_leaked();
}

#[test]
fn flows_of_different_congestion_control_and_options_run_side_by_side() {
    const FLOWS: usize = 24;
    const LEN: u64 = 2 << 20;
    let Some(peer) = Peer::start() else { return };
    let settings = ["", "nodelay ", "cork ", "sndbuf=65536 rcvbuf=65536 "];
    thread::scope(|scope| {
        for flow in 0..FLOWS {
            let congestion = ["reno", "cubic", "bbr"][flow % 3];
            let setting = settings[flow / 3 % 4];
            let behaviour =
                [format!("source {LEN}"), "sink".to_owned(), "echo".to_owned()][flow % 5 % 3].clone();
            let words = format!("congestion={congestion} {setting}{behaviour}");
            let version = VERSIONS[flow / 2 % 2];
            let mut stream = match flow % 2 {
                0 => peer.ask(version.0, &words),
                _ => peer.begin_and_accept(version.1, &words),
            };
            scope.spawn(move || match words.rsplit(' ').next() {
                Some("sink") => assert_sink_takes(&mut stream, LEN),
                Some("echo") => assert_echo_returns(&stream, LEN),
                _ => assert_source_gives(&mut stream, LEN),
            });
        }
    });
    assert_eq!(peer.endings(FLOWS as u64).keys().filter(|ending| !ending.starts_with("closed")).count(), 0);
    peer.assert_nothing_leaked();
}
