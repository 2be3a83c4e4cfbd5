//! A device whose unclaimed frames go to the kernel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Cache};
use arrayvec::ArrayVec;
use clock::Instant;
use device::{BURST, Burst, Capabilities, Device, DeviceCounters, SuperSegment, Taken};
use frame::Frame;
use steering::{ClaimTable, Verdict};

use crate::TapInterface;

/// While frames arrive, the kernel's are looked for in one of so many bursts.
const KERNEL_EVERY: u32 = 16;
/// Frames of the kernel's that one burst sends.
const KERNEL_FRAMES: usize = 32;

/// Frames by what became of them: written by one [`Steered`], read by anybody.
#[derive(Debug, Default)]
pub struct Counts {
    by_verdict: [AtomicU64; 7],
    kernel_refused: AtomicU64,
    from_kernel: AtomicU64,
    from_kernel_dropped: AtomicU64,
}

/// What [`Counts`] calls each verdict; the place of a name is the verdict's.
const VERDICT_NAMES: [&str; 7] = [
    "redirected",
    "passed_not_ip",
    "passed_fragment_or_options",
    "passed_other_protocol",
    "passed_unclaimed_port",
    "passed_unclaimed_address",
    "dropped_claimed_tcp",
];

impl Counts {
    /// Adds to `sums`, or begins it: name and value of each count, in a stable order. Names are those of the steering program where there are such.
    pub fn add_to(&self, sums: &mut Vec<(&'static str, u64)>) {
        let verdicts = VERDICT_NAMES.into_iter().zip(&self.by_verdict);
        let others = [
            ("dropped_kernel_refused", &self.kernel_refused),
            ("sent_by_kernel", &self.from_kernel),
            ("sent_by_kernel_dropped", &self.from_kernel_dropped),
        ];
        for (name, count) in verdicts.chain(others) {
            let value = count.load(Ordering::Relaxed);
            match sums.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += value,
                None => sums.push((name, value)),
            }
        }
    }
}

fn add(count: &AtomicU64, value: u64) {
    // One writer: a load and a store, without the locked instruction of `fetch_add`.
    count.store(count.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

const fn place(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Claimed => 0,
        Verdict::NotIp => 1,
        Verdict::FragmentOrOptions => 2,
        Verdict::OtherProtocol => 3,
        Verdict::UnclaimedPort => 4,
        Verdict::UnclaimedAddress => 5,
        Verdict::UnreadableTcp => 6,
    }
}

/// A device behind the steering decision: [`Device::rx_burst`] appends what is claimed, and a TAP interface gets the rest. What the kernel sends
/// by that interface leaves by the device.
pub struct Steered<D> {
    device: D,
    claims: Cache<Arc<ArcSwap<ClaimTable>>, Arc<ClaimTable>>,
    tap: Arc<TapInterface>,
    counts: Arc<Counts>,
    /// Bursts since the kernel's frames were looked for.
    since_kernel: u32,
    /// Frames of the kernel's that the device has not taken yet.
    unsent: Burst,
}

impl<D: Device> Steered<D> {
    /// Steers by the table that `claims` holds at the time of each burst.
    pub fn new(
        device: D,
        claims: Arc<ArcSwap<ClaimTable>>,
        tap: Arc<TapInterface>,
        counts: Arc<Counts>,
    ) -> Steered<D> {
        Steered { device, claims: Cache::new(claims), tap, counts, since_kernel: 0, unsent: Burst::new() }
    }

    /// Sorts what has just arrived behind the first `before` frames of `burst`: what is claimed stays.
    fn steer(&mut self, burst: &mut Burst, before: usize) {
        let table = self.claims.load();
        let verdicts: ArrayVec<Verdict, BURST> =
            burst[before..].iter().map(|frame| table.verdict(frame.bytes())).collect();
        let claimed = verdicts.iter().filter(|verdict| **verdict == Verdict::Claimed).count();
        add(&self.counts.by_verdict[place(Verdict::Claimed)], claimed as u64);
        if claimed < verdicts.len() {
            let arrived: Burst = burst.drain(before..).collect();
            for (frame, verdict) in arrived.into_iter().zip(verdicts) {
                match verdict {
                    Verdict::Claimed => burst.push(frame),
                    verdict => self.give_away(frame, verdict),
                }
            }
        }
    }

    /// Counts a frame that is not ours, and gives it to the kernel if it is the kernel's.
    fn give_away(&mut self, frame: Frame, verdict: Verdict) {
        add(&self.counts.by_verdict[place(verdict)], 1);
        if verdict != Verdict::UnreadableTcp && self.tap.deliver(frame.bytes()).is_err() {
            add(&self.counts.kernel_refused, 1);
        }
        self.device.release(frame);
    }

    /// Sends frames of the kernel's by the device; returns how many it took from the kernel.
    fn send_for_kernel(&mut self, now: Instant) -> usize {
        self.since_kernel = 0;
        let mut taken = 0;
        while taken < KERNEL_FRAMES && !self.unsent.is_full() {
            let Some(mut frame) = self.device.alloc() else { break };
            let room = frame.bytes_and_tailroom_mut();
            let room_len = room.len();
            let Ok(Some(len)) = self.tap.take(room) else {
                self.device.release(frame);
                break;
            };
            taken += 1;
            if len == room_len {
                // It may have been longer: the user has raised the interface's MTU beyond our frames.
                add(&self.counts.from_kernel_dropped, 1);
                self.device.release(frame);
                continue;
            }
            frame.set_len(len);
            self.unsent.push(frame);
        }
        if !self.unsent.is_empty() {
            self.device.tx_burst(&mut self.unsent, now);
        }
        add(&self.counts.from_kernel, taken as u64);
        taken
    }
}

impl<D: Device> Device for Steered<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        let before = burst.len();
        let received = self.device.rx_burst(burst, now);
        self.since_kernel += 1;
        let looks_at_kernel = received == 0 || self.since_kernel >= KERNEL_EVERY;
        let sent = if looks_at_kernel { self.send_for_kernel(now) } else { 0 };
        if received > 0 {
            self.steer(burst, before);
        }
        received + sent
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.device.tx_burst(burst, now)
    }

    fn tx_super_segment(&mut self, packet: &mut SuperSegment<'_>, now: Instant) -> Taken {
        self.device.tx_super_segment(packet, now)
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

    fn set_mtu(&mut self, mtu: u16) {
        self.device.set_mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.device.wait_fds(fds);
        // What waits there can only be taken when what was taken before has left.
        if !self.unsent.is_full() {
            fds.push(self.tap.as_fd());
        }
    }

    fn prepare_wait(&mut self) -> bool {
        self.device.prepare_wait()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    fn holds_unsent(&self) -> bool {
        self.device.holds_unsent() || !self.unsent.is_empty()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device::memory::{Config, MemoryDevice, pair};
    use lab::{Lab, Side, require_root_and_xdp};
    use wire::MacAddress;

    use super::*;

    const NOW: Instant = Instant::ZERO;

    /// A device that nothing is claimed of, and the other end of its wire.
    fn unclaimed() -> (Steered<MemoryDevice>, MemoryDevice) {
        let taps = TapInterface::open("steered0", 1, MacAddress([2, 0, 0, 0, 0, 1]), 1500).unwrap();
        let tap = Arc::new(taps.into_iter().next().expect("one queue was asked for"));
        let (mut near, mut far) = pair(&Config::default());
        let claims = Arc::new(ArcSwap::from_pointee(ClaimTable::new(&BTreeSet::new())));
        (Steered::new(near.remove(0), claims, tap, Arc::default()), far.remove(0))
    }

    #[test]
    fn frames_between_the_kernel_and_the_device_are_work() {
        if !require_root_and_xdp() {
            return;
        }
        let lab = Lab::new().unwrap();
        lab.inside(Side::Server, || {
            // So that a new interface says nothing by itself.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let (mut steered, mut peer) = unclaimed();
            lab.ip(Side::Server, "address add 10.9.0.1/24 dev steered0").unwrap();
            lab.ip(Side::Server, "link set steered0 up").unwrap();
            let mut burst = Burst::new();
            assert_eq!(steered.rx_burst(&mut burst, NOW), 0, "there is nothing");
            let mut frame = peer.alloc().unwrap();
            frame.copy_from(&[0xff; 60]);
            peer.tx_burst(&mut Burst::from_iter([frame]), NOW);
            assert_eq!((steered.rx_burst(&mut burst, NOW), burst.len()), (1, 0), "the kernel has it");
            let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
            socket.send_to(b"x", "10.9.0.2:9").unwrap(); // It asks for the neighbour.
            assert_eq!((steered.rx_burst(&mut burst, NOW), burst.len()), (1, 0), "the device has it");
            assert_eq!(peer.rx_burst(&mut burst, NOW), 1);
        });
    }
}
