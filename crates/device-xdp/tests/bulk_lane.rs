//! The bulk lane on a real veth pair: the kernel cuts what is longer than a packet. Needs root and AF_XDP; skipped otherwise.

#[allow(dead_code)]
mod packet_socket;
#[allow(dead_code)]
mod support;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant as SystemTime};

use clock::Instant;
use device::{Device, SuperSegment, Taken};
use device_xdp::{SteeringOptions, SteeringProgram, XdpDevice, XdpOptions};
use wire::ethernet::{self, Ethernet, ethertype};
use wire::ip::Ip;
use wire::tcp::{self, Tcp, flag};
use wire::{MacAddress, VlanTag, ipv4, ipv6, protocol};

use packet_socket::PacketSocket;
use support::{Lab, lab};

const PAYLOAD: usize = 20_000;
const SIZE: u16 = 1400;
const PORT: u16 = 4321;

fn open(lab: &Lab, options: &XdpOptions) -> (SteeringProgram, XdpDevice) {
    lab.enter_server();
    let mut program = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let device = XdpDevice::open(&mut program, &[0], options).unwrap();
    (program, device)
}

/// Ethernet, IP and TCP header of a packet with [`PAYLOAD`] octets.
fn headers(is_ipv6: bool, tag: Option<VlanTag>) -> Vec<u8> {
    let mut octets = vec![0; 128];
    let kind = if is_ipv6 { ethertype::IPV6 } else { ethertype::IPV4 };
    let broadcast = MacAddress([0xff; 6]);
    let link = ethernet::write(&mut octets, broadcast, MacAddress([2; 6]), [tag, None], kind).unwrap();
    let payload_len = tcp::HEADER_LEN + PAYLOAD;
    let ip = if is_ipv6 {
        let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let (next_header, hop_limit, traffic_class) = (protocol::TCP, 64, 0);
        let fields = ipv6::Fields { source, destination, next_header, hop_limit, traffic_class, payload_len };
        ipv6::write(&mut octets[link..], &fields).unwrap()
    } else {
        let (source, destination) = (Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2));
        let (protocol, ttl, traffic_class) = (protocol::TCP, 64, 0);
        let fields = ipv4::Fields { source, destination, protocol, ttl, traffic_class, payload_len };
        ipv4::write(&mut octets[link..], &fields).unwrap()
    };
    let fields = tcp::Fields {
        source_port: PORT,
        sequence_number: 1_000_000,
        flags: flag::ACK | flag::PSH,
        ..tcp::Fields::default()
    };
    let tcp = tcp::write(&mut octets[link + ip..], &fields, None).unwrap();
    octets.truncate(link + ip + tcp);
    octets
}

fn send(device: &mut XdpDevice, headers: &mut [u8], payload: &[u8]) -> Taken {
    let (front, back) = payload.split_at(payload.len() / 3);
    let mut packet = SuperSegment { headers, payload: &[front, back], segment_size: SIZE };
    device.tx_super_segment(&mut packet, Instant::ZERO)
}

/// Segments from [`PORT`] until `octets` of payload have come: sequence number, flags, payload; all with valid checksums.
fn segments(socket: &PacketSocket, octets: usize) -> Vec<(u32, u8, Vec<u8>)> {
    let (mut segments, end) = (Vec::new(), SystemTime::now() + Duration::from_secs(20));
    let mut arrived = 0;
    while arrived < octets && SystemTime::now() < end {
        let Some(frame) = socket.receive() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let ethernet = Ethernet::parse(&frame).unwrap();
        let Ok(ip) = Ip::in_frame(&ethernet) else { continue };
        let Ok(tcp) = Tcp::parse(ip.payload()) else { continue };
        if tcp.source_port() != PORT {
            continue;
        }
        assert!(frame.len() <= 1518, "cut to what the link takes");
        assert!(tcp.checksum_is_valid(ip.pseudo_header(ip.payload().len())));
        arrived += tcp.payload().len();
        segments.push((tcp.sequence_number(), tcp.flags(), tcp.payload().to_vec()));
    }
    segments
}

#[test]
fn the_kernel_cuts_a_super_segment_into_full_segments() {
    let Some(lab) = lab(1) else { return };
    // Without offloads the kernel does at the latest moment what a NIC would do.
    let status = lab.command_in_server("ethtool").args(["-K", "vs", "tx", "off", "tso", "off"]).output();
    assert!(status.is_ok_and(|output| output.status.success()));
    let (_program, mut device) = open(&lab, &XdpOptions::default());
    assert_eq!(device.capabilities().tso_max, u16::MAX);
    let client = lab.in_client(|| PacketSocket::open("vc"));
    let sent: Vec<u8> = (0..PAYLOAD).map(|at| (at % 251) as u8).collect();
    let tag = Some(VlanTag { tpid: ethertype::VLAN, control: 7 });
    for (is_ipv6, tag) in [(false, None), (true, None), (false, tag)] {
        assert_eq!(send(&mut device, &mut headers(is_ipv6, tag), &sent), Taken::Sent);
        let segments = segments(&client, PAYLOAD);
        let joined: Vec<u8> = segments.iter().flat_map(|segment| segment.2.clone()).collect();
        assert!(joined == sent, "IPv6 {is_ipv6}, tag {tag:?}: {} octets came", joined.len());
        let (last, others) = segments.split_last().unwrap();
        for (at, (sequence_number, flags, payload)) in others.iter().enumerate() {
            let expected = 1_000_000 + at as u32 * u32::from(SIZE);
            assert_eq!((*sequence_number, *flags, payload.len()), (expected, flag::ACK, usize::from(SIZE)));
        }
        assert_eq!(last.1, flag::ACK | flag::PSH);
    }
    assert_eq!(device.counters().tx_frames, 3 * PAYLOAD.div_ceil(SIZE.into()) as u64);
}

#[test]
fn nobody_receives_by_the_lane() {
    let Some(lab) = lab(1) else { return };
    let (_program, device) = open(&lab, &XdpOptions::default());
    let descriptors = device.descriptors();
    let lane = descriptors.last().unwrap().as_raw_fd();
    // What a program could do that has got the descriptor: ask for all packets, and take the filter off.
    // SAFETY: all zeroes is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_ll of `size` octets that outlives the call.
    assert_eq!(unsafe { libc::bind(lane, (&raw const address).cast(), size) }, 0);
    // SAFETY: no pointers.
    let detached =
        unsafe { libc::setsockopt(lane, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, std::ptr::null(), 0) };
    assert_eq!(detached, -1);
    lab.run_in_client("ping -q -c 3 -i 0.1 10.77.0.1");
    let mut octets = [0u8; 64];
    // SAFETY: `octets` is writable for its length.
    let received = unsafe { libc::recv(lane, octets.as_mut_ptr().cast(), octets.len(), libc::MSG_DONTWAIT) };
    assert_eq!(received, -1);
}

#[test]
fn a_device_without_a_lane_cuts_nothing() {
    let Some(lab) = lab(1) else { return };
    let (_program, mut device) = open(&lab, &XdpOptions { bulk_lane: false, ..XdpOptions::default() });
    assert_eq!(device.capabilities().tso_max, 0);
    assert_eq!(send(&mut device, &mut headers(false, None), &[0; PAYLOAD]), Taken::Refused);
}
