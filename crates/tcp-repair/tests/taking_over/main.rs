//! Connections between a kernel and our stack that go on between that kernel and another, with nothing lost.

mod wire;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::{CLIENT_V4, Lab, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side, require_root_and_xdp};
use stack::{Config, ConnectionId};
use tcp_repair::{Prepared, deliver, make_kernel_socket, prepare};
use transit::{Established, SocketKind, State};
use wire::{Server, Wire};

const PORT: u16 = 7000;
/// Octets that each side sends in all.
const TOTAL: usize = 3 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// The octet at a place of the stream that `from` sends.
fn octet(from: u8, at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0] ^ from
}

fn stream(from: u8, place: std::ops::Range<usize>) -> Vec<u8> {
    place.map(|at| octet(from, at)).collect()
}

const CLIENT: u8 = 1;
const SERVER: u8 = 2;

/// What a server's connections have.
fn kind(is_ipv6: bool) -> SocketKind {
    SocketKind { is_ipv6, reuse_address: true }
}

/// A laboratory with a connection of the client's kernel to our stack.
struct Scene {
    wire: Wire,
    lab: Lab,
    client: TcpStream,
    ours: ConnectionId,
    /// The kernel's socket on the port, as every socket of a program has one.
    shadow: TcpListener,
}

impl Scene {
    fn set(server: &str, config: Config) -> Scene {
        let lab = Lab::with_box(1).unwrap();
        let address = SocketAddr::new(server.parse::<IpAddr>().unwrap(), PORT);
        let shadow = lab.inside(Side::Server, || TcpListener::bind(address).unwrap());
        let wire = Wire::lay(&lab, config);
        let listener = wire.middle().listen(address);
        let client = lab.inside(Side::Client, || TcpStream::connect_timeout(&address, PATIENCE).unwrap());
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        let ours = wire.until("accepting", |middle| middle.stack.tcp_accept(listener));
        Scene { wire, lab, client, ours, shadow }
    }

    /// Has our stack write `octets` for as long as it takes them, and returns how many it took.
    fn write(&self, octets: &[u8]) -> usize {
        let mut middle = self.wire.middle();
        let now = middle.now();
        middle.stack.send(self.ours, octets, now).unwrap_or(0)
    }

    /// What our stack has to read, at most `most` octets.
    fn read(&self, most: usize) -> Vec<u8> {
        let mut middle = self.wire.middle();
        let now = middle.now();
        let mut room = vec![0; most];
        let count = middle.stack.recv(self.ours, &mut room, now).unwrap_or(0);
        room.truncate(count);
        room
    }

    fn shutdown(&self) {
        let mut middle = self.wire.middle();
        let now = middle.now();
        middle.stack.shutdown(self.ours, stack::tcp::Shutdown::Write, now);
    }

    fn wait_for_state(&self, state: stack::tcp::State) {
        self.wire.until(&format!("{state:?}"), |middle| {
            (middle.stack.state(self.ours) == Some(state)).then_some(())
        });
    }

    /// Moves our end to the kernel of the server's namespace.
    fn take_over(&self, value: &Established, is_ipv6: bool) -> TcpStream {
        let socket = self.lab.inside(Side::Server, || {
            let prepared: Prepared = prepare(value.clone(), kind(is_ipv6), |_, _| ()).unwrap();
            let said = self.wire.middle().spoken_too_early;
            assert!(
                said <= u32::from(value.state.has_fin_received()),
                "the peer's FIN is acknowledged once more"
            );
            self.wire.middle().server = Server::Kernel;
            prepared.start().unwrap()
        });
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn detach(&self) -> Established {
        self.wire.middle().detach(self.ours)
    }
}

fn read_to_end(mut socket: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    socket.read_to_end(&mut all).unwrap();
    all
}

/// The kernel's state of a socket, by its number.
fn kernel_state(socket: &TcpStream, lab: &Lab) -> String {
    let local = socket.local_addr().unwrap().port();
    let peer = socket.peer_addr().unwrap().port();
    let filter = format!("sport = :{local} and dport = :{peer}");
    let listing = lab.run_in(Side::Server, "ss", &["-tanH", &filter]).unwrap();
    listing.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Both sides send a lot; in the middle of it our end moves, with data unread, unacknowledged and unsent.
fn move_in_mid_transfer(server: &str, timestamps: bool, mapped: bool, lose_each: Option<u32>) {
    let scene = Scene::set(server, Config { timestamps, ..Config::default() });
    scene.wire.middle().lose_each = lose_each;
    // Less than is left when the wire is cut: something stays unsent then, however fast it was before.
    rustix::net::sockopt::set_socket_recv_buffer_size(&scene.client, TOTAL / 24).unwrap();
    let writer = thread::spawn({
        let mut client = scene.client.try_clone().unwrap();
        move || {
            client.write_all(&stream(CLIENT, 0..TOTAL)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }
    });
    let reader = thread::spawn({
        let client = scene.client.try_clone().unwrap();
        move || read_to_end(&client)
    });
    let says = stream(SERVER, 0..TOTAL);
    let (mut written, mut heard) = (0, Vec::new());
    while heard.len() < TOTAL / 3 || written < TOTAL / 3 {
        written += scene.write(&says[written..TOTAL / 2]);
        heard.extend(scene.read(10_000));
        thread::sleep(Duration::from_micros(200));
    }
    // The client's data piles up unread, then nothing arrives any more and what is sent stays unacknowledged.
    scene.wire.until("unread data", |middle| (middle.stack.queued(scene.ours)?.0 > 0).then_some(()));
    scene.wire.middle().lose_each = Some(1);
    scene.wire.until("data under way, and more", |middle| {
        let now = middle.now();
        written += middle.stack.send(scene.ours, &says[written..], now).unwrap_or(0);
        let info = middle.stack.info(scene.ours, now)?;
        (info.unacked > 0 && info.notsent_bytes > 0).then_some(())
    });
    let detached = scene.detach();
    assert!(!detached.received.is_empty() && !detached.unacked.is_empty() && !detached.unsent.is_empty());
    assert_eq!(detached.timestamps.is_some(), timestamps);
    scene.wire.middle().lose_each = lose_each;
    let socket = scene.take_over(&detached, mapped || server.contains(':'));
    assert_eq!(socket.peer_addr().unwrap().port(), scene.client.local_addr().unwrap().port());
    let rest = thread::spawn({
        let mut socket = socket.try_clone().unwrap();
        move || {
            socket.write_all(&says[written..]).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
        }
    });
    heard.extend(read_to_end(&socket));
    rest.join().unwrap();
    writer.join().unwrap();
    assert!(heard == stream(CLIENT, 0..TOTAL), "{} octets came of {TOTAL}", heard.len());
    let answered = reader.join().unwrap();
    assert!(answered == stream(SERVER, 0..TOTAL), "{} octets went of {TOTAL}", answered.len());
    assert_eq!(scene.wire.middle().stack.counters().out_rsts, 0);
}

/// What the client says after the value was made comes to our stack, and is given to the kernel. On the wire everything is lost from
/// then on: it is not the client that sends it again. The socket is the interface's alone, as one with `SO_BINDTODEVICE` is.
fn give_what_came_late(server: &str) {
    let scene = Scene::set(server, Config { late_segments_max: 10, ..Config::default() });
    let detached = scene.detach();
    scene.wire.middle().server = Server::Ours;
    (&scene.client).write_all(b"late").unwrap();
    let late = scene.wire.until("what is late", |middle| middle.stack.next_late_segment());
    scene.wire.middle().lose_each = Some(1);
    let socket = scene.take_over(&detached, server.contains(':'));
    let name = SERVER_INTERFACE.as_bytes();
    syscall::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name).unwrap();
    scene.lab.inside(Side::Server, || {
        let other = SocketAddr::new(late.remote.ip(), late.remote.port() ^ 1);
        assert!(deliver(late.local, other, &late.octets).is_err(), "a segment of another flow");
        deliver(late.local, late.remote, &late.octets).unwrap();
    });
    let mut octets = [0; 4];
    (&socket).read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"late");
    assert_eq!(kernel_state(&socket, &scene.lab), "ESTAB");
}

#[test]
fn what_came_late_goes_on_over_ipv4() {
    if require_root_and_xdp() {
        give_what_came_late(SERVER_V4);
    }
}

#[test]
fn what_came_late_goes_on_over_ipv6() {
    if require_root_and_xdp() {
        give_what_came_late(SERVER_V6);
    }
}

#[test]
fn a_transfer_goes_on_over_ipv4() {
    if require_root_and_xdp() {
        move_in_mid_transfer(SERVER_V4, true, false, None);
    }
}

#[test]
fn a_transfer_goes_on_over_ipv6() {
    if require_root_and_xdp() {
        move_in_mid_transfer(SERVER_V6, true, false, None);
    }
}

#[test]
fn a_transfer_goes_on_without_timestamps() {
    if require_root_and_xdp() {
        move_in_mid_transfer(SERVER_V4, false, false, None);
        move_in_mid_transfer(SERVER_V6, false, false, None);
    }
}

#[test]
fn a_transfer_goes_on_under_loss() {
    if require_root_and_xdp() {
        move_in_mid_transfer(SERVER_V4, true, false, Some(100));
        move_in_mid_transfer(SERVER_V6, false, false, Some(100));
    }
}

#[test]
fn a_socket_of_ipv6_keeps_its_mapped_addresses() {
    if require_root_and_xdp() {
        move_in_mid_transfer(SERVER_V4, true, true, None);
    }
}

/// Each side's say before and after the move, and who closed before it.
fn move_half_closed(server: &str, reach: impl FnOnce(&Scene) -> Established, state: State) {
    move_half_closed_in(Scene::set(server, Config::default()), reach, state);
}

fn move_half_closed_in(scene: Scene, reach: impl FnOnce(&Scene) -> Established, state: State) {
    let is_ipv6 = scene.client.peer_addr().unwrap().is_ipv6();
    let value = reach(&scene);
    assert_eq!(value.state, state);
    let mut socket = scene.take_over(&value, is_ipv6);
    if !state.is_write_closed() {
        socket.write_all(b", and goodbye").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    }
    if !state.has_fin_received() {
        (&scene.client).write_all(b", and goodbye").unwrap();
        scene.client.shutdown(Shutdown::Write).unwrap();
    }
    let (at_server, at_client) = (read_to_end(&socket), read_to_end(&scene.client));
    let expect = |closed: bool| if closed { b"hello".to_vec() } else { b"hello, and goodbye".to_vec() };
    assert_eq!(at_server, expect(state.has_fin_received()), "{state:?}, to the server");
    assert_eq!(at_client, expect(state.is_write_closed()), "{state:?}, to the client");
    assert_eq!(scene.client.take_error().unwrap().map(|error| error.to_string()), None);
    assert_eq!(socket.take_error().unwrap().map(|error| error.to_string()), None);
}

/// Both have said hello, and both hellos are on the way or there.
fn greet(scene: &Scene) {
    hear_greeting(scene);
    assert_eq!(scene.write(b"hello"), 5);
}

fn hear_greeting(scene: &Scene) {
    (&scene.client).write_all(b"hello").unwrap();
    scene.wire.until("the greeting", |middle| {
        let (unread, _) = middle.stack.queued(scene.ours)?;
        (unread == 5).then_some(())
    });
}

fn each_version(test: impl Fn(&str)) {
    if require_root_and_xdp() {
        [SERVER_V4, SERVER_V6].into_iter().for_each(test);
    }
}

#[test]
fn close_wait_goes_on() {
    each_version(|server| {
        let reach = |scene: &Scene| {
            greet(scene);
            scene.client.shutdown(Shutdown::Write).unwrap();
            scene.wait_for_state(stack::tcp::State::CloseWait);
            scene.detach()
        };
        move_half_closed(server, reach, State::CloseWait);
    });
}

/// What many a host has: it lets in what belongs to a connection that it knows, and of others only what may begin one.
const FIREWALL: &str =
    "table inet filter { chain input { type filter hook input priority filter; policy drop;
    ct state established,related accept; ct state invalid drop; iif lo accept;
    meta l4proto { icmp, ipv6-icmp } accept; tcp dport 7000 accept; }; }";

#[test]
fn a_firewall_that_drops_what_is_of_no_connection_lets_the_peers_fin_in() {
    if Command::new("nft").arg("--version").output().is_err() {
        return lab::skip("needs nft");
    }
    each_version(|server| {
        let scene = Scene::set(server, Config::default());
        scene.lab.run_in(Side::Server, "nft", &[FIREWALL]).unwrap();
        let reach = |scene: &Scene| {
            greet(scene);
            scene.client.shutdown(Shutdown::Write).unwrap();
            scene.wait_for_state(stack::tcp::State::CloseWait);
            scene.detach()
        };
        move_half_closed_in(scene, reach, State::CloseWait);
    });
}

#[test]
fn fin_wait_1_goes_on_with_a_fin_that_was_lost() {
    each_version(|server| {
        let reach = |scene: &Scene| {
            greet(scene);
            thread::sleep(Duration::from_millis(20));
            scene.wire.middle().lose_each = Some(1);
            scene.shutdown();
            thread::sleep(Duration::from_millis(20));
            scene.wire.middle().lose_each = None;
            scene.detach()
        };
        move_half_closed(server, reach, State::FinWait1);
    });
}

#[test]
fn fin_wait_1_goes_on_with_data_that_was_never_sent() {
    each_version(|server| {
        let reach = |scene: &Scene| {
            hear_greeting(scene);
            let mut middle = scene.wire.middle();
            let now = middle.now();
            // In one piece with the lock held: nothing leaves in between.
            middle.stack.send(scene.ours, b"hello", now).unwrap();
            middle.stack.shutdown(scene.ours, stack::tcp::Shutdown::Write, now);
            let detached = middle.detach(scene.ours);
            assert!(detached.unsent == b"hello" && !detached.fin_sent);
            detached
        };
        move_half_closed(server, reach, State::FinWait1);
    });
}

#[test]
fn fin_wait_2_goes_on() {
    each_version(|server| {
        let reach = |scene: &Scene| {
            greet(scene);
            scene.shutdown();
            scene.wait_for_state(stack::tcp::State::FinWait2);
            scene.detach()
        };
        move_half_closed(server, reach, State::FinWait2);
    });
}

#[test]
fn last_ack_goes_on() {
    each_version(|server| {
        let reach = |scene: &Scene| {
            greet(scene);
            scene.client.shutdown(Shutdown::Write).unwrap();
            scene.wait_for_state(stack::tcp::State::CloseWait);
            scene.wire.middle().lose_each = Some(1);
            scene.shutdown();
            thread::sleep(Duration::from_millis(20));
            scene.wire.middle().lose_each = None;
            scene.detach()
        };
        move_half_closed(server, reach, State::LastAck);
    });
}

#[test]
fn closing_goes_on() {
    each_version(|server| {
        let reach = |scene: &Scene| {
            greet(scene);
            thread::sleep(Duration::from_millis(20));
            {
                let mut middle = scene.wire.middle();
                let now = middle.now();
                middle.stack.shutdown(scene.ours, stack::tcp::Shutdown::Write, now);
                // Our FIN is lost, the client's comes.
                middle.lose_to_client = true;
            }
            scene.client.shutdown(Shutdown::Write).unwrap();
            scene.wait_for_state(stack::tcp::State::Closing);
            scene.detach()
        };
        move_half_closed(server, reach, State::Closing);
    });
}

#[test]
fn a_server_that_starts_anew_finds_its_port_free() {
    if !require_root_and_xdp() {
        return;
    }
    let scene = Scene::set(SERVER_V4, Config::default());
    let value = scene.detach();
    let mut socket = scene.take_over(&value, false);
    let address = scene.shadow.local_addr().unwrap();
    assert_eq!(kernel_state(&socket, &scene.lab), "ESTAB");
    let Scene { wire: _wire, lab, client, shadow, .. } = scene;
    drop(shadow);
    let anew = lab.inside(Side::Server, || listen_anew(address)).unwrap();
    let second = lab.inside(Side::Client, || TcpStream::connect_timeout(&address, PATIENCE).unwrap());
    let (accepted, from) = anew.accept().unwrap();
    assert_eq!(from, second.local_addr().unwrap());
    drop(accepted);
    socket.write_all(b"still here").unwrap();
    let mut room = [0; 10];
    (&client).read_exact(&mut room).unwrap();
    assert_eq!(&room, b"still here");
}

/// A process that another test is just starting has a copy of the listener before until it executes its program.
fn listen_anew(address: SocketAddr) -> std::io::Result<TcpListener> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Without timestamps the kernel does not know that a connection is later than the one that it has in TIME-WAIT.
#[test]
fn an_earlier_connection_in_time_wait_makes_way() {
    if !require_root_and_xdp() {
        return;
    }
    let scene = Scene::set(SERVER_V4, Config::default());
    let value = scene.detach();
    scene.lab.inside(Side::Server, || {
        std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, remote) = listener.accept().unwrap();
        let local = listener.local_addr().unwrap();
        drop(accepted);
        assert_eq!(read_to_end(&peer), b"");
        drop((peer, listener));
        let value = transit::Established { local, remote, timestamps: None, ..value };
        let refused = prepare(value.clone(), kind(false), |_, _| ()).err().map(|error| error.kind());
        assert_eq!(refused, Some(std::io::ErrorKind::AddrNotAvailable));
        let make_way = |local, remote| assert!(control::sock_diag::end_time_wait(local, remote).unwrap());
        drop(prepare(value, kind(false), make_way).unwrap());
    });
}

#[test]
fn what_is_prepared_and_dropped_is_gone_without_a_packet() {
    if !require_root_and_xdp() {
        return;
    }
    let scene = Scene::set(SERVER_V4, Config::default());
    scene.write(b"unacknowledged");
    let value = scene.detach();
    scene.lab.inside(Side::Server, || {
        let prepared = prepare(value.clone(), kind(false), |_, _| ()).unwrap();
        let twice = prepare(value.clone(), kind(false), |_, _| ()).unwrap_err();
        assert_eq!(twice.kind(), std::io::ErrorKind::AddrNotAvailable, "{twice}");
        thread::sleep(Duration::from_millis(500));
        drop(prepared);
    });
    thread::sleep(Duration::from_millis(100));
    assert_eq!(scene.wire.middle().spoken_too_early, 0);
    // It can still go on anywhere.
    let socket = scene.take_over(&value, false);
    drop(socket);
    assert_eq!(read_to_end(&scene.client), b"unacknowledged");
}

#[test]
fn a_client_connection_of_ours_goes_on_too() {
    if !require_root_and_xdp() {
        return;
    }
    let lab = Lab::with_box(1).unwrap();
    let wire = Wire::lay(&lab, Config::default());
    let listener = lab.inside(Side::Client, || TcpListener::bind((CLIENT_V4, 0)).unwrap());
    let mac = |side, interface| -> [u8; 6] {
        let text = lab.hardware_address(side, interface).unwrap();
        let octets: Vec<u8> = text.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
        octets.try_into().unwrap()
    };
    let header = stack::LinkHeader {
        destination: ::wire::MacAddress(mac(Side::Client, lab::CLIENT_INTERFACE)),
        source: ::wire::MacAddress(mac(Side::Server, lab::SERVER_INTERFACE)),
        ..stack::LinkHeader::default()
    };
    let ours = {
        let mut middle = wire.middle();
        let now = middle.now();
        let connect = stack::Connect {
            local: format!("{SERVER_V4}:45678").parse().unwrap(),
            remote: listener.local_addr().unwrap(),
            is_bound: false,
            hop: stack::Hop { header, ..stack::Hop::default() },
            options: Default::default(),
            data: b"question",
        };
        middle.stack.tcp_connect(&connect, now).unwrap()
    };
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    wire.until("connecting", |middle| {
        (middle.stack.state(ours) == Some(stack::tcp::State::Established)).then_some(())
    });
    let value = wire.middle().detach(ours);
    let socket = lab.inside(Side::Server, || {
        let prepared = prepare(value, kind(false), |_, _| ()).unwrap();
        wire.middle().server = Server::Kernel;
        prepared.start().unwrap()
    });
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut room = [0; 8];
    peer.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"question");
    peer.write_all(b"answer").unwrap();
    drop(peer);
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

/// A connection brings more than any socket's buffers hold, and a promise of more still. What it brought arrives.
#[test]
fn buffers_are_no_larger_afterwards_than_any_sockets() {
    const BROUGHT: usize = 8 << 20;
    if !require_root_and_xdp() {
        return;
    }
    let scene = Scene::set(SERVER_V4, Config::default());
    let mut value = scene.detach();
    (value.unsent, value.rcv_wnd) = (vec![7; BROUGHT], 64 << 20);
    let socket = scene.take_over(&value, false);
    let size = |option| {
        let mut size = [0; 4];
        syscall::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, &mut size).unwrap();
        i32::from_ne_bytes(size)
    };
    assert!(size(libc::SO_SNDBUF) <= 4 << 20, "{}", size(libc::SO_SNDBUF));
    assert!(size(libc::SO_RCVBUF) <= 6 << 20, "{}", size(libc::SO_RCVBUF));
    socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&scene.client).len(), BROUGHT);
}

#[test]
fn nonsense_is_refused() {
    if !require_root_and_xdp() {
        return;
    }
    let scene = Scene::set(SERVER_V4, Config::default());
    let mut value = scene.detach();
    value.snd_wscale = 15;
    let refused =
        scene.lab.inside(Side::Server, || make_kernel_socket(value.clone(), kind(false)).unwrap_err());
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    value.snd_wscale = 0;
    value.local = "203.0.113.1:80".parse().unwrap();
    let foreign = scene.lab.inside(Side::Server, || make_kernel_socket(value, kind(false)).unwrap_err());
    assert_eq!(foreign.kind(), std::io::ErrorKind::AddrNotAvailable);
}
