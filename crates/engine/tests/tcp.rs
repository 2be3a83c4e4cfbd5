//! TCP between two engines over a wire in memory.

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use common::{CLIENT, Host, SERVER, pattern, wire};
use device::memory;
use engine::{Config, Connection, Echo, Engine, TcpHandler, TcpServer};
use stack::udp::{UdpBind, UdpSend};
use stack::{Hop, ListenError};

fn echo_server(device: Box<dyn device::Device>) -> Host {
    Host::start(TcpServer::new(Echo).listen(SERVER), device)
}

#[test]
fn a_stream_comes_back_whole_and_in_order() {
    let (left, right) = wire(&memory::Config::default());
    let (server, client) = (echo_server(right), Host::client(left));
    let request = pattern(3 << 20);
    let connection = client.connect(CLIENT, SERVER);
    assert!(client.exchange(connection, &request) == request, "the stream came back changed");
    drop((client, server));
}

#[test]
fn a_wire_with_few_frames_and_short_rings_loses_nothing() {
    let config = memory::Config { frames: 80, ring: 8, ..memory::Config::default() };
    let (left, right) = wire(&config);
    let (server, client) = (echo_server(right), Host::client(left));
    let request = pattern(1 << 20);
    let connection = client.connect(CLIENT, SERVER);
    assert!(client.exchange(connection, &request) == request, "the stream came back changed");
    // A thread that is not scheduled for a while may see a probe or a timeout; a frame that was dropped shows otherwise.
    let sent_again = server.handle.ask_stack(|stack, _| stack.counters().fast_retrans).unwrap();
    assert_eq!(sent_again, 0, "what found no room was kept, not dropped");
}

#[test]
fn a_server_that_stops_ends_its_connections() {
    let (left, right) = wire(&memory::Config::default());
    let (server, client) = (echo_server(right), Host::client(left));
    let connection = client.connect(CLIENT, SERVER);
    assert!(client.wait_until(move |stack| stack.readiness(connection).is_some_and(|ready| ready.writable)));
    drop(server);
    assert!(
        client.wait_until(move |stack| stack.readiness(connection).is_some_and(|ready| ready.read_closed))
    );
}

/// Notes where it cannot listen.
struct Listening(Arc<Mutex<Vec<(SocketAddr, ListenError)>>>);

impl TcpHandler for Listening {
    type State = ();

    fn on_listen_error(&mut self, address: SocketAddr, error: ListenError) {
        self.0.lock().unwrap().push((address, error));
    }

    fn on_open(&mut self, _: &mut Connection<'_>) {}

    fn on_data(&mut self, (): &mut (), _: &mut Connection<'_>) {}
}

#[test]
fn a_handler_hears_of_an_address_that_another_one_has() {
    let failed = Arc::new(Mutex::new(Vec::new()));
    let server = TcpServer::new(Listening(Arc::clone(&failed))).listen(SERVER);
    let (mut engine, _handle) =
        Engine::driven(Config::default(), Echo, stack::Config::default(), server).unwrap();
    engine.stack().tcp_listen(SERVER, false, 1, Arc::default()).unwrap();
    engine.poll(clock::Instant::ZERO);
    assert_eq!(*failed.lock().unwrap(), [(SERVER, ListenError::InUse)]);
}

#[test]
fn udp_is_answered_in_place_beside_tcp() {
    use device::{Burst, Device};
    let (mut left, mut right) = memory::pair(&memory::Config::default());
    let (mut generator, server) = (left.remove(0), echo_server(Box::new(right.remove(0))));
    let endpoints = wire::Endpoints::new(CLIENT, SERVER).unwrap();
    let mut frame = generator.alloc().unwrap();
    let room = frame.bytes_and_tailroom_mut();
    let len = wire::write_udp(room, &wire::Envelope::untagged(endpoints), b"hello").unwrap();
    frame.set_len(len);
    generator.tx_burst(&mut Burst::from_iter([frame]), clock::Instant::ZERO);
    let mut received = Burst::new();
    while generator.rx_burst(&mut received, clock::Instant::ZERO) == 0 {}
    assert!(received[0].bytes().ends_with(b"hello"));
    generator.release(received.pop().unwrap());
    drop(server);
}

#[test]
fn a_live_connection_follows_another_mtu() {
    let (left, right) = wire(&memory::Config::default());
    let (server, client) = (echo_server(right), Host::client(left));
    let connection = client.connect(CLIENT, SERVER);
    assert!(client.wait_until(move |stack| stack.readiness(connection).is_some_and(|ready| ready.writable)));
    client.handle.set_mtu(stack::LinkId(0), 1280);
    let info = client.handle.ask_stack(move |stack, now| stack.info(connection, now).unwrap()).unwrap();
    assert_eq!((info.pmtu, info.snd_mss), (1280, 1280 - 40 - 12), "IPv4, TCP and timestamps take the rest");
    drop((client, server));
}

#[test]
fn datagrams_for_a_socket_of_the_stack_go_there_and_not_to_the_responder() {
    let (left, right) = wire(&memory::Config::default());
    let (server, client) = (echo_server(right), Host::client(left));
    let bind = |address| move |stack: &mut stack::Stack, _| stack.udp_bind(&UdpBind::new(address)).unwrap();
    let socket = server.handle.ask_stack(bind(SERVER)).unwrap();
    let from = client.handle.ask_stack(bind(CLIENT)).unwrap();
    client.handle.with_stack(move |stack, now| {
        let send = UdpSend { to: Some(SERVER), hop: Some(Hop::default()), ..UdpSend::default() };
        stack.udp_send_to(from, &send, b"hello", now).unwrap();
    });
    assert!(server.wait_until(move |stack| stack.udp_recv_from(socket, &mut [0; 16]).is_ok()));
    drop((client, server));
}
