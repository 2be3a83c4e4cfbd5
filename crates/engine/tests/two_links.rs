//! One engine with two interfaces, whose MTU and frames differ.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clock::{Duration, Instant};
use device::{Burst, Capabilities, Device, DeviceCounters, memory};
use engine::{Application, Config, DeviceId, Echo, Engine, EngineHandle, TcpServer};
use frame::Frame;
use stack::tcp::Shutdown;
use stack::{Connect, ConnectionId, Hop, LinkId, Stack};

const NARROW: LinkId = LinkId(0);
const WIDE: LinkId = LinkId(1);

/// Does nothing by itself: the test uses the stack.
struct Idle;

impl Application for Idle {
    fn on_start(&mut self, _: &mut Stack, _: Instant) {}

    fn on_event(&mut self, _: stack::Event, _: &mut Stack, _: Instant) {}
}

/// A device that counts frames of other pools among those that it is given to send.
struct Watched {
    device: memory::MemoryDevice,
    foreign: Arc<AtomicU64>,
    /// It takes nothing to send.
    stuck: Arc<AtomicBool>,
}

impl Device for Watched {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.device.rx_burst(burst, now)
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        if self.stuck.load(Ordering::Relaxed) {
            return 0;
        }
        let own = self.device.alloc().expect("frames are plenty");
        let foreign = burst.iter().filter(|frame| frame.pool() != own.pool()).count();
        self.device.release(own);
        self.foreign.fetch_add(foreign as u64, Ordering::Relaxed);
        self.device.tx_burst(burst, now)
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.device.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.device.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.device.take_foreign()
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.device.wait_fds(fds);
    }

    fn prepare_wait(&mut self) -> bool {
        self.device.prepare_wait()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

/// A server with two links, and a client at the other end of each, all driven by the test.
struct Hosts {
    server: Engine<Echo, TcpServer<Echo>>,
    clients: [Engine<Echo, Idle>; 2],
    foreign: Arc<AtomicU64>,
    stuck: [Arc<AtomicBool>; 2],
    now: Instant,
    _handles: Vec<EngineHandle>,
}

impl Hosts {
    /// Wires of 1500 and of 3500 octets, with frames that fit them.
    fn new() -> Hosts {
        let server = TcpServer::new(Echo).listen("0.0.0.0:7".parse().unwrap());
        let (mut server, handle) =
            Engine::driven(Config::default(), Echo, stack::Config::default(), server).unwrap();
        let mut handles = vec![handle];
        let foreign = Arc::new(AtomicU64::new(0));
        let stuck = <[Arc<AtomicBool>; 2]>::default();
        let clients = [(NARROW, 1500, 2048), (WIDE, 3500, 4096)].map(|(link, mtu, slot_size)| {
            let wire = memory::Config { mtu, slot_size, ..memory::Config::default() };
            let (mut left, mut right) = memory::pair(&wire);
            let stuck = Arc::clone(&stuck[usize::from(link.0)]);
            let device = Watched { device: right.remove(0), foreign: Arc::clone(&foreign), stuck };
            server.add_link(DeviceId(link.0.into()), link, Box::new(device), Instant::ZERO);
            let (mut client, handle) =
                Engine::driven(Config::default(), Echo, stack::Config::default(), Idle).unwrap();
            client.add_link(DeviceId(0), LinkId(0), Box::new(left.remove(0)), Instant::ZERO);
            handles.push(handle);
            client
        });
        Hosts { server, clients, foreign, stuck, now: Instant::ZERO, _handles: handles }
    }

    fn turn(&mut self) {
        self.now += Duration::from_micros(50);
        self.server.poll(self.now);
        self.clients.iter_mut().for_each(|client| {
            client.poll(self.now);
        });
    }

    fn connect(&mut self, link: LinkId) -> ConnectionId {
        self.connect_from(link, 40_000)
    }

    fn connect_from(&mut self, link: LinkId, port: u16) -> ConnectionId {
        let (local, remote) = (format!("192.0.{}.2:{port}", link.0), format!("192.0.{}.1:7", link.0));
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        let connect = Connect {
            local,
            remote,
            is_bound: false,
            hop: Hop::default(),
            options: Default::default(),
            data: b"",
        };
        self.clients[usize::from(link.0)].stack().tcp_connect(&connect, self.now).unwrap()
    }

    /// Sends `len` octets by both links at the same time, and ends the streams; returns how many come back by each.
    fn exchange(&mut self, connections: [ConnectionId; 2], len: usize) -> [usize; 2] {
        const TURNS: usize = 20_000;
        let (data, mut sent, mut received) = (vec![7; len], [0; 2], [0; 2]);
        for _ in 0..TURNS {
            self.turn();
            for at in 0..2 {
                let (stack, connection) = (self.clients[at].stack(), connections[at]);
                if sent[at] < len {
                    sent[at] += stack.send(connection, &data[sent[at]..], self.now).unwrap_or(0);
                    if sent[at] == len {
                        stack.shutdown(connection, Shutdown::Write, self.now);
                    }
                }
                let mut part = [0; 8192];
                received[at] += stack.recv(connection, &mut part, self.now).unwrap_or(0);
            }
        }
        received
    }
}

#[test]
fn connections_by_links_of_different_mtu_go_on_together() {
    let mut hosts = Hosts::new();
    let connections = [hosts.connect(NARROW), hosts.connect(WIDE)];
    assert_eq!(hosts.exchange(connections, 1 << 20), [1 << 20; 2]);
    let retransmitted = hosts.server.stack().counters().retrans_segs;
    assert_eq!(retransmitted, 0, "nothing was lost on the way");
}

#[test]
fn a_packet_leaves_in_a_frame_of_the_device_that_sends_it() {
    let mut hosts = Hosts::new();
    let connections = [hosts.connect(NARROW), hosts.connect(WIDE)];
    hosts.exchange(connections, 1 << 16);
    assert_eq!(hosts.foreign.load(Ordering::Relaxed), 0, "frames of one device were given to the other");
}

#[test]
fn what_leaves_by_a_link_that_has_gone_is_lost_and_the_other_link_goes_on() {
    let mut hosts = Hosts::new();
    let connections = [hosts.connect(NARROW), hosts.connect(WIDE)];
    for _ in 0..10 {
        hosts.turn();
    }
    hosts.server.remove_device(DeviceId(WIDE.0.into()));
    assert_eq!(hosts.exchange(connections, 1 << 16), [1 << 16, 0]);
}

#[test]
fn an_interface_that_takes_nothing_holds_up_no_other() {
    // As many connections as it takes to fill what the engine queues for an interface, each with its initial window.
    const STUCK: u16 = 20;
    for stuck in [NARROW, WIDE] {
        let (place, other) = (usize::from(stuck.0), usize::from(1 - stuck.0));
        let mut hosts = Hosts::new();
        let connections = [hosts.connect(NARROW), hosts.connect(WIDE)];
        let more: Vec<_> = (1..STUCK).map(|n| hosts.connect_from(stuck, 40_000 + n)).collect();
        (0..100).for_each(|_| hosts.turn());
        hosts.stuck[place].store(true, Ordering::Relaxed);
        for id in more {
            let now = hosts.now;
            hosts.clients[place].stack().send(id, &[7; 20_000], now).unwrap();
        }
        let received = hosts.exchange(connections, 1 << 20);
        assert_eq!(received[other], 1 << 20, "by link {other}");
        hosts.stuck[place].store(false, Ordering::Relaxed);
        assert!(hosts.exchange(connections, 0)[place] > 0, "what waited goes on");
    }
}
