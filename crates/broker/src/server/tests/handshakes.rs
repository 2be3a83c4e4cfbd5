//! Handshakes that another process completes.

use transit::{Hop, SeqNum, Timestamps};

use super::*;

/// One that a peer at this port began at a listener.
fn handshake(listener: &TcpListener, port: u16) -> Handshake {
    Handshake {
        local: SocketAddr::from(([192, 0, 2, 1], listener.local_addr().unwrap().port())),
        remote: SocketAddr::from(([192, 0, 2, 2], port)),
        hop: Hop::default(),
        irs: SeqNum(1),
        iss: SeqNum(2),
        peer_mss: 1460,
        window_scales: Some((7, 7)),
        sack_permitted: true,
        ecn: false,
        timestamps: Some(Timestamps { value: 3, echo: 4 }),
        window: 65_535,
        syn_acks: 1,
        timeouts: 0,
        age_us: 5,
        saved_syn: None,
    }
}

/// The ports of the peers whose handshakes are passed to a client.
fn told(client: &mut Client) -> Vec<u16> {
    let mut ports = Vec::new();
    while let Some(event) = client.poll_event().unwrap() {
        if let Event::News(News::Handshake(handshake)) = event {
            assert!(handshake.age_us >= 5);
            ports.push(handshake.remote.port());
        }
    }
    ports
}

/// Hands it on, and waits for what the broker says to that.
fn hand_on(client: &mut Client, handshake: Handshake) -> Result<(), ClientError> {
    client.hand_on(handshake)?;
    client.settle()
}

#[test]
fn a_handshake_goes_to_who_gets_the_queue_and_has_the_same_listener() {
    let served = Served::new(1);
    let (mut old, mut stranger, mut new) = (served.connect(), served.connect(), served.connect());
    let [listener, other] = [(); 2].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    let listen = |client: &mut Client, socket: &TcpListener| {
        client.claim(Transport::Tcp, Purpose::Listener, socket.as_fd()).unwrap().0
    };
    listen(&mut stranger, &other);
    let claim = listen(&mut old, &listener);
    assert_eq!(refusal(hand_on(&mut old, handshake(&listener, 4000))), Refusal::NotYours, "it has no queue");
    assert_eq!(old.attach().unwrap().granted.len(), 1);
    new.attach().unwrap();
    listen(&mut new, &listener);
    assert_eq!(refusal(hand_on(&mut old, handshake(&other, 4000))), Refusal::NoSuchClaim);
    hand_on(&mut old, handshake(&listener, 4000)).unwrap();
    hand_on(&mut old, handshake(&listener, 4001)).unwrap();
    hand_on(&mut old, handshake(&listener, OF_THE_KERNEL)).unwrap();
    assert!(served.log.has("awaited 4000"));
    assert_eq!(told(&mut new), [0; 0], "it has no queue");
    old.release(claim).unwrap();
    old.give_back().unwrap();
    assert!(matches!(next_event(&mut new), Event::QueueGranted(_)));
    assert!(new.wait(Duration::from_secs(10)).unwrap());
    new.report(ProgramReport::default()).unwrap();
    new.settle().unwrap(); // Its answer comes after all that.
    assert_eq!(told(&mut new), [4000, 4001]);
    assert_eq!(told(&mut stranger), [0; 0]);
}

#[test]
fn who_listens_after_it_has_the_queue_is_told_of_handshakes_then() {
    let served = Served::new(1);
    let (mut old, mut new) = (served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    old.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    old.attach().unwrap();
    hand_on(&mut old, handshake(&listener, 4000)).unwrap();
    drop(old);
    while new.attach().unwrap().granted.is_empty() {
        std::thread::sleep(Duration::from_millis(10)); // Until the other is gone.
    }
    assert_eq!(told(&mut new), [0; 0]);
    for _ in 0..2 {
        new.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    }
    assert_eq!(told(&mut new), [4000], "once");
}

#[test]
fn handshakes_of_one_user_leave_room_for_those_of_others() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    let served = Served::new(2);
    let (mut client, mut other) = (as_user(4242, || served.connect()), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    for client in [&mut client, &mut other] {
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
        client.attach().unwrap();
    }
    let taken =
        (1..1000).take_while(|port| hand_on(&mut client, handshake(&listener, *port)).is_ok()).count();
    assert_eq!(taken, 128);
    hand_on(&mut other, handshake(&listener, 1000)).unwrap();
}

#[test]
fn handshakes_are_bounded() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("who is not root has half of the room");
    }
    let served = Served::new(1);
    let mut client = served.connect();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    client.attach().unwrap();
    let long = Handshake { saved_syn: Some([0; SYN_MAX + 1].into()), ..handshake(&listener, 1) };
    assert_eq!(refusal(hand_on(&mut client, long)), Refusal::TooMany);
    let taken =
        (1..1000).take_while(|port| hand_on(&mut client, handshake(&listener, *port)).is_ok()).count();
    assert_eq!(taken, 256);
}
