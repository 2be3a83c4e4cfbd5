//! A client and a server, each an engine on a thread of its own, joined by a wire in memory.
#![allow(dead_code, unreachable_pub)] // Each test takes what it needs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{Device, memory};
use engine::{Application, Config, DeviceId, Echo, Engine, EngineHandle};
use stack::tcp::{RecvError, SendError, Shutdown};
use stack::{Connect, ConnectionId, Hop, LinkId};

pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);
pub const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 40_000);

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does nothing by itself: the test uses the stack.
struct Idle;

impl Application for Idle {
    fn on_start(&mut self, _: &mut stack::Stack, _: clock::Instant) {}

    fn on_event(&mut self, _: stack::Event, _: &mut stack::Stack, _: clock::Instant) {}
}

pub struct Host {
    pub handle: EngineHandle,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Runs `application` on `device`.
    pub fn start(application: impl Application + 'static, device: Box<dyn Device>) -> Host {
        // The other end may be gone by then: nothing is worth waiting for.
        let config = Config { linger: clock::Duration::ZERO, ..Config::default() };
        let (engine, handle) =
            Engine::with_stack(config, Echo, stack::Config::default(), application).unwrap();
        handle.add_link(DeviceId(0), LinkId(0), device);
        let thread = std::thread::spawn(move || {
            engine.run();
        });
        Host { handle, thread: Some(thread) }
    }

    /// One that only connects.
    pub fn client(device: Box<dyn Device>) -> Host {
        Host::start(Idle, device)
    }

    pub fn connect(&self, local: SocketAddr, remote: SocketAddr) -> ConnectionId {
        let connect = move |stack: &mut stack::Stack, now| {
            let options = Default::default();
            stack.tcp_connect(
                &Connect { local, remote, is_bound: false, hop: Hop::default(), options, data: b"" },
                now,
            )
        };
        self.handle.ask_stack(connect).unwrap().unwrap()
    }

    /// Sends `request`, ends the stream, and returns all that comes back until its end.
    pub fn exchange(&self, connection: ConnectionId, request: &[u8]) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        let (mut sent, mut received) = (0, Vec::new());
        let mut ended = false;
        loop {
            assert!(Instant::now() < deadline, "{sent} sent, {} came back", received.len());
            sent += self.send_some(connection, &request[sent..]);
            if sent == request.len() && !std::mem::replace(&mut ended, true) {
                self.handle.with_stack(move |stack, now| stack.shutdown(connection, Shutdown::Write, now));
            }
            match self.recv(connection) {
                Ok(part) if part.is_empty() => return received,
                Ok(part) => received.extend(part),
                Err(RecvError::WouldBlock | RecvError::NotConnected) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn send_some(&self, connection: ConnectionId, data: &[u8]) -> usize {
        let part = data[..data.len().min(1 << 16)].to_vec();
        if part.is_empty() {
            return 0;
        }
        let send = move |stack: &mut stack::Stack, now| stack.send(connection, &part, now);
        match self.handle.ask_stack(send).unwrap() {
            Ok(count) => count,
            Err(SendError::WouldBlock | SendError::Connecting) => 0,
            Err(error) => panic!("{error:?}"),
        }
    }

    pub fn recv(&self, connection: ConnectionId) -> Result<Vec<u8>, RecvError> {
        let recv = move |stack: &mut stack::Stack, now| {
            let mut part = vec![0; 1 << 16];
            let count = stack.recv(connection, &mut part, now)?;
            part.truncate(count);
            Ok(part)
        };
        self.handle.ask_stack(recv).unwrap()
    }

    /// Tells whether `seen` is true of the stack before patience ends.
    pub fn wait_until(&self, seen: impl Fn(&mut stack::Stack) -> bool + Clone + Send + 'static) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let seen = seen.clone();
            if self.handle.ask_stack(move |stack, _| seen(stack)).unwrap() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().expect("dropped once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the engine panicked");
    }
}

/// The two ends of a wire: the client's and the server's.
pub fn wire(config: &memory::Config) -> (Box<dyn Device>, Box<dyn Device>) {
    let (mut left, mut right) = memory::pair(config);
    (Box::new(left.remove(0)), Box::new(right.remove(0)))
}

/// Octets that tell where they belong.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}
