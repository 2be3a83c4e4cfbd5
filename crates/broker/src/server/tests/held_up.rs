//! Clients whose sockets take long: each delays only itself.

use std::io::ErrorKind;
use std::net::TcpStream;

use rustix::net::bind;
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};
use transit::SocketKind;

use super::super::helpers::Helpers;
use super::stopped::while_it_serves;
use super::*;

/// The linger time that is longest.
const LINGER: Duration = Duration::from_secs(65_535);

/// A broker that serves from [`Late::serve`] on: what was sent before that is nobody else's by then.
pub(super) struct Late(pub(super) Broker);

impl Late {
    fn new() -> Late {
        Late(broker())
    }

    /// A client of it that has said hello, and hears of that later.
    fn raw(&self) -> OwnedFd {
        // As on kernels that let anybody send descriptors: none is admitted yet.
        super::super::strangers::set_rights(&self.0.listener, true);
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(self.0.name().as_bytes()).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        say(&socket, &hello());
        socket
    }

    /// Not stopped when a test fails: it might wait for ever.
    pub(super) fn serve(self) -> (Handle, String) {
        let name = self.0.name().to_owned();
        (handle::start(self.0, false).unwrap(), name)
    }
}

fn is_served(name: &str) -> bool {
    let client = Client::connect(name.as_bytes(), "program", std::process::id(), 3);
    client.is_ok_and(|(mut client, _)| client.attach().is_ok())
}

/// Makes the last close of this connection wait until its peer is gone. Only for who is alone: a process that another test starts meanwhile has copies of
/// both, and waits for itself when it closes them.
fn fill(connection: impl AsFd) {
    let connection = TcpStream::from(connection.as_fd().try_clone_to_owned().unwrap());
    set_socket_linger(&connection, Some(LINGER)).unwrap();
    connection.set_nonblocking(true).unwrap();
    let octets = vec![0; 1 << 16];
    let full = std::iter::repeat_with(|| (&connection).write(&octets)).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), ErrorKind::WouldBlock);
}

/// A connection whose last close waits, and its peer.
fn lingering() -> (OwnedFd, TcpStream) {
    let (_listener, accepted, peer) = connected();
    fill(&accepted);
    (accepted.into(), peer)
}

fn claim() -> ToBroker {
    ask(Request::Claim { transport: Transport::Tcp, purpose: Purpose::Outgoing, again: None })
}

#[test]
fn a_refused_socket_that_lingers_holds_up_nobody() {
    if !is_alone(a_refused_socket_that_lingers_holds_up_nobody) {
        return;
    }
    let broker = Late::new();
    let client = broker.raw();
    let peers = (0..3).map(|_| {
        let (connection, peer) = lingering();
        say_with(&client, &claim(), &[&connection]);
        peer
    });
    let _peers: Vec<TcpStream> = peers.collect();
    let (handle, name) = broker.serve();
    assert!(hears(&client).contains("welcome"));
    for _ in 0..3 {
        assert!(hears(&client).contains("in_use"));
    }
    assert!(is_served(&name));
    let mut other = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    other.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    handle.stop();
}

#[test]
fn messages_that_nobody_reads_hold_up_nobody() {
    if !is_alone(messages_that_nobody_reads_hold_up_nobody) {
        return;
    }
    let broker = Late::new();
    let client = broker.raw();
    let (connection, _peer) = lingering();
    send(&client, b"no message", SendFlags::NOSIGNAL).unwrap();
    say_with(&client, &claim(), &[&connection]);
    drop(connection);
    let (handle, name) = broker.serve();
    // It is disconnected, and hears of it while its socket is being closed; of the welcome only if it was faster.
    while !hears(&client).is_empty() {}
    assert!(is_served(&name));
    handle.stop();
}

#[test]
fn strangers_hold_up_nobody() {
    if !is_alone(strangers_hold_up_nobody) {
        return;
    }
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let broker = Late(broker_for(child.id()));
    let (stranger, (connection, _peer)) = (broker.raw(), lingering());
    say_with(&stranger, &claim(), &[&connection]);
    drop((connection, stranger));
    let (handle, _) = broker.serve();
    let (sender, report) = std::sync::mpsc::channel();
    let reporter = handle.reporter();
    std::thread::spawn(move || sender.send(reporter.report().is_some()));
    assert_eq!(report.recv_timeout(PATIENCE), Ok(true), "its thread turns");
    handle.stop();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn who_is_not_admitted_sends_no_descriptors() {
    let broker = broker();
    let stranger = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    if syscall::getsockopt(stranger.as_raw_fd(), 1, 83, &mut [0; 4]).is_err() {
        return lab::skip("needs SO_PASSRIGHTS, of Linux 6.16");
    }
    connect(&stranger, &SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap()).unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); 64];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [stranger.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(&stranger, &[IoSlice::new(b"any")], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Err(rustix::io::Errno::PERM));
}

/// Each of them would keep a descriptor of the broker's for as long as sockets of that user linger.
#[test]
fn strangers_who_come_and_go_leave_nothing_behind_while_their_users_helpers_are_held_up() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut broker = broker_for(child.id());
    let name = SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap();
    let release = keep_busy(&broker.helpers, 16);
    let jobs = |broker: &Broker| broker.helpers.count_of(rustix::process::getuid().as_raw());
    let before = jobs(&broker);
    for _ in 0..300 {
        let stranger = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&stranger, &name).unwrap();
        drop(stranger);
        broker.accept(clock::Instant::ZERO);
    }
    assert_eq!(jobs(&broker), before);
    drop(release);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn many_descriptors_hold_up_nobody() {
    if !is_alone(many_descriptors_hold_up_nobody) {
        return;
    }
    let broker = Late::new();
    let (client, (connection, _peer)) = (broker.raw(), lingering());
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    // As many as the kernel lets through, and the one that matters is the last.
    let fds: Vec<&OwnedFd> = std::iter::repeat_n(&null, 252).chain([&connection]).collect();
    say_with(&client, &claim(), &fds);
    drop(connection);
    let (handle, name) = broker.serve();
    assert!(hears(&client).contains("welcome"));
    assert_eq!(hears(&client), "");
    assert!(is_served(&name));
    handle.stop();
}

#[test]
fn a_claimed_socket_that_lingers_later_is_not_what_the_broker_keeps() {
    if !is_alone(a_claimed_socket_that_lingers_later_is_not_what_the_broker_keeps) {
        return;
    }
    let (handle, name) = Late::new().serve();
    let (mut client, _) = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let (claim, _) = client.claim(Transport::Tcp, Purpose::Outgoing, bound.as_fd()).unwrap();
    connect(&bound, &listener.local_addr().unwrap()).unwrap();
    fill(&bound);
    client.release(claim).unwrap();
    assert!(is_served(&name));
    set_socket_linger(&bound, None).unwrap();
    handle.stop();
}

/// Keeps so many helpers busy for this process's user until the result is dropped.
fn keep_busy(helpers: &Arc<Helpers>, count: usize) -> std::sync::mpsc::Sender<()> {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    for _ in 0..count {
        let held = Arc::clone(&held);
        helpers.have_done(rustix::process::getuid().as_raw(), move || {
            let _ = held.lock().unwrap().recv(); // An error is the release.
        });
    }
    release
}

/// A client that claims a listener, and then asks for something else.
fn claims(broker: &Late) -> OwnedFd {
    let client = broker.raw();
    let listener = OwnedFd::from(TcpListener::bind("0.0.0.0:0").unwrap());
    let listens = ask(Request::Claim { transport: Transport::Tcp, purpose: Purpose::Listener, again: None });
    say_with(&client, &listens, &[&listener]);
    say(&client, &ask(Request::Queues { wanted: false }));
    client
}

#[test]
fn a_socket_that_is_examined_aside_is_answered_before_what_is_asked_behind_it() {
    let broker = Late::new();
    let (_release, client) = (keep_busy(&broker.0.helpers, 1), claims(&broker));
    let (handle, name) = broker.serve();
    assert!(hears(&client).contains("welcome"));
    assert!(hears(&client).contains("claimed"));
    assert!(hears(&client).contains("done"));
    assert!(is_served(&name));
    handle.stop();
}

/// As if its sockets were locked: all helpers that its user may have are at work that does not end.
#[test]
fn who_locks_its_sockets_is_disconnected_after_a_while_and_others_are_served_meanwhile() {
    let broker = Late::new();
    let (release, client) = (keep_busy(&broker.0.helpers, 16), claims(&broker));
    let (handle, name) = broker.serve();
    assert!(hears(&client).contains("welcome"));
    assert!(is_served(&name), "who sends no descriptor needs no helper");
    assert_eq!(hears(&client), "", "nothing is answered, and nothing out of order");
    drop(release);
    assert!(is_served(&name));
    handle.stop();
}

/// Its helpers were stopped with it: that they have done nothing is not the client's fault.
#[test]
fn who_waits_for_a_helper_when_the_broker_is_stopped_is_not_disconnected() {
    let mut broker = Late::new();
    let (release, client) = (keep_busy(&broker.0.helpers, 16), claims(&broker));
    let at = |secs| clock::Instant::from_nanos(1) + clock::Duration::from_secs(secs);
    wait_until(|| {
        broker.0.turn(at(0));
        broker.0.under_way.is_busy()
    });
    std::thread::sleep(Duration::from_millis(1100)); // As long as nothing may be done.
    broker.0.turn(at(10));
    drop(release);
    let (handle, _) = broker.serve();
    assert!(hears(&client).contains("welcome"));
    assert!(hears(&client).contains("claimed"));
    handle.stop();
}

/// A broker in the laboratory, whose interface has an address.
pub(super) fn broker_with_address() -> Late {
    let family = Family { head: std::process::id(), group: None };
    let setup = Setup {
        interfaces: vec![(0, lab::SERVER_INTERFACE.to_owned())],
        ..setup(1, &Log::default(), family, all())
    };
    Late(Broker::open(setup, clock::Instant::ZERO).unwrap())
}

/// A connection to a listener, from this port on the other side, with octets to read.
fn connection_from(listener: &TcpListener, port: u16, received: usize) -> transit::Established {
    let mut connection = crate::moving::tests::connection(&vec![7; received], b"", b"");
    connection.local =
        SocketAddr::new(lab::SERVER_V4.parse().unwrap(), listener.local_addr().unwrap().port());
    // Nobody is there who would reset what he does not know.
    connection.remote = SocketAddr::new(lab::CLIENT_V4.replace(".2", ".77").parse().unwrap(), port);
    connection
}

#[test]
fn connections_that_move_with_much_data_have_a_limit() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let mut broker = broker_with_address();
        broker.0.kernel_memory.max = 12 << 20;
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let (handle, name) = broker.serve();
        let mut client = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        let mut moved = |port, received| {
            client.move_connection(&connection_from(&listener, port, received), SocketKind::default(), None)
        };
        let first = moved(4000, 8 << 20).unwrap();
        assert!(matches!(refusal(moved(4001, 8 << 20)), Refusal::NotTaken(_)));
        let small = moved(4002, 1 << 20).unwrap();
        drop((first, small));
        wait_until(|| moved(4003, 8 << 20).is_ok());
        handle.stop();
    });
}

/// As if each of its connections had as many octets as a buffer may have.
#[test]
fn who_moves_connections_to_the_kernel_holds_up_nobody() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let broker = broker_with_address();
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let connection = connection_from(&listener, 4000, 8);
        let helpers = Arc::clone(&broker.0.helpers);
        let (handle, name) = broker.serve();
        let connect = || Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        let (mut client, mut other) = (connect(), connect());
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        let release = keep_busy(&helpers, 16);
        let moving =
            std::thread::spawn(move || client.move_connection(&connection, SocketKind::default(), None));
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            other.give_back().unwrap();
        }
        assert!(!moving.is_finished(), "the broker itself has done it, and nothing else meanwhile");
        drop(release);
        moving.join().unwrap().unwrap();
        handle.stop();
    });
}

#[test]
fn five_hundred_connections_that_move_at_once_are_all_moved_and_hold_up_nobody() {
    const CLIENTS: u16 = 8;
    const OF_EACH: u16 = 64;
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let (handle, name) = broker_with_address().serve();
        let connect = || Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        let mut other = connect();
        std::thread::scope(|scope| {
            let move_all = |number: u16| {
                let (mut client, listener) = (connect(), TcpListener::bind("0.0.0.0:0").unwrap());
                client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
                for port in 4000 + number * OF_EACH..4000 + (number + 1) * OF_EACH {
                    let connection = connection_from(&listener, port, 8);
                    let socket = client.move_connection(&connection, SocketKind::default(), None).unwrap();
                    assert_eq!(descriptors_of(&socket), 1, "closed by its program, it is closed");
                }
            };
            let moving: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || move_all(number))).collect();
            while moving.iter().any(|thread| !thread.is_finished()) {
                other.give_back().unwrap();
                assert!(!other.is_behind().unwrap());
            }
        });
        handle.stop();
    });
}

/// How many descriptors this process has of a socket; the broker's are among them.
fn descriptors_of(socket: &OwnedFd) -> usize {
    let file = |fd: &std::path::Path| std::fs::read_link(fd).ok();
    let own = file(format!("/proc/self/fd/{}", socket.as_raw_fd()).as_ref());
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| file(&entry.as_ref().unwrap().path()) == own).count()
}

/// A broker in the laboratory, with a listener and a client that has claimed it.
fn with_claimed_listener() -> (Broker, TcpListener, Client) {
    let mut broker = broker_with_address().0;
    let name = broker.name().to_owned();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let client = while_it_serves(&mut broker, || {
        let mut client = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        client
    });
    (broker, listener, client)
}

/// Whether the kernel has a connection to this listener from this port.
fn kernel_has(listener: &TcpListener, remote: u16) -> bool {
    let port = listener.local_addr().unwrap().port();
    let connections = control::sock_diag::tcp_connections(&[port]).unwrap();
    connections.into_iter().any(|it| it.remote.port() == remote)
}

#[test]
fn an_offered_connection_that_goes_on_by_now_is_not_moved() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let (mut broker, listener, mut client) = with_claimed_listener();
        let offer = |client: &mut Client, port, time| {
            client.move_connection(&connection_from(&listener, port, 8), SocketKind::default(), Some(time))
        };
        let _moved = while_it_serves(&mut broker, || offer(&mut client, 4000, PATIENCE).unwrap());
        assert!(kernel_has(&listener, 4000));
        // The broker stands still.
        assert_eq!(refusal(offer(&mut client, 4001, Duration::from_millis(1))), Refusal::TooLate);
        let said = while_it_serves(&mut broker, || client.settle());
        assert_eq!(refusal(said), Refusal::TooLate);
        assert!(!kernel_has(&listener, 4001));
        let _moved = while_it_serves(&mut broker, || offer(&mut client, 4001, PATIENCE).unwrap());
        assert!(kernel_has(&listener, 4001), "it may be offered again");
    });
}

/// How long something is offered below.
const SHORT: Duration = Duration::from_millis(200);

/// The broker stops when helpers have begun with what `ask` asks for, for longer than [`SHORT`].
fn stops_in_the_middle<T: Send>(broker: &mut Broker, ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !broker.under_way.is_busy() && !asking.is_finished() {
            broker.turn(clock::Instant::from_nanos(1));
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(2 * SHORT);
        while_it_serves(broker, || asking.join().unwrap())
    })
}

/// Its packets may go to the kernel by then: who goes on with it would hear no more of the peer.
#[test]
fn an_offered_connection_that_is_being_moved_is_waited_for_though_the_broker_stands_still() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let (mut broker, listener, mut client) = with_claimed_listener();
        // Of a helper that is slow the connection is withdrawn: then it is tried again.
        let is_moved = (4000..4020).any(|port| {
            let connection = connection_from(&listener, port, 8);
            let kind = SocketKind::default();
            let moved =
                stops_in_the_middle(&mut broker, || client.move_connection(&connection, kind, Some(SHORT)));
            match moved {
                Ok(_socket) => kernel_has(&listener, port),
                moved => {
                    assert_eq!(refusal(moved), Refusal::TooLate);
                    assert!(!kernel_has(&listener, port));
                    false
                }
            }
        });
        assert!(is_moved, "each time the client gave up");
    });
}

#[test]
fn the_answer_about_connections_that_wait_comes_later_if_the_broker_has_stopped_in_the_middle() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let (mut broker, listener, mut client) = with_claimed_listener();
        let connection = connection_from(&listener, 4000, 0);
        // Of a helper that is slow they are withdrawn, as above.
        let begun = (0..20).find_map(|_| {
            let offered = stops_in_the_middle(&mut broker, || {
                client.enqueue(&[&connection], listener.as_fd(), Some(SHORT))
            });
            match offered {
                Ok(Enqueued::Begun(ticket)) => Some(ticket),
                offered => {
                    assert_eq!(refusal(offered), Refusal::TooLate);
                    None
                }
            }
        });
        let ticket = begun.expect("helpers had begun at some time");
        let answer = while_it_serves(&mut broker, || {
            loop {
                match client.poll_enqueued(&ticket).unwrap() {
                    Some(answer) => break answer,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        assert!(matches!(&answer[..], [(0, Refusal::NoAcceptQueues(_))]), "{answer:?}");
        assert!(matches!(client.poll_enqueued(&ticket), Err(ClientError::OutOfPlace)), "it is told once");
    });
}
