//! A client and a server over a wire in memory, a control socket, and what tools do with it.
#![allow(dead_code, unreachable_pub)] // Each test takes what it needs.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::memory::{self, MemoryDevice};
use device::pcap::PcapRecord;
use device::{Burst, Device};
use engine::{Application, Config, DeviceId, Echo, Engine, EngineHandle, TcpServer};
use observe::client::{Answer, ClientError, Connection, Wanted, connect};
use observe::protocol::{Message, Reply, Request};
use observe::report::{EngineReport, SocketReport};
use observe::{ControlSocket, Program, serve_at};
use stack::{Connect, ConnectionId, Hop, LinkId, Stack};

pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);
pub const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 40_000);
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Does nothing by itself: the test uses the stack.
struct Idle;

impl Application for Idle {
    fn on_start(&mut self, _: &mut Stack, _: clock::Instant) {}

    fn on_event(&mut self, _: stack::Event, _: &mut Stack, _: clock::Instant) {}
}

/// An engine on a thread.
pub struct Host {
    pub handle: EngineHandle,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    pub fn start(application: impl Application + 'static, device: impl Device + 'static) -> Host {
        let (config, stack) = (Config::default(), stack::Config::default());
        let (engine, handle) = Engine::with_stack(config, Echo, stack, application).unwrap();
        handle.add_link(DeviceId(3), LinkId(0), Box::new(device));
        let run = move || {
            engine.run();
        };
        Host { handle, thread: Some(std::thread::spawn(run)) }
    }

    pub fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Stack, clock::Instant) -> T + Send + 'static,
    ) -> T {
        self.handle.ask_stack(ask).unwrap()
    }

    /// Connects from `port` and waits until the connection is open.
    pub fn connect(&self, port: u16) -> ConnectionId {
        let local = SocketAddr::new(CLIENT.ip(), port);
        let id = self.ask(move |stack, now| {
            let (hop, options) = (Hop::default(), Default::default());
            stack
                .tcp_connect(
                    &Connect { local, remote: SERVER, is_bound: false, hop, options, data: b"" },
                    now,
                )
                .unwrap()
        });
        self.wait_for(move |stack| stack.readiness(id).is_some_and(|ready| ready.writable));
        id
    }

    /// Sends `data` and waits until as much came back.
    #[track_caller]
    pub fn exchange(&self, id: ConnectionId, data: &'static [u8]) {
        self.ask(move |stack, now| stack.send(id, data, now).unwrap());
        self.wait_for(move |stack| stack.queued(id).is_some_and(|(unread, _)| unread >= data.len()));
    }

    #[track_caller]
    pub fn wait_for(&self, seen: impl Fn(&Stack) -> bool + Clone + Send + 'static) {
        eventually(|| {
            let seen = seen.clone();
            self.ask(move |stack, _| seen(stack))
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().expect("dropped once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the engine panicked");
    }
}

/// Waits until `seen` is true.
#[track_caller]
pub fn eventually(mut seen: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A file in memory that a device writes and a test reads.
#[derive(Clone, Default)]
pub struct File(pub Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server that echoes by TCP and UDP, what its device saw, a client, and the server's control socket.
pub struct World {
    // Dropped in this order.
    pub control: Option<ControlSocket>,
    pub server: Option<Host>,
    pub client: Option<Host>,
    pub seen: File,
    /// The other end of the wire, if there is no client on it.
    pub wire: Option<MemoryDevice>,
    pub directory: lab::Directory,
}

impl World {
    /// With a client.
    pub fn new() -> World {
        let mut world = World::with_bare_wire();
        let wire = world.wire.take().unwrap();
        world.client = Some(Host::start(Idle, wire));
        world
    }

    /// With the other end of the wire instead.
    pub fn with_bare_wire() -> World {
        let (mut left, mut right) = memory::pair(&memory::Config::default());
        let seen = File::default();
        let recorded = PcapRecord::new(right.remove(0), seen.clone(), clock::Duration::ZERO);
        let server = Host::start(TcpServer::new(Echo).listen(SERVER), recorded);
        let directory = lab::Directory::new().unwrap();
        let program = Program::new("test", vec![server.handle.clone()]).telling(Counting);
        let control = serve_at(&directory.path().join("1.sock"), program).unwrap();
        World {
            control: Some(control),
            server: Some(server),
            client: None,
            seen,
            wire: Some(left.remove(0)),
            directory,
        }
    }

    pub fn server(&self) -> &Host {
        self.server.as_ref().unwrap()
    }

    pub fn client(&self) -> &Host {
        self.client.as_ref().unwrap()
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("1.sock")
    }

    pub fn connection(&self) -> Connection {
        connect(&Wanted::At(self.path())).unwrap().remove(0)
    }

    pub fn ask(&self, request: &Request) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        let (answering, answer) = loop {
            match self.connection().ask(request) {
                // Those before may not be gone yet.
                Err(error) if error.to_string().contains("are looking already") => {
                    assert!(Instant::now() < deadline, "{error}");
                    std::thread::sleep(Duration::from_millis(5));
                }
                outcome => break outcome.unwrap(),
            }
        };
        assert_eq!((answering.pid, answering.name.as_str()), (std::process::id(), "test"));
        answer
    }

    pub fn replies(&self, request: &Request) -> Result<Vec<Reply>, ClientError> {
        let mut answer = self.ask(request);
        let mut replies = Vec::new();
        while let Some(message) = answer.next_message()? {
            match message {
                Message::Reply(reply) => replies.push(reply),
                Message::Packet(..) => panic!("a packet"),
            }
        }
        Ok(replies)
    }

    pub fn sockets(&self, filter: &str) -> (Vec<SocketReport>, EngineReport) {
        let request = Request::Sockets { filter: filter.to_owned(), listening: false };
        let (mut sockets, mut engines) = (Vec::new(), Vec::new());
        for reply in self.replies(&request).unwrap() {
            match reply {
                Reply::Sockets(piece) => sockets.extend(piece),
                Reply::Engine(engine) => engines.push(engine),
                other => panic!("{other:?}"),
            }
        }
        (sockets, engines.remove(0))
    }

    /// Sends a datagram to the server's echo and waits for it.
    pub fn ping(&mut self, payload: &[u8]) {
        let endpoints = wire::Endpoints::new(CLIENT, SERVER).unwrap();
        let device = self.wire.as_mut().unwrap();
        let mut frame = device.alloc().unwrap();
        let room = frame.bytes_and_tailroom_mut();
        let len = wire::write_udp(room, &wire::Envelope::untagged(endpoints), payload).unwrap();
        frame.set_len(len);
        device.tx_burst(&mut Burst::from_iter([frame]), clock::Instant::ZERO);
        let mut received = Burst::new();
        eventually(|| device.rx_burst(&mut received, clock::Instant::ZERO) > 0);
        device.release(received.pop().unwrap());
    }
}

/// A capture that has begun.
pub fn capture(world: &World, filter: &str, snaplen: u32) -> Answer {
    let mut answer = world.ask(&Request::Capture { filter: filter.to_owned(), snaplen });
    let first = answer.next_message().unwrap();
    assert!(matches!(first, Some(Message::Reply(Reply::Interface(_)))), "{first:?}");
    // The engine has the tap by the time that it answers.
    world.server().ask(|_, _| ());
    answer
}

/// What the program itself counts.
struct Counting;

impl observe::Subject for Counting {
    fn counters(&self) -> Vec<observe::report::Count> {
        vec![("own_count".to_owned(), 7)]
    }
}
