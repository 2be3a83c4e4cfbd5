//! One direction of a path: a queue, a line, and what goes wrong on it.

use clock::{Duration, Instant};
use wire::ip::Ip;

use super::random::Random;

/// What one direction does to packets. All of it may change while packets travel.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Octets a second; zero for no limit.
    pub rate: u64,
    /// Time from the line's near end to its far end.
    pub delay: Duration,
    /// Octets that may wait for the line; a packet that does not fit is dropped.
    pub queue: u64,
    /// Queue length from which on ECN-capable packets are marked (RFC 3168).
    pub mark_from: Option<u64>,
    /// Largest packet.
    pub mtu: u16,
    /// A packet that is too large vanishes without an ICMP error.
    pub black_hole: bool,
    /// Nothing passes.
    pub down: bool,
    /// What happens to single packets.
    pub faults: Faults,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            rate: 0,
            delay: Duration::from_millis(1),
            queue: u64::MAX,
            mark_from: None,
            mtu: u16::MAX,
            black_hole: false,
            down: false,
            faults: Faults::default(),
        }
    }
}

/// What happens to single packets, in parts of a million.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Lost.
    pub loss: u32,
    /// A series of losses begins.
    pub burst: u32,
    /// Packets that a series takes at most.
    pub burst_length: u32,
    /// Delivered twice.
    pub duplication: u32,
    /// Held back for up to `reordering_delay`, so that others overtake it.
    pub reordering: u32,
    /// See `reordering`.
    pub reordering_delay: Duration,
    /// Some bits next to each other are changed: few enough that the checksum must tell (RFC 1071 finds any 15).
    pub corruption: u32,
    /// The end is cut off.
    pub truncation: u32,
}

/// What became of a packet that was put on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It arrives, perhaps changed, perhaps more than once.
    Arrives(Vec<(Instant, Vec<u8>)>),
    /// It is gone.
    Lost(&'static str),
    /// It was larger than the MTU, and the router says so to its sender at that time.
    TooBig(Instant),
}

/// One direction of a path.
#[derive(Debug)]
pub struct Link {
    settings: LinkSettings,
    random: Random,
    /// When the line has sent all that waits.
    free_at: Instant,
    /// Packets that the current series of losses still takes.
    burst_left: u64,
}

impl Link {
    /// An idle link.
    pub fn new(settings: LinkSettings, random: Random) -> Link {
        Link { settings, random, free_at: Instant::ZERO, burst_left: 0 }
    }

    /// What it does now.
    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    /// Changes what it does to packets from now on.
    pub fn set(&mut self, settings: LinkSettings) {
        self.settings = settings;
        self.burst_left = 0;
    }

    /// Takes a packet at its near end.
    pub fn pass(&mut self, mut packet: Vec<u8>, now: Instant) -> Passage {
        if self.settings.down {
            return Passage::Lost("down");
        }
        if packet.len() > usize::from(self.settings.mtu) {
            return match self.settings.black_hole {
                true => Passage::Lost("black hole"),
                false => Passage::TooBig(now + self.settings.delay),
            };
        }
        let waiting = self.waiting(now);
        if waiting + packet.len() as u64 > self.settings.queue {
            return Passage::Lost("queue full");
        }
        if self.settings.mark_from.is_some_and(|from| waiting >= from) {
            mark(&mut packet);
        }
        let sent_at = self.occupy(packet.len() as u64, now);
        if self.is_lost() {
            return Passage::Lost("lost");
        }
        Passage::Arrives(self.deliver(packet, sent_at + self.settings.delay))
    }

    /// Octets that wait for the line.
    fn waiting(&self, now: Instant) -> u64 {
        let nanos = u128::from(self.free_at.since(now).as_nanos());
        (nanos * u128::from(self.settings.rate) / 1_000_000_000) as u64
    }

    /// Sends a packet behind what waits; when its last octet is on the line.
    fn occupy(&mut self, octets: u64, now: Instant) -> Instant {
        if self.settings.rate == 0 {
            return now;
        }
        let nanos = u128::from(octets) * 1_000_000_000 / u128::from(self.settings.rate);
        self.free_at = self.free_at.max(now) + Duration::from_nanos(nanos as u64);
        self.free_at
    }

    fn is_lost(&mut self) -> bool {
        let faults = &self.settings.faults;
        if self.burst_left == 0 && self.random.chance(faults.burst) {
            self.burst_left = self.random.between(1, faults.burst_length.max(1).into());
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return true;
        }
        self.random.chance(self.settings.faults.loss)
    }

    fn deliver(&mut self, packet: Vec<u8>, at: Instant) -> Vec<(Instant, Vec<u8>)> {
        let duplication = self.settings.faults.duplication;
        let copies = if self.random.chance(duplication) { 2 } else { 1 };
        let mut arrivals = Vec::with_capacity(copies);
        for _ in 1..copies {
            let copy = packet.clone();
            arrivals.push(self.arrival(copy, at));
        }
        arrivals.push(self.arrival(packet, at));
        arrivals
    }

    fn arrival(&mut self, mut packet: Vec<u8>, at: Instant) -> (Instant, Vec<u8>) {
        let faults = &self.settings.faults;
        let held = match self.random.chance(faults.reordering) {
            true => self.random.span(Duration::ZERO, faults.reordering_delay),
            false => Duration::ZERO,
        };
        if self.random.chance(faults.corruption) {
            corrupt(&mut packet, &mut self.random);
        }
        if self.random.chance(faults.truncation) {
            packet.truncate(self.random.below(packet.len() as u64) as usize);
        }
        (at + held, packet)
    }
}

/// Changes up to fifteen bits next to each other, the first and the last of them in any case.
fn corrupt(packet: &mut [u8], random: &mut Random) {
    let bits = packet.len() as u64 * 8;
    let len = random.between(1, 15.min(bits));
    let start = random.below(bits - len + 1);
    for bit in start..start + len {
        if bit == start || bit == start + len - 1 || random.one_in(2) {
            packet[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
        }
    }
}

/// Sets "congestion experienced" on an ECN-capable packet (RFC 3168, 5).
fn mark(packet: &mut [u8]) {
    let class = match Ip::parse_quoted(packet) {
        Ok(Ip::V4(ip)) => ip.traffic_class(),
        Ok(Ip::V6(ip)) => ip.traffic_class(),
        Err(_) => return,
    };
    if class & 3 == 0 {
        return;
    }
    if packet[0] >> 4 == 6 {
        packet[1] |= 0x30; // The low half of the traffic class is the high half of the second octet.
        return;
    }
    packet[1] |= 3;
    packet[10..12].fill(0);
    let header_len = usize::from(packet[0] & 15) * 4;
    let sum = wire::checksum::checksum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(settings: LinkSettings) -> Link {
        Link::new(settings, Random::new(1))
    }

    fn arrival(passage: Passage) -> Instant {
        match passage {
            Passage::Arrives(arrivals) => arrivals[0].0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_packet_waits_for_those_in_front_of_it() {
        let delay = Duration::from_millis(10);
        let mut link = link(LinkSettings { rate: 1_000_000, delay, ..LinkSettings::default() });
        assert_eq!(arrival(link.pass(vec![0; 1000], Instant::ZERO)).as_nanos(), 11_000_000);
        assert_eq!(arrival(link.pass(vec![0; 500], Instant::ZERO)).as_nanos(), 11_500_000);
        let later = Instant::from_nanos(20_000_000);
        assert_eq!(arrival(link.pass(vec![0; 1000], later)).as_nanos(), 31_000_000);
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let mut link = link(LinkSettings { rate: 1_000_000, queue: 1500, ..LinkSettings::default() });
        arrival(link.pass(vec![0; 1000], Instant::ZERO));
        assert_eq!(link.pass(vec![0; 1000], Instant::ZERO), Passage::Lost("queue full"));
        arrival(link.pass(vec![0; 500], Instant::ZERO));
    }

    #[test]
    fn corruption_always_changes_something_and_never_more_than_fifteen_bits_in_a_row() {
        let mut random = Random::new(2);
        for _ in 0..1000 {
            let mut packet = [0; 40];
            corrupt(&mut packet, &mut random);
            let bits = (0..320usize).filter(|bit| packet[bit / 8] & 0x80 >> (bit % 8) != 0);
            let (first, last) = (bits.clone().min().unwrap(), bits.max().unwrap());
            assert!(last - first < 15);
        }
    }
}
