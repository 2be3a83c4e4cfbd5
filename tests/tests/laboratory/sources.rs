//! From which addresses a peer on the wire may open connections: those from which the server's kernel would take packets.

use std::net::TcpStream;

use lab::{CLIENT_INTERFACE, CLIENT_V4, Lab, SERVER_INTERFACE, SERVER_V4, Side};

use crate::stack::Serving;
use crate::{PATIENCE, SILENCE, empty_lab};

/// The server's on another interface, where it has the network of `ELSEWHERE` as well.
const OWN: &str = "198.51.100.1";
const ELSEWHERE: &str = "198.51.100.9";
/// No route of the server's leads there.
const NOWHERE: &str = "203.0.113.9";

/// A server whose `rp_filter` is `setting`, and a client on its wire that has all these addresses.
fn serving(setting: u8) -> Option<Serving> {
    let (lab, turn) = empty_lab()?;
    lab.inside(Side::Server, || {
        for (whose, value) in [("all", 0), (SERVER_INTERFACE, setting)] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{whose}/rp_filter"), value.to_string()).unwrap();
        }
    });
    lab.ip(Side::Server, "link add elsewhere type veth peer name elsewhere-peer").unwrap();
    lab.ip(Side::Server, &format!("address add {OWN}/24 dev elsewhere")).unwrap();
    lab.ip(Side::Server, "link set elsewhere up").unwrap();
    lab.ip(Side::Server, "link set elsewhere-peer up").unwrap();
    for address in [OWN, ELSEWHERE, NOWHERE] {
        lab.ip(Side::Client, &format!("address add {address}/32 dev lo")).unwrap();
    }
    Some(Serving::start_in((lab, turn), "echo", "0.0.0.0:80"))
}

/// Whether the client gets a connection from `source`, for which it waits as long as it is `expected` or silence tells.
fn connects_from(lab: &Lab, source: &str, expected: bool) -> bool {
    let route = format!("route replace {SERVER_V4}/32 dev {CLIENT_INTERFACE} src {source}");
    lab.ip(Side::Client, &route).unwrap();
    let server = format!("{SERVER_V4}:80").parse().unwrap();
    let patience = if expected { PATIENCE } else { SILENCE };
    lab.inside(Side::Client, || TcpStream::connect_timeout(&server, patience).is_ok())
}

#[test]
fn the_kernels_check_of_the_way_back_holds_for_connections_on_the_stack() {
    for (setting, allowed) in
        [(0, &[CLIENT_V4, ELSEWHERE, NOWHERE][..]), (1, &[CLIENT_V4]), (2, &[CLIENT_V4, ELSEWHERE])]
    {
        let Some(serving) = serving(setting) else { return };
        for source in [CLIENT_V4, ELSEWHERE, NOWHERE, OWN] {
            let expected = allowed.contains(&source);
            let connects = connects_from(&serving.lab, source, expected);
            assert_eq!(connects, expected, "from {source}, with rp_filter {setting}");
        }
    }
}
