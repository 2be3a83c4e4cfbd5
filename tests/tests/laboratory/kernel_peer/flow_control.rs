//! Readers that are slow: windows shrink to nothing and open again.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::Side;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType, connect, socket};

use super::{
    PATIENCE, PORT, Peer, VERSIONS, accept, assert_sink_takes, assert_source_gives, be_patient, pattern_hash,
};
use tests::StreamHash;

const LEN: u64 = 4 << 20;
/// Pauses of a reader, one of which is long enough for its peer to fill the window: the first, on a machine without other work.
const PAUSES_MS: [u32; 3] = [600, 2400, 9600];

/// Connects with a receive buffer of `octets`, and asks for `behaviour`.
fn ask_with_buffer(peer: &Peer, server: &str, octets: usize, behaviour: &str) -> TcpStream {
    use std::io::Write;
    let address = SocketAddr::new(server.parse::<IpAddr>().unwrap(), PORT);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let stream = peer.lab.inside(Side::Client, || {
        let socket = socket(family, SocketType::STREAM, None).unwrap();
        set_socket_recv_buffer_size(&socket, octets).unwrap();
        connect(&socket, &address).unwrap();
        TcpStream::from(socket)
    });
    let mut stream = be_patient(stream);
    stream.write_all(format!("{behaviour}\n").as_bytes()).unwrap();
    stream
}

/// A connection that the kernel begins, and one that the stack does; the kernel has receive buffers of `octets`.
fn with_buffer(peer: &Peer, version: (&str, &str), octets: usize, behaviour: &str) -> [TcpStream; 2] {
    let listener = peer.listen(version.1);
    set_socket_recv_buffer_size(&listener, octets).unwrap(); // What it accepts has the same.
    peer.begin(listener.local_addr().unwrap(), behaviour);
    [ask_with_buffer(peer, version.0, octets, behaviour), accept(&listener)]
}

#[test]
fn a_reader_on_the_stack_that_pauses_closes_the_window_and_opens_it_again() {
    let Some(peer) = Peer::start() else { return };
    let changes = ["TcpExtTCPToZeroWindowAdv", "TcpExtTCPFromZeroWindowAdv"];
    for version in VERSIONS {
        let each_changed = PAUSES_MS.iter().any(|pause| {
            let before = changes.map(|name| peer.counts()[name]);
            thread::scope(|scope| {
                for mut stream in peer.in_both_roles(version, &format!("rcvbuf=65536 slow {pause}")) {
                    scope.spawn(move || assert_sink_takes(&mut stream, LEN));
                }
            });
            changes.iter().zip(before).all(|(name, before)| peer.counts()[*name] >= before + 2)
        });
        assert!(each_changed, "each window was closed, and opened again: {:?}", peer.counts());
    }
    peer.assert_nothing_leaked();
}

#[test]
fn a_reader_at_the_kernel_that_pauses_has_its_window_probed() {
    let Some(peer) = Peer::start() else { return };
    for (version, probes) in VERSIONS.into_iter().zip([2, 4]) {
        let streams = with_buffer(&peer, version, 4096, &format!("source {LEN}"));
        let deadline = Instant::now() + PATIENCE;
        while peer.counts()["TcpExtTCPWinProbe"] < probes {
            assert!(Instant::now() < deadline, "each window is probed");
            thread::sleep(Duration::from_millis(20));
        }
        thread::scope(|scope| {
            for mut stream in streams {
                scope.spawn(move || assert_source_gives(&mut stream, LEN));
            }
        });
    }
    peer.assert_nothing_leaked();
}

#[test]
fn a_reader_at_the_kernel_that_takes_little_at_a_time_gets_all() {
    const LEN: u64 = 256 << 10;
    let Some(peer) = Peer::start() else { return };
    for mut stream in with_buffer(&peer, VERSIONS[0], 16384, &format!("source {LEN}")) {
        let mut hash = StreamHash::default();
        let mut part = [0; 700];
        loop {
            let count = stream.read(&mut part).unwrap();
            hash.update(&part[..count]);
            match hash.len() {
                LEN => break,
                // Slow enough for the window to be full all the time, at the beginning.
                few if few < 64 << 10 => thread::sleep(Duration::from_millis(1)),
                _ => {}
            }
        }
        assert_eq!(hash.value(), pattern_hash(LEN));
    }
    let counts = peer.counts();
    // Silly windows (RFC 9293, 3.8.6.2) would be filled by more and smaller segments than there were reads.
    assert!(counts["TcpOutSegs"] < 2 * LEN / 700, "{counts:?}");
}
