//! Idle connections are probed, and the probes answered.

use std::thread;
use std::time::{Duration, Instant};

use lab::Side;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

use super::{PATIENCE, Peer, VERSIONS, assert_echo_returns};

/// How many probes the client's kernel has sent.
fn probes_of_kernel(peer: &Peer) -> u64 {
    let line = peer.lab.run_in(Side::Client, "nstat", &["-asz", "TcpExtTCPKeepAlive"]).unwrap();
    let count = line.split_whitespace().skip_while(|word| *word != "TcpExtTCPKeepAlive").nth(1);
    count.and_then(|count| count.parse().ok()).expect("the kernel counts")
}

#[test]
fn idle_connections_live_on_because_both_sides_answer_probes() {
    let Some(peer) = Peer::start() else { return };
    let streams: Vec<_> = VERSIONS
        .iter()
        .flat_map(|&version| peer.in_both_roles(version, "keepalive-ms=400 nodelay echo"))
        .collect();
    let second = Duration::from_secs(1);
    // Who has not answered so many probes in a row, for as many seconds, is given up.
    const UNANSWERED_MAX: u32 = 4;
    for stream in &streams {
        set_socket_keepalive(stream, true).unwrap();
        set_tcp_keepidle(stream, second).unwrap();
        set_tcp_keepintvl(stream, second).unwrap();
        set_tcp_keepcnt(stream, UNANSWERED_MAX).unwrap();
    }
    let enough = streams.len() as u64 * u64::from(UNANSWERED_MAX + 1);
    let deadline = Instant::now() + PATIENCE;
    let probes = || [peer.counts()["TcpExtTCPKeepAlive"], probes_of_kernel(&peer)];
    while probes().into_iter().any(|count| count < enough) {
        assert!(Instant::now() < deadline, "of the stack and the kernel: {:?}", probes());
        thread::sleep(Duration::from_millis(20));
    }
    for stream in &streams {
        assert_echo_returns(stream, 1000);
    }
    assert!(peer.endings(4).keys().all(|ending| ending.starts_with("closed 1000 ")));
}
