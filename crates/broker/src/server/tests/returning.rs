//! A broker that is killed, the one that takes its place, and the clients of both.

use device_xdp::QueueOwner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::turns::listen_at;
use super::joining::Head;
use super::stopped::{claim, client_of, while_it_serves};
use super::*;
use crate::protocol::{ClaimId, Key};

fn family() -> Family {
    Family { head: std::process::id(), group: None }
}

/// A broker at an interface with such maps, in the place of the one of that name if there is a name.
pub(super) fn broker_with(maps: &Maps, killed: Option<&str>) -> Broker {
    Broker::open(setup_with(maps, killed, 1, family()), clock::Instant::ZERO).unwrap()
}

#[test]
fn what_a_killed_broker_left_is_used_on_though_others_would_be_better() {
    use super::super::pins::Kept;
    const OTHER: u16 = 1;
    let maps = Maps::default();
    let name = broker_with(&maps, None).name().to_owned();
    let open = |killed| {
        // Two interfaces, as far as the broker sees.
        let interfaces = vec![(GENERIC, "lo".to_owned()), (OTHER, "lo".to_owned())];
        let setup = Setup { interfaces, ..setup_with(&maps, killed, 1, family()) };
        Broker::open(setup, clock::Instant::ZERO).unwrap()
    };
    let used = |broker: &Broker| {
        let used = broker.ports.iter().filter(|port| port.open.is_some() && !port.is_given_up);
        used.map(|port| port.link).collect::<Vec<_>>()
    };
    let kept = |broker: &str| Kept { interface: 1, link: GENERIC, broker: broker.to_owned() };
    let mut next = open(Some(&name));
    assert_eq!(next.be_choosy(&[kept(&name)]), Vec::<String>::new());
    assert_eq!(used(&next), [GENERIC, OTHER]);
    for left in [vec![], vec![kept("another")]] {
        let mut new = open(None);
        assert_eq!(new.be_choosy(&left).len(), 1);
        assert_eq!(used(&new), [OTHER], "nobody's connections are cut");
    }
}

/// Waits until the client has come back, and returns what it was told before.
fn await_return(client: &mut Client) -> Vec<News> {
    let mut told = Vec::new();
    loop {
        match next_event(client) {
            Event::Returned(_) => return told,
            Event::News(news) => told.push(news),
            other => panic!("{other:?}"),
        }
    }
}

fn next_event(client: &mut Client) -> Event {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "nothing comes");
        let _ = client.wait(Duration::from_millis(100)).unwrap();
        if let Some(event) = client.poll_event().unwrap() {
            return event;
        }
    }
}

/// A client that serves the queue and has claimed a listener, whose broker is killed.
fn left_alone(maps: &Maps, listener: &TcpListener) -> (String, Client, ClaimId) {
    let mut broker = broker_with(maps, None);
    let name = broker.name().to_owned();
    let mut client = client_of(&mut broker, true);
    let claimed = while_it_serves(&mut broker, || {
        client.ready(0, &[0]).unwrap();
        client.settle().unwrap();
        claim(&mut client, listener).unwrap()
    });
    drop(broker); // Without a word.
    (name, client, claimed)
}

#[test]
fn who_comes_back_has_its_queue_and_its_claims_by_their_numbers() {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut client, claimed) = left_alone(&maps, &listener);
    assert!(matches!(claim(&mut client, &listener), Err(ClientError::TimedOut)));

    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || {
        let told = await_return(&mut client);
        assert!(
            told.contains(&News::WaysChanged) && told.iter().any(|it| matches!(it, News::MtuChanged { .. }))
        );
        client.claim_again(Transport::Tcp, Purpose::Listener, listener.as_fd(), claimed).unwrap();
        wait_until(|| client.poll_event().unwrap().is_none() && client.settle().is_ok());
        let second = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(claim(&mut client, &second).unwrap() > claimed, "numbers are not used twice");
        client.release(claimed).unwrap();
        assert_eq!(refusal(client.release(claimed)), Refusal::NoSuchClaim);
    });
    let known = *next.connections.keys().next().unwrap();
    assert!(next.registry.queues_of(known, 0).contains(0));
    assert!(next.registry.queues_left(0).is_empty());
}

#[test]
fn no_broker_is_behind_for_what_the_killed_one_did_not_answer() {
    let maps = Maps::default();
    let mut broker = broker_with(&maps, None);
    let name = broker.name().to_owned();
    let mut client = client_of(&mut broker, true);
    while_it_serves(&mut broker, || {
        client.ready(0, &[0]).unwrap();
        client.settle().unwrap();
    });
    let asking = std::thread::spawn(move || {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        (claim(&mut client, &listener), client)
    });
    std::thread::sleep(Duration::from_millis(100)); // Until it waits for the answer.
    drop(broker);
    let (asked, mut client) = asking.join().unwrap();
    assert!(matches!(asked, Err(ClientError::TimedOut)), "{asked:?}");
    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || {
        await_return(&mut client);
        std::thread::sleep(Duration::from_millis(3200)); // Longer than one waits for an answer.
        assert!(!client.is_behind().unwrap());
    });
}

/// Who is lent a queue anew is to share it with those that it shared it with.
#[test]
fn who_shared_a_queue_with_another_users_program_or_as_root_may_do_so_again() {
    let shared_by = |has_no_like, users: [u32; 2], numbers: [u16; 2]| {
        let maps = Maps::default();
        for (number, user) in numbers.into_iter().zip(users) {
            maps.lend(number, QueueOwner { secret: [number.into(), 0], user });
        }
        let broker = Broker::open(setup_with(&maps, None, 2, family()), clock::Instant::ZERO).unwrap();
        broker.shared_with_anybody(Key([numbers[0].into(), 0]), &[(0, vec![numbers[0]])], has_no_like)
    };
    let shared = |users, numbers| shared_by(false, users, numbers);
    let (first, its_second_place, second) = (0, 63, 1);
    assert!(shared([1, 2], [first, its_second_place]));
    assert!(shared([0, 0], [first, its_second_place]));
    assert!(!shared([1, 1], [first, its_second_place]), "one user's programs share without being told to");
    assert!(shared_by(true, [1, 1], [first, its_second_place]), "but for those with capabilities");
    assert!(!shared([1, 2], [first, second]), "each has a queue");
}

#[test]
fn a_child_that_asks_before_its_parent_is_back_is_answered_when_it_is() {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut parent, _) = left_alone(&maps, &listener);
    let mut next = broker_with(&maps, Some(&name));
    let mut child = client_of(&mut next, false);
    let ends = |port| (SocketAddr::from(([192, 0, 2, 1], port)), SocketAddr::from(([192, 0, 2, 2], 4000)));
    while_it_serves(&mut next, || {
        let (local, remote) = ends(80);
        let ticket = child.begin_move_for(&[parent.key], local, remote).unwrap();
        assert!(child.poll_move_for(&ticket).unwrap().is_none(), "it is not back");
        await_return(&mut parent);
        let token = loop {
            if let Event::News(News::ChildAsks { token, .. }) = next_event(&mut parent) {
                break token;
            }
        };
        let (_ours, theirs) = UnixStream::pair().unwrap();
        parent.give_to_child(token, theirs.as_fd()).unwrap();
        wait_until(|| child.poll_move_for(&ticket).unwrap().is_some());
    });
}

#[test]
fn a_segment_is_nobodys_only_when_all_have_come_back_who_may_have_its_connection() {
    use crate::client::Search;
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut client, claimed) = left_alone(&maps, &listener);
    let local = SocketAddr::from(([192, 0, 2, 9], listener.local_addr().unwrap().port()));
    maps.put(local.port(), 0);
    let remote = SocketAddr::from(([192, 0, 2, 2], 4000));
    let mut next = broker_with(&maps, Some(&name));
    let mut other = client_of(&mut next, false);
    let searched = while_it_serves(&mut next, || {
        claim(&mut other, &listener).unwrap();
        let search = |other: &mut Client| {
            let ticket = other.begin_stray(local, remote, b"a header").unwrap();
            loop {
                match other.poll_stray(&ticket).unwrap() {
                    None => assert!(other.wait(PATIENCE).unwrap(), "no answer"),
                    Some(search) => return search,
                }
            }
        };
        let before = search(&mut other);
        await_return(&mut client);
        client.claim_again(Transport::Tcp, Purpose::Listener, listener.as_fd(), claimed).unwrap();
        wait_until(|| client.poll_event().unwrap().is_none() && client.settle().is_ok());
        client.release(claimed).unwrap();
        (before, search(&mut other))
    });
    assert_eq!(searched, (Search::Open, Search::Alone));
}

#[test]
fn who_has_no_descriptor_left_when_the_broker_is_killed_keeps_its_queue_and_comes_back() {
    use crate::client::without_broker::LACKS_DESCRIPTORS;
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut client, _) = left_alone(&maps, &listener);
    LACKS_DESCRIPTORS.set(true);
    assert!(client.poll_event().unwrap().is_none());
    assert!(client.fd_to_sleep_on().is_none(), "the old socket would wake who sleeps on it again and again");
    assert!(matches!(claim(&mut client, &listener), Err(ClientError::TimedOut)));

    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || {
        wait_until(|| matches!(client.poll_event().unwrap(), Some(Event::Returned(_))))
    });
    assert!(client.fd_to_sleep_on().is_some());
    LACKS_DESCRIPTORS.set(false);
}

/// The kernel closes what a killed process had one after the other, its listener behind its connections. A program that takes the dying broker for
/// the next one has lost a moment by that, and not a second.
#[test]
fn who_finds_the_broker_that_is_killed_once_more_looks_for_the_next_one_soon() {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut client, _) = left_alone(&maps, &listener);
    let find_it_once_more = |client: &mut Client| {
        let mut dying = None;
        wait_until(|| {
            dying = listen_at(&name).ok(); // A helper closes the last one.
            dying.is_some()
        });
        let dying = dying.unwrap();
        let has_come =
            || poll(&mut [PollFd::new(&dying, PollFlags::IN)], Some(&Timespec::default())) == Ok(1);
        wait_until(|| client.poll_event().unwrap().is_none() && has_come());
        drop(dying);
        assert!(client.poll_event().unwrap().is_none() && client.is_left_alone());
    };
    find_it_once_more(&mut client);
    assert!(client.may_be_followed(), "children may wait for it");
    while client.may_be_followed() {
        find_it_once_more(&mut client); // Not for ever, where one ends again and again.
    }
    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || await_return(&mut client));
}

#[test]
fn who_had_no_descriptor_for_a_timer_has_one_when_there_is_one_again() {
    use crate::client::without_broker::LACKS_DESCRIPTORS;
    let (_, mut client, _) = left_alone(&Maps::default(), &TcpListener::bind("0.0.0.0:0").unwrap());
    LACKS_DESCRIPTORS.set(true);
    assert!(client.poll_event().unwrap().is_none() && client.fd_to_sleep_on().is_none());
    LACKS_DESCRIPTORS.set(false);
    wait_until(|| client.poll_event().unwrap().is_none() && client.fd_to_sleep_on().is_some());
}

/// More than a socket's buffer holds at once.
#[test]
fn who_comes_back_claims_all_of_a_thousand_sockets() {
    let maps = Maps::default();
    let listeners: Vec<_> = (0..1000).map(|_| TcpListener::bind("0.0.0.0:0").unwrap()).collect();
    let mut broker = broker_with(&maps, None);
    let name = broker.name().to_owned();
    let mut client = client_of(&mut broker, true);
    let claimed: Vec<ClaimId> = while_it_serves(&mut broker, || {
        client.ready(0, &[0]).unwrap();
        client.settle().unwrap();
        listeners.iter().map(|listener| claim(&mut client, listener).unwrap()).collect()
    });
    drop(broker);
    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || drop(await_return(&mut client)));
    let claim_all = || {
        for (listener, claim) in listeners.iter().zip(&claimed) {
            client.claim_again(Transport::Tcp, Purpose::Listener, listener.as_fd(), *claim).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let claiming = scope.spawn(claim_all);
        std::thread::sleep(Duration::from_millis(200)); // The buffer fills before the broker reads.
        while_it_serves(&mut next, || claiming.join().unwrap());
    });
    while_it_serves(&mut next, || {
        for claim in &claimed {
            client.release(*claim).unwrap(); // What was not claimed is refused.
        }
    });
}

#[test]
fn a_queue_is_not_its_own_for_who_does_not_know_the_key() {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut client, _) = left_alone(&maps, &listener);
    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || {
        let thief = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&thief, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        say(&thief, &hello());
        assert!(hears(&thief).contains("welcome"));
        say(&thief, &ask(Request::Serve { queues: vec![(0, vec![0])], key: Some(Key([1, 2])) }));
        while !hears(&thief).contains("not_yours") {}
        await_return(&mut client);
        say(&thief, &ask(Request::Serve { queues: vec![(0, vec![0])], key: Some(client.key) }));
        while !hears(&thief).contains("not_yours") {}
    });
}

/// A daemon that was started as root and became another user by itself.
#[test]
fn who_is_another_user_by_now_comes_back_by_its_key_and_a_stranger_gets_nothing() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    strangers_ask(Request::Queues { wanted: true });
    strangers_ask(Request::Serve { queues: Vec::new(), key: Some(Key([1, 2])) });
    strangers_ask(Request::Serve { queues: vec![(0, Vec::new())], key: Some(Key([1, 2])) });
}

/// While the client of a killed broker comes back as another user, a stranger of that user asks this.
fn strangers_ask(request: Request) {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, mut client, _) = left_alone(&maps, &listener);
    let head = Head::new();
    let family = Family { head: head.0.id(), group: None };
    let mut next = Broker::open(setup_with(&maps, Some(&name), 1, family), clock::Instant::ZERO).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let later = while_it_serves(&mut next, || {
        as_user(4242, || {
            let stranger = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
            connect(&stranger, &address).unwrap();
            say(&stranger, &hello());
            assert!(hears(&stranger).contains("welcome"));
            say(&stranger, &ask(request));
            let later = hears(&stranger);
            await_return(&mut client);
            later
        })
    });
    assert_eq!(later, "", "the connection ends");
    let (known, back) = next.connections.iter().next().unwrap();
    assert!(back.is_program() && next.registry.queues_of(*known, 0).contains(0));
}

#[test]
fn what_is_not_claimed_again_is_forgotten_after_a_minute_and_what_nobody_returns_to_stays() {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (name, mut client, _) = left_alone(&maps, &listener);
    // loopback is no address of the interface, so the claim is put here.
    maps.put(port, 0);
    let mut next = broker_with(&maps, Some(&name));
    let at = |secs| clock::Instant::ZERO + clock::Duration::from_secs(secs);
    next.turn(at(3600));
    assert!(maps.has(port), "its owner may be stopped, or of another version");
    while_it_serves(&mut next, || drop(await_return(&mut client)));
    next.turn(at(59));
    assert!(maps.has(port));
    next.turn(at(3600 + 120));
    assert!(!maps.has(port));
}

#[test]
fn a_broker_stays_until_who_had_queues_has_ended_however_long_they_stay_away() {
    let maps = Maps::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (name, client, _) = left_alone(&maps, &listener);
    drop(client); // It has no line to the next broker, as if it were stopped.
    let mut next = broker_with(&maps, Some(&name));
    let at = |secs| clock::Instant::ZERO + clock::Duration::from_secs(secs);
    next.turn(at(3600));
    assert!(!next.is_alone() && maps.owned() == [0]);
    maps.end_owner(0);
    next.turn(at(3601));
    assert!(next.is_alone() && maps.owned().is_empty());
}

#[test]
fn who_had_no_queue_comes_back_and_gets_one() {
    let maps = Maps::default();
    let mut broker = broker_with(&maps, None);
    let name = broker.name().to_owned();
    let mut has = client_of(&mut broker, true);
    let mut waits = while_it_serves(&mut broker, || {
        has.ready(0, &[0]).unwrap();
        has.settle().unwrap();
        let mut waits = Client::connect(name.as_bytes(), "waits", std::process::id(), 3).unwrap().0;
        assert!(waits.attach().unwrap().granted.is_empty());
        waits
    });
    drop(broker);
    let mut next = broker_with(&maps, Some(&name));
    while_it_serves(&mut next, || {
        await_return(&mut has);
        await_return(&mut waits);
        has.give_back().unwrap();
        assert!(matches!(next_event(&mut waits), Event::QueueGranted(_)));
    });
}
