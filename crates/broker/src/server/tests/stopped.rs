//! A broker that stands still for a while, as one that is stopped (SIGSTOP), or that was killed, and what its clients do then.

use std::sync::atomic::{AtomicBool, Ordering};
use transit::SocketKind;

use super::*;

/// Lets the broker serve while something is done.
pub(super) fn while_it_serves<T>(broker: &mut Broker, act: impl FnOnce() -> T) -> T {
    let (is_over, began) = (AtomicBool::new(false), Instant::now());
    let serve = || {
        while !is_over.load(Ordering::Relaxed) {
            broker.turn(clock::Instant::from_nanos(began.elapsed().as_nanos() as u64));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(serve);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub(super) fn claim(
    client: &mut Client,
    listener: &TcpListener,
) -> Result<crate::protocol::ClaimId, ClientError> {
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).map(|(claim, _)| claim)
}

#[test]
fn what_a_broker_that_stands_still_is_asked_is_the_kernels_and_what_it_is_told_it_does_later() {
    let mut broker = broker();
    let name = broker.name().to_owned();
    let [first, second, third] = [(); 3].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    let (mut client, claimed) = while_it_serves(&mut broker, || {
        let (mut client, _) = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap();
        let claimed = claim(&mut client, &first).unwrap();
        (client, claimed)
    });
    let error = claim(&mut client, &second).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut) && !error.is_fatal(), "{error}");

    // From here on nothing waits.
    let began = Instant::now();
    assert!(matches!(claim(&mut client, &third), Err(ClientError::TimedOut)));
    for _ in 0..1000 {
        client.drain(claimed).unwrap();
    }
    client.release(claimed).unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());

    while_it_serves(&mut broker, || {
        wait_until(|| {
            assert!(client.poll_event().unwrap().is_none());
            claim(&mut client, &third).is_ok()
        });
    });
    let known = *broker.connections.keys().next().unwrap();
    assert_eq!(broker.registry.claims(known).count(), 1, "what was asked in vain is released again");
}

#[test]
fn what_a_broker_that_stands_still_is_told_holds_nobody_up() {
    let mut broker = broker();
    let mut client = client_of(&mut broker, true);
    let began = Instant::now();
    for _ in 0..100 {
        client.ready(0, &[0]).unwrap();
        client.refuse_child(7).unwrap();
        client.report(ProgramReport::default()).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(!client.is_behind().unwrap(), "it may only be slow");
    let said = while_it_serves(&mut broker, || client.settle());
    assert_eq!(refusal(said), Refusal::NotAsked, "it did all of it");
}

/// A client of a broker that serves it until then, with queues or without.
pub(super) fn client_of(broker: &mut Broker, has_queues: bool) -> Client {
    let name = broker.name().to_owned();
    while_it_serves(broker, || {
        let (mut client, _) = Client::connect(name.as_bytes(), "program", std::process::id(), 3).unwrap();
        if has_queues {
            assert_eq!(client.attach().unwrap().granted.len(), 1);
        }
        client
    })
}

#[test]
fn who_has_queues_when_the_broker_is_killed_keeps_them_and_gets_nothing_more() {
    let mut broker = broker();
    let mut client = client_of(&mut broker, true);
    let ends = "192.0.2.2".parse().unwrap();
    let (fd, asked) = (client.fd().as_raw_fd(), client.begin_route(ends, None).unwrap());
    drop(broker); // Without a word.
    assert!(client.poll_event().unwrap().is_none());
    assert_eq!(client.fd().as_raw_fd(), fd);
    assert!(client.has_news() && matches!(client.poll_route(&asked), Err(ClientError::TimedOut)));
    assert!(!client.has_news());

    let began = Instant::now();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    assert!(matches!(claim(&mut client, &listener), Err(ClientError::TimedOut)));
    assert!(matches!(client.begin_route(ends, None), Err(ClientError::TimedOut)));
    let connection = crate::moving::tests::connection(b"received", b"", b"");
    assert!(matches!(
        refusal(client.move_connection(&connection, SocketKind::default(), None)),
        Refusal::NotTaken(_)
    ));
    for claim in 0..100_000 {
        client.release(crate::protocol::ClaimId(claim)).unwrap(); // More than is kept for a broker that goes on.
    }
    assert!(began.elapsed() < PATIENCE / 10, "nothing waits");
}

#[test]
fn who_asks_a_broker_that_was_killed_hears_of_it_at_once() {
    let mut broker = broker();
    let mut client = client_of(&mut broker, true);
    drop(broker);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    assert!(matches!(claim(&mut client, &listener), Err(ClientError::TimedOut)));
    client.drain(crate::protocol::ClaimId(1)).unwrap();
}

#[test]
fn who_was_disconnected_hears_that_all_is_over() {
    let mut lives = broker();
    let mut client = client_of(&mut lives, true);
    let known = *lives.connections.keys().next().unwrap();
    lives.disconnect(known, &super::super::connection::Fault::DoesNotRead, clock::Instant::ZERO);
    while_it_serves(&mut lives, || wait_until(|| matches!(client.poll_event(), Err(ClientError::Gone))));
}
