//! Ten thousand connections that do little each.

use std::io::Read;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use lab::Side;

use super::{Peer, VERSIONS, accept, ask, pattern};

const CONNECTIONS: u32 = 10_000;

/// Runs `act` for each of `CONNECTIONS` numbers on a few threads in the client's namespace.
fn for_each_connection(peer: &Peer, act: impl Fn(u32) + Sync) {
    let next = AtomicU32::new(0);
    let work = || {
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && number < CONNECTIONS
        {
            act(number);
        }
    };
    peer.lab.inside(Side::Client, || thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work)))));
}

#[test]
fn ten_thousand_connections_that_the_kernel_closes_first_leave_nothing_on_the_stack() {
    let Some(peer) = Peer::start() else { return };
    for_each_connection(&peer, |number| {
        let mut stream = ask(VERSIONS[number as usize % 2].0, "sink");
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, pattern(0) + "\n");
    });
    let endings = peer.endings(CONNECTIONS.into());
    assert_eq!(
        endings.into_iter().collect::<Vec<_>>(),
        [(format!("closed {}", pattern(0)), CONNECTIONS.into())]
    );
    peer.assert_nothing_leaked();
    let counts = peer.counts();
    assert_eq!(counts["time_wait"], 0, "it is the kernel that closed first");
    assert_eq!((counts["TcpPassiveOpens"], counts["TcpOutRsts"]), (CONNECTIONS.into(), 0));
}

#[test]
fn ten_thousand_connections_that_the_stack_closes_first_wait_there() {
    let Some(peer) = Peer::start() else { return };
    for_each_connection(&peer, |number| {
        let mut stream = ask(VERSIONS[number as usize % 2].0, "source 100");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer.len(), 100);
    });
    let endings = peer.endings(CONNECTIONS.into());
    assert_eq!(
        endings.into_iter().collect::<Vec<_>>(),
        [(format!("closed {}", pattern(0)), CONNECTIONS.into())]
    );
    peer.assert_nothing_leaked();
    let counts = peer.counts();
    // The kernel may use a port again before its time is over here: that one is taken out of TIME-WAIT.
    assert_eq!(counts["time_wait"] + counts["TcpExtTWRecycled"], u64::from(CONNECTIONS));
    assert_eq!(counts["TcpOutRsts"], 0);
}

#[test]
fn connections_begun_from_one_port_again_and_again_are_all_served() {
    const CONNECTIONS: u64 = 200;
    let Some(peer) = Peer::start() else { return };
    // The kernel closes first: TIME-WAIT is there, and a SYN with later timestamps may end it (RFC 6191, 2).
    for version in VERSIONS {
        let listener = peer.listen(version.1);
        let remote = listener.local_addr().unwrap();
        let local = peer.begin(remote, "echo");
        for number in 0..CONNECTIONS {
            if number > 0 {
                assert_eq!(peer.control(&format!("again {local} {remote} echo")), local.to_string());
            }
            let mut stream = accept(&listener);
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            peer.assert_nothing_leaked(); // Until the last acknowledgement the flow is still there.
        }
    }
    let endings = peer.endings(2 * CONNECTIONS);
    assert_eq!(endings.into_keys().collect::<Vec<_>>(), [format!("closed {}", pattern(0))]);
    assert_eq!(peer.counts()["time_wait"], 0);
}
