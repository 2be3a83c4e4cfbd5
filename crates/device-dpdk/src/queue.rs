//! One queue of a port as a [`Device`].

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use clock::{Duration, Instant};
use device::{BURST, Burst, Capabilities, Device, DeviceCounters};
use frame::Frame;

use crate::ffi::{self, Packet};
use crate::port::OpenPort;

/// Ethernet header with two VLAN tags.
const LINK_HEADERS: usize = 22;
/// The shortest and the longest time between two looks at an idle port, which cannot wake anybody.
const NAP: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];
/// An idle port is looked at again after this part of the time that it has been idle.
const NAP_PART: u64 = 8;

/// One queue. No descriptor tells that packets came: the device asks to be polled, the less often the longer none came.
pub(crate) struct DpdkDevice {
    port: Arc<OpenPort>,
    queue: u16,
    /// Tells that the queue is in use.
    _in_use: Arc<()>,
    registered: bool,
    capabilities: Capabilities,
    /// Other pools' frames, sent as copies, to be fetched by their owners.
    foreign: Burst,
    counters: DeviceCounters,
    invalid: u32,
    last_arrival: Instant,
    last_look: Instant,
}

impl DpdkDevice {
    pub(crate) fn new(port: Arc<OpenPort>, queue: u16, in_use: Arc<()>) -> DpdkDevice {
        let capabilities = Capabilities {
            description: describe(&port, queue),
            rx_checksum_verified: false,
            tx_checksum_offload: port.checksums,
            // Behind a virtual port there may be a kernel that leaves checksums to a NIC which is not there.
            partial_checksums: port.name.is_virtual(),
            mtu: port.mtu,
            tso_max: 0,
            queues: 1,
        };
        DpdkDevice {
            port,
            queue,
            _in_use: in_use,
            registered: false,
            capabilities,
            foreign: Burst::new(),
            counters: DeviceCounters::default(),
            invalid: 0,
            last_arrival: Instant::ZERO,
            last_look: Instant::ZERO,
        }
    }

    /// Drops frames that can never be sent, and makes the others ours, by copying if need be. Stops where there is no memory for a copy.
    fn prepare(&mut self, burst: &mut Burst, packets: &mut ArrayVec<Packet, BURST>) {
        let longest = usize::from(self.capabilities.mtu) + LINK_HEADERS;
        let port = Arc::clone(&self.port);
        let pool = port.pool(self.queue);
        while let Some(frame) = burst.get_mut(packets.len()) {
            if frame.is_empty() || frame.len() > longest {
                burst.pop_at(packets.len()).into_iter().for_each(|frame| self.retire(frame));
                self.counters.tx_dropped += 1;
                continue;
            }
            if frame.pool() != pool.id() {
                if self.foreign.is_full() {
                    break;
                }
                let Some(copy) = copied(pool, frame) else { break };
                self.foreign.push(std::mem::replace(frame, copy));
            }
            packets.push(pool.describe(frame));
        }
    }

    fn retire(&mut self, frame: Frame) {
        if frame.pool() == self.port.pool(self.queue).id() {
            self.port.pool(self.queue).release(frame);
        } else {
            // With the list full the slot is lost to its pool: its owner had BURST frames to fetch here and did not.
            let _ = self.foreign.try_push(frame);
        }
    }

    /// Gives this thread caches in DPDK's pools, which are slow without.
    fn register_thread(&mut self) {
        if !std::mem::replace(&mut self.registered, true) {
            // SAFETY: no arguments. An error means that DPDK has as many threads as it can know; this one goes without caches.
            unsafe { ffi::shim_thread_register() };
        }
    }
}

fn copied(pool: &crate::pool::MbufPool, frame: &Frame) -> Option<Frame> {
    let mut copy = pool.alloc()?;
    if frame.len() > copy.tailroom() {
        pool.release(copy);
        return None;
    }
    copy.copy_from(frame.bytes());
    Some(copy)
}

impl Device for DpdkDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.register_thread();
        let pool = self.port.pool(self.queue);
        let mut packets = [Packet::default(); BURST];
        let room = burst.remaining_capacity() as u16; // At most BURST.
        // SAFETY: the pool is the queue's; `packets` has room for `room` packets, as BURST is at least that.
        let received = unsafe {
            ffi::shim_rx_burst(
                self.port.number,
                self.queue,
                pool.raw(),
                packets.as_mut_ptr(),
                room,
                &mut self.invalid,
            )
        };
        let before = burst.len();
        for packet in &packets[..usize::from(received)] {
            // SAFETY: each packet was handed out just now, and is used once.
            if let Some(frame) = unsafe { pool.frame(*packet) } {
                burst.push(frame);
            }
        }
        self.last_look = now;
        if received > 0 {
            self.last_arrival = now;
        }
        let received = burst.len() - before;
        self.counters.rx_frames += received as u64;
        received
    }

    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        self.register_thread();
        let before = burst.len();
        let mut packets = ArrayVec::new();
        self.prepare(burst, &mut packets);
        let pool = self.port.pool(self.queue);
        // SAFETY: the packets lie in the pool's slots, whose frames are in `burst`, which nobody touches meanwhile.
        let sent = unsafe {
            ffi::shim_tx_burst(
                self.port.number,
                self.queue,
                pool.raw(),
                packets.as_ptr(),
                packets.len() as u16,
                self.capabilities.tx_checksum_offload.into(),
            )
        };
        burst.drain(..usize::from(sent)).for_each(|frame| pool.forget(frame));
        self.counters.tx_frames += u64::from(sent);
        before - burst.len()
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.register_thread();
        self.port.pool(self.queue).alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.retire(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.foreign.pop()
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.capabilities.mtu = mtu.min(self.port.mtu);
    }

    /// None: see [`Device::poll_timeout`] below.
    fn wait_fds<'a>(&'a self, _fds: &mut Vec<BorrowedFd<'a>>) {}

    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let idle = self.last_look.since(self.last_arrival);
        let [shortest, longest] = NAP;
        let nap = Duration::from_nanos(idle.as_nanos() / NAP_PART);
        Some(self.last_look + nap.clamp(shortest, longest))
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = self.counters;
        counters.rx_dropped_invalid += u64::from(self.invalid);
        if self.queue == 0 {
            // The port's, which do not tell queues apart.
            let port = self.port.counts();
            counters.rx_dropped_full += port.missed + port.no_mbuf;
            counters.rx_dropped_invalid += port.errors;
        }
        counters
    }
}

fn describe(port: &OpenPort, queue: u16) -> String {
    format!("{} queue {queue}, DPDK {}", port.name.device(), port.driver)
}
