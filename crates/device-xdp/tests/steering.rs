//! What becomes of packets under claims of several terms, told by the steering program's counters. Needs root and AF_XDP; skipped
//! otherwise.

mod crafted;
#[allow(dead_code)]
mod packet_socket;
#[allow(dead_code)]
mod support;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use device_xdp::{AttachMode, Flow, SteeringOptions, SteeringProgram, XdpDevice, XdpOptions};
use rustix::net::{AddressFamily, SocketType};
use steering::{Claim, ClaimTerms, LocalAddress, Marks, QueueSet, Transport, VlanTags};

use crafted::*;
use packet_socket::PacketSocket;
use support::{Lab, lab};

const PORT: u16 = 53;
const NO_OPERATION: [u8; 4] = [1; 4];
/// Terms under which the kernel may have flows.
const KERNEL_SOME: ClaimTerms = ClaimTerms {
    kernel_some: true,
    marks: MARKS,
    queues: QueueSet::ALL,
    listening: QueueSet::ALL,
    kernel_new: false,
};
const MARKS: Marks = Marks { table: 0, epoch: 0 };
const NEXT: Marks = Marks { epoch: 1, ..MARKS };

/// The program on an interface with one queue.
struct Setting {
    program: SteeringProgram,
    lab: Lab,
}

impl Setting {
    /// Claims UDP and TCP to [`PORT`] on both addresses, by `terms`.
    fn new(terms: ClaimTerms) -> Option<Setting> {
        Setting::in_lab(lab(1)?, terms)
    }

    fn in_lab(lab: Lab, terms: ClaimTerms) -> Option<Setting> {
        lab.enter_server();
        let options = SteeringOptions { kernel_flows: 1000, ..SteeringOptions::default() };
        let program = SteeringProgram::attach("vs", options).unwrap();
        let mut setting = Setting { program, lab };
        setting.set_terms(terms);
        Some(setting)
    }

    fn set_terms(&mut self, terms: ClaimTerms) {
        for transport in [Transport::Udp, Transport::Tcp] {
            for address in [IpAddr::from(SERVER_V4), IpAddr::from(SERVER_V6)] {
                let local = LocalAddress { address, vlan: VlanTags::default() };
                self.program.put_claim(Claim { transport, local, port: PORT }, terms).unwrap();
            }
        }
    }

    fn device(&mut self) -> XdpDevice {
        XdpDevice::open(&mut self.program, &[0], &XdpOptions::default()).unwrap()
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        // What the kernels tell each other of neighbours and groups is none of ours.
        const NOISE: [&str; 3] = ["passed_not_ip", "passed_other_protocol", "passed_truncated"];
        let named = self.program.counters().unwrap().named().into_iter();
        named.filter(|(name, _)| !NOISE.contains(name)).collect()
    }

    /// Sends `frame` from the client's end; returns what it was counted as, and "other" if that is not of the ports' business.
    fn outcome(&self, frame: &[u8]) -> &'static str {
        /// What a datagram to an address without claims is counted as: sent behind `frame`, it says when that one was counted.
        const MARKER: &str = "passed_unclaimed_address";
        let mut marker = ipv4(UDP, &udp(4000, PORT, 10));
        marker[30..34].copy_from_slice(&[10, 77, 0, 99]);
        let before = self.counts();
        self.lab.in_client(|| {
            let socket = PacketSocket::open("vc");
            [frame, &marker].into_iter().for_each(|frame| socket.send(frame));
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.counts()[MARKER] == before[MARKER] {
            assert!(Instant::now() < deadline, "the marker does not arrive");
            thread::sleep(Duration::from_millis(1));
        }
        let mut after = self.counts();
        *after.entry(MARKER).or_default() -= 1;
        let mut changed = after.iter().filter(|(name, count)| before[*name] != **count);
        let Some((name, count)) = changed.next() else { return "other" };
        assert_eq!((*count, changed.next()), (before[name] + 1, None), "one packet is counted once");
        name
    }

    /// Whether the client's flow of TCP from port `source` is noted as the kernel's.
    fn is_noted(&self, source: u16) -> bool {
        let [local, remote] = flow(source);
        self.program.is_kernel_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap()
    }
}

/// Our end and the client's of a flow from its port `source`.
fn flow(source: u16) -> [SocketAddr; 2] {
    [SocketAddr::new(SERVER_V4.into(), PORT), SocketAddr::new(CLIENT_V4.into(), source)]
}

fn flow_of(transport: Transport, [local, remote]: [SocketAddr; 2]) -> Flow {
    Flow { transport, local, remote }
}

fn flow_v6(source: u16) -> [SocketAddr; 2] {
    [SocketAddr::new(SERVER_V6.into(), PORT), SocketAddr::new(CLIENT_V6.into(), source)]
}

/// The kernel connects to this port of the client's from [`PORT`], which others may have, too.
fn connect_from_port(port: u16) -> std::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(SERVER_V4, PORT))?;
    rustix::net::connect(&socket, &SocketAddrV4::new(CLIENT_V4, port))?;
    Ok(socket.into())
}

/// What the peer of a connection says arrives.
fn assert_talk(stream: &mut TcpStream, listener: &TcpListener) {
    let (mut peer, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..2 {
        peer.write_all(b"question").unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
    }
}

/// TCP in packets that no socket is given.
fn unreadable(segment: &[u8]) -> [(&'static str, Vec<u8>); 7] {
    [
        ("options", ipv4_with(TCP, 0, &NO_OPERATION, segment)),
        ("most options", ipv4_with(TCP, 0, &[1; 40], segment)),
        ("a first fragment", ipv4_with(TCP, FIRST, &[], segment)),
        ("a first fragment with options", ipv4_with(TCP, FIRST, &NO_OPERATION, segment)),
        ("an extension header", ipv6(HOP_BY_HOP, &options(TCP, segment))),
        (
            "several extension headers",
            ipv6(HOP_BY_HOP, &options(DESTINATION_OPTIONS, &options(FRAGMENT, &fragment(TCP, 0, segment)))),
        ),
        ("a first fragment of IPv6", ipv6(FRAGMENT, &fragment(TCP, 0, segment))),
    ]
}

#[test]
fn claimed_tcp_that_no_socket_can_be_given_is_dropped() {
    let Some(mut setting) = Setting::new(ClaimTerms::default()) else { return };
    let device = setting.device();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "redirected");
    assert_eq!(setting.outcome(&ipv6(TCP, &tcp(4000, PORT, ACK, 10))), "redirected");
    for (what, frame) in unreadable(&tcp(4000, PORT, ACK, 10)) {
        assert_eq!(setting.outcome(&frame), "dropped_claimed_tcp", "{what}");
    }
    let unclaimed = tcp(4000, PORT + 1, ACK, 10);
    assert_eq!(setting.outcome(&ipv4_with(TCP, FIRST, &[], &unclaimed)), "passed_fragment_or_options");
    assert_eq!(setting.outcome(&ipv6(FRAGMENT, &fragment(TCP, 0, &unclaimed))), "other");
    let segment = tcp(4000, PORT, ACK, 10);
    assert_eq!(setting.outcome(&ipv4_with(TCP, LATER, &[], &segment)), "passed_fragment_or_options");
    assert_eq!(setting.outcome(&ipv6(FRAGMENT, &fragment(TCP, 1, &segment))), "other");
    assert_eq!(setting.outcome(&ipv4_with(TCP, 0, &[1; 40], &[])), "passed_fragment_or_options", "cut off");
    assert_eq!(setting.outcome(&ipv6(HOP_BY_HOP, &[TCP, 255, 0, 0])), "other", "cut off");

    // The rest is no worse off at the kernel.
    let datagram = udp(4000, PORT, 10);
    assert_eq!(setting.outcome(&ipv4(UDP, &datagram)), "redirected");
    assert_eq!(setting.outcome(&ipv4_with(UDP, 0, &NO_OPERATION, &datagram)), "passed_fragment_or_options");
    assert_eq!(setting.outcome(&ipv4_with(UDP, FIRST, &[], &datagram)), "passed_fragment_or_options");
    assert_eq!(setting.outcome(&ipv6(HOP_BY_HOP, &options(UDP, &datagram))), "other");
    drop(device);
    // A program that another test starts at this moment has a copy of the socket until it is executed.
    let deadline = Instant::now() + Duration::from_secs(10);
    while setting.outcome(&ipv4(TCP, &segment)) != "passed_no_socket" {
        assert!(Instant::now() < deadline, "the socket is still there");
    }
    assert_eq!(setting.outcome(&unreadable(&segment)[0].1), "passed_fragment_or_options");
}

#[test]
fn in_generic_mode_a_claimed_segment_may_be_longer_than_a_frame_and_a_datagram_may_not() {
    let Some(lab) = lab(1) else { return };
    lab.ip_server("link set vs mtu 9000");
    lab.ip_client("link set vc mtu 9000");
    let Some(mut setting) = Setting::in_lab(lab, KERNEL_SOME) else { return };
    assert_eq!(setting.program.mode(), AttachMode::Generic);
    let _device = setting.device();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 4000))), "redirected");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 3000))), "redirected");
    assert_eq!(setting.outcome(&ipv4(UDP, &udp(4000, PORT, 4000))), "passed_too_long");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT + 1, ACK, 4000))), "passed_unclaimed_port");
    let [local, remote] = flow(4000);
    setting.program.add_kernel_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 4000))), "passed_kernel_flow");
}

#[test]
fn a_claim_holds_on_the_queues_that_it_names() {
    let Some(mut setting) = Setting::new(ClaimTerms::default()) else { return };
    let _device = setting.device();
    let (segment, datagram) = (ipv4(TCP, &tcp(4000, PORT, ACK, 10)), ipv6(UDP, &udp(4000, PORT, 10)));
    for (queues, expected) in [
        (QueueSet::from_iter([0]), "redirected"),
        (QueueSet::from_iter([1, 63]), "passed_other_queue"),
        (QueueSet::from_iter([0, 1, 63]), "redirected"),
        (QueueSet::NONE, "passed_other_queue"),
        (QueueSet::ALL, "redirected"),
    ] {
        setting.set_terms(ClaimTerms { queues, ..ClaimTerms::default() });
        assert_eq!(setting.outcome(&datagram), expected, "{queues:?}");
        // The kernel has no such connection, and would reset it.
        let is_lost = expected == "passed_other_queue" && queues != QueueSet::NONE;
        let expected = if is_lost { "dropped_claimed_tcp" } else { expected };
        assert_eq!(setting.outcome(&segment), expected, "{queues:?}");
    }
    setting.set_terms(ClaimTerms { queues: QueueSet::NONE, ..ClaimTerms::default() });
    for (what, frame) in unreadable(&tcp(4000, PORT, ACK, 10)) {
        assert_eq!(setting.outcome(&frame), "passed_other_queue", "{what}");
    }
    let claim = *setting.program.claims().keys().next().unwrap();
    setting.program.remove_claim(claim).unwrap();
    setting.program.remove_claim(claim).unwrap();
    assert_eq!(setting.program.claims().len(), 3);
}

#[test]
fn noted_flows_are_the_kernels_and_so_are_errors_about_them() {
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    let _device = setting.device();
    for (transport, protocol) in [(Transport::Tcp, TCP), (Transport::Udp, UDP)] {
        let packet = |source, destination| match transport {
            Transport::Tcp => tcp(source, destination, ACK, 10),
            Transport::Udp => udp(source, destination, 10),
        };
        let [local, remote] = flow(4000);
        setting.program.add_kernel_flow(flow_of(transport, [local, remote]), MARKS).unwrap();
        let [local_v6, remote_v6] = flow_v6(4001);
        setting.program.add_kernel_flow(flow_of(transport, [local_v6, remote_v6]), MARKS).unwrap();
        assert_eq!(setting.outcome(&ipv4(protocol, &packet(4000, PORT))), "passed_kernel_flow");
        assert_eq!(setting.outcome(&ipv4(protocol, &packet(4001, PORT))), "redirected");
        assert_eq!(setting.outcome(&ipv6(protocol, &packet(4001, PORT))), "passed_kernel_flow");
        assert_eq!(setting.outcome(&ipv6(protocol, &packet(4000, PORT))), "redirected");
        assert_eq!(setting.outcome(&unreachable(protocol, &packet(PORT, 4000))), "passed_kernel_flow");
        assert_eq!(setting.outcome(&unreachable(protocol, &packet(PORT, 4001))), "redirected");

        setting.set_terms(ClaimTerms::default());
        assert_eq!(setting.outcome(&ipv4(protocol, &packet(4000, PORT))), "redirected", "nobody looks");
        setting.set_terms(KERNEL_SOME);
        for _ in 0..2 {
            setting.program.remove_kernel_flow(flow_of(transport, [local, remote]), 0).unwrap();
            assert_eq!(setting.outcome(&ipv4(protocol, &packet(4000, PORT))), "redirected");
        }
    }
    let [local, remote] = flow_v6(4002);
    setting.program.add_kernel_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap();
    let [local, remote] = flow(4002);
    setting.program.add_kernel_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap();
    for (what, frame) in unreadable(&tcp(4002, PORT, ACK, 10)) {
        assert_eq!(setting.outcome(&frame), "passed_kernel_flow", "{what}");
    }
}

#[test]
fn while_new_connections_are_the_kernels_they_are_noted_as_they_begin() {
    let Some(mut setting) = Setting::new(ClaimTerms { kernel_new: true, ..KERNEL_SOME }) else { return };
    let _device = setting.device();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 0))), "redirected");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, SYN | ACK, 0))), "redirected");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, SYN, 0)[..13])), "redirected", "no flags to see");
    assert_eq!(setting.outcome(&unreachable(TCP, &tcp(PORT, 4000, SYN, 0))), "redirected");
    assert!(!setting.is_noted(4000));
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, SYN, 0))), "passed_kernel_flow");
    assert!(setting.is_noted(4000));
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 0))), "passed_kernel_flow");

    setting.set_terms(KERNEL_SOME);
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "passed_kernel_flow");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4001, PORT, SYN, 0))), "redirected");
    assert!(!setting.is_noted(4001));
}

#[test]
fn notes_of_another_epoch_are_as_good_as_none() {
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    let _device = setting.device();
    let [local, remote] = flow(4000);
    setting.program.add_kernel_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "passed_kernel_flow");
    let later = ClaimTerms { marks: NEXT, ..KERNEL_SOME };
    setting.set_terms(later);
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "redirected");
    setting.set_terms(ClaimTerms { kernel_new: true, ..later });
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, SYN, 0))), "passed_kernel_flow");
    setting.set_terms(later);
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "passed_kernel_flow");
    setting.set_terms(KERNEL_SOME);
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "redirected");
}

/// As in the kernel, where a socket that is only bound gets nothing that begins.
#[test]
fn a_listener_of_the_kernels_goes_before_who_only_connects_from_its_port() {
    let outgoing = ClaimTerms { listening: QueueSet::NONE, ..ClaimTerms::default() };
    let Some(mut setting) = Setting::new(outgoing) else { return };
    let _device = setting.device();
    let segment = |source, flags| ipv4(TCP, &tcp(source, PORT, flags, 0));
    let both = |source, flags| [segment(source, flags), ipv6(TCP, &tcp(source, PORT, flags, 0))];
    for frame in both(4000, SYN) {
        assert_eq!(setting.outcome(&frame), "redirected", "both ends may connect at once");
    }
    assert!(!setting.is_noted(4000), "whoever knows its ends cannot take a connection away by a SYN");

    let _listener = std::net::TcpListener::bind(("::", PORT)).unwrap();
    for frame in both(4001, SYN).into_iter().chain(both(4001, ACK)) {
        assert_eq!(setting.outcome(&frame), "passed_kernel_flow");
    }
    for frame in both(4000, ACK).into_iter().chain(both(4000, SYN | ACK)) {
        assert_eq!(setting.outcome(&frame), "redirected", "who connects gets answers");
    }
    // Other terms change nothing for what has begun.
    setting.set_terms(ClaimTerms { queues: QueueSet::from_iter([0]), ..outgoing });
    assert_eq!(setting.outcome(&segment(4001, ACK)), "passed_kernel_flow");
    // Who listens itself gets what begins.
    setting.set_terms(ClaimTerms { listening: QueueSet::from_iter([0]), ..outgoing });
    assert_eq!([SYN, ACK].map(|flags| setting.outcome(&segment(4002, flags))), ["redirected"; 2]);
    assert_eq!(setting.outcome(&segment(4001, ACK)), "passed_kernel_flow");
}

/// So nobody's connections break off because another user has many.
#[test]
fn a_table_that_is_full_forgets_its_own_flows_only() {
    const OTHERS: Marks = Marks { table: 15, epoch: 0 };
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    let _device = setting.device();
    let ours = flow_of(Transport::Tcp, flow(4000));
    setting.program.add_kernel_flow(ours, MARKS).unwrap();
    let other = |source: u16| flow_of(Transport::Tcp, flow(source));
    (5000..15_000).for_each(|source| setting.program.add_kernel_flow(other(source), OTHERS).unwrap());
    assert!(setting.program.is_kernel_flow(ours, MARKS).unwrap());
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "passed_kernel_flow");
    let known = |source: &u16| setting.program.is_kernel_flow(other(*source), OTHERS).unwrap();
    assert!((5000..15_000).filter(known).count() <= 1000);

    // What begins is noted in the table of its claim.
    setting.set_terms(ClaimTerms { kernel_new: true, marks: OTHERS, ..KERNEL_SOME });
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4002, PORT, SYN, 0))), "passed_kernel_flow");
    assert_eq!(
        [MARKS, OTHERS].map(|marks| setting.program.is_kernel_flow(other(4002), marks).unwrap()),
        [false, true]
    );
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "redirected");
}

#[test]
fn connections_that_begin_where_no_socket_takes_them_stay_with_the_kernel() {
    let elsewhere = ClaimTerms { queues: QueueSet::from_iter([1]), ..KERNEL_SOME };
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 0))), "passed_no_socket");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4001, PORT, SYN, 0))), "passed_kernel_flow");
    let _device = setting.device();
    setting.set_terms(elsewhere);
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 0))), "dropped_claimed_tcp");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4002, PORT, SYN, 0))), "passed_kernel_flow");
    setting.set_terms(KERNEL_SOME);
    assert_eq!([4000, 4001, 4002].map(|source| setting.is_noted(source)), [false, true, true]);
    for source in [4001, 4002] {
        assert_eq!(setting.outcome(&ipv4(TCP, &tcp(source, PORT, ACK, 10))), "passed_kernel_flow");
    }

    // Without flags nothing is noted.
    setting.set_terms(ClaimTerms { queues: QueueSet::NONE, ..ClaimTerms::default() });
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4004, PORT, SYN, 0))), "passed_other_queue");
    assert!(!setting.is_noted(4004));
}

#[test]
fn segments_of_connections_that_come_by_another_queue_are_dropped_where_the_kernel_has_none() {
    let elsewhere =
        ClaimTerms { queues: QueueSet::from_iter([1]), listening: QueueSet::NONE, ..ClaimTerms::default() };
    let Some(mut setting) = Setting::new(elsewhere) else { return };
    let [local, remote] = flow(4000);
    let [one, other] = [[local, remote], flow(4001)].map(|ends| flow_of(Transport::Tcp, ends));
    for flags in [SYN | ACK, ACK, 4] {
        assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, flags, 0))), "dropped_claimed_tcp");
    }
    assert!(setting.program.take_misdirected(one).unwrap());
    assert!(!setting.program.take_misdirected(one).unwrap(), "it is said once");
    assert!(!setting.program.take_misdirected(other).unwrap());
    // What begins a connection, and datagrams, are the kernel's.
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4002, PORT, SYN, 0))), "passed_kernel_flow");
    assert_eq!(setting.outcome(&ipv4(UDP, &udp(4000, PORT, 10))), "passed_other_queue");
    // So are flows that are noted, and what comes where the claim holds is not dropped.
    setting.set_terms(ClaimTerms { kernel_some: true, ..elsewhere });
    setting.program.add_kernel_flow(one, MARKS).unwrap();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 0))), "passed_kernel_flow");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4001, PORT, ACK, 0))), "dropped_claimed_tcp");
    let _device = setting.device();
    setting.set_terms(ClaimTerms { queues: QueueSet::ALL, ..elsewhere });
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4001, PORT, ACK, 0))), "redirected");
}

/// A broker gives no claims to connect from ports at which the kernel has connections, but users may trick it, and it may be killed.
#[test]
fn a_claim_to_connect_takes_nothing_of_connections_that_the_kernel_has() {
    let connects = ClaimTerms { listening: QueueSet::NONE, ..ClaimTerms::default() };
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    // One was there before the claim, and before the socket.
    let [one, other] =
        [80, 82].map(|port| setting.lab.in_client(|| TcpListener::bind((CLIENT_V4, port))).unwrap());
    let mut early = connect_from_port(80).unwrap();
    let _device = setting.device();
    setting.set_terms(connects);
    assert_talk(&mut early, &one);
    // One begins afterwards, from the claimed port; and another one is refused.
    assert_talk(&mut connect_from_port(82).unwrap(), &other);
    assert_eq!(connect_from_port(84).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(setting.counts()["redirected"], 0);
    // What the kernel has not is for the socket, also between the ends of one that it had.
    for source in [84, 4000] {
        for flags in [ACK, SYN | ACK, RST] {
            let frame = ipv4(TCP, &tcp(source, PORT, flags, 0));
            assert_eq!(setting.outcome(&frame), "redirected", "from {source}: {flags:#x}");
        }
    }
}

#[test]
fn connections_of_the_kernel_that_come_by_another_queue_are_its_own() {
    let elsewhere = ClaimTerms { queues: QueueSet::from_iter([1]), marks: MARKS, ..ClaimTerms::default() };
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    setting.set_terms(elsewhere);
    let listener = TcpListener::bind((SERVER_V4, PORT)).unwrap();
    let mut client = setting.lab.in_client(|| TcpStream::connect((SERVER_V4, PORT))).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"question").unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    assert!(setting.counts()["passed_kernel_flow"] > 0, "its SYN was noted");
    // Without the note, too.
    setting.set_terms(ClaimTerms { marks: NEXT, ..elsewhere });
    let before = setting.counts()["passed_other_queue"];
    client.write_all(b"question").unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    assert!(setting.counts()["passed_other_queue"] > before);
    // There is a listener, and no such connection.
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "dropped_claimed_tcp");
}

/// Whoever knows the ends of a connection can say that it begins, by a SYN that no socket can be given; the kernel, which knows nothing
/// of the connection, would reset it.
#[test]
fn a_syn_that_cannot_be_taken_takes_no_flow_from_who_serves_its_queue() {
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    let _device = setting.device();
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 0))), "redirected");
    let forged = ipv4_with(TCP, 0, &NO_OPERATION, &tcp(4000, PORT, SYN, 0));
    assert_eq!(setting.outcome(&forged), "dropped_claimed_tcp");
    assert!(!setting.is_noted(4000));
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, ACK, 10))), "redirected");
}

#[test]
fn an_awaited_flow_is_nobodys_until_a_socket_serves_its_queue() {
    let Some(mut setting) = Setting::new(KERNEL_SOME) else { return };
    let [segment, other] = [4000, 4001].map(|source| ipv4(TCP, &tcp(source, PORT, ACK, 10)));
    let [local, remote] = flow(4000);
    assert!(setting.program.add_awaited_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap());
    assert!(!setting.is_noted(4000));
    assert_eq!([&segment, &other].map(|it| setting.outcome(it)), ["dropped_awaited", "passed_no_socket"]);

    let _device = setting.device();
    let elsewhere = ClaimTerms { queues: QueueSet::NONE, ..KERNEL_SOME };
    setting.set_terms(elsewhere);
    assert_eq!([&segment, &other].map(|it| setting.outcome(it)), ["dropped_awaited", "passed_other_queue"]);
    setting.set_terms(ClaimTerms { marks: NEXT, ..elsewhere });
    assert_eq!(setting.outcome(&segment), "passed_other_queue", "the note is of another epoch");
    setting.set_terms(KERNEL_SOME);
    assert_eq!(setting.outcome(&segment), "redirected");

    // The peer that begins anew meanwhile is the kernel's, and so is one whose connection moves there.
    setting.set_terms(elsewhere);
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, SYN, 0))), "passed_kernel_flow");
    assert_eq!(setting.outcome(&segment), "passed_kernel_flow");
    assert!(
        !setting.program.add_awaited_flow(flow_of(Transport::Tcp, [local, remote]), MARKS).unwrap(),
        "it stays there"
    );
    assert_eq!(setting.outcome(&segment), "passed_kernel_flow");
    assert!(
        setting.program.add_awaited_flow(flow_of(Transport::Tcp, [local, remote]), NEXT).unwrap(),
        "another epoch"
    );
}

#[test]
fn while_sockets_are_reopened_claimed_tcp_waits_for_them() {
    let Some(mut setting) = Setting::new(ClaimTerms::default()) else { return };
    let segment = tcp(4000, PORT, ACK, 10);
    setting.program.set_reopening(clock::Duration::from_secs(3600)).unwrap();
    assert_eq!(setting.outcome(&ipv4(TCP, &segment)), "dropped_reopening");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT, SYN, 0))), "dropped_reopening");
    assert_eq!(setting.outcome(&unreadable(&segment)[0].1), "dropped_claimed_tcp");
    assert_eq!(setting.outcome(&ipv4(UDP, &udp(4000, PORT, 10))), "passed_no_socket");
    assert_eq!(setting.outcome(&unreachable(TCP, &tcp(PORT, 4000, ACK, 0))), "passed_no_socket");
    assert_eq!(setting.outcome(&ipv4(TCP, &tcp(4000, PORT + 1, ACK, 0))), "passed_unclaimed_port");
    let device = setting.device();
    assert_eq!(setting.outcome(&ipv4(TCP, &segment)), "redirected");
    setting.program.remove_queue(0).unwrap();
    setting.program.remove_queue(0).unwrap();
    setting.program.set_reopening(clock::Duration::ZERO).unwrap();
    assert_eq!(setting.outcome(&ipv4(TCP, &segment)), "passed_no_socket", "though somebody has the socket");
    drop(device);
}

/// Whoever opens them may be killed.
#[test]
fn claimed_tcp_waits_no_longer_than_was_said() {
    let Some(mut setting) = Setting::new(ClaimTerms::default()) else { return };
    setting.program.set_reopening(clock::Duration::from_nanos(1)).unwrap();
    let segment = tcp(4000, PORT, ACK, 10);
    assert_eq!(setting.outcome(&ipv4(TCP, &segment)), "passed_no_socket");
}
