//! What an engine does between being told to stop and its end, under simulated time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clock::{Duration, Instant};
use device::memory;
use engine::{
    Application, Config, Connection, DeviceId, Echo, Engine, EngineHandle, Step, TcpHandler, TcpServer,
};
use stack::{Connect, ConnectionId, Hop, LinkId, Stack};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 40_000);

/// Many times what may be sent before the first acknowledgement.
const GREETING: usize = 200_000;
const LINGER: Duration = Duration::from_secs(2);
/// Between two rounds of an engine.
const ROUND: Duration = Duration::from_millis(1);

/// Sends a long greeting, and reads nothing.
struct Greeter;

impl TcpHandler for Greeter {
    type State = ();

    fn on_open(&mut self, connection: &mut Connection<'_>) {
        assert_eq!(connection.send(&vec![b'!'; GREETING]), GREETING, "all of it is accepted");
    }

    fn on_data(&mut self, (): &mut (), _: &mut Connection<'_>) {}
}

/// The test uses the stack.
struct Idle;

impl Application for Idle {
    fn on_start(&mut self, _: &mut Stack, _: Instant) {}

    fn on_event(&mut self, _: stack::Event, _: &mut Stack, _: Instant) {}
}

/// A server that was told to stop when its client had connected, and that client.
struct Stopping {
    server: Engine<Echo, TcpServer<Greeter>>,
    client: Engine<Echo, Idle>,
    connection: ConnectionId,
    now: Instant,
    told_at: Instant,
    /// What the client received.
    received: usize,
    _handles: (EngineHandle, EngineHandle),
}

impl Stopping {
    fn begin(linger: Duration) -> Stopping {
        let (mut left, mut right) = memory::pair(&memory::Config::default());
        let (config, stack) = (Config { linger, ..Config::default() }, stack::Config::default());
        let options = stack::TcpOptions { send_buffer: Some(2 * GREETING as u32), ..Default::default() };
        let application = TcpServer::new(Greeter).with_options(options).listen(SERVER);
        let (mut server, server_handle) = Engine::driven(config, Echo, stack.clone(), application).unwrap();
        let (mut client, client_handle) = Engine::driven(Config::default(), Echo, stack, Idle).unwrap();
        let now = Instant::ZERO;
        server.add_link(DeviceId(0), LinkId(0), Box::new(right.remove(0)), now);
        client.add_link(DeviceId(0), LinkId(0), Box::new(left.remove(0)), now);
        server.step(now);
        let hop = Hop::default();
        let connect = Connect {
            local: CLIENT,
            remote: SERVER,
            is_bound: false,
            hop,
            options: Default::default(),
            data: b"hello",
        };
        let connection = client.stack().tcp_connect(&connect, now).unwrap();
        let _handles = (server_handle, client_handle);
        let mut stopping = Stopping { server, client, connection, now, told_at: now, received: 0, _handles };
        while stopping.server.stack().connections().next().is_none() {
            stopping.round(true);
        }
        stopping._handles.0.stop();
        stopping.told_at = stopping.now;
        stopping
    }

    /// One round of the server, and of the client if it is `there`. Tells whether the server goes on.
    fn round(&mut self, there: bool) -> bool {
        self.now += ROUND;
        let goes_on = self.server.step(self.now) != Step::Over;
        if there {
            self.client.step(self.now);
            let mut part = vec![0; 1 << 16];
            self.received += self.client.stack().recv(self.connection, &mut part, self.now).unwrap_or(0);
        }
        goes_on
    }

    /// Lets both run until the server has ended; the client does nothing in rounds where it is not `there`. Returns how long the
    /// server took.
    fn end(&mut self, mut there: impl FnMut(u64) -> bool) -> Duration {
        let mut number = 0;
        while self.round(there(number)) {
            number += 1;
        }
        self.now.since(self.told_at)
    }
}

#[test]
fn what_was_accepted_for_sending_is_acknowledged_before_the_end() {
    let mut stopping = Stopping::begin(LINGER);
    // Acknowledgements come so late that there is nothing to do in most rounds.
    let took = stopping.end(|number| number % 20 == 0);
    assert!(took < LINGER, "{took:?}");
    stopping.round(true);
    assert_eq!(stopping.received, GREETING);
    let ready = stopping.client.stack().readiness(stopping.connection).unwrap();
    assert!(ready.read_closed && !ready.error, "the end came too, and no reset: {ready:?}");
}

#[test]
fn what_the_peer_sends_meanwhile_does_not_cost_it_the_rest() {
    let mut stopping = Stopping::begin(LINGER);
    for _ in 0..10 {
        stopping.round(true);
        let (connection, now) = (stopping.connection, stopping.now);
        stopping.client.stack().send(connection, b"more", now).unwrap();
    }
    stopping.end(|_| true);
    stopping.round(true);
    assert_eq!(stopping.received, GREETING);
}

#[test]
fn a_peer_that_is_gone_is_waited_for_no_longer_than_configured() {
    let mut stopping = Stopping::begin(LINGER);
    let took = stopping.end(|_| false);
    assert!(took >= LINGER && took <= LINGER + ROUND, "{took:?}");
}

#[test]
fn without_linger_nothing_is_waited_for() {
    let mut stopping = Stopping::begin(Duration::ZERO);
    let took = stopping.end(|_| false);
    assert!(took <= 5 * ROUND, "{took:?}");
}

#[test]
fn an_engine_that_waits_sleeps_until_a_timer_or_the_end() {
    let mut stopping = Stopping::begin(LINGER);
    let step = loop {
        stopping.now += ROUND;
        match stopping.server.step(stopping.now) {
            Step::Again => {}
            step => break step,
        }
    };
    assert_eq!(step, Step::Sleep, "nothing may be sent before an acknowledgement comes");
    let timeout = stopping.server.poll_timeout().unwrap();
    assert!(timeout > stopping.now && timeout <= stopping.told_at + LINGER, "{timeout:?}");
}
