//! One direction closed before the other, and ports at which nobody listens.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};

use lab::Side;

use super::{
    CLOSED_PORT, PATIENCE, Peer, VERSIONS, assert_sink_takes, assert_source_gives, pattern, write_pattern,
};

const LEN: u64 = 1 << 20;

#[test]
fn data_still_comes_after_the_kernel_has_closed_its_direction() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        for mut stream in peer.in_both_roles(version, "slow 100") {
            assert_sink_takes(&mut stream, LEN);
        }
        for mut stream in peer.in_both_roles(version, &format!("source {LEN}")) {
            stream.shutdown(Shutdown::Write).unwrap();
            assert_source_gives(&mut stream, LEN);
        }
    }
    peer.assert_nothing_leaked();
}

#[test]
fn data_still_goes_after_the_stack_has_closed_its_direction() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        for mut stream in peer.in_both_roles(version, "source 1000") {
            assert_source_gives(&mut stream, 1000);
            write_pattern(&mut stream, LEN).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let ending = format!("closed {}", pattern(LEN));
            assert_eq!(peer.endings(1).into_iter().collect::<Vec<_>>(), [(ending, 1)]);
        }
    }
    peer.assert_nothing_leaked();
    assert_eq!(peer.counts()["time_wait"], 4, "who closed first waits");
}

#[test]
fn a_connection_in_which_both_close_at_once_ends() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        for mut stream in peer.in_both_roles(version, "source 0") {
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    }
    assert_eq!(peer.endings(4).into_keys().collect::<Vec<_>>(), [format!("closed {}", pattern(0))]);
    peer.assert_nothing_leaked();
}

#[test]
fn a_closed_port_refuses_in_both_roles() {
    let Some(peer) = Peer::start() else { return };
    for version in VERSIONS {
        let closed = SocketAddr::new(version.0.parse::<IpAddr>().unwrap(), CLOSED_PORT);
        let refused = peer.lab.inside(Side::Client, || TcpStream::connect_timeout(&closed, PATIENCE));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{closed}");

        let listener = peer.listen(version.1);
        let closed = listener.local_addr().unwrap();
        drop(listener);
        peer.begin(closed, "sink");
        let ending = format!("connection refused {}", pattern(0));
        assert_eq!(peer.endings(1).into_keys().collect::<Vec<_>>(), [ending]);
    }
    peer.assert_nothing_leaked();
}

#[test]
fn what_was_sent_before_the_first_read_is_there() {
    let Some(peer) = Peer::start() else { return };
    let mut stream = peer.ask(VERSIONS[0].0, "echo");
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
}
