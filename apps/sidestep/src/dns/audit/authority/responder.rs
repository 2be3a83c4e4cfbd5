//! UDP: a responder of an engine. Answers that are to be late wait in a queue, and a thread wakes the engine for them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dns_audit::authority::{Answer, Asked, Via, Zone};
use dns_guard::{RateLimiter, RateOptions, Verdict};
use engine::{Datagram, EngineHandle, ReturnPath, UdpResponder};

use super::service::Service;

/// Late answers at a time; beyond it queries stay without answer.
const LATE_MAX: usize = 20_000;

/// The same for one network (/24 of IPv4, /56 of IPv6): few hosts are not to take all places.
const LATE_PER_NETWORK: usize = 400;
/// Between two lines of the log about questions beyond the bounds of rate.
const TELL_EVERY: clock::Duration = clock::Duration::from_secs(60);

/// Answers datagrams.
pub(super) struct Responder {
    service: Arc<Service>,
    limiter: RateLimiter,
    held: Held,
    late: Arc<Late>,
}

/// Questions beyond the bounds of rate since a line of the log said so.
#[derive(Default)]
struct Held {
    count: u64,
    told: Option<clock::Instant>,
}

/// Answers that wait until it is their time.
#[derive(Default)]
pub(super) struct Late {
    queue: Mutex<Queue<(ReturnPath, Vec<u8>)>>,
    /// There is an earlier one than before.
    changed: Condvar,
    /// Of those whose time has come.
    due: AtomicUsize,
}

struct Queue<T> {
    /// By time; the number tells those of one moment apart.
    waiting: BTreeMap<(Instant, u64), (IpAddr, T)>,
    /// How many wait for each network.
    places: BTreeMap<IpAddr, usize>,
    due: VecDeque<T>,
    next: u64,
}

impl Responder {
    pub(super) fn new(service: Arc<Service>, limiter: RateLimiter) -> (Responder, Arc<Late>) {
        let late = Arc::new(Late::default());
        (Responder { service, limiter, held: Held::default(), late: Arc::clone(&late) }, late)
    }

    fn answer(&mut self, datagram: &Datagram<'_>, now: clock::Instant) -> Answer {
        let message = &datagram.buffer[..datagram.len];
        let (source, destination) = (datagram.source(), datagram.destination());
        let verdict = self.limiter.take(source.ip(), false, 0, now);
        if verdict != Verdict::Pass
            && let Some(count) = self.held.note(now)
        {
            log::warn!(
                "rate: questions that were not answered: {count}, the last one of {}; --rate-per-address and --rate-per-prefix set how many are",
                source.ip()
            );
        }
        match verdict {
            Verdict::Pass => self.service.answer(message, source, destination, Via::Udp),
            Verdict::Slip => {
                let asked = Asked { message, source, server: 0, via: Via::Udp };
                Answer { message: Zone::cut(&asked), ..Answer::default() }
            }
            Verdict::Drop => Answer::default(),
        }
    }
}

impl Held {
    /// One more; how many there are, if it is time for a line of the log.
    fn note(&mut self, now: clock::Instant) -> Option<u64> {
        self.count += 1;
        if self.told.is_some_and(|told| now.since(told) < TELL_EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

impl UdpResponder for Responder {
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: clock::Instant) {
        for datagram in batch {
            let answer = self.answer(datagram, now);
            let Some(octets) = answer.message.filter(|octets| octets.len() <= datagram.buffer.len()) else {
                continue;
            };
            if answer.delay_ms > 0 {
                let delay = Duration::from_millis(answer.delay_ms.into());
                let client = datagram.source().ip();
                self.late.push(Instant::now() + delay, client, datagram.return_path(), octets);
                continue;
            }
            datagram.buffer[..octets.len()].copy_from_slice(&octets);
            datagram.reply = Some(octets.len());
        }
    }

    fn has_late_answers(&self) -> bool {
        self.late.due.load(Ordering::Acquire) > 0
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        let mut queue = self.late.lock();
        let first = queue.due.pop_front();
        self.late.due.store(queue.due.len(), Ordering::Release);
        first
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { waiting: BTreeMap::new(), places: BTreeMap::new(), due: VecDeque::new(), next: 0 }
    }
}

impl<T> Queue<T> {
    /// Takes an answer for later; false if there is no place for it.
    fn push(&mut self, at: Instant, client: IpAddr, answer: T) -> bool {
        let network = RateOptions::default().prefixes.network_of(client.to_canonical());
        let taken = self.places.get(&network).copied().unwrap_or(0);
        if taken >= LATE_PER_NETWORK || self.waiting.len() >= LATE_MAX {
            return false;
        }
        self.places.insert(network, taken + 1);
        self.waiting.insert((at, self.next), (network, answer));
        self.next += 1;
        true
    }

    /// Moves the answers whose time has come; whether there are any.
    fn ripen(&mut self, now: Instant) -> bool {
        let later = self.waiting.split_off(&(now, u64::MAX));
        let ripe = std::mem::replace(&mut self.waiting, later);
        let is_any = !ripe.is_empty();
        for (network, answer) in ripe.into_values() {
            match self.places.get_mut(&network) {
                Some(taken) if *taken > 1 => *taken -= 1,
                _ => drop(self.places.remove(&network)),
            }
            self.due.push_back(answer);
        }
        is_any
    }
}

impl Late {
    fn lock(&self) -> MutexGuard<'_, Queue<(ReturnPath, Vec<u8>)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: Instant, client: IpAddr, path: ReturnPath, octets: Vec<u8>) {
        if self.lock().push(at, client, (path, octets)) {
            self.changed.notify_one();
        }
    }

    /// Starts the thread that wakes the engine. It ends with the process.
    pub(super) fn start(self: Arc<Late>, engine: EngineHandle) -> io::Result<()> {
        std::thread::Builder::new().name("late".to_owned()).spawn(move || self.run(&engine)).map(drop)
    }

    fn run(&self, engine: &EngineHandle) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            if queue.ripen(now) {
                self.due.store(queue.due.len(), Ordering::Release);
                engine.wake();
            }
            queue = match queue.waiting.first_key_value() {
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(((at, _), _)) => {
                    let span = at.saturating_duration_since(now);
                    self.changed.wait_timeout(queue, span).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_takes_a_part_of_the_places_until_its_answers_have_left() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        let push = |queue: &mut Queue<u32>, last: u32| {
            queue.push(start, IpAddr::from([192, 0, 2, last as u8]), last)
        };
        assert_eq!((0..1000).filter(|last| push(&mut queue, *last)).count(), LATE_PER_NETWORK);
        assert!(queue.push(start, IpAddr::from([198, 51, 100, 1]), 0));
        assert!(queue.ripen(start) && queue.places.is_empty() && push(&mut queue, 1));
    }

    #[test]
    fn questions_beyond_the_rate_are_told_at_once_and_then_once_a_minute() {
        let (mut held, start) = (Held::default(), clock::Instant::ZERO);
        let at = |secs| start + clock::Duration::from_secs(secs);
        assert_eq!([0, 1, 59, 60, 61].map(|secs| held.note(at(secs))), [Some(1), None, None, Some(3), None]);
    }
}
