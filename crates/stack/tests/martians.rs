//! Packets from a wire that say to come from where nothing on a wire comes from.

mod common;

use std::net::SocketAddr;

use clock::Instant;
use common::{Pair, SERVER};
use stack::{Arrival, LinkId, SourceFilter, Stack};
use wire::DropReason;

/// What the server says of a SYN between these ends.
fn syn(from: &str, to: SocketAddr) -> Result<(), DropReason> {
    syn_to(from, to, |_| ())
}

/// The same of a server that was prepared.
fn syn_to(from: &str, to: SocketAddr, prepare: impl Fn(&mut Stack)) -> Result<(), DropReason> {
    let mut pair = Pair::new();
    prepare(&mut pair.server.stack);
    pair.server.listen(SocketAddr::new(to.ip().to_canonical(), to.port()), 1);
    pair.client.connect(from.parse().unwrap(), to);
    let mut room = [0; 1500];
    let now = Instant::from_nanos(2_000_000);
    let transmit = pair.client.stack.poll_transmit(now, &mut room).expect("a SYN");
    pair.server.stack.on_packet(&room[..transmit.len], &Arrival::default(), now).map(|_| ())
}

#[test]
fn nobody_is_taken_for_this_host() {
    let v6 = "[2001:db8::1]:80".parse().unwrap();
    assert_eq!(syn("192.0.2.9:4000", SERVER), Ok(()));
    assert_eq!(syn("[2001:db8::9]:4000", v6), Ok(()));
    for from in ["127.0.0.1:4000", "0.1.2.3:4000", &format!("{}:4000", SERVER.ip())] {
        assert_eq!(syn(from, SERVER), Err(DropReason::SourceAddress), "{from}");
    }
    for from in ["[::1]:4000", "[2001:db8::1]:4000"] {
        assert_eq!(syn(from, v6), Err(DropReason::SourceAddress), "{from}");
    }
}

#[test]
fn a_syn_from_where_nobody_is_expected_is_dropped() {
    let range = |first: &str, last: &str| first.parse().unwrap()..=last.parse().unwrap();
    let allowed = vec![range("192.0.2.0", "192.0.2.255")];
    let filter = SourceFilter { vlan: [0, 0], allowed, routed: Vec::new() };
    let filtered =
        |from: &str| syn_to(from, SERVER, |stack| stack.set_sources(LinkId(0), vec![filter.clone()]));
    assert_eq!(filtered("192.0.2.9:4000"), Ok(()));
    assert_eq!(filtered("198.51.100.9:4000"), Err(DropReason::SourceUnexpected));
}

#[test]
fn nobody_reaches_what_listens_on_loopback() {
    for to in ["127.0.0.1:80", "[::1]:80"] {
        let to: SocketAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { "192.0.2.9:4000" } else { "[2001:db8::9]:4000" };
        assert_eq!(syn(from, to), Err(DropReason::DestinationAddress), "{to}");
    }
}
