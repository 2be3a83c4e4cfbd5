//! What an engine may rely on, tried on the loopback interface; needs no privilege.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use clock::Instant;
use device::{BURST, Burst, Device};
use device_kernel::{Config, KernelSockets, OpenError};
use wire::{ChecksumPolicy, parse_udp, turn_around};

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
const VERIFIED: ChecksumPolicy = ChecksumPolicy { verified: true, accept_partial: false };

fn open(listen: &[&str]) -> KernelSockets {
    let listen = listen.iter().map(|text| text.parse().unwrap()).collect();
    KernelSockets::open(Config { listen, ..Config::default() }).unwrap()
}

fn client(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Receives what there is, as soon as there is something: on loopback that is mostly when it was sent.
fn receive(device: &mut dyn Device) -> Burst {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut burst = Burst::new();
    while device.rx_burst(&mut burst, Instant::ZERO) == 0 {
        assert!(std::time::Instant::now() < deadline, "nothing comes");
        std::thread::yield_now();
    }
    burst
}

/// Answers each frame with its own payload, as an engine would.
fn echo(device: &mut dyn Device) -> usize {
    let mut burst = receive(device);
    for frame in &mut burst {
        let headers = parse_udp(frame.bytes(), VERIFIED).unwrap();
        let payload_len = headers.payload_range().len();
        let len = turn_around(frame.bytes_and_tailroom_mut(), &headers, payload_len, true);
        frame.set_len(len);
    }
    device.tx_burst(&mut burst, Instant::ZERO);
    assert!(burst.is_empty());
    device.counters().rx_frames as usize
}

fn expect(client: &UdpSocket, payload: &[u8]) -> SocketAddr {
    let mut buffer = [0; 65536];
    let (len, from) = client.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], payload);
    from
}

#[test]
fn a_datagram_is_echoed_over_both_ip_versions() {
    for address in ["127.0.0.1", "::1"] {
        let ip: IpAddr = address.parse().unwrap();
        let mut device = open(&[&SocketAddr::new(ip, 0).to_string()]);
        let server = device.local_addrs().next().unwrap();
        let client = client(address);
        client.send_to(b"hello", server).unwrap();
        echo(&mut device);
        assert_eq!(expect(&client, b"hello"), server);
    }
}

#[test]
fn a_received_frame_names_both_ends() {
    let mut device = open(&["127.0.0.1:0"]);
    let server = device.local_addrs().next().unwrap();
    let client = client("127.0.0.1");
    client.send_to(b"hello", server).unwrap();
    let burst = receive(&mut device);
    let headers = parse_udp(burst[0].bytes(), VERIFIED).unwrap();
    assert_eq!(headers.source(burst[0].bytes()), client.local_addr().unwrap());
    assert_eq!(headers.destination(burst[0].bytes()), server);
    assert_eq!(&burst[0].bytes()[headers.payload_range()], b"hello");
}

#[test]
fn a_reply_leaves_from_the_address_that_was_asked() {
    let mut device = open(&["0.0.0.0:0"]);
    let port = device.local_addrs().next().unwrap().port();
    let asked = SocketAddr::new("127.0.0.5".parse().unwrap(), port);
    let client = client("127.0.0.1");
    client.send_to(b"who are you?", asked).unwrap();
    echo(&mut device);
    assert_eq!(expect(&client, b"who are you?"), asked);
}

#[test]
fn both_wildcards_are_served_on_one_port() {
    let mut device = open(&["0.0.0.0:0"]);
    let port = device.local_addrs().next().unwrap().port();
    device.add_address(SocketAddr::new("::".parse().unwrap(), port)).unwrap();
    for address in ["127.0.0.1", "::1"] {
        let client = client(address);
        let asked = SocketAddr::new(address.parse().unwrap(), port);
        client.send_to(b"hello", asked).unwrap();
        echo(&mut device);
        assert_eq!(expect(&client, b"hello"), asked);
    }
}

#[test]
fn a_full_burst_is_received_and_sent_at_once() {
    let mut device = open(&["127.0.0.1:0"]);
    let server = device.local_addrs().next().unwrap();
    let client = client("127.0.0.1");
    for number in 0..BURST as u8 + 3 {
        client.send_to(&[number], server).unwrap();
    }
    assert_eq!(echo(&mut device), BURST);
    assert_eq!(echo(&mut device), BURST + 3);
    for number in 0..BURST as u8 + 3 {
        expect(&client, &[number]);
    }
}

#[test]
fn a_busy_socket_does_not_starve_the_others() {
    let mut device = open(&["127.0.0.1:0", "127.0.0.1:0"]);
    let servers: Vec<SocketAddr> = device.local_addrs().collect();
    let client = client("127.0.0.1");
    for _ in 0..2 * BURST {
        for server in &servers {
            client.send_to(b"x", server).unwrap();
        }
    }
    let queues = |burst: Burst| burst.iter().map(|frame| frame.queue).collect::<Vec<_>>();
    let first = queues(receive(&mut device));
    let second = queues(receive(&mut device));
    assert_eq!((first.len(), second.len()), (BURST, BURST));
    assert_ne!(first[0], second[0]);
}

#[test]
fn a_datagram_longer_than_a_frame_is_dropped_and_counted() {
    let mut device = open(&["127.0.0.1:0"]);
    let server = device.local_addrs().next().unwrap();
    let client = client("127.0.0.1");
    for len in [4096, 4200, 10] {
        client.send_to(&vec![7; len], server).unwrap();
    }
    assert_eq!(echo(&mut device), 2);
    assert_eq!(device.counters().rx_dropped_invalid, 1);
    expect(&client, &[7; 4096]);
    expect(&client, &[7; 10]);
}

#[test]
fn a_reply_may_be_as_long_as_udp_allows() {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { listen, payload_max: device_kernel::PAYLOAD_MAX, frames: 128, ..Config::default() };
    let mut device = KernelSockets::open(config).unwrap();
    let client = client("127.0.0.1");
    let request = vec![3; 65000];
    client.send_to(&request, device.local_addrs().next().unwrap()).unwrap();
    echo(&mut device);
    expect(&client, &request);
}

#[test]
fn two_devices_share_the_clients_of_a_port() {
    let mut one = open(&["127.0.0.1:0"]);
    let server = one.local_addrs().next().unwrap();
    let mut other = open(&[&server.to_string()]);
    for _ in 0..64 {
        client("127.0.0.1").send_to(b"hello", server).unwrap();
    }
    let (first, second) = (echo(&mut one), echo(&mut other));
    assert_eq!(first + second, 64);
    assert!(first > 0 && second > 0, "{first} and {second}");
}

#[test]
fn an_address_in_use_is_named() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let error = KernelSockets::open(Config { listen: vec![address], ..Config::default() }).err().unwrap();
    assert!(matches!(error, OpenError::AddressInUse { .. }));
    assert_eq!(error.to_string(), format!("{address}: in use by another program"));
}

#[test]
fn an_address_of_no_interface_is_opened_only_by_free_bind() {
    let listen = vec!["192.0.2.77:0".parse().unwrap(), "[2001:db8::77]:0".parse().unwrap()];
    for address in &listen {
        let config = Config { listen: vec![*address], ..Config::default() };
        let error = KernelSockets::open(config).err().unwrap();
        assert!(matches!(error, OpenError::AddressNotAvailable { .. }), "{error}");
    }
    assert!(KernelSockets::open(Config { listen, free_bind: true, ..Config::default() }).is_ok());
}

#[test]
fn an_unknown_interface_is_named() {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { listen, interface: Some("nosuch0".into()), ..Config::default() };
    assert!(KernelSockets::open(config).err().unwrap().to_string().contains("nosuch0"));
}

#[test]
fn addresses_come_and_go_while_running() {
    let mut device = open(&["127.0.0.1:0"]);
    let stays = device.local_addrs().next().unwrap();
    let added = device.add_address("127.0.0.2:0".parse().unwrap()).unwrap();
    assert_eq!(device.add_address(added).unwrap(), added);
    assert_eq!(device.local_addrs().count(), 2);
    let client = client("127.0.0.1");
    client.send_to(b"new", added).unwrap();
    echo(&mut device);
    assert_eq!(expect(&client, b"new"), added);
    assert!(device.remove_address(added));
    assert!(!device.remove_address(added));
    client.send_to(b"old", stays).unwrap();
    echo(&mut device);
    assert_eq!(expect(&client, b"old"), stays);
}

#[test]
fn a_device_without_addresses_receives_nothing() {
    let mut device = open(&[]);
    assert_eq!(device.rx_burst(&mut Burst::new(), Instant::ZERO), 0);
    let mut fds = Vec::new();
    device.wait_fds(&mut fds);
    assert_eq!(fds.len(), 1);
}

#[test]
fn a_refused_datagram_is_skipped_and_counted() {
    let mut device = open(&["127.0.0.1:0"]);
    let server = device.local_addrs().next().unwrap();
    let client = client("127.0.0.1");
    for payload in [b"one", b"two"] {
        client.send_to(payload, server).unwrap();
    }
    let mut burst = receive(&mut device);
    for frame in &mut burst {
        let headers = parse_udp(frame.bytes(), VERIFIED).unwrap();
        turn_around(frame.bytes_and_tailroom_mut(), &headers, 3, true);
    }
    burst[0].bytes_mut()[30..34].copy_from_slice(&[192, 0, 2, 9]); // Nothing bound to loopback can reach it.
    assert_eq!(device.tx_burst(&mut burst, Instant::ZERO), 2);
    assert_eq!(device.counters().tx_dropped, 1);
    expect(&client, b"two");
}

#[test]
fn a_frame_that_answers_none_leaves_from_its_source_address() {
    let mut device = open(&["127.0.0.1:0", "127.0.0.2:0"]);
    let source = device.local_addrs().nth(1).unwrap();
    let client = client("127.0.0.1");
    let endpoints = wire::Endpoints::new(source, client.local_addr().unwrap()).unwrap();
    let mut frame = device.alloc().unwrap();
    let room = frame.bytes_and_tailroom_mut();
    let len = wire::write_udp(room, &wire::Envelope::untagged(endpoints), b"news").unwrap();
    frame.set_len(len);
    let mut burst = Burst::new();
    burst.push(frame);
    assert_eq!(device.tx_burst(&mut burst, Instant::ZERO), 1);
    assert_eq!(expect(&client, b"news"), source);
}

#[test]
fn a_frame_of_another_device_is_sent_and_can_be_taken_home() {
    let mut device = open(&["127.0.0.1:0"]);
    let mut other = open(&["127.0.0.1:0"]);
    let source = device.local_addrs().next().unwrap();
    let client = client("127.0.0.1");
    let endpoints = wire::Endpoints::new(source, client.local_addr().unwrap()).unwrap();
    let mut frame = other.alloc().unwrap();
    let room = frame.bytes_and_tailroom_mut();
    let len = wire::write_udp(room, &wire::Envelope::untagged(endpoints), b"guest").unwrap();
    frame.set_len(len);
    let mut burst = Burst::new();
    burst.push(frame);
    assert_eq!(device.tx_burst(&mut burst, Instant::ZERO), 1);
    expect(&client, b"guest");
    other.release(device.take_foreign().unwrap());
    assert!(device.take_foreign().is_none());
}

#[test]
fn a_waiting_datagram_makes_the_descriptor_readable() {
    for listen in [&["127.0.0.1:0"][..], &["127.0.0.1:0", "127.0.0.1:0"]] {
        let mut device = open(listen);
        let server = device.local_addrs().last().unwrap();
        client("127.0.0.1").send_to(b"wake", server).unwrap();
        assert!(device.prepare_wait());
        let mut fds = Vec::new();
        device.wait_fds(&mut fds);
        let mut polled = [rustix::event::PollFd::new(&fds[0], rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut polled, Some(&timeout)).unwrap(), 1);
    }
}
