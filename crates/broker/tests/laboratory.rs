//! A broker on a real veth pair, with clients that claim and have no stack: what is claimed gets no answer, and what the
//! kernel is to keep does. Needs root and AF_XDP; skipped otherwise.

#[path = "laboratory/kernel_connection.rs"]
mod kernel_connection;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use broker::book::{ENTRY_WORDS, entry};
use broker::client::{Client, ClientError, Enqueued, Event, Granted};
use broker::protocol::{ClaimId, ENQUEUED_MAX, News, Profile, Purpose, Refusal, Route, Transport};
use broker::server::{Config, Handle, OpenError, Server, TakeOver};
use lab::{CLIENT_INTERFACE, CLIENT_V4, Lab, SERVER_INTERFACE, SERVER_V4, Side};
use rustix::net::{AddressFamily, SocketType, sockopt};
use transit::{Established, SocketKind, State};

const PORT: u16 = 8080;
/// Longer than a claim takes to have effect, mostly.
const EFFECT: Duration = Duration::from_millis(100);
/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Silence after which nobody answers.
const SILENCE: Duration = Duration::from_millis(300);

/// What a server's connections have.
const KIND: SocketKind = SocketKind { is_ipv6: false, reuse_address: true };

static TURN: Mutex<()> = Mutex::new(());

struct Setting {
    // Dropped in this order.
    handle: Option<Handle>,
    lab: Lab,
    name: String,
    _turn: MutexGuard<'static, ()>,
}

/// A client, a kernel listener, and a claim on it that has effect.
struct Claimed {
    client: Client,
    listener: TcpListener,
    claim: ClaimId,
}

fn config(interfaces: &[&str]) -> Config {
    Config {
        interfaces: interfaces.iter().map(ToString::to_string).collect(),
        spin: clock::Duration::ZERO,
        gather: clock::Duration::ZERO,
        mss_clamp: None,
        verbose: false,
        profile: Profile {
            name: "default".to_owned(),
            listeners: true,
            outgoing: true,
            udp: true,
            leaves_unsuited: true,
            reason: None,
        },
        group: None,
        observed_in: None,
        kept_in: None,
        share: false,
        take_over: TakeOver::IfThereIs,
        zero_copy: false,
        xdp_mode: None,
    }
}

/// A laboratory without a broker, and the turn of the test that has it.
fn laboratory() -> Option<(MutexGuard<'static, ()>, Lab)> {
    if !lab::require_root_and_xdp() {
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Some((turn, Lab::new().unwrap()))
}

impl Setting {
    fn new(queues: u32) -> Option<Setting> {
        Setting::prepared(queues, |_| ())
    }

    fn prepared(queues: u32, prepare: impl FnOnce(&Lab)) -> Option<Setting> {
        if !lab::require_root_and_xdp() {
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let lab = Lab::with_queues(queues).unwrap();
        prepare(&lab);
        let server = lab.inside(Side::Server, || Server::open(config(&[SERVER_INTERFACE])).unwrap());
        let name = server.name().to_owned();
        let handle = lab.inside(Side::Server, || server.start().unwrap());
        Some(Setting { handle: Some(handle), lab, name, _turn: turn })
    }

    fn connect(&self) -> Client {
        let connect = || Client::connect(self.name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        self.lab.inside(Side::Server, connect)
    }

    fn listen(&self) -> TcpListener {
        self.lab.inside(Side::Server, || TcpListener::bind(("0.0.0.0", PORT)).unwrap())
    }

    /// A client that has all queues of an interface with one.
    fn attached(&self) -> Client {
        let mut client = self.connect();
        for granted in client.attach().unwrap().granted {
            client.ready(granted.grant.interface.link, &granted.grant.queues).unwrap();
            client.settle().unwrap();
            std::mem::forget(granted); // The sockets stay open, and take what comes.
        }
        client
    }

    fn claimed(&self) -> Claimed {
        let (mut client, listener) = (self.attached(), self.listen());
        let (claim, places) = client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        assert_eq!(places.len(), 1);
        self.wait_for_effect(&listener);
        Claimed { client, listener, claim }
    }

    /// Waits until the kernel's listener does not answer any more. Who came until then is sent away.
    fn wait_for_effect(&self, listener: &TcpListener) {
        let deadline = Instant::now() + PATIENCE;
        sleep(EFFECT);
        while let Some(peer) = self.try_peer() {
            drop((listener.accept().unwrap(), peer));
            assert!(Instant::now() < deadline, "the claim has no effect");
        }
    }

    /// Whether the kernel's listener is silent, as far as can be seen in a moment.
    fn kernel_is_silent(&self) -> bool {
        self.try_peer().is_none()
    }

    fn try_peer(&self) -> Option<TcpStream> {
        self.connect_within(SILENCE)
    }

    /// A connection to the kernel's listener, which answers.
    fn peer(&self) -> TcpStream {
        self.connect_within(PATIENCE).expect("the kernel answers")
    }

    fn connect_within(&self, time: Duration) -> Option<TcpStream> {
        let address = SocketAddr::new(SERVER_V4.parse().unwrap(), PORT);
        self.lab.inside(Side::Client, || TcpStream::connect_timeout(&address, time).ok())
    }

    fn has_xdp_program(&self) -> bool {
        let link = self.lab.ip(Side::Server, &format!("link show {SERVER_INTERFACE}")).unwrap();
        link.contains("prog/xdp")
    }

    fn stop(&mut self) {
        self.handle.take().into_iter().for_each(Handle::stop);
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether octets go there and back.
fn is_alive(near: &mut TcpStream, far: &mut TcpStream) -> bool {
    let mut octets = [0; 4];
    for end in [&*near, &*far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let there = near.write_all(b"ping").and_then(|()| far.read_exact(&mut octets));
    there.and_then(|()| far.write_all(b"pong")).and_then(|()| near.read_exact(&mut octets)).is_ok()
}

/// Waits for an event; others may come before, such as of addresses that the kernel makes by itself.
fn wait_for<T>(client: &mut Client, wanted: impl Fn(&Event) -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "it did not come");
        client.wait(Duration::from_millis(200)).unwrap();
        if let Some(found) = client.poll_event().unwrap().and_then(|event| wanted(&event)) {
            return found;
        }
    }
}

#[test]
fn what_is_claimed_is_taken_from_the_kernel_until_it_is_released() {
    let Some(setting) = Setting::new(1) else { return };
    let mut claimed = setting.claimed();
    assert!(setting.kernel_is_silent());
    claimed.client.release(claimed.claim).unwrap();
    drop(setting.peer());
}

/// In copy mode, the only one of a veth: a packet that is claimed and finds no slot is lost, and no other waits for it. These clients never
/// fill their rings.
#[test]
fn a_program_that_gives_its_queue_no_memory_holds_up_no_others_packets() {
    const DATAGRAMS: usize = 20_000;
    /// Of UDP, the one port that is claimed on a veth with one queue.
    const DNS: u16 = 53;
    let Some(setting) = Setting::new(1) else { return };
    let mut client = setting.attached();
    let (claimed, other) = setting.lab.inside(Side::Server, || {
        (UdpSocket::bind(("0.0.0.0", DNS)).unwrap(), TcpListener::bind(("0.0.0.0", PORT)).unwrap())
    });
    client.claim(Transport::Udp, Purpose::Udp, claimed.as_fd()).unwrap();
    let sender = setting.lab.inside(Side::Client, || UdpSocket::bind(("0.0.0.0", 0)).unwrap());
    sender.connect((SERVER_V4, DNS)).unwrap();
    let mut peer = setting.peer();
    let (mut accepted, _) = other.accept().unwrap();
    for number in 0..DATAGRAMS {
        let _ = sender.send(&[0; 1000]); // A queue on the way may be full.
        assert!(number % 1000 > 0 || is_alive(&mut peer, &mut accepted), "after {number} datagrams");
    }
    claimed.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(claimed.recv(&mut [0; 1]).is_err(), "the datagrams were the program's");
}

#[test]
fn connections_that_the_kernel_has_stay_there() {
    let Some(setting) = Setting::new(1) else { return };
    let (mut client, listener) = (setting.attached(), setting.listen());
    let mut peer = setting.peer();
    let (mut accepted, _) = listener.accept().unwrap();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    assert!(is_alive(&mut peer, &mut accepted), "while the kernel's are looked for");
    setting.wait_for_effect(&listener);
    assert!(is_alive(&mut peer, &mut accepted), "when they are known");
    assert!(setting.kernel_is_silent());
}

#[test]
fn no_connection_is_lost_while_a_claim_takes_effect() {
    let Some(setting) = Setting::new(1) else { return };
    let (mut client, listener) = (setting.attached(), setting.listen());
    let accepting = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for stream in accepting.incoming().flatten() {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut octets = [0; 4];
                while stream.read_exact(&mut octets).and_then(|()| stream.write_all(&octets)).is_ok() {}
            });
        }
    });
    let served = Arc::new(AtomicUsize::new(0));
    let enough = Arc::clone(&served);
    let claiming = std::thread::spawn(move || {
        let deadline = Instant::now() + PATIENCE;
        let mut claims = 0;
        while claims < 30 || (enough.load(Ordering::Relaxed) <= 20 && Instant::now() < deadline) {
            claims += 1;
            let (claim, _) = client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
            sleep(Duration::from_millis(20));
            client.release(claim).unwrap();
            sleep(Duration::from_millis(20));
        }
        drop(client);
    });
    // Whoever is connected is served to the end; who comes while the claim has effect comes again.
    let come = || {
        while !claiming.is_finished() {
            let Some(mut peer) = setting.try_peer() else { continue };
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            for _ in 0..20 {
                let mut octets = [0; 4];
                peer.write_all(b"ping").and_then(|()| peer.read_exact(&mut octets)).unwrap();
                sleep(Duration::from_millis(1));
            }
            served.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(come))));
    claiming.join().unwrap();
    let served = served.load(Ordering::Relaxed);
    assert!(served > 20, "only {served}");
}

/// A socket of the server's that shares its port.
fn shared(setting: &Setting, kind: SocketType, address: &str) -> OwnedFd {
    setting.lab.inside(Side::Server, || {
        let socket = rustix::net::socket(AddressFamily::INET, kind, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(address.parse().unwrap(), PORT)).unwrap();
        socket
    })
}

#[test]
fn who_connects_from_a_port_takes_nothing_of_who_listens_there() {
    let Some(setting) = Setting::new(1) else { return };
    let mut client = setting.attached();
    let bound = shared(&setting, SocketType::STREAM, "0.0.0.0");
    let listener = setting.listen();
    for shares in [true, false] {
        // Whether it shares its port can be set at any time.
        sockopt::set_socket_reuseaddr(&bound, shares).unwrap();
        let claimed = client.claim(Transport::Tcp, Purpose::Outgoing, bound.as_fd());
        let refusal = if shares { Refusal::InUse } else { Refusal::NotBound };
        assert!(matches!(claimed, Err(ClientError::Refused(it)) if it == refusal));
        let mut peer = setting.peer();
        let (mut accepted, _) = listener.accept().unwrap();
        assert!(is_alive(&mut peer, &mut accepted));
    }
}

#[test]
fn a_socket_of_the_kernels_with_one_address_goes_before_a_claimed_wildcard() {
    let Some(setting) = Setting::new(2) else { return };
    let mut client = setting.attached();
    let specific = || UdpSocket::from(shared(&setting, SocketType::DGRAM, SERVER_V4));
    let (wild, first) = (shared(&setting, SocketType::DGRAM, "0.0.0.0"), specific());
    client.claim(Transport::Udp, Purpose::Udp, wild.as_fd()).unwrap();
    // More than one, as the client has one of the two queues, and what comes on the other is the kernel's.
    const PEERS: usize = 16;
    let bind = |_| UdpSocket::bind("0.0.0.0:0").unwrap();
    let peers: Vec<UdpSocket> = setting.lab.inside(Side::Client, || (0..PEERS).map(bind).collect());
    let got = |socket: &UdpSocket| {
        for peer in &peers {
            peer.send_to(b"ping", (SERVER_V4, PORT)).unwrap();
        }
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        (0..PEERS).take_while(|_| socket.recv(&mut [0; 4]).is_ok()).count()
    };
    assert!((0..10).all(|_| got(&first) == PEERS));
    drop(first);
    let wild = UdpSocket::from(wild);
    let wait_until = |wanted: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !wanted() {
            assert!(Instant::now() < deadline, "it does not happen");
        }
    };
    wait_until(&|| got(&wild) < PEERS); // The stack has the others.
    let second = specific();
    wait_until(&|| got(&second) == PEERS);
}

#[test]
fn a_drained_claim_leaves_new_connections_to_the_kernel() {
    let Some(setting) = Setting::new(1) else { return };
    let mut claimed = setting.claimed();
    claimed.client.drain(claimed.claim).unwrap();
    let mut peer = setting.peer();
    let (mut accepted, _) = claimed.listener.accept().unwrap();
    assert!(is_alive(&mut peer, &mut accepted));
}

#[test]
fn a_client_that_ends_leaves_its_packets_to_the_kernel() {
    let Some(setting) = Setting::new(1) else { return };
    let claimed = setting.claimed();
    assert!(setting.kernel_is_silent());
    drop(claimed.client);
    sleep(EFFECT);
    drop(setting.peer()); // Though somebody still has the sockets.
}

#[test]
fn a_listener_without_a_queue_is_the_kernels() {
    let Some(setting) = Setting::new(1) else { return };
    let _first = setting.attached(); // Its process is root's, and shares with nobody.
    let (mut second, listener) = (setting.connect(), setting.listen());
    assert_eq!(second.attach().unwrap().without, [(0, Refusal::NoFreeQueue)]);
    second.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    sleep(EFFECT);
    drop(setting.peer());
}

#[test]
fn nothing_is_left_when_the_broker_stops() {
    let Some(mut setting) = Setting::new(2) else { return };
    let mut claimed = setting.claimed();
    assert!(setting.has_xdp_program());
    setting.stop();
    assert!(!setting.has_xdp_program());
    drop(setting.peer());
    while let Ok(event) = claimed.client.poll_event() {
        assert!(matches!(event, None | Some(Event::News(_) | Event::QueueGranted(_))));
    }
    let names = setting.lab.inside(Side::Server, || std::fs::read_to_string("/proc/thread-self/net/unix"));
    assert!(!names.unwrap().contains(&setting.name));
}

#[test]
fn the_way_to_a_neighbour_is_found_and_that_to_nobody_is_not() {
    let Some(setting) = Setting::new(1) else { return };
    let mut client = setting.attached();
    let find = |client: &mut Client, remote: [u8; 4], from| -> Result<Route, ClientError> {
        let ticket = client.begin_route(remote.into(), from)?;
        loop {
            client.wait(PATIENCE)?;
            if let Some(route) = client.poll_route(&ticket)? {
                return Ok(route);
            }
        }
    };
    let remote = CLIENT_V4.parse::<Ipv4Addr>().unwrap().octets();
    let route = find(&mut client, remote, None).unwrap();
    let mac = setting.lab.hardware_address(Side::Client, CLIENT_INTERFACE).unwrap();
    let found: Vec<String> = route.destination.iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!((found.join(":"), route.local), (mac, SERVER_V4.parse::<IpAddr>().unwrap()));
    assert!(route.all_queues_yours && route.mtu == 1500);

    let refused = |outcome: Result<Route, ClientError>| match outcome {
        Err(ClientError::Refused(refusal)) => refusal,
        outcome => panic!("{outcome:?}"),
    };
    let started = Instant::now();
    let ticket = client.begin_route([10, 53, 0, 77].into(), None).unwrap();
    setting.connect().attach().unwrap();
    assert!(client.poll_route(&ticket).unwrap().is_none(), "others are served meanwhile");
    let refusal = loop {
        assert!(started.elapsed() < PATIENCE, "nobody gives up");
        client.wait(PATIENCE).unwrap();
        if let Err(error) = client.poll_route(&ticket) {
            break refused(Err(error));
        }
    };
    assert_eq!(refusal, Refusal::NoNeighbour);
    assert!(
        started.elapsed() >= Duration::from_secs(2),
        "the kernel asks three times: {:?}",
        started.elapsed()
    );
    assert_eq!(refused(find(&mut client, [10, 53, 0, 1], None)), Refusal::Local);
    assert!(matches!(refused(find(&mut client, [192, 0, 2, 1], None)), Refusal::NoRoute(_)));
    let elsewhere = Some(IpAddr::from([10, 53, 0, 3]));
    assert_eq!(refused(find(&mut client, remote, elsewhere)), Refusal::OtherSource);
}

#[test]
fn an_interface_that_goes_and_comes_back_is_lent_again() {
    let Some(setting) = Setting::new(1) else { return };
    let mut client = setting.attached();
    setting.lab.disconnect().unwrap();
    wait_for(&mut client, |event| matches!(event, Event::News(News::QueuesLost { link: 0 })).then_some(()));
    setting.lab.connect().unwrap();
    let link = wait_for(&mut client, |event| match event {
        Event::QueueGranted(granted) => Some(granted.grant.interface.link),
        _ => None,
    });
    assert_eq!(link, 0);
}

#[test]
fn addresses_and_mtu_are_followed() {
    let Some(setting) = Setting::new(1) else { return };
    let mut claimed = setting.claimed();
    setting.lab.ip(Side::Server, "address add 10.53.0.9/24 dev veth-s").unwrap();
    let new = IpAddr::from([10, 53, 0, 9]);
    wait_for(&mut claimed.client, |event| match event {
        Event::News(News::AddressesChanged { link: 0, addresses }) => {
            addresses.iter().any(|address| address.address == new).then_some(())
        }
        _ => None,
    });
    let address = SocketAddr::new(new, PORT);
    let connect = || TcpStream::connect_timeout(&address, SILENCE).is_ok();
    let deadline = Instant::now() + PATIENCE;
    while setting.lab.inside(Side::Client, connect) {
        assert!(Instant::now() < deadline, "the claim is on all addresses");
    }
    setting.lab.ip(Side::Server, "link set veth-s mtu 1400").unwrap();
    let mtu = wait_for(&mut claimed.client, |event| match event {
        Event::News(News::MtuChanged { mtu, .. }) => Some(*mtu),
        _ => None,
    });
    assert_eq!(mtu, 1400);
}

fn next_grant(client: &mut Client) -> Granted {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "nothing is lent");
        client.wait(Duration::from_millis(200)).unwrap();
        if let Some(Event::QueueGranted(granted)) = client.poll_event().unwrap() {
            return granted;
        }
    }
}

/// The kernel knows nothing of the client's connections, and would reset them.
#[test]
fn packets_that_outgrow_the_frames_are_not_the_kernels_while_larger_ones_are_lent() {
    let Some(setting) = Setting::new(1) else { return };
    let mut client = setting.connect();
    let mut granted = client.attach().unwrap().granted;
    let small = granted.pop().unwrap();
    client.ready(0, &small.grant.queues).unwrap();
    client.settle().unwrap();
    let listener = setting.listen();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    setting.wait_for_effect(&listener);
    let set_mtu = |client: &mut Client, wanted: u16| {
        setting.lab.ip(Side::Server, &format!("link set veth-s mtu {wanted}")).unwrap();
        let mut lost = false;
        let mtu = wait_for(client, |event| match event {
            Event::News(News::MtuChanged { mtu, .. }) => Some(Some(*mtu)),
            Event::News(News::QueuesLost { .. }) => Some(None),
            _ => None,
        });
        let mtu = mtu.or_else(|| {
            lost = true;
            wait_for(client, |event| match event {
                Event::News(News::MtuChanged { mtu, .. }) => Some(Some(*mtu)),
                _ => None,
            })
        });
        assert_eq!(mtu, Some(wanted));
        lost
    };
    assert!(!set_mtu(&mut client, 1280), "what is smaller fits");
    assert_eq!(small.grant.layout.frame_size, 2048);
    assert!(set_mtu(&mut client, 3000));
    assert!(setting.kernel_is_silent(), "while the sockets are there");
    drop(small);
    let large = next_grant(&mut client);
    assert_eq!((large.grant.layout.frame_size, &large.grant.queues), (4096, &vec![0]));
    client.ready(0, &large.grant.queues).unwrap();
    client.settle().unwrap();
    assert!(setting.kernel_is_silent(), "when there are others");
    assert!(!set_mtu(&mut client, 1500) && !set_mtu(&mut client, 3000), "the frames stay large");
    assert!(setting.kernel_is_silent());
}

/// The next segment of the peer's, with these octets.
fn segment(connection: &Established, octets: &[u8]) -> Vec<u8> {
    let fields = wire::tcp::Fields {
        source_port: connection.remote.port(),
        destination_port: connection.local.port(),
        sequence_number: connection.rcv_nxt.0,
        acknowledgement_number: connection.snd_una.0,
        flags: wire::tcp::flag::ACK | wire::tcp::flag::PSH,
        window: 500,
        ..wire::tcp::Fields::default()
    };
    let mut segment = [[0; wire::tcp::HEADER_LEN].as_slice(), octets].concat();
    wire::tcp::write(&mut segment, &fields, None).unwrap();
    segment
}

#[test]
fn who_may_know_ways_hears_that_they_changed() {
    let Some(setting) = Setting::new(1) else { return };
    let mut client = setting.connect();
    let elsewhere = format!("198.51.100.0/24 via {CLIENT_V4}");
    for change in ["add", "del"] {
        setting.lab.ip(Side::Server, &format!("route {change} {elsewhere}")).unwrap();
        wait_for(&mut client, |event| matches!(event, Event::News(News::WaysChanged)).then_some(()));
    }
    setting.lab.ip(Side::Server, &format!("neigh del {CLIENT_V4} dev {SERVER_INTERFACE}")).ok();
    setting
        .lab
        .ip(
            Side::Server,
            &format!("neigh replace {CLIENT_V4} lladdr 02:00:00:00:00:07 dev {SERVER_INTERFACE}"),
        )
        .unwrap();
    let mut events = Vec::new();
    while client.wait(EFFECT).unwrap() {
        events.extend(client.poll_event().unwrap()); // Which addresses the interface leads to has changed with the routes.
    }
    let is_of_ways = |event: &Event| matches!(event, Event::News(News::WaysChanged));
    assert!(!events.iter().any(is_of_ways), "of neighbours there would be news all the time");
}

#[test]
fn a_connection_that_is_moved_goes_on_in_the_kernel() {
    let without_timestamps = |lab: &Lab| {
        let write = || std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0").unwrap();
        lab.inside(Side::Server, write);
    };
    let Some(setting) = Setting::prepared(1, without_timestamps) else { return };
    let (mut client, listener) = (setting.attached(), setting.listen());
    let mut peer = setting.peer();
    let (accepted, _) = listener.accept().unwrap();
    let connection = setting.lab.inside(Side::Server, || kernel_connection::take(accepted));
    // From here on only the value has the connection, as if it had been on a stack.
    let (claim, _) = client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    setting.wait_for_effect(&listener);
    let unsent = b"unsent".to_vec();
    let received = b"received".to_vec();
    let connection = Established { unsent, received, ..connection };
    // What came to the client before the kernel had the socket, as far as the peer knows.
    let late = segment(&connection, b"late");
    let deliver = |client: &mut Client, remote| {
        client.deliver_late(connection.local, remote, &late)?;
        client.settle()
    };
    let refused = deliver(&mut client, connection.remote).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(Refusal::NoSuchClaim)), "it was not moved: {refused}");
    peer.write_all(b"late").unwrap();
    let mut moved = TcpStream::from(client.move_connection(&connection, KIND, None).unwrap());
    let other = SocketAddr::new(connection.remote.ip(), connection.remote.port() ^ 1);
    assert!(deliver(&mut client, other).is_err(), "it speaks for this peer alone");
    assert!(deliver(&mut setting.attached(), connection.remote).is_err(), "nobody else does");
    deliver(&mut client, connection.remote).unwrap();
    let mut octets = [0; 8];
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.read_exact(&mut octets[..6]).unwrap();
    assert_eq!(&octets[..6], b"unsent");
    moved.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"received");
    moved.read_exact(&mut octets[..4]).unwrap();
    assert_eq!(&octets[..4], b"late");
    assert!(is_alive(&mut peer, &mut moved));
    assert!(setting.kernel_is_silent(), "new connections are still the client's");

    let refused = client.move_connection(&connection, KIND, None).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(Refusal::NotTaken(_))), "the kernel has it: {refused}");
    client.release(claim).unwrap();
    let refused = client.move_connection(&connection, KIND, None).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(Refusal::NoSuchClaim)), "{refused}");
}

/// A connection of a peer's that no stack has, another one, and the listener where they wait.
struct Waiting {
    setting: Setting,
    client: Client,
    listener: TcpListener,
    peer: TcpStream,
    connection: Established,
    other: (TcpStream, Established),
}

impl Waiting {
    fn new() -> Option<Waiting> {
        let setting = Setting::new(1)?;
        let (mut client, listener) = (setting.attached(), setting.listen());
        let take = || {
            let peer = setting.peer();
            let (accepted, _) = listener.accept().unwrap();
            (peer, setting.lab.inside(Side::Server, || kernel_connection::take(accepted)))
        };
        let ((peer, connection), other) = (take(), take());
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        setting.wait_for_effect(&listener);
        listener.set_nonblocking(true).unwrap();
        Some(Waiting { setting, client, listener, peer, connection, other })
    }

    fn enqueue(&mut self, connection: &Established) {
        let listener = self.listener.try_clone().unwrap();
        assert_eq!(self.refused(&[connection], listener, None), []);
    }

    fn refused(
        &mut self,
        connections: &[&Established],
        listener: impl AsFd,
        offered_for: Option<Duration>,
    ) -> Vec<(usize, Refusal)> {
        match self.client.enqueue(connections, listener.as_fd(), offered_for).unwrap() {
            Enqueued::Answered(refused) => refused,
            Enqueued::Begun(_) => panic!("the broker took its time"),
        }
    }

    fn refusal(&mut self, connection: &Established, listener: impl AsFd) -> Refusal {
        let mut refused = self.refused(&[connection], listener, None);
        let (0, refusal) = refused.pop().expect("it is refused") else { panic!("there is one") };
        refusal
    }
}

/// A book with this connection, among those that are over.
fn book_of(connection: &Established) -> std::fs::File {
    use rustix::fs::{MemfdFlags, memfd_create};
    let mut file = std::fs::File::from(memfd_create("book", MemfdFlags::CLOEXEC).unwrap());
    let (local, over) = (connection.local, SocketAddr::new(connection.remote.ip(), 9));
    let mut entries = [entry(local, over), entry(local, connection.remote), entry(over, over)];
    entries[0][ENTRY_WORDS - 1] = 0;
    let octets = entries.as_flattened().iter().flat_map(|word| word.to_ne_bytes());
    file.write_all(&octets.collect::<Vec<_>>()).unwrap();
    file
}

/// Nobody has the connection, and its peer waits for an answer.
#[test]
fn the_peers_of_a_client_that_is_gone_are_reset_also_where_others_have_its_port() {
    for others_listen in [false, true] {
        let Some(waiting) = Waiting::new() else { return };
        let Waiting { setting, mut client, listener, mut peer, connection, mut other } = waiting;
        let mut another = setting.connect();
        if others_listen {
            another.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        }
        client.keep_book(book_of(&connection).as_fd()).unwrap();
        client.settle().unwrap();
        drop(client);
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let ended = peer.read(&mut [0; 9]).unwrap_err();
        assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset, "others listen: {others_listen}");
        other.0.set_read_timeout(Some(SILENCE)).unwrap();
        let silent = other.0.read(&mut [0; 9]).unwrap_err();
        assert_eq!(silent.kind(), std::io::ErrorKind::WouldBlock, "it is in no book");
    }
}

#[test]
fn a_connection_that_waits_is_accepted_by_whoever_has_the_listener() {
    let Some(mut waiting) = Waiting::new() else { return };
    let connection = Established { received: b"received".to_vec(), ..waiting.connection.clone() };
    waiting.enqueue(&connection);
    let (mut accepted, remote) = waiting.listener.accept().unwrap();
    assert_eq!(remote, connection.remote);
    let mut octets = [0; 8];
    accepted.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"received");
    assert!(is_alive(&mut waiting.peer, &mut accepted));
    let listener = waiting.listener.try_clone().unwrap();
    let refused = waiting.refusal(&connection, listener);
    assert!(matches!(refused, Refusal::NotTaken(_)), "the kernel has it: {refused}");
    assert!(is_alive(&mut waiting.peer, &mut accepted), "and keeps it");
    assert!(waiting.setting.kernel_is_silent(), "new connections are still the client's");
}

#[test]
fn an_earlier_connection_in_time_wait_makes_way_in_an_accept_queue() {
    let Some(mut waiting) = Waiting::new() else { return };
    let connection = waiting.connection.clone();
    waiting.enqueue(&connection);
    drop(waiting.listener.accept().unwrap());
    waiting.peer.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(waiting.peer.read(&mut [0; 9]).unwrap(), 0, "the kernel has ended it first");
    waiting.peer.shutdown(std::net::Shutdown::Both).unwrap();
    std::thread::sleep(EFFECT);
    waiting.enqueue(&connection);
    assert_eq!(waiting.listener.accept().unwrap().1, connection.remote);
}

#[test]
fn connections_wait_together_and_those_that_cannot_stay_their_clients() {
    let Some(mut waiting) = Waiting::new() else { return };
    let [first, second] = [&waiting.connection, &waiting.other.1].map(Clone::clone);
    let first = Established { received: b"first".to_vec(), ..first };
    let unfit = Established { received: b"unfit".to_vec(), peer_mss: 100, ..first.clone() };
    let unsent = Established { unsent: b"unsent".to_vec(), ..first.clone() };
    let elsewhere = Established { local: SocketAddr::new(first.local.ip(), PORT + 1), ..first.clone() };
    let second = Established { received: b"second".to_vec(), ..second };
    let all = [&unfit, &first, &unsent, &elsewhere, &second];
    let listener = waiting.listener.try_clone().unwrap();
    let refused = waiting.refused(&all, listener, Some(PATIENCE));
    let [(0, unfit), (2, unsent), (3, elsewhere)] = &refused[..] else { panic!("{refused:?}") };
    assert!(matches!(unfit, Refusal::NotTaken(_)) && matches!(unsent, Refusal::NotTaken(_)));
    assert_eq!(*elsewhere, Refusal::NoSuchClaim);
    for (peer, said) in [(&mut waiting.peer, &first.received), (&mut waiting.other.0, &second.received)] {
        let (mut accepted, _) = waiting.listener.accept().unwrap();
        let mut octets = vec![0; said.len()];
        accepted.read_exact(&mut octets).unwrap();
        assert_eq!(octets, *said);
        assert!(is_alive(peer, &mut accepted));
    }
    let too_many = vec![&first; ENQUEUED_MAX + 1];
    match waiting.client.enqueue(&too_many, waiting.listener.as_fd(), None) {
        Err(ClientError::Refused(Refusal::TooMany)) => {}
        other => panic!("{other:?}"),
    }
    waiting.client.settle().unwrap();
}

#[test]
fn a_connection_that_its_peer_has_closed_waits_as_such() {
    let Some(mut waiting) = Waiting::new() else { return };
    let rcv_nxt = waiting.connection.rcv_nxt + 1;
    let received = vec![7; 32 << 10];
    let connection = Established { state: State::CloseWait, rcv_nxt, received, ..waiting.connection.clone() };
    waiting.enqueue(&connection);
    let (mut accepted, _) = waiting.listener.accept().unwrap();
    let mut octets = Vec::new();
    accepted.read_to_end(&mut octets).unwrap();
    assert_eq!(octets, connection.received);
}

#[test]
fn a_connection_that_cannot_wait_in_the_kernel_is_refused() {
    let Some(mut waiting) = Waiting::new() else { return };
    let (listener, connection) = (waiting.listener.try_clone().unwrap(), waiting.connection.clone());
    let unfit = [
        Established { unsent: b"sent".to_vec(), ..connection.clone() },
        Established { received: vec![0; (32 << 10) + 1], ..connection.clone() },
        Established { peer_mss: 100, ..connection.clone() },
        Established { snd_wscale: 15, ..connection.clone() },
    ];
    for connection in &unfit {
        assert!(matches!(waiting.refusal(connection, &listener), Refusal::NotTaken(_)), "{connection:?}");
    }
    let bind = || TcpListener::bind((SERVER_V4, PORT + 1)).unwrap();
    let others = waiting.setting.lab.inside(Side::Server, bind);
    assert_eq!(waiting.refusal(&connection, &others), Refusal::NoSuchClaim);
    let local = others.local_addr().unwrap();
    assert_eq!(waiting.refusal(&Established { local, ..connection.clone() }, &others), Refusal::NoSuchClaim);
    let no_listener = waiting.peer.try_clone().unwrap();
    assert_eq!(waiting.refusal(&connection, no_listener), Refusal::NotListening);

    let set = |waiting: &Waiting, name: &str, value: &str| {
        let write = || std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        waiting.setting.lab.inside(Side::Server, write);
    };
    set(&waiting, "ipv4/tcp_syncookies", "0");
    assert!(matches!(waiting.refusal(&connection, &listener), Refusal::NoAcceptQueues(_)));
    set(&waiting, "ipv4/tcp_syncookies", "1");
    set(&waiting, "core/somaxconn", "0"); // Room for one, whatever anybody wants.
    rustix::net::listen(&listener, 100).unwrap();
    waiting.enqueue(&connection);
    let (mut other, unheard) = (waiting.other.0.try_clone().unwrap(), waiting.other.1.clone());
    assert!(matches!(waiting.refusal(&unheard, &listener), Refusal::NotTaken(_)), "its accept queue is full");
    let (mut accepted, remote) = listener.accept().unwrap();
    assert_eq!(remote, connection.remote);
    assert!(is_alive(&mut waiting.peer, &mut accepted));
    waiting.enqueue(&unheard);
    let (mut accepted, _) = listener.accept().unwrap();
    assert!(is_alive(&mut other, &mut accepted), "nobody has told its peer of the refusal");
}

#[test]
fn an_accept_queue_is_as_long_as_it_takes_and_has_its_programs_backlog_afterwards() {
    let Some(mut waiting) = Waiting::new() else { return };
    rustix::net::listen(&waiting.listener, 0).unwrap(); // Room for one.
    let both = [waiting.connection.clone(), waiting.other.1.clone()];
    both.iter().for_each(|connection| waiting.enqueue(connection));
    let words = format!("-Hltn sport = :{PORT}");
    let listed =
        waiting.setting.lab.run_in(Side::Server, "ss", &words.split(' ').collect::<Vec<_>>()).unwrap();
    let fields: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(fields[1..3], ["2", "0"], "two wait, and the backlog is 0: {listed}");
    for peer in [&mut waiting.peer, &mut waiting.other.0] {
        let (mut accepted, _) = waiting.listener.accept().unwrap();
        assert!(is_alive(peer, &mut accepted));
    }
}

/// The peer's FIN came already, and on this host nothing arrives that is sent in its name.
#[test]
fn who_moves_what_the_kernel_cannot_be_told_holds_up_nobody_else() {
    const MOVES: usize = 30;
    let Some(setting) = Setting::new(1) else { return };
    let (mut client, listener) = (setting.attached(), setting.listen());
    let _peer = setting.peer();
    let (accepted, _) = listener.accept().unwrap();
    let open = setting.lab.inside(Side::Server, || kernel_connection::take(accepted));
    let rcv_nxt = open.rcv_nxt + 1;
    let half_closed = Established { state: State::CloseWait, rcv_nxt, ..open };
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    let lose_all = ["qdisc", "add", "dev", "lo", "root", "pfifo", "limit", "0"];
    setting.lab.run_in(Side::Server, "tc", &lose_all).unwrap();
    let mut other = setting.connect();
    let moving = std::thread::spawn(move || {
        for _ in 0..MOVES {
            let refused = client.move_connection(&half_closed, KIND, None).unwrap_err();
            assert!(matches!(refused, ClientError::Refused(Refusal::NotTaken(_))), "{refused}");
        }
    });
    let mut answers = 0;
    while !moving.is_finished() {
        other.give_back().unwrap();
        answers += 1;
    }
    moving.join().unwrap();
    assert!(answers > 30 * MOVES, "{answers} answers during {MOVES} moves: the broker waited for each");
}

#[test]
fn a_connection_of_another_namespace_is_not_handed_over() {
    let Some(setting) = Setting::new(1) else { return };
    let Claimed { mut client, listener: _own, .. } = setting.claimed();
    let (foreign, _peer) = setting.lab.inside(Side::Client, || {
        let listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        let peer = TcpStream::connect(("127.0.0.1", PORT)).unwrap();
        (listener.accept().unwrap().0, peer)
    });
    match client.hand_over(foreign.as_fd()) {
        Err(ClientError::Refused(refusal)) => assert_eq!(refusal, Refusal::OtherNamespace),
        other => panic!("{other:?}"),
    }
}

#[test]
fn interfaces_that_cannot_be_used_are_told() {
    let Some((_turn, lab)) = laboratory() else { return };
    let open = |interfaces: &[&str]| lab.inside(Side::Server, || Server::open(config(interfaces)));
    let none = open(&["no-such-if"]).err().map(|error| error.to_string());
    assert_eq!(none.as_deref(), Some("there is no interface no-such-if"));
    let chosen = open(&[]).unwrap();
    assert_eq!(chosen.notes(), [""; 0]);
    // The interface is taken now.
    let Some(OpenError::NoInterface(why)) = open(&[]).err() else { panic!("taken twice") };
    assert!(why.contains("veth-s already runs the XDP program"), "{why}");
    lab.ip(Side::Server, "link add free type veth peer name other").unwrap();
    let (named, _kept) = (open(&["veth-s", "lo", "free"]).unwrap(), &chosen);
    let notes = named.notes();
    assert!(notes[0].starts_with("lo is the kernel's"), "{notes:?}");
    assert!(notes[1].contains("veth-s already runs"), "{notes:?}");
    let Some(OpenError::NoInterface(why)) = open(&["lo"]).err() else { panic!("loopback is claimed") };
    assert!(why.starts_with("lo is the kernel's"), "{why}");
    lab.ip(Side::Server, "tuntap add dev tunnel mode tun").unwrap();
    let Some(OpenError::NoInterface(why)) = open(&["tunnel"]).err() else { panic!("a tunnel is claimed") };
    assert_eq!(why, "tunnel carries packets without Ethernet headers");
}

/// XDP runs behind the driver on a veth with one queue, where that is better. That is no reason to leave it to the kernel beside an interface in native mode.
#[test]
fn a_veth_with_one_queue_is_used_beside_one_with_several() {
    let Some((_turn, lab)) = laboratory() else { return };
    let two = "numtxqueues 2 numrxqueues 2";
    lab.ip(Side::Server, &format!("link add wide {two} type veth peer name other {two}")).unwrap();
    for command in ["address add 10.54.0.1/24 dev wide", "link set other up", "link set wide up"] {
        lab.ip(Side::Server, command).unwrap();
    }
    let server = lab.inside(Side::Server, || Server::open(config(&[])).unwrap());
    assert_eq!(server.notes(), [""; 0]);
    drop(server);
    let links = lab.ip(Side::Server, "link show").unwrap();
    assert!(!links.contains("xdp"), "{links}");
}
