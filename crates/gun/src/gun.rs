//! A turn of the generator: takes answers in, and sends what is due.

use std::net::SocketAddr;

use clock::{Duration, Instant};
use device::{Burst, Device};
use wire::{ChecksumPolicy, DropReason, Envelope, MacAddress, parse_udp, write_udp_headers};

use crate::answer::Sample;
use crate::flights::Flights;
use crate::messages::Messages;
use crate::questions::Questions;
use crate::schedule::Schedule;
use crate::summary::{Second, Summary};
use crate::tally::Tally;

/// Bursts that are thrown away before a load.
const STALE_BURSTS_MAX: usize = 1024;

/// How often the kernel's sockets are looked at: a look costs a system call.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// The kernel has looked at checksums before.
const BY_KERNEL: ChecksumPolicy = ChecksumPolicy { verified: true, accept_partial: true };

/// No way has that number: there are fewer.
const NO_WAY: u16 = u16::MAX;

/// What a load is made of.
pub struct Setup<M = Questions> {
    /// The ways from each of our ports to the server: addresses, ports, and the hardware address of the next hop. No two have the same port.
    pub ways: Vec<Envelope>,
    /// The kernel's sockets at the same ports, where the device is another one: what the device leaves to the kernel comes there, such as answers
    /// in fragments, of which the kernel makes whole ones.
    pub sockets: Option<Box<dyn Device>>,
    /// What is asked.
    pub questions: M,
    /// Transmit queues of the device; for kernel sockets, the sockets, one for each way in their order.
    pub queues: u16,
    /// Questions that leave by one way before it is the next one's turn: a system call sends those of one socket.
    pub run: u64,
    /// Questions that were sent from these ports before, by earlier loads.
    pub sent: u64,
    /// An answer counts if it comes so soon after its question was sent.
    pub timeout: Duration,
    /// Answers that take longer from when they were due are not counted as being in time.
    pub within: Duration,
}

/// What a load leaves to the next one.
pub struct Rest<D> {
    /// The device, which may be used again.
    pub device: D,
    /// [`Setup::sockets`].
    pub sockets: Option<Box<dyn Device>>,
    /// Questions that the ports have sent so far.
    pub sent: u64,
}

/// A load. The order of calls: [`Gun::begin`], then [`Gun::turn`] again and again, and [`Gun::finish`].
pub struct Gun<D, M = Questions> {
    device: D,
    sockets: Option<Box<dyn Device>>,
    /// When the sockets were looked at.
    looked: Instant,
    ways: Vec<Envelope>,
    /// The number of a way by its port; [`NO_WAY`] for all others.
    ports: Box<[u16]>,
    questions: M,
    schedule: Schedule,
    sample: Sample,
    flights: Flights,
    timeout: Duration,
    within: Duration,
    tally: Tally,
    /// What is to be sent, and has no room yet.
    leaving: Burst,
    queues: usize,
    /// What the device had dropped before, of what was sent and of what came.
    dropped_before: (u64, u64),
    checksum: ChecksumPolicy,
    checksum_offload: bool,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Questions that left.
    pub sent: usize,
    /// Packets that came.
    pub received: usize,
}

impl Turn {
    /// Whether there was nothing to do.
    pub fn was_idle(self) -> bool {
        self == Turn::default()
    }
}

impl<D: Device, M: Messages> Gun<D, M> {
    /// A load of which nothing is due yet. What waits in the device is an earlier one's, and thrown away.
    ///
    /// # Panics
    /// If there is no way to the server.
    pub fn new(mut device: D, mut setup: Setup<M>, now: Instant) -> Gun<D, M> {
        assert!(!setup.ways.is_empty(), "there is a way to the server");
        throw_away(&mut device, now);
        if let Some(sockets) = &mut setup.sockets {
            throw_away(sockets, now);
        }
        let capabilities = device.capabilities();
        let mut ports = vec![NO_WAY; 1 << 16];
        setup.ways.iter().zip(0..).for_each(|(way, number)| ports[usize::from(source(way).port())] = number);
        Gun {
            flights: Flights::new(setup.ways.len(), setup.run, setup.sent),
            ports: ports.into(),
            ways: setup.ways,
            questions: setup.questions,
            schedule: Schedule::with_count(now, 1, 0),
            sample: Sample::of_any(),
            timeout: setup.timeout,
            within: setup.within,
            tally: Tally::new(now),
            leaving: Burst::new(),
            queues: usize::from(setup.queues.max(1)),
            dropped_before: dropped(&device, setup.sockets.as_deref()),
            checksum: ChecksumPolicy {
                verified: capabilities.rx_checksum_verified,
                accept_partial: capabilities.partial_checksums,
            },
            checksum_offload: capabilities.tx_checksum_offload,
            device,
            sockets: setup.sockets,
            looked: now,
        }
    }

    /// Questions are due from now on, by `schedule`.
    pub fn begin(&mut self, schedule: Schedule, now: Instant) {
        self.sample = Sample::of_rate(schedule.rate());
        self.tally.begin(now, Some(&schedule), self.within);
        self.schedule = schedule;
    }

    /// What is counted so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Ends each second that is over; the last of them, if there is one.
    pub fn end_seconds(&mut self, now: Instant) -> Option<&Second> {
        if self.tally.has_second_ended(now) {
            self.count_dropped();
        }
        self.tally.end_seconds(now)
    }

    /// Counts what the device has dropped since this was called last.
    fn count_dropped(&mut self) {
        let (sent, came) = dropped(&self.device, self.sockets.as_deref());
        let counts = self.tally.counts_mut();
        counts.refused += sent - self.dropped_before.0;
        counts.missed += came - self.dropped_before.1;
        self.dropped_before = (sent, came);
    }

    /// The device and the kernel's sockets, to sleep on.
    pub fn devices(&mut self) -> Vec<&mut dyn Device> {
        let device: &mut dyn Device = &mut self.device;
        let mut devices = vec![device];
        if let Some(sockets) = &mut self.sockets {
            devices.push(sockets);
        }
        devices
    }

    /// Sends all further questions to this hardware address: the next hop has moved.
    pub fn set_next_hop(&mut self, mac: MacAddress) {
        self.ways.iter_mut().for_each(|way| way.destination_mac = mac);
    }

    /// When the next question is due; `None` after the last one.
    pub fn next_due(&self) -> Option<Instant> {
        self.schedule.next_due()
    }

    /// Questions without an answer.
    pub fn under_way(&self) -> usize {
        self.flights.under_way()
    }

    /// Takes in what has come, and sends what is due, a burst of each at most.
    pub fn turn(&mut self, now: Instant) -> Turn {
        let received = self.receive(now);
        self.write_due(now);
        Turn { sent: self.send(now), received }
    }

    /// Takes in what has come, and sends what was made already: the load is over.
    pub fn wait(&mut self, now: Instant) -> Turn {
        let received = self.receive(now);
        Turn { sent: self.send(now), received }
    }

    /// Behind the device the system has dropped no more than this. What has an answer was not dropped.
    pub fn on_dropped(&mut self, count: u64) {
        self.tally.on_refused(count.min(self.flights.unanswered()));
    }

    /// What came of it, in `length` of sending, which [`Tally::end_sending`] has ended.
    pub fn finish(mut self, offered: u32, length: Duration) -> (Summary, Rest<D>) {
        let unsent = self.leaving.len() as u64;
        self.leaving.drain(..).for_each(|frame| self.device.release(frame));
        self.count_dropped();
        self.schedule
            .left_by_second(length)
            .for_each(|(second, count)| self.tally.on_unreached(second, count));
        let counts = self.tally.counts_mut();
        counts.refused += unsent;
        let (lost, sent) = (self.flights.unanswered() + counts.unreached, self.flights.sent());
        let rest = Rest { device: self.device, sockets: self.sockets, sent };
        (self.tally.summary(offered, length, lost), rest)
    }

    fn receive(&mut self, now: Instant) -> usize {
        let mut burst = Burst::new();
        let received = self.device.rx_burst(&mut burst, now);
        for frame in burst {
            self.take_answer(frame.bytes(), self.checksum, now);
            self.device.release(frame);
        }
        received + self.receive_by_kernel(now)
    }

    /// Takes in what the device has left to the kernel.
    fn receive_by_kernel(&mut self, now: Instant) -> usize {
        if now.since(self.looked) < LOOK_EVERY {
            return 0;
        }
        self.looked = now;
        let Some(mut sockets) = self.sockets.take() else { return 0 };
        let mut burst = Burst::new();
        let received = sockets.rx_burst(&mut burst, now);
        for frame in burst {
            let is_answer = self.take_answer(frame.bytes(), BY_KERNEL, now);
            self.tally.counts_mut().by_kernel += u64::from(is_answer);
            sockets.release(frame);
        }
        self.sockets = Some(sockets);
        received
    }

    /// Whether it is an answer to a question under way. Otherwise it is counted as what it is.
    fn take_answer(&mut self, frame: &[u8], checksum: ChecksumPolicy, now: Instant) -> bool {
        let Some((port, message)) = self.message_of_the_server(frame, checksum) else { return false };
        let Some(said) = self.questions.read(message) else {
            self.tally.counts_mut().malformed += 1;
            return false;
        };
        let Some(flight) = self.flights.end(port, said.id) else {
            let counts = self.tally.counts_mut();
            *(if self.flights.was_asked(port, said.id) {
                &mut counts.unexpected
            } else {
                &mut counts.foreign
            }) += 1;
            return false;
        };
        if now.since(flight.sent()) > self.timeout {
            self.flights.give_up();
            self.tally.counts_mut().unexpected += 1;
            return false;
        }
        if self.sample.has(flight.number) {
            let question = self.questions.pick(flight.number);
            let is_repeated = self.questions.is_repeated(question, flight.number, message);
            if !self.tally.on_compared(flight.due, is_repeated) {
                return false;
            }
        }
        self.tally.on_answer(flight.due, now, said.code, said.is_cut);
        self.tally.counts_mut().octets += message.len() as u64;
        true
    }

    /// The number of the port that a datagram of the server came to, and what is in it.
    fn message_of_the_server<'f>(
        &mut self,
        frame: &'f [u8],
        checksum: ChecksumPolicy,
    ) -> Option<(usize, &'f [u8])> {
        let headers = match parse_udp(frame, checksum) {
            Ok(headers) => headers,
            // ICMP, such as "port unreachable". Devices give us errors about our datagrams, of which kernel sockets say nothing.
            Err(DropReason::ProtocolUnknown) => return None,
            Err(_) => {
                self.tally.counts_mut().malformed += 1;
                return None;
            }
        };
        let (own, sender) = (headers.destination(frame), headers.source(frame));
        let port = usize::from(self.ports[usize::from(own.port())]);
        let is_of = |way: &Envelope| is_same(source(way), own) && is_same(destination(way), sender);
        if !self.ways.get(port).is_some_and(is_of) {
            self.tally.counts_mut().foreign += 1;
            return None;
        }
        Some((port, &frame[headers.payload_range()]))
    }

    /// Makes packets of the questions that are due, as far as there are frames.
    fn write_due(&mut self, now: Instant) {
        while !self.leaving.is_full() && self.schedule.next_due().is_some_and(|due| due <= now) {
            let Some(mut frame) = self.device.alloc() else { return };
            let Some(due) = self.schedule.take(now) else { return self.device.release(frame) };
            let (place, before) = self.flights.begin(due, now);
            let is_early = before.is_some_and(|flight| now.since(flight.sent()) <= self.timeout);
            self.tally.counts_mut().displaced += u64::from(is_early);
            let question = self.questions.pick(place.number);
            let way = &self.ways[place.port];
            let start = way.header_len();
            let room = frame.bytes_and_tailroom_mut();
            let len = room
                .get_mut(start..)
                .and_then(|room| self.questions.write(question, place.number, place.id, room))
                .filter(|len| write_udp_headers(room, way, *len, self.checksum_offload).is_some());
            match len {
                Some(len) => {
                    frame.set_len(start + len);
                    frame.queue = (place.port % self.queues) as u16;
                    self.leaving.push(frame);
                    self.tally.on_sent(due, now);
                }
                None => {
                    self.tally.on_taken(due, now);
                    self.tally.counts_mut().refused += 1; // Frames hold the longest question; a device may have smaller ones.
                    self.device.release(frame);
                }
            }
        }
    }

    fn send(&mut self, now: Instant) -> usize {
        if self.leaving.is_empty() { 0 } else { self.device.tx_burst(&mut self.leaving, now) }
    }
}

/// What a device has dropped of what was to be sent, and it and the kernel's sockets of what came.
fn dropped(device: &impl Device, sockets: Option<&dyn Device>) -> (u64, u64) {
    let counters = device.counters();
    let by_kernel = sockets.map_or(0, |sockets| sockets.counters().rx_dropped_full);
    (counters.tx_dropped, counters.rx_dropped_full + by_kernel)
}

fn throw_away(device: &mut impl Device, now: Instant) {
    let mut burst = Burst::new();
    for _ in 0..STALE_BURSTS_MAX {
        if device.rx_burst(&mut burst, now) == 0 {
            return;
        }
        burst.drain(..).for_each(|frame| device.release(frame));
    }
}

fn source(way: &Envelope) -> SocketAddr {
    match way.endpoints {
        wire::Endpoints::V4 { source, .. } => source.into(),
        wire::Endpoints::V6 { source, .. } => source.into(),
    }
}

fn destination(way: &Envelope) -> SocketAddr {
    match way.endpoints {
        wire::Endpoints::V4 { destination, .. } => destination.into(),
        wire::Endpoints::V6 { destination, .. } => destination.into(),
    }
}

/// Whether two are the same on the wire, which has no scopes (RFC 4007).
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}
