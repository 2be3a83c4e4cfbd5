//! A broker that stands still for a while, as one that is stopped (SIGSTOP), and what its clients do meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Lets the broker serve while something is done.
fn while_it_serves<T>(broker: &mut Broker, act: impl FnOnce() -> T) -> T {
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

fn claim(client: &mut Client, listener: &TcpListener) -> Result<crate::protocol::ClaimId, ClientError> {
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
