//! Connections that end before their time.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Peer, VERSIONS, be_patient, read_hash, write_pattern};

const MUCH: u64 = 1 << 40;

/// Has the kernel answer close(2) by a reset.
fn reset_on_close(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

fn assert_all_were_reset(peer: &Peer, count: u64) {
    let endings = peer.endings(count);
    assert!(endings.keys().all(|ending| ending.starts_with("connection reset by peer")), "{endings:?}");
}

#[test]
fn a_reset_by_the_stack_in_the_middle_of_bulk_ends_it_at_the_kernel() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        for mut stream in peer.in_both_roles(version, "reset-after 3000000") {
            let error = write_pattern(&mut stream, MUCH).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        }
        for mut stream in peer.in_both_roles(version, "source-reset 3000000") {
            assert_eq!(read_hash(&mut stream).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
    assert!(peer.endings(8).keys().all(|ending| ending.starts_with("aborted")));
    peer.assert_nothing_leaked();
}

#[test]
fn a_reset_by_the_kernel_in_the_middle_of_bulk_ends_it_on_the_stack() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        for mut stream in peer.in_both_roles(version, "sink") {
            write_pattern(&mut stream, 3_000_000).unwrap();
            reset_on_close(&stream);
        }
        for mut stream in peer.in_both_roles(version, &format!("source {MUCH}")) {
            stream.read_exact(&mut vec![0; 3_000_000]).unwrap();
            reset_on_close(&stream);
        }
        assert_all_were_reset(&peer, 4);
    }
    peer.assert_nothing_leaked();
}

#[test]
fn data_left_unread_at_the_kernel_resets_as_well() {
    let Some(peer) = Peer::start() else { return };
    let stream = peer.ask(VERSIONS[0].0, &format!("source {MUCH}"));
    stream.peek(&mut [0; 1]).unwrap();
    drop(stream);
    assert_all_were_reset(&peer, 1);
    peer.assert_nothing_leaked();
}

#[test]
fn after_a_killed_stack_the_kernel_resets_its_peers_within_a_second() {
    // What is late is late every time; this thread may be now and then, on a machine that does other work too.
    const TIMES: usize = 3;
    let mut took = Vec::new();
    while took.len() < TIMES {
        let Some(peer) = Peer::start() else { return };
        let time = time_to_resets(peer);
        if time < Duration::from_secs(1) {
            return;
        }
        took.push(time);
    }
    panic!("each time later than that: {took:?}");
}

/// Kills the stack; how long it takes until all its peers have heard of that.
fn time_to_resets(mut peer: Peer) -> Duration {
    let streams: Vec<TcpStream> = VERSIONS
        .iter()
        .flat_map(|&version| peer.in_both_roles(version, &format!("source {MUCH}")))
        .map(be_patient)
        .collect();
    peer.process.kill();
    let killed = Instant::now();
    for mut stream in streams {
        // The kernel at our side hears of the connection when something arrives for it: here, acknowledgements or data.
        let error = write_pattern(&mut stream, 1).and_then(|()| read_hash(&mut stream)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    killed.elapsed()
}
