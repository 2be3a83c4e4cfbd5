//! Who gets which queue, and when.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::registry::Identity;

#[test]
fn a_client_is_welcome_and_gets_a_queue() {
    let served = Served::new(1);
    let (mut client, welcome) = served.try_connect("program").unwrap();
    assert_eq!(welcome.interfaces[0].name, "lo");
    assert_eq!((welcome.options.spin_us, welcome.options.gather_us), (20, 30));
    let attached = client.attach().unwrap();
    assert_eq!(attached.granted[0].grant.queues, [0]);
    assert!(attached.granted[0].grant.all_queues_yours && attached.without.is_empty());
    client.ready(0, &[0]).unwrap();
    client.settle().unwrap();
    let attached = served.connect().attach().unwrap();
    assert_eq!(attached.without, [(0, Refusal::NoFreeQueue)]);
}

#[test]
fn who_is_alone_gets_all_queues_a_moment_later() {
    let served = Served::new(3);
    let mut client = served.connect();
    assert_eq!(client.attach().unwrap().granted[0].grant.queues, [0]);
    let Event::QueueGranted(granted) = next_event(&mut client) else { panic!("something else") };
    assert_eq!((granted.grant.queues.clone(), granted.sockets.len()), (vec![1, 2], 2));
    assert!(granted.grant.all_queues_yours);
}

#[test]
fn a_queue_goes_from_who_gave_it_back_or_died_to_who_waits() {
    let served = Served::new(1);
    let (mut first, mut second, mut third) = (served.connect(), served.connect(), served.connect());
    first.attach().unwrap();
    second.attach().unwrap();
    third.attach().unwrap();
    first.give_back().unwrap();
    assert!(matches!(next_event(&mut second), Event::QueueGranted(_)));
    assert!(served.log.has("remove 0"), "nothing reaches the old socket, whoever holds it");
    drop(second);
    assert!(matches!(next_event(&mut third), Event::QueueGranted(_)));
}

#[test]
fn who_gave_its_queue_back_while_it_waited_for_one_gets_none() {
    let served = Served::new(1);
    let (mut first, mut second, mut third) = (served.connect(), served.connect(), served.connect());
    for client in [&mut first, &mut second, &mut third] {
        client.attach().unwrap();
    }
    second.give_back().unwrap();
    drop(first);
    assert!(matches!(next_event(&mut third), Event::QueueGranted(_)));
}

#[test]
fn a_queue_goes_to_who_has_the_listener_of_its_last_owner() {
    let served = Served::new(1);
    let (mut old, mut stranger, mut new) = (served.connect(), served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    for client in [&mut old, &mut new] {
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    }
    for client in [&mut old, &mut stranger, &mut new] {
        client.attach().unwrap();
    }
    drop(old);
    assert!(matches!(next_event(&mut new), Event::QueueGranted(_)));
    drop(new);
    assert!(matches!(next_event(&mut stranger), Event::QueueGranted(_)));
}

#[test]
fn there_is_no_way_to_this_host_itself() {
    let served = Served::new(1);
    let mut client = served.connect();
    let ticket = client.begin_route([127, 0, 0, 1].into(), None).unwrap();
    while client.wait(PATIENCE).unwrap() {
        match client.poll_route(&ticket) {
            Ok(None) => {}
            outcome => return assert_eq!(refusal(outcome), Refusal::Local),
        }
    }
    panic!("no answer");
}

#[test]
fn only_who_has_the_brokers_privileges_sees_all_packets_of_a_queue() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    let served = Served::new(2);
    let (mut own, mut others) = (served.connect(), as_user(4242, || served.connect()));
    assert_eq!(own.attach().unwrap().granted[0].grant.queues, [0]);
    assert_eq!(others.attach().unwrap().granted[0].grant.queues, [1]);
    assert!(served.log.has("lend [0] in zero-copy mode"));
    assert!(served.log.has("lend [1]") && !served.log.has("lend [1] in zero-copy mode"));
}

#[test]
fn processes_of_one_user_share_a_queue_and_each_has_a_number() {
    let served = Served::shared(1, 3);
    let mut clients: Vec<Client> = (0..4).map(|_| served.connect()).collect();
    let numbers: Vec<Vec<u16>> = clients
        .iter_mut()
        .flat_map(|client| client.attach().unwrap().granted)
        .map(|granted| {
            assert!(granted.grant.all_queues_yours);
            granted.grant.queues
        })
        .collect();
    assert_eq!(numbers, [[0], [63], [62]]);
    assert!(served.log.has("share 0 as 0") && served.log.has("share 0 as 62"));
    clients.remove(1);
    let Event::QueueGranted(granted) = next_event(&mut clients[2]) else { panic!("something else") };
    assert_eq!(granted.grant.queues, [63]);
    assert!(served.log.has("remove 63"));
}

#[test]
fn who_is_another_user_gets_the_queue_when_all_sharers_have_gone() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change users");
    }
    let served = Served::shared(1, 8);
    let (mut own, mut others) = (served.connect(), as_user(4242, || served.connect()));
    let mut second = served.connect();
    assert_eq!(own.attach().unwrap().granted[0].grant.queues, [0]);
    assert_eq!(others.attach().unwrap().without, [(0, Refusal::NoFreeQueue)]);
    assert_eq!(second.attach().unwrap().granted[0].grant.queues, [63]);
    drop(own);
    drop(second);
    let Event::QueueGranted(granted) = next_event(&mut others) else { panic!("something else") };
    assert_eq!(granted.grant.queues, [0]);
}

/// As a daemon does that root has started.
#[test]
fn who_may_become_another_user_shares_no_queue_and_none_that_it_got_before_it_did() {
    static IS_ORDINARY: AtomicBool = AtomicBool::new(false);
    let (log, family) = (Log::default(), Family { head: std::process::id(), group: None });
    let ordinary = |_, _: Option<BorrowedFd<'_>>| {
        IS_ORDINARY.load(Relaxed).then_some(Identity { user: 1000, group: 100 })
    };
    let served = Served::start(Setup { identify: ordinary, ..setup_shared(1, 8, &log, family) }, log);
    let (mut first, mut second, mut third) = (served.connect(), served.connect(), served.connect());
    assert_eq!(first.attach().unwrap().granted[0].grant.queues, [0]);
    first.ready(0, &[0]).unwrap();
    assert_eq!(second.attach().unwrap().without, [(0, Refusal::NoFreeQueue)]);
    IS_ORDINARY.store(true, Relaxed);
    assert_eq!(third.attach().unwrap().without, [(0, Refusal::NoFreeQueue)]);
    drop(first);
    let mut numbers: Vec<Vec<u16>> = [&mut second, &mut third]
        .map(|client| {
            let Event::QueueGranted(granted) = next_event(client) else { panic!("something else") };
            granted.grant.queues
        })
        .into();
    numbers.sort();
    assert_eq!(numbers, [[0], [63]]);
}
