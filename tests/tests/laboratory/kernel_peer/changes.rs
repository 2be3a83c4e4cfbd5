//! Links and neighbours that change under live connections.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::{CLIENT_INTERFACE, SERVER_INTERFACE, Side};
use tests::{StreamHash, fill_pattern};

use super::{Peer, VERSIONS, assert_echo_returns, read_hash};

/// Sends to an `echo` until it is told to stop, and checks that the same comes back. Returns how much it was.
fn exchange_until(stop: &AtomicBool, stream: &TcpStream) -> u64 {
    let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    thread::scope(|scope| {
        let reading = scope.spawn(move || read_hash(&mut reader).unwrap());
        let mut sent = StreamHash::default();
        let mut part = [0; 16384];
        while !stop.load(Ordering::Relaxed) {
            fill_pattern(sent.len(), &mut part);
            writer.write_all(&part).unwrap();
            sent.update(&part);
        }
        writer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reading.join().unwrap(), sent);
        sent.len()
    })
}

/// Makes changes, a moment after each other, while streams go both ways in both roles.
fn assert_streams_survive(peer: &Peer, version: (&str, &str), changes: &[(Side, String)]) {
    const MOMENT: Duration = Duration::from_millis(150);
    let stop = AtomicBool::new(false);
    let streams = peer.in_both_roles(version, "echo");
    thread::scope(|scope| {
        let exchanges = streams.each_ref().map(|stream| scope.spawn(|| exchange_until(&stop, stream)));
        for (side, change) in changes {
            thread::sleep(MOMENT);
            assert!(exchanges.iter().all(|exchange| !exchange.is_finished()), "the streams live so far");
            peer.lab.ip(*side, change).unwrap();
        }
        thread::sleep(MOMENT);
        stop.store(true, Ordering::Relaxed);
        for exchange in exchanges {
            let len = exchange.join().unwrap();
            println!("{}: {} octets in {:?}", version.0, len, MOMENT * (changes.len() as u32 + 1));
        }
    });
    assert!(peer.endings(2).keys().all(|ending| ending.starts_with("closed")));
    peer.assert_nothing_leaked();
}

fn new_hardware_address(last: u8) -> (Side, String) {
    (Side::Client, format!("link set {CLIENT_INTERFACE} address 02:53:00:00:00:{last:02x}"))
}

#[test]
fn a_neighbour_may_change_its_hardware_address_under_live_connections() {
    for version in VERSIONS {
        let Some(peer) = Peer::start() else { return };
        assert_streams_survive(&peer, version, &[new_hardware_address(1), new_hardware_address(2)]);
    }
}

#[test]
fn a_neighbour_whose_other_address_is_silent_may_change_its_hardware_address() {
    for [busy, silent] in [VERSIONS, [VERSIONS[1], VERSIONS[0]]] {
        let Some(peer) = Peer::start() else { return };
        assert_echo_returns(&peer.ask(silent.0, "echo"), 1000);
        peer.endings(1);
        assert_streams_survive(&peer, busy, &[new_hardware_address(1), new_hardware_address(2)]);
    }
}

fn new_mtu(side: Side, mtu: u16) -> (Side, String) {
    let interface = if side == Side::Server { SERVER_INTERFACE } else { CLIENT_INTERFACE };
    (side, format!("link set {interface} mtu {mtu}"))
}

#[test]
fn the_mtu_may_change_under_live_connections() {
    let changes = [
        new_mtu(Side::Client, 1280),
        new_mtu(Side::Server, 1280),
        new_mtu(Side::Server, 1500),
        new_mtu(Side::Client, 1500),
    ];
    for version in VERSIONS {
        let Some(peer) = Peer::start() else { return };
        assert_streams_survive(&peer, version, &changes);
    }
}

#[test]
fn the_mtu_may_outgrow_the_frames_under_live_connections() {
    let grow = [new_mtu(Side::Server, 3000), new_mtu(Side::Client, 3000)];
    let shrink = [new_mtu(Side::Client, 1500), new_mtu(Side::Server, 1500)];
    for version in VERSIONS {
        let Some(peer) = Peer::start() else { return };
        assert_streams_survive(&peer, version, &[grow.clone(), shrink.clone()].concat());
        assert_streams_survive(&peer, version, &grow);
        assert_eq!(peer.counts()["mtu"], 3000, "frames are larger now");
    }
}
