//! Connections that move from one process to another.

use std::net::TcpStream;

use transit::SocketKind;

use super::*;
use crate::client::without_broker::LACKS_DESCRIPTORS;

#[test]
fn a_client_speaks_for_no_peer_of_this_host() {
    let served = Served::new(1);
    let mut client = served.connect();
    let (listener, ..) = connected();
    let port = listener.local_addr().unwrap().port();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    let mut connection = crate::moving::tests::connection(b"received", b"", b"");
    connection.local = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(refusal(client.move_connection(&connection, SocketKind::default(), None)), Refusal::Local);

    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = udp.local_addr().unwrap();
    for remote in ["127.0.0.1:53", "224.0.0.251:5353", "192.0.2.9:0"] {
        let said = client
            .deliver(udp.as_fd(), local, remote.parse().unwrap(), b"said")
            .and_then(|()| client.settle());
        assert_eq!(refusal(said), Refusal::Local, "{remote}");
    }
}

#[test]
fn a_client_has_no_datagram_given_to_another_users_socket() {
    use rustix::net::sockopt::set_socket_reuseaddr;
    const VICTIM: u32 = 4242;
    if !lab::require_root_and_xdp() {
        return;
    }
    let bind = |address: &str, port| {
        let udp = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        set_socket_reuseaddr(&udp, true).unwrap();
        rustix::net::bind(&udp, &SocketAddr::new(address.parse().unwrap(), port)).unwrap();
        let udp = UdpSocket::from(udp);
        udp.set_nonblocking(true).unwrap();
        udp
    };
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lab = lab::Lab::new().unwrap();
    lab.inside(lab::Side::Server, || {
        let (handle, name) = super::held_up::broker_with_address().serve();
        let mut client = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        let local = |port| SocketAddr::new(lab::SERVER_V4.parse().unwrap(), port);
        let remote = SocketAddr::new(lab::CLIENT_V4.parse().unwrap(), 53);
        let victim = as_user(VICTIM, || bind(lab::SERVER_V4, 5353));
        let attacker = bind("0.0.0.0", 5353);
        let mut deliver = |socket: &UdpSocket, local| {
            client.deliver(socket.as_fd(), local, remote, b"said").and_then(|()| client.settle())
        };
        assert_eq!(refusal(deliver(&attacker, local(5353))), Refusal::NotBound);
        assert_eq!(victim.recv(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);

        let (any, one) = (bind("0.0.0.0", 5354), bind(lab::SERVER_V4, 5354));
        deliver(&any, local(5354)).unwrap();
        one.set_nonblocking(false).unwrap();
        one.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(one.recv_from(&mut [0; 9]).unwrap(), (4, remote), "both are the client's");
        let loopback = SocketAddr::from(([127, 0, 0, 1], 5354));
        assert_eq!(refusal(deliver(&any, loopback)), Refusal::NotBound, "nothing comes to a client there");
        handle.stop();
    });
}

#[test]
fn where_there_is_no_way_to_accept_queues_a_client_is_told() {
    let lab = lab::require_root_and_xdp().then(|| lab::Lab::new().unwrap());
    let Some(lab) = lab else { return };
    let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    lab.inside(lab::Side::Server, || {
        let (handle, name) = super::held_up::broker_with_address().serve();
        let mut client = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap().0;
        let listener = std::net::TcpListener::bind((lab::SERVER_V4, 80)).unwrap();
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        let mut connection = crate::moving::tests::connection(b"received", b"", b"");
        connection.local = listener.local_addr().unwrap();
        connection.remote = SocketAddr::new(lab::CLIENT_V4.parse().unwrap(), 4000);
        let told = client.enqueue(&[&connection], listener.as_fd(), None).unwrap();
        let Enqueued::Answered(refused) = told else { panic!("{told:?}") };
        assert!(matches!(&refused[..], [(0, Refusal::NoAcceptQueues(_))]), "{refused:?}");
        handle.stop();
    });
}

/// Its program may be at its limit of descriptors, or out of memory: that costs one move, and not the connections that stay.
#[test]
fn a_connection_that_cannot_be_sent_leaves_the_broker_with_its_client() {
    let served = Served::new(1);
    let mut client = served.connect();
    let (listener, ..) = connected();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    let long = vec![0; crate::moving::OCTETS_MAX + 1];
    let connection = crate::moving::tests::connection(&long, b"", b"");
    let error = client.move_connection(&connection, SocketKind::default(), None).unwrap_err();
    assert!(matches!(error, ClientError::Unmade(_)) && !error.is_fatal(), "{error}");
    client.settle().unwrap();
}

#[test]
fn a_connection_is_not_moved_by_a_process_that_has_no_number_for_it() {
    let served = Served::new(1);
    let mut client = served.connect();
    let connection = crate::moving::tests::connection(b"read", b"", b"");
    LACKS_DESCRIPTORS.set(true);
    let kind = SocketKind::default();
    let offered = refusal(client.move_connection(&connection, kind, Some(PATIENCE)));
    let told = refusal(client.move_connection(&connection, kind, None));
    LACKS_DESCRIPTORS.set(false);
    assert_eq!(offered, Refusal::TooLate, "it goes on, and is offered again");
    assert!(matches!(told, Refusal::NotTaken(_)), "{told:?}");
}

pub(super) fn moved(client: &mut Client, ticket: &crate::client::Ticket) -> Result<OwnedFd, ClientError> {
    loop {
        match client.poll_move_for(ticket) {
            Ok(None) => assert!(client.wait(PATIENCE).unwrap(), "no answer"),
            Ok(Some(socket)) => return Ok(socket),
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn ends() -> (SocketAddr, SocketAddr) {
    (SocketAddr::from(([192, 0, 2, 1], 80)), SocketAddr::from(([192, 0, 2, 2], 4000)))
}

pub(super) fn token(event: &Event) -> u64 {
    match event {
        Event::News(News::ChildAsks { token, local, remote }) if (*local, *remote) == ends() => *token,
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_child_gets_its_parents_connection_by_the_inherited_key() {
    let served = Served::new(1);
    let ((mut parent, welcome), mut child) = (served.try_connect("parent").unwrap(), served.connect());
    let (local, remote) = ends();
    let ticket = child.begin_move_for(&[welcome.key], local, remote).unwrap();
    let token = token(&next_event(&mut parent));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    parent.give_to_child(token, theirs.as_fd()).unwrap();
    let mut got = UnixStream::from(moved(&mut child, &ticket).unwrap());
    ours.write_all(b"x").unwrap();
    got.read_exact(&mut [0]).unwrap();
    parent.give_to_child(token, theirs.as_fd()).unwrap();
    assert_eq!(refusal(parent.settle()), Refusal::NotAsked);
}

#[test]
fn ancestors_are_asked_one_after_the_other() {
    let served = Served::new(1);
    let (mut near, first) = served.try_connect("near").unwrap();
    let (mut far, second) = served.try_connect("far").unwrap();
    let mut child = served.connect();
    let (local, remote) = ends();
    let ticket = child.begin_move_for(&[first.key, second.key], local, remote).unwrap();
    let asked = token(&next_event(&mut near));
    near.refuse_child(asked).unwrap();
    token(&next_event(&mut far));
    drop(far);
    assert_eq!(refusal(moved(&mut child, &ticket)), Refusal::NoParent);
}

#[test]
fn nobody_gets_a_connection_by_a_guessed_key_or_answers_for_others() {
    let served = Served::new(1);
    let ((mut parent, welcome), mut child) = (served.try_connect("parent").unwrap(), served.connect());
    let (local, remote) = ends();
    let guessed = crate::protocol::Key([1, 2]);
    let ticket = child.begin_move_for(&[guessed], local, remote).unwrap();
    assert_eq!(refusal(moved(&mut child, &ticket)), Refusal::NoParent);
    let ticket = child.begin_move_for(&[welcome.key], local, remote).unwrap();
    let token = token(&next_event(&mut parent));
    let mut stranger = served.connect();
    stranger.refuse_child(token).unwrap();
    assert_eq!(refusal(stranger.settle()), Refusal::NotAsked);
    parent.refuse_child(token).unwrap();
    assert_eq!(refusal(moved(&mut child, &ticket)), Refusal::NoParent);
}

#[test]
fn a_connection_that_nobody_claimed_cannot_be_moved() {
    let served = Served::new(1);
    let mut client = served.connect();
    let connection = crate::moving::tests::connection(b"received", b"", b"");
    assert_eq!(
        refusal(client.move_connection(&connection, SocketKind::default(), None)),
        Refusal::NoSuchClaim
    );
}

#[test]
fn a_waiting_connection_goes_to_who_has_the_same_listener() {
    let served = Served::new(1);
    let (mut old, mut new) = (served.connect(), served.connect());
    let (listener, waiting, peer) = connected();
    let listen =
        |client: &mut Client| client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap().0;
    let before = listen(&mut old);
    let claim = listen(&mut new);
    for is_released in [false, true] {
        if is_released {
            old.release(before).unwrap();
        }
        old.hand_over(waiting.as_fd()).unwrap();
        match next_event(&mut new) {
            Event::Adopt { claim: at, remote, .. } => {
                assert_eq!((at, remote), (claim, peer.local_addr().unwrap()));
            }
            event => panic!("{event:?}"),
        }
    }
    // All have let go of it, and somebody may come to have it.
    new.release(claim).unwrap();
    old.hand_over(waiting.as_fd()).unwrap();
    let again = listen(&mut new);
    match next_event(&mut new) {
        Event::Adopt { claim: at, .. } => assert_eq!(at, again),
        event => panic!("{event:?}"),
    }
}

/// How many descriptors of this process are of this socket.
fn copies_of(socket: impl AsFd) -> usize {
    let link = format!("socket:[{}]", rustix::fs::fstat(socket).unwrap().st_ino);
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|of| of.as_os_str() == link.as_str())).count()
}

/// What the program closes is closed: an epoll instance tells of it as long as anybody has it.
#[test]
fn the_broker_has_no_copy_of_a_connection_that_it_has_given() {
    let served = Served::new(1);
    let (mut old, mut new) = (served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    for client in [&mut old, &mut new] {
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    }
    let ((mut parent, welcome), (local, remote)) = (served.try_connect("parent").unwrap(), ends());
    let mut child = served.connect();
    for round in 0..50 {
        let _peer = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
        old.hand_over(listener.accept().unwrap().0.as_fd()).unwrap();
        let Event::Adopt { socket, .. } = next_event(&mut new) else { panic!("another event") };
        assert_eq!(copies_of(&socket), 1, "round {round}");

        let ticket = child.begin_move_for(&[welcome.key], local, remote).unwrap();
        let token = token(&next_event(&mut parent));
        parent.give_to_child(token, UnixStream::pair().unwrap().1.as_fd()).unwrap();
        let inherited = moved(&mut child, &ticket).unwrap();
        assert_eq!(copies_of(&inherited), 1, "round {round}: the parent has let go of it");
    }
}

#[test]
fn a_waiting_connection_waits_for_who_has_the_same_listener_and_said_nothing_yet() {
    let served = Served::new(1);
    let mut old = served.connect();
    let (listener, waiting, peer) = connected();
    let (claim, _) = old.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    old.drain(claim).unwrap();
    old.hand_over(waiting.as_fd()).unwrap();
    drop(old);
    std::thread::sleep(Duration::from_millis(50)); // Longer than until it is looked whether anybody has the listener.
    let mut new = served.connect();
    new.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    match next_event(&mut new) {
        Event::Adopt { remote, .. } => assert_eq!(remote, peer.local_addr().unwrap()),
        event => panic!("{event:?}"),
    }
}

#[test]
fn what_did_not_come_to_ones_own_listener_is_not_handed_to_others() {
    let served = Served::new(1);
    let (mut good, mut bad) = (served.connect(), served.connect());
    let (listener, waiting, _peer) = connected();
    let (own, elsewhere, _other_peer) = connected();
    let claim = |client: &mut Client, of: &TcpListener| {
        client.claim(Transport::Tcp, Purpose::Listener, of.as_fd()).unwrap();
    };
    claim(&mut good, &listener);
    assert_eq!(refusal(bad.hand_over(waiting.as_fd())), Refusal::NoSuchClaim, "it has no listener");
    claim(&mut bad, &own);
    claim(&mut good, &own);
    assert_eq!(refusal(bad.hand_over(waiting.as_fd())), Refusal::NoSuchClaim, "it has another one");
    bad.hand_over(elsewhere.as_fd()).unwrap();
    assert!(matches!(next_event(&mut good), Event::Adopt { .. }));

    let port = own.local_addr().unwrap().port();
    let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    udp.connect(("127.0.0.1", 9)).unwrap();
    let unconnected = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let (unix, _) = UnixStream::pair().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut hand_over = |fd: std::os::fd::BorrowedFd<'_>| refusal(bad.hand_over(fd));
    assert_eq!(hand_over(udp.as_fd()), Refusal::NotThisTransport);
    assert_eq!(hand_over(unix.as_fd()), Refusal::NotThisTransport);
    assert_eq!(hand_over(file.as_fd()), Refusal::NoSocket);
    assert_eq!(hand_over(unconnected.as_fd()), Refusal::NotConnected);
    assert_eq!(hand_over(own.as_fd()), Refusal::InUse);
    good.attach().unwrap(); // What was told before is here by now.
    while let Some(event) = good.poll_event().unwrap() {
        assert!(!matches!(event, Event::Adopt { .. }), "{event:?}");
    }
}
