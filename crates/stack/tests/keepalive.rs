//! Keepalive probes of a peer that has gone.

mod common;

use std::sync::Arc;

use clock::{Duration, Instant};
use common::{CLIENT, Pair, SERVER};
use stack::tcp::TcpError;
use stack::{Connect, Hop, TcpOptions};

/// RFC 5482, 4.2: with a user timeout it ends the connection, and not the number of probes.
#[test]
fn probes_go_on_until_the_user_timeout_however_many_they_are() {
    let mut pair = Pair::new();
    pair.server.listen(SERVER, 1);
    let second = Duration::from_secs(1);
    let options = TcpOptions {
        keepalive: true,
        keepalive_idle: second,
        keepalive_interval: second,
        user_timeout: Some(second * 400),
        ..TcpOptions::default()
    };
    let connect = Connect {
        local: CLIENT,
        remote: SERVER,
        is_bound: false,
        hop: Hop::default(),
        options: Arc::new(options),
        data: b"",
    };
    let client = pair.client.stack.tcp_connect(&connect, pair.now).unwrap();
    pair.run();
    let stack = &mut pair.client.stack;
    let (start, mut now) = (pair.now, pair.now);
    let mut room = [0; 1500];
    while stack.readiness(client).is_some_and(|ready| !ready.hangup) {
        now = now.max(stack.poll_timeout().unwrap_or(Instant::ZERO));
        stack.on_timeout(now);
        while stack.poll_transmit(now, &mut room).is_some() {}
        assert!(now.since(start) < second * 500, "it goes on for ever");
    }
    assert_eq!(stack.take_error(client), Some(TcpError::TimedOut));
    assert!(now.since(start) >= second * 399, "{:?}", now.since(start));
}
