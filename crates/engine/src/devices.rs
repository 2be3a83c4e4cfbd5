//! The devices of an engine, and how the stack's packets find theirs.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use clock::{Duration, Instant};
use device::{BURST, Device, DeviceCounters, SuperSegment};
use frame::Frame;
use stack::buffer::CHUNK_LEN;
use stack::{Link, LinkId, Payload, Rooms, Stack, Transmit};

use crate::burst::AttachedDevice;
use crate::counters::{DeviceReports, EngineCounters};
use crate::gathering::Gathering;
use crate::handle::DeviceId;
use crate::link_layer::{self, HEADROOM};
use crate::responder::UdpResponder;
use crate::tap::Taps;
use crate::{Clock, Role, Sampling, Sleep};

/// Segments that the stack sends in one turn; then it is the turn of those that arrived.
const TRANSMIT_MAX: usize = 4 * BURST;
/// Pieces of the longest payload: it need not begin with a chunk.
const PIECES_MAX: usize = u16::MAX as usize / CHUNK_LEN + 2;
/// Sleep while frames wait for space in a transmit ring: no descriptor reports when there is some.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The time of one answer in so many is taken.
const SAMPLED: u32 = 1024;

/// All devices of an engine.
pub(crate) struct Devices {
    devices: Vec<AttachedDevice>,
    /// The device that the stack sent by last, and will most likely send by next.
    latest: usize,
    /// The frame that the stack writes its next packet into, and the device that it is of.
    taken: Option<(usize, Frame)>,
    nowhere: Nowhere,
    /// The stack has packets for which there was no frame or no room: nothing tells when there is.
    waiting: bool,
    gathering: Gathering,
    /// What devices had counted when they were removed.
    gone: DeviceCounters,
    sampling: Sampling,
    /// What times are taken by; `None` if whoever drives the engine has the clock.
    clock: Option<Clock>,
    pub(crate) taps: Taps,
}

impl Devices {
    /// None yet; packets may gather for `gather` before they are looked at.
    pub(crate) fn new(gather: Duration) -> Devices {
        let gathering = Gathering::new(gather);
        let (gone, taps) = (DeviceCounters::default(), Taps::default());
        Devices {
            devices: Vec::new(),
            latest: 0,
            taken: None,
            nowhere: Nowhere::default(),
            waiting: false,
            gathering,
            gone,
            sampling: Sampling::one_in(SAMPLED),
            clock: None,
            taps,
        }
    }

    /// From now on the time of some answers is taken, by the clock that shows the time of turns.
    pub(crate) fn time_answers(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// Adds a device. The stack learns what packets its link takes.
    pub(crate) fn add(
        &mut self,
        id: DeviceId,
        role: Role,
        link: Option<LinkId>,
        mut device: Box<dyn Device>,
        stack: Option<&mut Stack>,
        now: Instant,
    ) {
        if let (Some(link), Some(stack)) = (link, stack) {
            tell_link(stack, link, &mut *device, now);
        }
        self.devices.push(AttachedDevice::new(id, role, link, device));
    }

    /// Has the devices of a link take packets of another size. The stack learns how far they do.
    pub(crate) fn set_mtu(&mut self, link: LinkId, mtu: u16, mut stack: Option<&mut Stack>, now: Instant) {
        for attached in self.devices.iter_mut().filter(|attached| attached.link == Some(link)) {
            attached.set_mtu(mtu);
            if let Some(stack) = stack.as_deref_mut() {
                tell_link(stack, link, &mut *attached.device, now);
            }
        }
    }

    pub(crate) fn remove<R: UdpResponder>(
        &mut self,
        id: DeviceId,
        responder: &mut R,
        counters: &EngineCounters,
    ) {
        for attached in self.devices.iter_mut().filter(|attached| attached.id == id) {
            attached.close(responder, counters);
            self.gone.add_gone(&attached.report().counters);
        }
        self.devices.retain(|attached| attached.id != id);
        self.latest = 0;
    }

    /// One burst in from each device, and the responder's answers out; the shadows only if wanted. Returns the number of
    /// frames that moved.
    pub(crate) fn serve<R: UdpResponder>(
        &mut self,
        responder: &mut R,
        mut stack: Option<&mut Stack>,
        counters: &EngineCounters,
        now: Instant,
        shadows: bool,
    ) -> usize {
        let Devices { devices, taps, gathering, sampling, clock, .. } = self;
        let served = devices.iter_mut().filter(|attached| attached.role == Role::Primary || shadows);
        let serve = |attached: &mut AttachedDevice| {
            let moved = attached.serve(responder, stack.as_deref_mut(), counters, (taps, sampling), now);
            if let (Some(came), Some(clock)) = (attached.take_sample(), &clock) {
                responder.on_sample(clock.now().since(came));
            }
            moved
        };
        let moved = served.map(serve).sum();
        gathering.on_arrivals(moved);
        moved
    }

    /// Sends the responder's answers to datagrams of earlier bursts, as far as there is room; returns their number.
    pub(crate) fn answer_late<R: UdpResponder>(
        &mut self,
        responder: &mut R,
        counters: &EngineCounters,
        now: Instant,
    ) -> usize {
        if !responder.has_late_answers() || !self.devices.iter().all(AttachedDevice::has_answered_all) {
            return 0;
        }
        let mut answered = 0;
        while answered < BURST
            && let Some((path, answer)) = responder.late_answer()
        {
            answered += 1;
            match self.devices.iter_mut().find(|attached| attached.id == path.device) {
                Some(attached) => attached.answer_late(&path, &answer, counters),
                None => counters.on_unsent(), // It has gone, and the way back with it.
            }
        }
        self.devices.iter_mut().for_each(|attached| attached.transmit_late(&mut self.taps, now));
        answered
    }

    /// Sends what the stack has to send, as far as there are frames and room; the rest stays in the stack. Returns the
    /// number of packets.
    pub(crate) fn transmit(&mut self, stack: &mut Stack, counters: &EngineCounters, now: Instant) -> usize {
        self.flush(now);
        let mut written = 0;
        while stack.may_transmit() && written < TRANSMIT_MAX {
            let Some(transmit) = stack.poll_transmit(now, self) else { break };
            written += transmit.segments();
            match (self.taken.take(), &transmit.payload) {
                (Some((at, frame)), None) => self.enqueue(at, frame, &transmit, now),
                (Some((at, frame)), Some(payload)) => {
                    self.send_super_segment(at, frame, (&transmit, payload), stack, now);
                }
                (None, _) => counters.on_unsent(),
            }
        }
        self.release_taken();
        self.flush(now);
        self.waiting = stack.may_transmit() && self.devices.iter().any(|attached| attached.link.is_some());
        written
    }

    /// Queues a frame at its device.
    fn enqueue(&mut self, at: usize, mut frame: Frame, transmit: &Transmit, now: Instant) {
        link_layer::finish(&mut frame, transmit);
        let attached = &mut self.devices[at];
        attached.outgoing.push(frame);
        if attached.outgoing.is_full() {
            attached.transmit_outgoing(&mut self.taps, now);
        }
    }

    /// Sends a packet whose headers are in `frame` and whose payload the stack still has.
    fn send_super_segment(
        &mut self,
        at: usize,
        mut frame: Frame,
        (transmit, payload): (&Transmit, &Payload),
        stack: &mut Stack,
        now: Instant,
    ) {
        link_layer::finish(&mut frame, transmit);
        let attached = &mut self.devices[at];
        let is_taken = {
            let pieces: ArrayVec<&[u8], PIECES_MAX> = stack.payload(payload).collect();
            let (headers, segment_size) = (frame.bytes_mut(), payload.segment_size);
            let packet = SuperSegment { headers, payload: &pieces, segment_size };
            attached.transmit_super_segment(packet, &mut self.taps, now)
        };
        attached.device.release(frame);
        if let Some(link) = attached.link.filter(|_| !is_taken) {
            tell_link(stack, link, &mut *attached.device, now);
        }
    }

    /// Transmits what is queued, as far as there is space.
    fn flush(&mut self, now: Instant) {
        for attached in self.devices.iter_mut().filter(|attached| !attached.has_sent_all()) {
            attached.transmit_outgoing(&mut self.taps, now);
        }
    }

    /// Gives back the frame of a packet that was not written after all.
    fn release_taken(&mut self) {
        if let Some((at, frame)) = self.taken.take() {
            self.devices[at].device.release(frame);
        }
    }

    /// The device that sends what leaves by `link`: most likely the same as for the packet before.
    fn device_of(&self, link: LinkId) -> Option<usize> {
        let is_it = |attached: &AttachedDevice| attached.link == Some(link);
        if self.devices.get(self.latest).is_some_and(is_it) {
            return Some(self.latest);
        }
        self.devices.iter().position(is_it)
    }

    /// Prepares for a sleep that begins now and ends when one of `timers` is due: arms the wake-up of all devices and adds their
    /// descriptors to `fds`, unless packets are to gather.
    pub(crate) fn prepare_sleep<'p>(
        &'p mut self,
        counters: &EngineCounters,
        timers: Option<Instant>,
        now: Instant,
        fds: &mut Vec<BorrowedFd<'p>>,
    ) -> Sleep {
        let gathered = self.gathering.until(now);
        // This also sends what the kernel had no time for before: with packets to gather as without.
        let is_idle = self.prepare_wait();
        if gathered.is_none() && !is_idle {
            return Sleep::Busy;
        }
        self.gathering.on_sleep();
        if gathered.is_none() && !self.wait_fds(fds) {
            return Sleep::Unknown;
        }
        counters.on_sleep();
        let end = [gathered, timers, self.poll_timeout(now)].into_iter().flatten().min();
        end.map_or(Sleep::Descriptors, Sleep::Until)
    }

    /// Arms the wake-up of every device; false if frames are waiting already.
    fn prepare_wait(&mut self) -> bool {
        let mut ready = true;
        for attached in &mut self.devices {
            ready &= attached.device.prepare_wait();
        }
        ready
    }

    /// When to look at the devices though no descriptor says so.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let retry = self.waiting.then(|| now + RETRY_AFTER);
        self.devices.iter().filter_map(|attached| attached.poll_timeout(now, RETRY_AFTER)).chain(retry).min()
    }

    /// Adds the descriptors of all devices; false if one has none and must be polled.
    fn wait_fds<'p>(&'p self, fds: &mut Vec<BorrowedFd<'p>>) -> bool {
        self.devices.iter().all(|attached| {
            let before = fds.len();
            attached.device.wait_fds(fds);
            fds.len() > before
        })
    }

    pub(crate) fn reports(&self) -> DeviceReports {
        DeviceReports { present: self.devices.iter().map(AttachedDevice::report).collect(), gone: self.gone }
    }
}

/// Packets are written into frames of the device that sends them: only those have room for its MTU, and go back to their pool whatever
/// becomes of the other devices.
impl Rooms for Devices {
    fn room(&mut self, link: LinkId) -> Option<&mut [u8]> {
        self.release_taken();
        let Some(at) = self.device_of(link) else {
            let has_links = self.devices.iter().any(|attached| attached.link.is_some());
            return has_links.then(|| self.nowhere.room());
        };
        self.latest = at;
        if self.devices[at].is_crowded() {
            return None;
        }
        let mut frame = self.devices[at].device.alloc()?;
        frame.reset(HEADROOM);
        Some(self.taken.insert((at, frame)).1.bytes_and_tailroom_mut())
    }
}

/// Where packets are written whose link has gone: as on a wire that was cut, they are lost.
#[derive(Default)]
struct Nowhere(Vec<u8>);

impl Nowhere {
    fn room(&mut self) -> &mut [u8] {
        self.0.resize(usize::from(u16::MAX), 0);
        &mut self.0
    }
}

/// Tells the stack of a link by its device. What was said of the link's clamp stays.
fn tell_link(stack: &mut Stack, link: LinkId, device: &mut dyn Device, now: Instant) {
    let mss_clamp = stack.link(link).mss_clamp;
    stack.set_link(link, Link { mss_clamp, ..link_of(device) }, now);
}

/// What packets a device takes from the stack.
fn link_of(device: &mut dyn Device) -> Link {
    let capabilities = device.capabilities();
    let frame = device.alloc();
    let room = frame.as_ref().map_or(usize::MAX, |frame| frame.headroom() + frame.tailroom());
    if let Some(frame) = frame {
        device.release(frame);
    }
    let fits = u16::try_from(room.saturating_sub(HEADROOM)).unwrap_or(u16::MAX);
    Link {
        mtu: capabilities.mtu.min(fits),
        mss_clamp: None,
        tx_checksum_offload: capabilities.tx_checksum_offload,
        tso_max: capabilities.tso_max,
    }
}
