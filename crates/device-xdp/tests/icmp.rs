//! ICMP errors about claimed flows go where the flows go; all others stay with the kernel. Needs root and AF_XDP; skipped
//! otherwise.

#[allow(dead_code)]
mod packet_socket;
#[allow(dead_code)]
mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_xdp::{SteeringOptions, SteeringProgram, XdpDevice, XdpOptions};
use packet_socket::PacketSocket;
use steering::{Claim, LocalAddress, Transport, VlanTags};
use support::lab;
use wire::ethernet::{self, ethertype};
use wire::{Endpoints, Envelope, MacAddress};

const SERVER_V4: &str = "10.77.0.1";
const SERVER_V6: &str = "fd77::1";
const PORT: u16 = 53;

/// Octets in front of the IP packet.
const L3: usize = ethernet::HEADER_LEN;

fn endpoint(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// The beginning of a packet that the server sent from `port`, as a router quotes it.
fn quote(server: &str, port: u16) -> Vec<u8> {
    let client = if server == SERVER_V4 { "10.77.0.2" } else { "fd77::2" };
    let endpoints = Endpoints::new(endpoint(server, port), endpoint(client, 4000)).unwrap();
    let mut frame = vec![0; 128];
    let len = wire::write_udp(&mut frame, &Envelope::untagged(endpoints), b"answer").unwrap();
    frame[L3..len].to_vec()
}

/// A frame with an ICMP message of `kind` to the server that quotes `quoted`.
fn icmp_to(server: &str, kind: u8, quoted: &[u8]) -> Vec<u8> {
    let address: IpAddr = server.parse().unwrap();
    let (ip_len, protocol) = if address.is_ipv4() { (20, 1) } else { (40, 58) };
    let mut frame = vec![0; L3 + ip_len + 8];
    frame.extend(quoted);
    // The headers of a datagram serve, but for the protocol's number.
    let of_client = if address.is_ipv4() { "10.77.0.2" } else { "fd77::2" };
    let endpoints = Endpoints::new(endpoint(of_client, 1), endpoint(server, 1)).unwrap();
    wire::write_udp_headers(&mut frame, &Envelope::untagged(endpoints), quoted.len(), true).unwrap();
    let protocol_at = if address.is_ipv4() { L3 + 9 } else { L3 + 6 };
    frame[protocol_at] = protocol;
    frame[L3 + ip_len..][..8].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    let kind = if address.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
    ethernet::write(&mut frame, MacAddress([0xff; 6]), MacAddress([2; 6]), [None, None], kind).unwrap();
    frame
}

#[test]
fn errors_about_claimed_flows_are_taken_and_no_others() {
    let Some(lab) = lab(1) else { return };
    lab.enter_server();
    let mut program = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let mut device = XdpDevice::open(&mut program, &[0], &XdpOptions::default()).unwrap();
    let claim = |address: &str| {
        let local = LocalAddress { address: address.parse().unwrap(), vlan: VlanTags::default() };
        Claim { transport: Transport::Udp, local, port: PORT }
    };
    program.set_claims(&BTreeSet::from([claim(SERVER_V4), claim(SERVER_V6)])).unwrap();

    let (v4, v6) = (quote(SERVER_V4, PORT), quote(SERVER_V6, PORT));
    let taken = [3, 11, 12].map(|kind| icmp_to(SERVER_V4, kind, &v4));
    let taken_v6 = [1, 2, 3, 4].map(|kind| icmp_to(SERVER_V6, kind, &v6));
    let mut foreign = v4.clone(); // Sent by somebody else.
    foreign[12..16].copy_from_slice(&[10, 77, 0, 2]);
    let mut with_options = v4.clone();
    with_options[0] = 0x46;
    let passed = [
        icmp_to(SERVER_V4, 3, &quote(SERVER_V4, 54)),
        icmp_to(SERVER_V4, 0, &v4), // An echo reply may carry anything.
        icmp_to(SERVER_V4, 3, &foreign),
        icmp_to(SERVER_V4, 3, &with_options),
        icmp_to(SERVER_V4, 3, &v4[..20]),
        icmp_to(SERVER_V6, 129, &v6),
        icmp_to(SERVER_V6, 1, &quote(SERVER_V6, 54)),
    ];
    lab.in_client(|| {
        let socket = PacketSocket::open("vc");
        passed.iter().chain(&taken).chain(&taken_v6).for_each(|frame| socket.send(frame));
    });

    let mut received = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while received.len() < 7 && Instant::now() < deadline {
        let mut burst = Burst::new();
        device.rx_burst(&mut burst, clock::Instant::ZERO);
        for frame in burst {
            received.push(frame.bytes().to_vec());
            device.release(frame);
        }
    }
    assert_eq!(received, [&taken[..], &taken_v6[..]].concat());
    assert_eq!(program.counters().unwrap().redirected, 7);
}
