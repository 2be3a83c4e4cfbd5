//! A `sidestep run` that joins another one's broker.

use super::*;
use crate::protocol::Options;
use crate::registry::Identity;

/// A process of which this one does not descend; it ends with this value.
/// Another process that is the head of a family.
pub(super) struct Head(pub(super) std::process::Child);

impl Head {
    pub(super) fn new() -> Head {
        Head(std::process::Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker of which this process is no program.
fn anothers() -> (Served, Head) {
    let head = Head::new();
    (Served::of(1, head.0.id(), all()), head)
}

fn join(version: u32) -> ToBroker {
    let profile = Profile { name: "of the one that joins".to_owned(), ..all() };
    let options =
        Options { spin_us: 7, gather_us: 8, mss_clamp: None, verbose: false, share: false, profile };
    ToBroker { id: 1, request: Request::Join { version, options } }
}

fn joined(served: &Served) -> OwnedFd {
    let socket = served.raw();
    say(&socket, &join(VERSION));
    let answer = hears(&socket);
    assert!(answer.contains("done"), "{answer}");
    socket
}

/// It would leave nothing, and whoever has joined would be without a broker.
#[test]
fn a_broker_that_is_about_to_end_takes_nobody() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs the broker's privileges");
    }
    let mut served = Served::new(1);
    let mut client = served.connect();
    assert_eq!(client.attach().unwrap().granted.len(), 1);
    let handle = served.handle.take().unwrap();
    let stopping = std::thread::spawn(move || handle.stop());
    while !matches!(client.poll_event().unwrap(), Some(Event::News(News::Closing))) {
        assert!(client.wait(PATIENCE).unwrap(), "the client is told");
    }
    let socket = served.raw();
    say(&socket, &join(VERSION));
    let answer = hears(&socket);
    assert!(answer.contains("ends"), "{answer}");
    drop(client);
    stopping.join().unwrap();
}

#[test]
fn who_joins_brings_its_programs_and_says_how_they_are_to_run_as_long_as_it_is_there() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs the broker's privileges");
    }
    let (served, _head) = anothers();
    assert!(served.try_connect("too early").is_err());
    let member = joined(&served);
    let (client, welcome) = served.try_connect("program").unwrap();
    assert_eq!(welcome.options.profile.name, "of the one that joins");
    assert_eq!((welcome.options.spin_us, welcome.options.gather_us), (7, 8));
    drop(member);
    let deadline = Instant::now() + PATIENCE;
    while served.try_connect("too late").is_ok() {
        assert!(Instant::now() < deadline, "it is still joined");
    }
    drop(client);
}

#[test]
fn who_joins_says_nothing_else_and_speaks_the_same_version() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs the broker's privileges");
    }
    let (served, _head) = anothers();
    let member = joined(&served);
    say(&member, &ask(Request::Queues { wanted: true }));
    assert_eq!(hears(&member), "", "its programs ask for queues, and not it");
    let other = served.raw();
    say(&other, &join(VERSION + 1));
    assert!(hears(&other).contains("version"));
    let stranger = served.raw();
    say(&stranger, &hello());
    assert_eq!(hears(&stranger), "", "it is nobody's program");
}

#[test]
fn who_has_less_privilege_than_the_broker_does_not_join() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    let (served, _head) = anothers();
    let socket = as_user(4242, || served.raw());
    let octets = encode(&join(VERSION)).unwrap();
    let _ = send(&socket, &octets, SendFlags::NOSIGNAL); // It may be closed already.
    assert_eq!(hears(&socket), "");
}

#[test]
fn a_broker_that_others_have_joined_leaves_what_there_is_to_them() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs the broker's privileges");
    }
    for others in [false, true] {
        let mut served = Served::new(1);
        let client = served.raw_known();
        let _member = others.then(|| joined(&served));
        served.handle.take().into_iter().for_each(Handle::stop);
        let news = hears(&client);
        assert_eq!(news.contains("closing"), !others, "joined: {others}, news: {news}");
    }
}

#[test]
fn children_of_a_program_whose_run_was_killed_are_programs_too() {
    use super::super::connection::Connection;
    use super::super::helpers::Theirs;
    use crate::protocol::Key;
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs the broker's privileges");
    }
    let head = Head::new();
    let mut broker = broker_for(head.0.id());
    let connect_to = |broker: &Broker| {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap()).unwrap();
        socket
    };
    let admitted = |broker: &Broker| {
        broker
            .connections
            .values()
            .filter(|it| it.pid == std::process::id())
            .map(|it| it.is_stranger())
            .collect::<Vec<_>>()
    };
    let _stranger = connect_to(&broker);
    broker.accept(clock::Instant::ZERO);
    assert_eq!(admitted(&broker), [true], "nobody has started it");

    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
    let any = std::fs::File::open("/dev/null").unwrap().into();
    let socket = Theirs::new(any, 0, &broker.helpers);
    let mut program = Connection::new(socket, None, (parent, 0), Key([0; 2]), broker.families.own());
    program.program = Some("a server that forks".to_owned());
    program.stranger_since = Some(clock::Instant::ZERO);
    broker.connections.insert(crate::registry::ClientId(1000), program);
    let _child_of_a_stranger = connect_to(&broker);
    broker.accept(clock::Instant::ZERO);
    assert_eq!(admitted(&broker), [true, true], "whatever a stranger says that it is");

    broker.connections.get_mut(&crate::registry::ClientId(1000)).unwrap().admit();
    let _child = connect_to(&broker);
    broker.accept(clock::Instant::ZERO);
    assert_eq!(admitted(&broker), [true, true, false]);

    let after = |seconds| clock::Instant::ZERO + clock::Duration::from_secs(seconds);
    broker.end_strangers(after(9));
    assert_eq!(admitted(&broker), [true, true, false]);
    broker.end_strangers(after(10));
    assert_eq!(admitted(&broker), [false], "the others have proven nothing");
}

#[test]
fn a_program_with_less_privilege_than_the_broker_brings_no_others() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    let served = Served::new(1);
    let socket = as_user(4242, || served.raw());
    say(&socket, &join(VERSION));
    let answer = hears(&socket);
    assert!(answer.contains("may_not_join"), "{answer}");
}

#[test]
fn who_comes_back_has_no_leave_to_share_from_another_than_its_own_run() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs the broker's privileges");
    }
    let head = Head::new();
    let family = Family { head: head.0.id(), group: None };
    let mut setup = Setup { is_successor: true, ..setup(1, &Log::default(), family, all()) };
    setup.options.share = true;
    let mut broker = Broker::open(setup, clock::Instant::ZERO).unwrap();
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&socket, &SocketAddrUnix::new_abstract_name(broker.name().as_bytes()).unwrap()).unwrap();
    broker.accept(clock::Instant::ZERO);
    let (&client, back) = broker.connections.iter().next().unwrap();
    assert!(!back.is_stranger() && !back.options.share);

    broker.registry.set_identity(client, broker.identify(client)); // As when it says what it has.
    assert_ne!(broker.registry.identity(client), Some(Identity::ANYBODY));
    let own_run = Options { share: true, ..Options::clone(&back.options) };
    broker.join(client, VERSION, own_run).unwrap();
    assert_eq!(
        broker.registry.identity(client),
        Some(Identity::ANYBODY),
        "its own run says so, and came later"
    );
}
