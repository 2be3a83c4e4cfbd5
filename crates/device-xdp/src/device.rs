//! Several queues of one interface as a [`Device`].

use std::os::fd::BorrowedFd;

use clock::Instant;
use device::{BURST, Burst, Capabilities, Device, DeviceCounters};
use frame::Frame;

use crate::netdev::Interface;
use crate::options::Resolved;
use crate::umem::Umem;
use crate::xsk::{LinkState, Xsk};
use crate::{AttachMode, SteeringProgram, XdpError, XdpMode, XdpOptions};

/// Empty fill ring entries that make a refill worth the other core's cache line.
const REFILL_THRESHOLD: u32 = BURST as u32 / 2;

/// Queues of one interface, one AF_XDP socket each, all on one umem. See [`Device`] for what it does.
///
/// Frames carry the queue's place in the list that the device was opened with. A frame is sent on the queue that it
/// carries. While the interface is down or gone, frames to be sent are dropped and counted, and none arrive.
pub struct XdpDevice {
    sockets: Vec<Xsk>,
    umem: Umem,
    capabilities: Capabilities,
    /// The largest MTU whose packets fit the frames.
    mtu_max: u16,
    mode: XdpMode,
    /// Whose turn it is to be received from first.
    next: usize,
    rx_frames: u64,
    tx_frames: u64,
    /// Frames that could not be sent: the link was down, or the frame empty, or too long.
    tx_dropped: u64,
    /// Other pools' frames, sent as copies, to be fetched by their owners.
    foreign: Burst,
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
        assert!(!queues.is_empty(), "a device has a queue");
        let attach = program.mode();
        let mut options = options.resolve(program.netdev())?;
        options.force_copy |= attach == AttachMode::Generic; // No driver fills a umem for the stack's own XDP.
        let mut device = XdpDevice::without_queues(queues.len(), &options, attach)?;
        for &queue in queues {
            device.open_queue(program.netdev(), queue, &options)?;
        }
        device.mode.copy = device.sockets[0].copy_mode();
        device.capabilities = capabilities(program.netdev(), queues, device.mode, &options);
        for (&queue, socket) in queues.iter().zip(&device.sockets) {
            program.register_queue(queue, socket.fd())?;
        }
        Ok(device)
    }

    /// How packets come in.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    fn without_queues(queues: usize, options: &Resolved, attach: AttachMode) -> Result<XdpDevice, XdpError> {
        let slots = queues * options.frames_per_queue as usize;
        let octets = slots * usize::from(options.frame_size);
        let umem =
            Umem::new(slots, options.frame_size).map_err(|source| XdpError::Memory { octets, source })?;
        Ok(XdpDevice {
            sockets: Vec::with_capacity(queues),
            umem,
            capabilities: Capabilities::default(),
            mtu_max: options.mtu_max(),
            mode: XdpMode { attach, copy: crate::CopyMode::Copy },
            next: 0,
            rx_frames: 0,
            tx_frames: 0,
            tx_dropped: 0,
            foreign: Burst::new(),
        })
    }

    fn open_queue(&mut self, interface: &Interface, queue: u16, options: &Resolved) -> Result<(), XdpError> {
        let socket = Xsk::open(interface, queue, &mut self.umem, self.sockets.first(), options)?;
        self.sockets.push(socket);
        Ok(())
    }

    /// Receives once from each queue, starting with the one whose turn it is.
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

impl Device for XdpDevice {
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
            while socket.rings.harvest(&mut self.umem) > 0 {}
            socket.rings.refill(&mut self.umem, 1);
            socket.wake_tx();
            socket.wake_rx();
        }
        self.sockets.iter_mut().all(|socket| socket.rings.rx.waiting() == 0)
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = DeviceCounters {
            rx_frames: self.rx_frames,
            tx_frames: self.tx_frames,
            tx_dropped: self.tx_dropped,
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

impl Drop for XdpDevice {
    fn drop(&mut self) {
        self.sockets.clear();
        // SAFETY: the sockets were just closed, and `self.umem` is dropped next.
        unsafe { self.umem.take_back_all() };
    }
}

fn capabilities(interface: &Interface, queues: &[u16], mode: XdpMode, options: &Resolved) -> Capabilities {
    let numbers: Vec<String> = queues.iter().map(ToString::to_string).collect();
    Capabilities {
        description: format!("{} queues {}, {mode}", interface.name, numbers.join(",")),
        rx_checksum_verified: false,
        tx_checksum_offload: false,
        partial_checksums: interface.is_virtual(),
        mtu: options.mtu,
        queues: queues.len() as u16,
    }
}
