//! The wire between a kernel's client and a server that is our stack first and then the kernel's.
//!
//! It runs in the box in the middle of the laboratory, so that the server's kernel sees no packet before it has the socket.
#![allow(unreachable_pub, missing_docs)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ::wire::MacAddress;
use clock::Instant;
use device::{Burst, Device};
use device_kernel::PacketSocket;
use lab::{BOX_INTERFACES, Lab, Side};
use stack::{Arrival, Config, ConnectionId, Established, LinkHeader, ListenerId, Stack, TcpOptions};

/// Who has the server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Our stack, in the box.
    Ours,
    /// Nobody: packets are lost.
    Nobody,
    /// The kernel in the server's namespace.
    Kernel,
}

/// Everything that is in the box.
pub struct Middle {
    to_server: PacketSocket,
    to_client: PacketSocket,
    pub stack: Stack,
    pub server: Server,
    /// Every so-manieth frame to or from the server is lost.
    pub lose_each: Option<u32>,
    /// All that the stack sends is lost.
    pub lose_to_client: bool,
    frames: u32,
    started: std::time::Instant,
    /// Frames that the server's kernel sent while it had nothing to say.
    pub spoken_too_early: u32,
}

/// The box at work on a thread of its own.
pub struct Wire {
    middle: Arc<Mutex<Middle>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    pub fn lay(lab: &Lab, config: Config) -> Wire {
        let [to_server, to_client] =
            BOX_INTERFACES.map(|name| lab.inside(Side::Box, || PacketSocket::open(name, 1024).unwrap()));
        let stack = Stack::new(config, [7; 32], Instant::from_nanos(1));
        let middle = Arc::new(Mutex::new(Middle {
            to_server,
            to_client,
            stack,
            server: Server::Ours,
            lose_each: None,
            lose_to_client: false,
            frames: 0,
            started: std::time::Instant::now(),
            spoken_too_early: 0,
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (middle, stop) = (Arc::clone(&middle), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    if !lock(&middle).turn() {
                        thread::sleep(Duration::from_micros(100));
                    }
                }
            }
        });
        Wire { middle, stop, thread: Some(thread) }
    }

    pub fn middle(&self) -> MutexGuard<'_, Middle> {
        lock(&self.middle)
    }

    /// Tries `act` until it says something.
    pub fn until<T>(&self, what: &str, mut act: impl FnMut(&mut Middle) -> Option<T>) -> T {
        for _ in 0..60_000 {
            if let Some(done) = act(&mut self.middle()) {
                return done;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{what}: not within a minute");
    }
}

fn lock(middle: &Mutex<Middle>) -> MutexGuard<'_, Middle> {
    middle.lock().expect("who holds it does not panic")
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Middle {
    pub fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000 + self.started.elapsed().as_nanos() as u64)
    }

    pub fn listen(&mut self, local: SocketAddr) -> ListenerId {
        self.stack.tcp_listen(local, false, 16, Arc::new(TcpOptions::default())).unwrap()
    }

    /// The stack's connection as a value; from now on its packets go nowhere.
    pub fn detach(&mut self, id: ConnectionId) -> Established {
        self.server = Server::Nobody;
        let now = self.now();
        self.stack.detach(id, now).unwrap().connection
    }

    /// Passes on what there is; whether there was anything.
    fn turn(&mut self) -> bool {
        let now = self.now();
        let from_client = receive(&mut self.to_client, now);
        let from_server = receive(&mut self.to_server, now);
        let any = !from_client.is_empty() || !from_server.is_empty();
        for frame in from_client {
            let is_lost = self.is_lost();
            match self.server {
                Server::Ours if !is_lost => self.deliver(&frame, now),
                Server::Kernel if !is_lost => send(&mut self.to_server, &frame, now),
                _ => {}
            }
        }
        for frame in from_server {
            let (is_tcp, is_lost) = (is_tcp(&frame), self.is_lost());
            match self.server {
                Server::Kernel if !is_lost => send(&mut self.to_client, &frame, now),
                Server::Kernel => {}
                _ => self.spoken_too_early += u32::from(is_tcp),
            }
        }
        self.stack.on_timeout(now);
        self.transmit(now) || any
    }

    fn is_lost(&mut self) -> bool {
        self.frames += 1;
        self.lose_each.is_some_and(|each| self.frames.is_multiple_of(each))
    }

    fn deliver(&mut self, frame: &[u8], now: Instant) {
        let Some((destination, source)) = frame.first_chunk::<12>().map(|ends| (&ends[..6], &ends[6..]))
        else {
            return;
        };
        let address = |octets: &[u8]| MacAddress(octets.try_into().expect("there are six"));
        let (destination, source) = (address(destination), address(source));
        let header = LinkHeader { destination, source, ..LinkHeader::default() };
        // What is not for the stack, such as neighbour discovery, nobody answers: neighbours are permanent here.
        let _ = self.stack.on_packet(&frame[14..], &Arrival { header, ..Arrival::default() }, now);
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let mut room = [0; 1600];
        let mut any = false;
        while let Some(transmit) = self.stack.poll_transmit(now, &mut room[14..1514]) {
            any = true;
            let header = transmit.hop.header;
            room[..6].copy_from_slice(&header.destination.0);
            room[6..12].copy_from_slice(&header.source.0);
            let ether_type: u16 = if room[14] >> 4 == 4 { 0x0800 } else { 0x86dd };
            room[12..14].copy_from_slice(&ether_type.to_be_bytes());
            if self.server == Server::Ours && !self.lose_to_client && !self.is_lost() {
                send(&mut self.to_client, &room[..14 + transmit.len], now);
            }
        }
        any
    }
}

fn is_tcp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&6),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&6),
        _ => false,
    }
}

fn receive(socket: &mut PacketSocket, now: Instant) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    socket.rx_burst(&mut burst, now);
    let take = |frame: frame::Frame| {
        let octets = frame.bytes().to_vec();
        socket.release(frame);
        octets
    };
    burst.into_iter().map(take).collect()
}

fn send(socket: &mut PacketSocket, octets: &[u8], now: Instant) {
    let Some(mut frame) = socket.alloc() else {
        return; // As a wire that is full.
    };
    frame.bytes_and_tailroom_mut()[..octets.len()].copy_from_slice(octets);
    frame.set_len(octets.len());
    let mut burst = Burst::new();
    burst.push(frame);
    socket.tx_burst(&mut burst, now);
    burst.into_iter().for_each(|frame| socket.release(frame));
}
