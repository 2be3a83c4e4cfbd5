//! Queries out of memory, for figures of what comes behind a device.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use clock::Instant;
use device::{Burst, Capabilities, Device, DeviceCounters};
use dns_auth::{Catalog, Counters};
use dns_server::{DnsResponder, Published};
use frame::{Frame, Pool, Region};
use wire::{Endpoints, Envelope, write_udp};

use crate::load::{queries, zone};

const FRAMES: usize = 4096;
const SLOT: u16 = 2048;

/// A device that has as many queries as it has free frames, and lets go of what it is to send.
pub struct Source {
    pool: Pool,
    packets: Arc<[Vec<u8>]>,
    next: usize,
    /// It has no more queries.
    is_dry: Arc<AtomicBool>,
}

/// Ethernet frames with random queries for a zone of `names` names, from as many ports of one client.
pub fn packets(names: usize) -> Arc<[Vec<u8>]> {
    queries(1 << 14, names, true, 5).into_iter().enumerate().map(packet).collect()
}

fn packet((number, query): (usize, Vec<u8>)) -> Vec<u8> {
    let client = std::net::SocketAddr::from(([192, 0, 2, 2], 1024 + number as u16));
    let endpoints = Endpoints::new(client, ([192, 0, 2, 1], 53).into()).expect("two IPv4 addresses");
    let mut frame = vec![0; 512];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), &query).expect("room for a query");
    frame.truncate(len);
    frame
}

/// A responder for those queries.
pub fn responder(names: usize) -> impl Fn() -> DnsResponder + Sync {
    let catalog = Arc::new(Catalog::new([Arc::new(zone(names))], 7));
    let published =
        Published { catalog, settings: Arc::default(), transfers: Arc::default(), guard: None, log: None };
    let published = Arc::new(ArcSwap::from_pointee(published));
    move || DnsResponder::new(&published, Arc::new(Counters::default()))
}

impl Source {
    /// A source of `packets`, over and over until `is_dry` says that there are no more.
    pub fn new(packets: &Arc<[Vec<u8>]>, is_dry: &Arc<AtomicBool>) -> Source {
        let region = Region::anonymous(FRAMES * usize::from(SLOT)).expect("memory for the frames");
        let (packets, is_dry) = (Arc::clone(packets), Arc::clone(is_dry));
        Source { pool: Pool::new(region, SLOT, 0), packets, next: 0, is_dry }
    }
}

impl Device for Source {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, queues: 1, ..Capabilities::default() }
    }

    fn rx_burst(&mut self, burst: &mut Burst, _: Instant) -> usize {
        let before = burst.len();
        if self.is_dry.load(Ordering::Relaxed) {
            return 0;
        }
        while !burst.is_full()
            && let Some(mut frame) = self.pool.alloc()
        {
            frame.copy_from(&self.packets[self.next]);
            self.next = (self.next + 1) % self.packets.len();
            burst.push(frame);
        }
        burst.len() - before
    }

    fn tx_burst(&mut self, burst: &mut Burst, _: Instant) -> usize {
        let sent = burst.len();
        burst.drain(..).for_each(|frame| self.pool.release(frame));
        sent
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    fn wait_fds<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}

    fn prepare_wait(&mut self) -> bool {
        false
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}
