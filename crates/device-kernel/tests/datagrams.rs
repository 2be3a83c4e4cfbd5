//! What a service that answers later may rely on, tried on the loopback interface; needs no privilege.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use device_kernel::{Config, Datagrams, OpenError, Peer};

const PATIENCE: Duration = Duration::from_secs(60);

fn open(address: &str) -> Datagrams {
    let config = Config { share_port: false, payload_max: 512, ..Config::default() };
    Datagrams::open(address.parse().unwrap(), &config).unwrap()
}

fn client() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Waits for `count` datagrams, which may come in several batches.
fn receive(socket: &mut Datagrams, count: usize) -> Vec<(Peer, Vec<u8>)> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} have come", all.len());
        let some = socket.receive();
        all.extend(
            (0..some)
                .filter_map(|index| socket.received(index).map(|(peer, octets)| (peer, octets.to_vec()))),
        );
        thread::yield_now();
    }
    all
}

#[test]
fn more_datagrams_than_a_batch_come_and_are_answered_in_order() {
    let mut socket = open("127.0.0.1:0");
    let client = client();
    for number in 0..100u8 {
        client.send_to(&[number], socket.local_addr()).unwrap();
    }
    let came = receive(&mut socket, 100);
    assert!(came.iter().map(|(_, octets)| octets[0]).eq(0..100));
    socket.send(&came);
    for number in 0..100u8 {
        let mut buffer = [0; 10];
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (1, socket.local_addr()));
        assert_eq!(buffer[0], number);
    }
    assert_eq!((socket.receive(), socket.received(0)), (0, None));
}

#[test]
fn a_socket_of_all_addresses_answers_from_the_one_that_was_asked() {
    let mut socket = open("0.0.0.0:0");
    let client = client();
    for host in [1, 2, 77] {
        let asked = SocketAddr::from(([127, 0, 0, host], socket.local_addr().port()));
        client.send_to(b"?", asked).unwrap();
        let came = receive(&mut socket, 1);
        socket.send(&came);
        assert_eq!(client.recv_from(&mut [0; 10]).unwrap(), (1, asked));
    }
}

#[test]
fn what_cannot_be_sent_keeps_nothing_else_from_it() {
    let mut socket = open("127.0.0.1:0");
    let client = client();
    client.send_to(b"?", socket.local_addr()).unwrap();
    let (peer, _) = receive(&mut socket, 1)[0];
    let too_long = vec![0; 66_000]; // No datagram has so many octets.
    socket.send(&[(peer, too_long), (peer, b"!".to_vec())]);
    assert_eq!(client.recv_from(&mut [0; 10]).unwrap(), (1, socket.local_addr()));
}

#[test]
fn an_address_in_use_is_told() {
    let first = open("127.0.0.1:0");
    let config = Config { share_port: false, ..Config::default() };
    let second = Datagrams::open(first.local_addr(), &config);
    assert!(matches!(second, Err(OpenError::AddressInUse { .. })));
}
