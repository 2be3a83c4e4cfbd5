//! Queues of one interface as a [`Device`].

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use clock::Instant;
use device::{BURST, Burst, Capabilities, Device, DeviceCounters, SuperSegment, Taken};
use frame::{Frame, Region};

use crate::lane::Lane;
use crate::lending::LentLayout;
use crate::options::mtu_max;
use crate::packet_memory::PacketMemory;
use crate::sockets::{self, Sockets};
use crate::umem::Umem;
use crate::xsk::{LinkState, Xsk};
use crate::{SteeringProgram, XdpError, XdpMode, XdpOptions};

/// Empty fill ring entries that make a refill worth the other core's cache line.
const REFILL_THRESHOLD: u32 = BURST as u32 / 2;
/// How often completions are taken before a sleep: those of others who share the queue may come all the time.
const HARVESTS_MAX: usize = 64;

/// Queues of one interface, one AF_XDP socket each, all on one umem. See [`Device`] for what it does.
///
/// Frames carry the queue's place in the list that the device was opened with. A frame is sent on the queue that it
/// carries. While the interface is down or gone, frames to be sent are dropped and counted, and none arrive.
pub struct XdpDevice(XdpQueues<Umem>);

/// The same, whoever has the packets' memory.
pub(crate) struct XdpQueues<M: PacketMemory> {
    sockets: Vec<Xsk>,
    umem: M,
    capabilities: Capabilities,
    /// The largest MTU whose packets fit the frames.
    mtu_max: u16,
    mode: XdpMode,
    /// The queue to receive from first in the next burst.
    next: usize,
    rx_frames: u64,
    tx_frames: u64,
    /// Frames that could not be sent: the link was down, or the frame empty, or too long.
    tx_dropped: u64,
    /// Other pools' frames, sent as copies, to be fetched by their owners.
    foreign: Burst,
    lane: Option<Lane>,
}

impl XdpDevice {
    /// Opens sockets on `queues` of the interface that `program` sits on, and has the program deliver to them.
    ///
    /// # Panics
    /// If `queues` is empty.
    pub fn open(
        program: &mut SteeringProgram,
        queues: &[u16],
        options: &XdpOptions,
    ) -> Result<XdpDevice, XdpError> {
        let Sockets { region, fds, options } = Sockets::create(program, queues.len(), options)?;
        let layout = LentLayout::new(program, queues, &options);
        let mut device = XdpQueues::assemble(&layout, Umem::new(region, layout.frame_size), fds)?;
        // In this order, as kernels before 6.4 map no rings of a socket that is bound.
        sockets::bind(program, queues, &device.descriptors(), &options, &mut 0)?;
        device.learn_mode(&layout)?;
        device.set_lane(sockets::bulk_lane(program, &options, device.mode.copy));
        Ok(XdpDevice(device))
    }

    /// A device on sockets that another process has made and bound, with its memory.
    pub(crate) fn adopted(
        layout: &LentLayout,
        region: Region,
        sockets: Vec<OwnedFd>,
        lane: Option<Lane>,
    ) -> Result<XdpDevice, XdpError> {
        XdpQueues::adopted(layout, Umem::new(region, layout.frame_size), sockets, lane).map(XdpDevice)
    }

    /// How packets come in.
    pub fn mode(&self) -> XdpMode {
        self.0.mode
    }

    /// The sockets' descriptors, one for each queue, and that of the bulk lane: all that the device has open.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.descriptors()
    }
}

impl<M: PacketMemory> XdpQueues<M> {
    /// As [`XdpDevice::adopted`], on any memory.
    pub(crate) fn adopted(
        layout: &LentLayout,
        memory: M,
        sockets: Vec<OwnedFd>,
        lane: Option<Lane>,
    ) -> Result<XdpQueues<M>, XdpError> {
        let mut device = XdpQueues::assemble(layout, memory, sockets)?;
        device.learn_mode(layout)?;
        device.set_lane(lane);
        Ok(device)
    }

    /// A device on sockets with rings and the memory that they were made with. Lends the kernel what it needs to begin.
    fn assemble(layout: &LentLayout, memory: M, sockets: Vec<OwnedFd>) -> Result<XdpQueues<M>, XdpError> {
        let mut device = XdpQueues {
            sockets: Vec::with_capacity(sockets.len()),
            umem: memory,
            capabilities: capabilities(layout),
            mtu_max: mtu_max(layout.frame_size),
            mode: layout.mode,
            next: 0,
            rx_frames: 0,
            tx_frames: 0,
            tx_dropped: 0,
            foreign: Burst::new(),
            lane: None,
        };
        for socket in sockets {
            let xsk = Xsk::new(socket, layout.rings(), layout.busy_poll, &mut device.umem)?;
            device.sockets.push(xsk);
        }
        Ok(device)
    }

    /// Asks the sockets, which are bound by now, how packets come in.
    fn learn_mode(&mut self, layout: &LentLayout) -> Result<(), XdpError> {
        for socket in &mut self.sockets {
            self.mode.copy = socket.learn_copy_mode()?;
        }
        self.capabilities.description = describe(layout, self.mode);
        Ok(())
    }

    /// Sends what is to be cut by `lane` from now on, if there is one.
    fn set_lane(&mut self, lane: Option<Lane>) {
        self.capabilities.tso_max = if lane.is_some() { u16::MAX } else { 0 };
        self.lane = lane;
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.sockets.iter().map(Xsk::fd).chain(self.lane.as_ref().map(Lane::fd)).collect()
    }

    /// Receives once from each queue, starting with a different one each time.
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let queues = self.sockets.len();
        let first = self.next;
        self.next = (first + 1) % queues;
        let mut received = 0;
        for place in (first..queues).chain(0..first) {
            let socket = &mut self.sockets[place];
            received += socket.rings.receive(&mut self.umem, burst, place as u16);
            socket.rings.refill(&mut self.umem, REFILL_THRESHOLD);
        }
        received
    }

    fn harvest(&mut self) {
        for socket in &mut self.sockets {
            socket.rings.harvest(&mut self.umem);
        }
    }

    fn socket_of(&mut self, frame: &Frame) -> &mut Xsk {
        let place = usize::from(frame.queue) % self.sockets.len();
        &mut self.sockets[place]
    }

    /// How many frames from the front of `burst` can be taken now, in order.
    fn acceptable(&mut self, burst: &Burst) -> usize {
        let own = self.umem.pool().id();
        let mut foreign_room = self.foreign.remaining_capacity();
        let mut wanted = [0usize; BURST];
        burst
            .iter()
            .take_while(|frame| {
                if frame.pool() != own {
                    let Some(room) = foreign_room.checked_sub(1) else { return false };
                    foreign_room = room;
                }
                let place = usize::from(frame.queue) % self.sockets.len();
                // Queues beyond the array share its entries: fewer frames at a time, never too many.
                let wanted = &mut wanted[place % BURST];
                *wanted += 1;
                self.sockets[place].room(*wanted) >= *wanted
            })
            .count()
    }

    /// Puts one frame into its transmit ring, or drops it if it can never be sent from there.
    fn send(&mut self, frame: Frame) {
        let sendable = self.socket_of(&frame).link == LinkState::Up && self.fits(&frame);
        let own = if frame.pool() == self.umem.pool().id() { Some(frame) } else { self.copy_foreign(frame) };
        match own {
            Some(frame) if sendable => {
                let place = usize::from(frame.queue) % self.sockets.len();
                self.sockets[place].rings.send(&mut self.umem, frame);
                self.tx_frames += 1;
            }
            Some(frame) => {
                self.umem.release(frame);
                self.tx_dropped += 1;
            }
            None => self.tx_dropped += 1,
        }
    }

    /// The kernel neither sends nor completes a descriptor that it finds invalid, so none may get there.
    fn fits(&self, frame: &Frame) -> bool {
        !frame.is_empty() && frame.len() <= usize::from(self.capabilities.mtu) + 22
    }

    /// Whether all that the rings took has left, so that what follows cannot overtake it.
    fn has_flushed(&mut self) -> bool {
        for socket in self.sockets.iter_mut().filter(|socket| socket.holds_unsent()) {
            socket.wake_tx();
        }
        !self.sockets.iter().any(Xsk::holds_unsent)
    }

    /// What it means that the lane refused a packet.
    fn on_lane_error(&mut self, error: &io::Error) -> Taken {
        match error.raw_os_error() {
            // What was sent before is still on its way.
            None => return Taken::Full,
            Some(libc::EAGAIN | libc::ENOMEM | libc::EINTR) => return Taken::Full,
            // Dropped: by traffic control, or because the link is down or gone, as the rings will find out.
            Some(libc::ENOBUFS | libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {}
            // The socket stays open: its number is known as ours.
            _ => {
                self.capabilities.tso_max = 0;
                return Taken::Refused;
            }
        }
        self.tx_dropped += 1;
        Taken::Sent
    }

    fn copy_foreign(&mut self, frame: Frame) -> Option<Frame> {
        let copy = self.umem.alloc().and_then(|mut copy| {
            if frame.len() > copy.tailroom() {
                self.umem.release(copy);
                return None;
            }
            copy.copy_from(frame.bytes());
            copy.queue = frame.queue;
            Some(copy)
        });
        self.foreign.push(frame);
        copy
    }
}

impl<M: PacketMemory> Device for XdpQueues<M> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn rx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let mut received = self.receive(burst);
        if received == 0 && !burst.is_full() {
            self.sockets.iter_mut().for_each(Xsk::wake_rx);
            received = self.receive(burst);
        }
        self.rx_frames += received as u64;
        received
    }

    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        self.harvest();
        // A link that was down is tried again with each burst.
        self.sockets.iter_mut().filter(|socket| socket.link == LinkState::Down).for_each(Xsk::retry_link);
        let count = self.acceptable(burst);
        for frame in burst.drain(..count) {
            self.send(frame);
        }
        for socket in &mut self.sockets {
            socket.rings.tx.publish();
            socket.wake_tx();
        }
        count
    }

    fn tx_super_segment(&mut self, packet: &mut SuperSegment<'_>, _now: Instant) -> Taken {
        if !self.has_flushed() {
            return Taken::Full;
        }
        let Some(lane) = self.lane.as_mut().filter(|_| self.capabilities.tso_max > 0) else {
            return Taken::Refused;
        };
        match lane.send(packet) {
            Ok(()) => {
                self.tx_frames += packet.segments() as u64;
                Taken::Sent
            }
            Err(error) => self.on_lane_error(&error),
        }
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.umem.alloc()
    }

    fn release(&mut self, frame: Frame) {
        if frame.pool() == self.umem.pool().id() {
            self.umem.release(frame);
        } else {
            // With the list full the slot is lost to its pool: its owner had BURST frames to fetch here and did not.
            let _ = self.foreign.try_push(frame);
        }
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.foreign.pop()
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.capabilities.mtu = mtu.min(self.mtu_max);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        fds.extend(self.sockets.iter().filter(|socket| socket.link != LinkState::Gone).map(Xsk::fd));
    }

    fn prepare_wait(&mut self) -> bool {
        for socket in &mut self.sockets {
            for _ in 0..HARVESTS_MAX {
                if socket.rings.harvest(&mut self.umem) == 0 {
                    break;
                }
            }
            socket.rings.refill(&mut self.umem, 1);
            socket.wake_tx();
            socket.wake_rx();
        }
        !self.sockets.iter_mut().any(|socket| socket.rings.has_waiting())
    }

    fn holds_unsent(&self) -> bool {
        self.umem.owes() || self.sockets.iter().any(Xsk::holds_unsent)
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = DeviceCounters {
            rx_frames: self.rx_frames,
            tx_frames: self.tx_frames,
            tx_dropped: self.tx_dropped,
            frames_lent: self.umem.lent() as u64,
            frames_held: self.umem.held() as u64,
            ..DeviceCounters::default()
        };
        for socket in &self.sockets {
            let statistics = socket.statistics();
            counters.rx_dropped_full += statistics.dropped_full;
            counters.rx_dropped_invalid += statistics.rx_invalid + socket.rings.invalid;
            counters.tx_dropped += statistics.tx_invalid + socket.tx_refused;
        }
        counters
    }
}

impl<M: PacketMemory> Drop for XdpQueues<M> {
    fn drop(&mut self) {
        for socket in &mut self.sockets {
            socket.rings.chain.clear().for_each(|frame| self.umem.release(frame));
        }
        self.sockets.clear();
        // SAFETY: the sockets were just closed, and `self.umem` is dropped next.
        unsafe { self.umem.take_back_all() };
    }
}

/// What it is made of does all of it.
impl Device for XdpDevice {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.0.rx_burst(burst, now)
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.0.tx_burst(burst, now)
    }

    fn tx_super_segment(&mut self, packet: &mut SuperSegment<'_>, now: Instant) -> Taken {
        self.0.tx_super_segment(packet, now)
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.0.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.0.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.0.take_foreign()
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.0.set_mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.0.wait_fds(fds);
    }

    fn prepare_wait(&mut self) -> bool {
        self.0.prepare_wait()
    }

    fn holds_unsent(&self) -> bool {
        Device::holds_unsent(&self.0)
    }

    fn counters(&self) -> DeviceCounters {
        self.0.counters()
    }
}

fn capabilities(layout: &LentLayout) -> Capabilities {
    Capabilities {
        description: describe(layout, layout.mode),
        rx_checksum_verified: false,
        tx_checksum_offload: false,
        partial_checksums: layout.partial_checksums,
        mtu: layout.mtu,
        tso_max: 0,
        queues: layout.queues.len() as u16,
    }
}

fn describe(layout: &LentLayout, mode: XdpMode) -> String {
    let numbers: Vec<String> = layout.queues.iter().map(ToString::to_string).collect();
    format!("{} queues {}, {mode}", layout.interface, numbers.join(","))
}
