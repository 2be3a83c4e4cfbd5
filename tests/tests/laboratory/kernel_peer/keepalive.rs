//! Idle connections are probed, and the probes answered.

use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

use super::{Peer, VERSIONS, assert_echo_returns};

#[test]
fn idle_connections_live_on_because_both_sides_answer_probes() {
    let Some(peer) = Peer::start() else { return };
    let streams: Vec<_> = VERSIONS
        .iter()
        .flat_map(|&version| peer.in_both_roles(version, "keepalive-ms=400 nodelay echo"))
        .collect();
    let second = Duration::from_secs(1);
    for stream in &streams {
        set_socket_keepalive(stream, true).unwrap();
        set_tcp_keepidle(stream, second).unwrap();
        set_tcp_keepintvl(stream, second).unwrap();
        set_tcp_keepcnt(stream, 1).unwrap(); // One probe without an answer, and the connection is over after two seconds.
    }
    thread::sleep(Duration::from_millis(3300));
    let probes = peer.counts()["TcpExtTCPKeepAlive"];
    assert!(probes >= 4, "the stack probes as well: {probes}");
    for stream in &streams {
        assert_echo_returns(stream, 1000);
    }
    assert!(peer.endings(4).keys().all(|ending| ending.starts_with("closed 1000 ")));
}
