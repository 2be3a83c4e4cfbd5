//! UDP: a responder of an engine. Answers that are to be late wait in a queue, and a thread wakes the engine for them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dns_audit::authority::{Answer, Asked, Via, Zone};
use dns_guard::{RateLimiter, Verdict};
use engine::{Datagram, EngineHandle, ReturnPath, UdpResponder};

use super::service::Service;

/// Late answers at a time; beyond it queries stay without answer.
const LATE_MAX: usize = 20_000;

/// Answers datagrams.
pub(super) struct Responder {
    service: Arc<Service>,
    limiter: RateLimiter,
    late: Arc<Late>,
}

/// Answers that wait until it is their time.
#[derive(Default)]
pub(super) struct Late {
    queue: Mutex<Queue>,
    /// There is an earlier one than before.
    changed: Condvar,
    /// Of those whose time has come.
    due: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    /// By time; the number tells those of one moment apart.
    waiting: BTreeMap<(Instant, u64), (ReturnPath, Vec<u8>)>,
    due: VecDeque<(ReturnPath, Vec<u8>)>,
    next: u64,
}

impl Responder {
    pub(super) fn new(service: Arc<Service>, limiter: RateLimiter) -> (Responder, Arc<Late>) {
        let late = Arc::new(Late::default());
        (Responder { service, limiter, late: Arc::clone(&late) }, late)
    }

    fn answer(&mut self, datagram: &Datagram<'_>, now: clock::Instant) -> Answer {
        let message = &datagram.buffer[..datagram.len];
        let (source, destination) = (datagram.source(), datagram.destination());
        match self.limiter.take(source.ip(), false, 0, now) {
            Verdict::Pass => self.service.answer(message, source, destination, Via::Udp),
            Verdict::Slip => {
                let asked = Asked { message, source, server: 0, via: Via::Udp };
                Answer { message: Zone::cut(&asked), ..Answer::default() }
            }
            Verdict::Drop => Answer::default(),
        }
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
                self.late.push(Instant::now() + delay, datagram.return_path(), octets);
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

impl Late {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: Instant, path: ReturnPath, octets: Vec<u8>) {
        let mut queue = self.lock();
        if queue.waiting.len() < LATE_MAX {
            let number = queue.next;
            queue.next += 1;
            queue.waiting.insert((at, number), (path, octets));
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
            let later = queue.waiting.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut queue.waiting, later);
            if !due.is_empty() {
                queue.due.extend(due.into_values());
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
