//! Which clients are admitted, what ends a connection, and that it leaves nothing behind.

use rustix::event::epoll::EventFlags;

use super::*;

#[test]
fn one_process_does_not_keep_others_out() {
    let served = Served::new(1);
    let mut connected = Vec::new();
    while let Ok((client, _)) = Client::connect(served.name.as_bytes(), "many", std::process::id(), 0) {
        connected.push(client);
        assert!(connected.len() < 100, "it is never one too many");
    }
    assert!(connected[0].attach().is_ok());
}

#[test]
fn one_user_does_not_keep_others_out() {
    use super::super::{connection::Connection, helpers::Theirs};
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    let (mut broker, now) = (broker(), clock::Instant::ZERO);
    for number in 0..512 {
        let any = std::fs::File::open("/dev/null").unwrap().into();
        let socket = Theirs::new(any, 4242, &broker.helpers);
        let key = crate::protocol::Key([0; 2]);
        let connection = Connection::new(socket, None, (1, 4242), key, broker.families.own());
        broker.connections.insert(crate::registry::ClientId(1000 + number), connection);
    }
    let name = SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap();
    let mut is_let_in = |user| {
        let before = broker.connections.len();
        let _socket = as_user(user, || {
            let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
            connect(&socket, &name).unwrap();
            socket
        });
        broker.accept(now);
        broker.connections.len() > before
    };
    assert!(!is_let_in(4242), "it has half of the room");
    assert!(is_let_in(4243) && is_let_in(0));
}

#[test]
fn what_is_no_message_is_complained_of_without_what_would_move_the_cursor() {
    let (mut broker, now) = (broker(), clock::Instant::ZERO);
    let name = SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap();
    let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&client, &name).unwrap();
    broker.accept(now);
    send(&client, br#"{"id":1,"request":{"\u001b[2J":{}}}"#, SendFlags::NOSIGNAL).unwrap();
    let known = *broker.connections.keys().next().unwrap();
    broker.serve(known, super::super::token::socket(known), EventFlags::IN, now);
    let told: String = broker.take_notices().iter().map(ToString::to_string).collect();
    assert!(told.contains("was disconnected: ") && told.contains("?[2J"), "{told:?}");
    assert!(!told.contains(char::is_control), "{told:?}");
}

#[test]
fn descriptors_are_out_of_the_programs_way() {
    let served = Served::new(1);
    let (mut client, _) =
        Client::connect(served.name.as_bytes(), "program", std::process::id(), 700).unwrap();
    assert!(client.fd().as_raw_fd() >= 700);
    let granted = client.attach().unwrap().granted;
    let fds = granted.iter().flat_map(|granted| granted.sockets.iter().chain([&granted.memory]));
    assert!(fds.into_iter().all(|fd| fd.as_raw_fd() >= 700));
}

#[test]
fn a_stranger_is_not_heard() {
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let served = Served::of(1, stranger.id(), all());
    assert!(matches!(served.try_connect("program"), Err(ClientError::Gone)));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// Whether a process with this group and these supplementary ones is heard that is no descendant and thus must be a member of
/// `group`. Credentials are a thread's own, as far as the kernel goes.
fn is_heard(group: u32, primary: u32, supplementary: &[u32]) -> bool {
    use rustix::thread::{Gid, set_thread_groups, set_thread_res_gid};
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let served = Served::with(1, Family { head: stranger.id(), group: Some(group) }, all());
    let primary = Gid::from_raw(primary);
    let supplementary: Vec<Gid> = supplementary.iter().copied().map(Gid::from_raw).collect();
    let outcome = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            set_thread_groups(&supplementary).unwrap();
            set_thread_res_gid(primary, primary, primary).unwrap();
            served.try_connect("program")
        });
        connecting.join().unwrap()
    });
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(matches!(outcome, Ok(_) | Err(ClientError::Gone)), "{:?}", outcome.err());
    outcome.is_ok()
}

#[test]
fn members_of_the_group_are_heard_and_nobody_else() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change groups");
    }
    assert!(is_heard(4242, 4242, &[]), "its group");
    assert!(is_heard(4242, 100, &[4241, 4242, 4243]), "one of its others");
    let many: Vec<u32> = (4200..4500).collect();
    assert!(is_heard(4499, 100, &many), "one of very many");
    assert!(!is_heard(4242, 100, &[]) && !is_heard(4242, 100, &[4241, 4243]));
    assert!(!is_heard(4500, 100, &many));
}

#[test]
fn another_version_is_refused() {
    let served = Served::new(1);
    let socket = served.raw();
    let request = Request::Hello { version: VERSION + 1, program: String::new(), pid: 1 };
    say(&socket, &ToBroker { id: 1, request });
    assert!(hears(&socket).contains("version"));
}

#[test]
fn a_library_from_before_the_last_change_of_the_protocol_is_refused_and_named() {
    let (mut broker, now) = (broker(), clock::Instant::ZERO);
    let name = SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap();
    let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&client, &name).unwrap();
    broker.accept(now);
    let hello = br#"{"id":1,"request":{"hello":{"version":3,"program":"old","pid":1}}}"#;
    send(&client, hello, SendFlags::NOSIGNAL).unwrap();
    let known = *broker.connections.keys().next().unwrap();
    broker.serve(known, super::super::token::socket(known), EventFlags::IN, now);
    // As such a library reads it.
    let refused = format!(r#"{{"answer":{{"id":1,"answer":{{"refused":{{"version":{VERSION}}}}}}}}}"#);
    assert_eq!(hears(&client), refused);
    let told: String = broker.take_notices().iter().map(ToString::to_string).collect();
    assert!(
        told.contains(&format!(
            "its library speaks version 3 of the protocol, and the broker version {VERSION}"
        )),
        "{told}"
    );
}

#[test]
fn the_end_is_told() {
    let mut served = Served::new(1);
    let mut client = served.connect();
    served.handle.take().into_iter().for_each(Handle::stop);
    assert!(matches!(next_event(&mut client), Event::News(News::Closing)));
    assert!(matches!(client.poll_event(), Err(ClientError::Gone)));
}

/// Clients that break rules: each is disconnected, and no other client is.
#[test]
fn who_breaks_a_rule_is_disconnected_and_nobody_else() {
    let served = Served::new(1);
    let mut good = served.connect();
    let any: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let octets = |octets: &[u8]| {
        let socket = served.raw_known();
        send(&socket, octets, SendFlags::NOSIGNAL).unwrap();
        socket
    };
    let after_hello = |message: &ToBroker, fds: &[&OwnedFd]| {
        let socket = served.raw_known();
        say_with(&socket, message, fds);
        socket
    };
    let first = served.raw();
    say(&first, &ask(Request::Queues { wanted: true }));
    let mut too_long = encode(&ask(Request::Queues { wanted: true })).unwrap();
    too_long.resize((64 << 10) + 1, b' '); // Cut off, it would be a message.
    let release = || ask(Request::Release { claims: vec![crate::protocol::ClaimId(1)], drain: false });
    let claim = || ask(Request::Claim { transport: Transport::Tcp, purpose: Purpose::Listener, again: None });
    let bad = [
        ("a request before hello", first),
        ("hello twice", octets(&encode(&hello()).unwrap())),
        ("no JSON", octets(b"\xff\0garbage")),
        ("half of a message", octets(&encode(&release()).unwrap()[..10])),
        ("an unknown request", octets(br#"{"id":1,"request":"fly"}"#)),
        ("an unknown field", octets(br#"{"id":1,"request":"attach","more":1}"#)),
        ("deep nesting", octets(&[b"{\"id\":1,\"request\":".as_slice(), &[b'['; 60_000]].concat())),
        ("a message that is too long", octets(&too_long)),
        ("a descriptor where none belongs", after_hello(&release(), &[&any])),
        ("more descriptors than one", after_hello(&claim(), &[&any, &any])),
    ];
    for (what, socket) in &bad {
        assert_eq!(hears(socket), "", "{what}");
    }
    assert!(good.attach().is_ok());
}

#[test]
fn who_does_not_read_its_answers_costs_little_and_others_are_served() {
    let served = Served::new(1);
    let mut good = served.connect();
    let flooder = served.raw_known();
    let octets = encode(&ask(Request::Queues { wanted: false })).unwrap();
    let mut sent = 0;
    let blocked = loop {
        match send(&flooder, &octets, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        if sent % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sent < 100_000, "the broker keeps answers for whoever does not read them");
    };
    assert_eq!(blocked, rustix::io::Errno::AGAIN, "it is not heard until it reads, and not disconnected");
    assert!(good.attach().is_ok());
}

/// Alone, as other tests open descriptors meanwhile, and some are kept until the process ends.
#[test]
fn nothing_is_left_of_clients_that_came_and_went() {
    if !is_alone(nothing_is_left_of_clients_that_came_and_went) {
        return;
    }
    let served = Served::new(4);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let serve_some = || {
        for _ in 0..20 {
            let mut client = served.connect();
            client.attach().unwrap();
            let any = TcpListener::bind("0.0.0.0:0").unwrap();
            client.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap();
        }
        served.handle.as_ref().unwrap().reporter().linger(PATIENCE.into());
    };
    serve_some();
    let before = count();
    serve_some();
    // Threads beside the server's own may be about to close theirs.
    let deadline = std::time::Instant::now() + PATIENCE;
    while count() > before && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(count() <= before, "{before} descriptors became {}", count());
}
