//! Sockets as a [`Device`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use clock::Instant;
use device::{BURST, Burst, Capabilities, Device, DeviceCounters, ForeignFrames};
use frame::{Frame, Pool, Region};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use wire::{ChecksumPolicy, Endpoints, Envelope, UdpHeaders, parse_udp, write_udp_headers};

use crate::address::PacketInfo;
use crate::message::{Batch, Received};
use crate::socket::UdpSocket;
use crate::{Config, OpenError, PAYLOAD_MAX};

/// Octets of the longest headers synthesised in front of a payload: Ethernet, IPv6 and UDP.
const HEADERS_LEN: usize = 14 + 40 + 8;

/// UDP sockets that look like a network card: see the crate's page.
///
/// Received frames carry Ethernet headers of zeros, and their checksum fields are not filled in. [`Frame::queue`] tells
/// which socket brought a frame; its reply leaves by the same. A frame made by [`Device::alloc`] leaves by any socket that
/// may send from its source address and port.
pub struct KernelSockets {
    config: Config,
    /// A socket keeps its position while others come and go, because frames name their socket by position.
    sockets: Vec<Option<UdpSocket>>,
    /// Reports which sockets are ready, level-triggered. Used only if there are several. By the C library's functions: under `sidestep run`,
    /// its library sees which sockets are waited for.
    epoll: Epoll,
    /// The socket that filled a burst last. The next burst starts with the others.
    served_last: usize,
    pool: Pool,
    /// Frames to receive into.
    empty: Burst,
    /// Sent frames of other pools, until their owner takes them.
    foreign: ForeignFrames,
    /// For each of the pool's frames the interface by which a link-local address in it was reached, else 0.
    interfaces: Box<[u32]>,
    batch: Box<Batch>,
    counters: DeviceCounters,
}

impl KernelSockets {
    /// Opens a socket for each address of `config.listen`.
    ///
    /// # Panics
    /// If `config.payload_max` exceeds [`PAYLOAD_MAX`].
    pub fn open(config: Config) -> Result<KernelSockets, OpenError> {
        assert!(config.payload_max <= PAYLOAD_MAX, "payloads lie in one frame");
        let slot_size = (HEADERS_LEN + usize::from(config.payload_max)).next_multiple_of(64) as u16;
        let octets = usize::from(slot_size) * config.frames;
        let region = Region::anonymous(octets).map_err(|source| OpenError::Memory { octets, source })?;
        let pool = Pool::new(region, slot_size, 0);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| OpenError::Watch(e.into()))?;
        let mut device = KernelSockets {
            interfaces: vec![0; pool.slots()].into(),
            sockets: Vec::new(),
            epoll,
            served_last: 0,
            pool,
            empty: Burst::new(),
            foreign: ForeignFrames::default(),
            batch: Batch::new(),
            counters: DeviceCounters::default(),
            config,
        };
        for address in device.config.listen.clone() {
            device.add_address(address)?;
        }
        Ok(device)
    }

    /// Serves one more address, for instance one that an interface got. Returns it with the port that the kernel chose if it is 0.
    /// Does nothing if the address is served already.
    pub fn add_address(&mut self, address: SocketAddr) -> Result<SocketAddr, OpenError> {
        if self.find_socket(address).is_some() {
            return Ok(address);
        }
        let socket = UdpSocket::open(address, &self.config)?;
        let local = socket.local();
        let place = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        let event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        self.epoll.add(&socket, event).map_err(|e| OpenError::Watch(e.into()))?;
        match self.sockets.get_mut(place) {
            Some(free) => *free = Some(socket),
            None => self.sockets.push(Some(socket)),
        }
        Ok(local)
    }

    /// Stops serving `address`, as given by [`KernelSockets::local_addrs`]; false if it is not served. Datagrams that
    /// wait in its socket are lost.
    pub fn remove_address(&mut self, address: SocketAddr) -> bool {
        let Some(place) = self.find_socket(address) else {
            return false;
        };
        if let Some(socket) = self.sockets[place].take() {
            self.counters.rx_dropped_full += socket.dropped_datagrams();
        }
        true
    }

    /// The addresses that are served, with real ports.
    pub fn local_addrs(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.sockets.iter().flatten().map(UdpSocket::local)
    }

    fn find_socket(&self, address: SocketAddr) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.as_ref().is_some_and(|open| open.local() == address))
    }

    /// Position of the only socket, `None` if there are more or none.
    fn only_socket(&self) -> Option<usize> {
        let mut places = (0..self.sockets.len()).filter(|&place| self.sockets[place].is_some());
        places.next().filter(|_| places.next().is_none())
    }
}

/// Receiving.
impl KernelSockets {
    fn receive_from_ready(&mut self, burst: &mut Burst) {
        let mut events = [EpollEvent::empty(); BURST];
        let Ok(count) = self.epoll.wait(&mut events, EpollTimeout::ZERO) else {
            return; // Interrupted: the next turn asks again.
        };
        let ready = &mut events[..count];
        let sockets = self.sockets.len();
        let turns_to_wait =
            |event: &EpollEvent| (event.data() as usize + sockets - self.served_last - 1) % sockets;
        ready.sort_unstable_by_key(turns_to_wait);
        for event in ready {
            self.receive_from(event.data() as usize, burst);
            if burst.is_full() {
                break;
            }
        }
    }

    /// Receives once from the socket at `place`, at most as many datagrams as the burst has space for.
    fn receive_from(&mut self, place: usize, burst: &mut Burst) {
        let wanted = burst.remaining_capacity();
        while self.empty.len() < wanted {
            let Some(frame) = self.pool.alloc() else { break };
            self.empty.push(frame);
        }
        let count = wanted.min(self.empty.len());
        let Some(socket) = self.sockets[place].as_ref().filter(|_| count > 0) else {
            return;
        };
        let headers_len = if socket.local().is_ipv4() { HEADERS_LEN - 20 } else { HEADERS_LEN };
        // The error concerns an earlier datagram (ICMP) or the interface; the socket stays usable.
        let rooms =
            self.empty[..count].iter_mut().map(|frame| &mut frame.bytes_and_tailroom_mut()[headers_len..]);
        let received = self.batch.receive(socket.as_fd(), rooms).unwrap_or(0);
        let local = socket.local();
        if received == wanted {
            self.served_last = place;
        }
        for (index, mut frame) in self.empty.drain(..received).enumerate() {
            frame.queue = place as u16;
            let interface = &mut self.interfaces[frame.index().0 as usize];
            if enclose(&mut frame, self.batch.received(index), local, interface) {
                burst.push(frame);
                self.counters.rx_frames += 1;
            } else {
                self.counters.rx_dropped_invalid += 1;
                self.pool.release(frame);
            }
        }
    }
}

/// Writes headers around the payload received into `frame`; false if it is not a whole datagram.
fn enclose(frame: &mut Frame, received: Received, bound: SocketAddr, interface: &mut u32) -> bool {
    let Some(source) = received.source.filter(|_| !received.truncated) else {
        return false;
    };
    let asked = received.local.map_or(bound, |info| SocketAddr::new(info.address, bound.port()));
    let Some(endpoints) = Endpoints::new(source, asked) else {
        return false;
    };
    *interface = received.local.map_or(0, PacketInfo::link);
    if let SocketAddr::V6(source) = source
        && source.ip().is_unicast_link_local()
    {
        *interface = source.scope_id();
    }
    let room = frame.bytes_and_tailroom_mut();
    let headers = write_udp_headers(room, &Envelope::untagged(endpoints), received.len, true);
    headers.map(|headers| frame.set_len(headers.payload_range().end)).is_some()
}

/// Sending.
impl KernelSockets {
    /// Prepares the frames at the front of `burst` that leave by the same socket; returns its position and their number.
    /// `None` if the first frame can leave by no socket.
    fn stage_run(&mut self, burst: &[Frame]) -> Option<(usize, usize)> {
        let mut run = None;
        let mut count = 0;
        for frame in burst {
            let Some((place, headers)) = self.route(frame) else {
                break;
            };
            if *run.get_or_insert(place) != place {
                break;
            }
            self.stage(count, frame, &headers, place);
            count += 1;
        }
        run.map(|place| (place, count))
    }

    /// The socket that `frame` leaves by, and where its parts lie.
    fn route(&self, frame: &Frame) -> Option<(usize, UdpHeaders)> {
        const MADE_HERE: ChecksumPolicy = ChecksumPolicy { verified: true, accept_partial: true };
        let headers = parse_udp(frame.bytes(), MADE_HERE).ok()?;
        let source = headers.source(frame.bytes());
        let serves = |place: &usize| match self.sockets.get(*place) {
            Some(Some(socket)) => socket.can_send_from(source),
            _ => false,
        };
        let brought_by = usize::from(frame.queue);
        let place = Some(brought_by).filter(serves).or_else(|| (0..self.sockets.len()).find(serves))?;
        Some((place, headers))
    }

    fn stage(&mut self, index: usize, frame: &Frame, headers: &UdpHeaders, place: usize) {
        let is_wildcard = self.sockets[place].as_ref().is_some_and(UdpSocket::is_wildcard);
        let interface = match frame.pool() == self.pool.id() {
            true => self.interfaces[frame.index().0 as usize],
            false => 0,
        };
        let mut destination = headers.destination(frame.bytes());
        if let SocketAddr::V6(address) = &mut destination
            && address.ip().is_unicast_link_local()
        {
            address.set_scope_id(interface);
        }
        let source = PacketInfo { address: headers.source(frame.bytes()).ip(), interface };
        let source = is_wildcard.then_some(source);
        self.batch.stage(index, headers.payload_range(), destination, source);
    }

    /// Removes the first `count` frames, which need not be sent any more, from `burst`.
    fn retire(&mut self, burst: &mut Burst, count: usize) {
        self.counters.tx_frames += count as u64;
        burst.drain(..count).for_each(|frame| self.foreign.retire(&mut self.pool, frame));
    }
}

impl Device for KernelSockets {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            description: "kernel sockets".into(),
            rx_checksum_verified: true,
            tx_checksum_offload: true,
            partial_checksums: false,
            mtu: u16::MAX,
            tso_max: 0,
            queues: 1,
        }
    }

    fn rx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let before = burst.len();
        match self.only_socket() {
            Some(place) => self.receive_from(place, burst),
            None if self.sockets.is_empty() => {}
            None => self.receive_from_ready(burst),
        }
        burst.len() - before
    }

    /// A datagram that the system refuses, for instance because there is no route, is skipped and counted as `tx_dropped`. So is a
    /// frame that is not a UDP datagram, or whose source address and port no socket is bound to.
    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let before = burst.len();
        loop {
            let takeable = self.foreign.room_for(&self.pool, burst);
            if takeable == 0 {
                break;
            }
            let Some((place, count)) = self.stage_run(&burst[..takeable]) else {
                self.counters.tx_dropped += 1;
                self.retire(burst, 1);
                continue;
            };
            let socket = self.sockets[place].as_ref().expect("a route leads to an open socket");
            match self.batch.send(socket.as_fd(), burst[..count].iter().map(Frame::bytes)) {
                Ok(sent) => self.retire(burst, sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.counters.tx_dropped += 1;
                    self.retire(burst, 1);
                }
            }
        }
        before - burst.len()
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc().or_else(|| self.empty.pop())
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.foreign.take()
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        let only = self.only_socket().and_then(|place| self.sockets[place].as_ref());
        fds.push(only.map_or(self.epoll.0.as_fd(), |socket| socket.as_fd()));
    }

    /// Always true: a descriptor with waiting datagrams is readable, so poll(2) returns at once.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn counters(&self) -> DeviceCounters {
        let dropped: u64 = self.sockets.iter().flatten().map(UdpSocket::dropped_datagrams).sum();
        DeviceCounters { rx_dropped_full: self.counters.rx_dropped_full + dropped, ..self.counters }
    }
}

impl Drop for KernelSockets {
    /// Returns the frames to the pool, so that it can free its memory.
    fn drop(&mut self) {
        self.empty.drain(..).for_each(|frame| self.pool.release(frame));
    }
}
