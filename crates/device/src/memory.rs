//! A wire in memory: two ends with queues, joined by rings.
//!
//! ```text
//!   left queue 0  ==ring==>  right queue 0       every queue of one end to every queue of the other, both ways
//!                 ==ring==>  right queue 1
//!   any queue     --home-->  any other queue     for frames that were released away from their pool
//! ```
//!
//! Frames travel themselves, nothing is copied: the other end answers in the frame that brought the question, and the
//! frame returns to its own pool when somebody releases it. Every queue may be on a thread of its own; rings have one
//! producer and one consumer.

use std::net::SocketAddr;

use clock::Instant;
use frame::{Frame, Pool, PoolId, Region};
use rtrb::chunks::ChunkError;
use rtrb::{Consumer, Producer, RingBuffer};
use steering::rss::{IndirectionTable, MICROSOFT_KEY, TABLE_LEN, Toeplitz};
use wire::ethernet::Ethernet;
use wire::ip::Ip;
use wire::protocol;

use crate::{Burst, Capabilities, Device, DeviceCounters};

/// How a pair is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Queues of the left and of the right end; at least one each.
    pub queues: [u16; 2],
    /// Frames of each queue's pool.
    pub frames: usize,
    /// Octets of one frame, headroom included.
    pub slot_size: u16,
    /// Octets in front of a fresh packet.
    pub headroom: u16,
    /// Frames that one ring from queue to queue holds: a sender that is ahead by more waits.
    pub ring: usize,
    /// Largest IP packet.
    pub mtu: u16,
    /// Checksums are neither looked at nor filled in, as between virtual machines.
    pub checksum_offload: bool,
}

impl Default for Config {
    /// One queue each, 1024 frames of 2048 octets, rings of 512, checksums in earnest.
    fn default() -> Config {
        Config {
            queues: [1, 1],
            frames: 1024,
            slot_size: 2048,
            headroom: 0,
            ring: 512,
            mtu: 1500,
            checksum_offload: false,
        }
    }
}

/// Makes the two ends; each device is one queue.
///
/// # Panics
/// If an end has no queue or more than 128, or the frames' memory cannot be had.
pub fn pair(config: &Config) -> (Vec<MemoryDevice>, Vec<MemoryDevice>) {
    let [left_count, right_count] = config.queues;
    let queue_count = |end: usize| usize::from(config.queues[end]);
    assert!((1..=TABLE_LEN).contains(&queue_count(0)) && (1..=TABLE_LEN).contains(&queue_count(1)));
    let mut left: Vec<_> = (0..left_count).map(|queue| MemoryDevice::new(config, queue, 0)).collect();
    let mut right: Vec<_> = (0..right_count).map(|queue| MemoryDevice::new(config, queue, 1)).collect();
    for from in &mut left {
        for to in &mut right {
            join(from, to, config.ring);
            join(to, from, config.ring);
        }
    }
    let mut all: Vec<&mut MemoryDevice> = left.iter_mut().chain(&mut right).collect();
    for at in 1..all.len() {
        let (before, rest) = all.split_at_mut(at);
        for other in before {
            lead_home(rest[0], other);
            lead_home(other, rest[0]);
        }
    }
    (left, right)
}

/// One queue of one end.
///
/// It has no descriptor to sleep on: it must be polled. [`Device::prepare_wait`] returns whether frames are waiting.
#[derive(Debug)]
pub struct MemoryDevice {
    pool: Pool,
    queue: u16,
    /// To each queue of the other end, in order.
    outgoing: Vec<Producer<Frame>>,
    /// From each queue of the other end; `next_incoming` is served first in the next turn.
    incoming: Vec<Consumer<Frame>>,
    next_incoming: usize,
    /// To every other queue of the pair, for frames of its pool. As long as that pool, so never full.
    homes: Vec<(PoolId, Producer<Frame>)>,
    /// Our own frames coming home.
    returned: Vec<Consumer<Frame>>,
    /// Frames from outside the pair that were sent as copies.
    foreign: Burst,
    toeplitz: Toeplitz,
    table: IndirectionTable,
    capabilities: Capabilities,
    counters: DeviceCounters,
}

impl MemoryDevice {
    fn new(config: &Config, queue: u16, end: usize) -> MemoryDevice {
        let octets = config.frames * usize::from(config.slot_size);
        let region = Region::anonymous(octets).expect("memory for the frames");
        let queues = config.queues[end];
        MemoryDevice {
            pool: Pool::new(region, config.slot_size, config.headroom),
            queue,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            next_incoming: 0,
            homes: Vec::new(),
            returned: Vec::new(),
            foreign: Burst::new(),
            toeplitz: Toeplitz::new(&MICROSOFT_KEY),
            table: IndirectionTable::even(config.queues[1 - end]),
            capabilities: Capabilities {
                description: format!("memory pair, queue {queue} of {queues}"),
                rx_checksum_verified: config.checksum_offload,
                tx_checksum_offload: config.checksum_offload,
                partial_checksums: false,
                mtu: config.mtu,
                tso_max: 0,
                queues,
            },
            counters: DeviceCounters::default(),
        }
    }

    /// Frames that [`Device::alloc`] could hand out now: all of them while no frame is in flight or held.
    pub fn available(&mut self) -> usize {
        self.collect_returned();
        self.pool.available()
    }

    /// The other end's queue that `packet` arrives on: by the hash of addresses and ports, or queue 0 for packets other than UDP and TCP.
    fn receive_queue(&self, packet: &[u8]) -> usize {
        if self.outgoing.len() == 1 {
            return 0;
        }
        ends_of(packet).map_or(0, |(source, destination)| {
            usize::from(self.table.queue(self.toeplitz.hash_ports(source, destination)))
        })
    }

    fn is_of_pair(&self, frame: &Frame) -> bool {
        frame.pool() == self.pool.id() || self.homes.iter().any(|(home, _)| *home == frame.pool())
    }

    /// Makes the first frame one of the pair's, by copying it if need be; false if there is no room for a copy.
    fn naturalise_first(&mut self, burst: &mut Burst) -> bool {
        if self.is_of_pair(&burst[0]) {
            return true;
        }
        if self.foreign.is_full() {
            return false;
        }
        let Some(mut copy) = self.alloc() else {
            return false;
        };
        if burst[0].len() > copy.tailroom() {
            self.release(copy);
            return false;
        }
        copy.copy_from(burst[0].bytes());
        self.foreign.push(std::mem::replace(&mut burst[0], copy));
        true
    }

    /// Sends as many frames from the front as are of the pair's pools and have room in the only ring.
    fn send_to_only_queue(&mut self, burst: &mut Burst) {
        let ours = burst.iter().take_while(|frame| self.is_of_pair(frame)).count();
        let [ring] = &mut self.outgoing[..] else { unreachable!("called with one queue at the other end") };
        let chunk = match ring.write_chunk_uninit(ours) {
            Err(ChunkError::TooFewSlots(room)) => ring.write_chunk_uninit(room),
            chunk => chunk,
        };
        if let Ok(chunk) = chunk {
            let room = chunk.len();
            chunk.fill_from_iter(burst.drain(..room));
        }
    }

    fn send_first_by_hash(&mut self, burst: &mut Burst) {
        let queue = self.receive_queue(burst[0].bytes());
        let ring = &mut self.outgoing[queue];
        if !ring.is_full()
            && let Some(frame) = burst.pop_at(0)
        {
            ring.push(frame).expect("only we fill it");
        }
    }

    fn collect_returned(&mut self) {
        for ring in &mut self.returned {
            let waiting = ring.slots();
            if let Ok(frames) = ring.read_chunk(waiting) {
                frames.into_iter().for_each(|frame| self.pool.release(frame));
            }
        }
    }
}

impl Device for MemoryDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn rx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let before = burst.len();
        let rings = self.incoming.len();
        for turn in 0..rings {
            let ring = &mut self.incoming[(self.next_incoming + turn) % rings];
            let count = ring.slots().min(burst.remaining_capacity());
            if let Ok(frames) = ring.read_chunk(count) {
                burst.extend(frames);
            }
        }
        self.next_incoming = (self.next_incoming + 1) % rings;
        for frame in &mut burst[before..] {
            frame.queue = self.queue;
        }
        let received = burst.len() - before;
        self.counters.rx_frames += received as u64;
        received
    }

    /// A frame from outside the pair is copied; the original waits in [`Device::take_foreign`].
    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let before = burst.len();
        loop {
            let left = burst.len();
            if left == 0 || !self.naturalise_first(burst) {
                break;
            }
            match self.outgoing.len() {
                1 => self.send_to_only_queue(burst),
                _ => self.send_first_by_hash(burst),
            }
            if burst.len() == left {
                break;
            }
        }
        let sent = before - burst.len();
        self.counters.tx_frames += sent as u64;
        sent
    }

    fn alloc(&mut self) -> Option<Frame> {
        if self.pool.available() == 0 {
            self.collect_returned();
        }
        self.pool.alloc()
    }

    /// # Panics
    /// If the frame is of a pool outside the pair.
    fn release(&mut self, frame: Frame) {
        if frame.pool() == self.pool.id() {
            return self.pool.release(frame);
        }
        let home = self.homes.iter_mut().find(|(home, _)| *home == frame.pool());
        let (_, ring) = home.expect("a frame returns to the pair that it came from");
        if ring.push(frame).is_err() {
            unreachable!("the way home has room for every frame of its pool");
        }
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.foreign.pop()
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.capabilities.mtu = mtu;
    }

    /// None: the device must be polled.
    fn wait_fds<'a>(&'a self, _fds: &mut Vec<std::os::fd::BorrowedFd<'a>>) {}

    /// Tells whether frames are waiting; nothing wakes a sleeper when one arrives later.
    fn prepare_wait(&mut self) -> bool {
        self.incoming.iter().all(Consumer::is_empty)
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

fn join(from: &mut MemoryDevice, to: &mut MemoryDevice, capacity: usize) {
    let (producer, consumer) = RingBuffer::new(capacity);
    from.outgoing.push(producer);
    to.incoming.push(consumer);
}

/// Gives `from` a way to return frames to `home`.
fn lead_home(from: &mut MemoryDevice, home: &mut MemoryDevice) {
    let (producer, consumer) = RingBuffer::new(home.pool.slots());
    from.homes.push((home.pool.id(), producer));
    home.returned.push(consumer);
}
/// Source and destination of UDP or TCP.
fn ends_of(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let ethernet = Ethernet::parse(frame).ok()?;
    let ip = Ip::in_frame(&ethernet).ok()?;
    let has_ports = matches!(ip.protocol(), protocol::UDP | protocol::TCP) && !ip.is_fragment();
    let &[a, b, c, d] = ip.payload().first_chunk().filter(|_| has_ports)?;
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some((SocketAddr::new(ip.source(), source), SocketAddr::new(ip.destination(), destination)))
}
