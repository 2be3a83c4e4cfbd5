//! From the threads that answer to the one that writes the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::Entry;
use crate::entry::{HEADER_LEN, MESSAGE_MAX};

/// Where the answers of all threads of a server meet.
#[derive(Debug)]
pub struct AnswerLog {
    /// Octets of each ring.
    capacity: usize,
    /// One answer of so many is noted.
    sample: u32,
    /// Nanoseconds since 1970.
    clock: fn() -> u64,
    rings: Mutex<Vec<Consumer<u8>>>,
    lost: AtomicU64,
    /// The thread that writes, and whether it sleeps.
    reader: Mutex<Option<Thread>>,
    is_asleep: AtomicBool,
}

/// The end of one thread that answers.
#[derive(Debug)]
pub struct Writer {
    log: Arc<AnswerLog>,
    ring: Producer<u8>,
    /// Answers until the next one that is noted.
    skip: u32,
}

impl AnswerLog {
    /// A log that notes one answer of `sample`, with a ring of `capacity` octets for each thread. `clock` gives nanoseconds since 1970.
    pub fn new(sample: u32, capacity: usize, clock: fn() -> u64) -> Arc<AnswerLog> {
        Arc::new(AnswerLog {
            capacity,
            sample: sample.max(1),
            clock,
            rings: Mutex::default(),
            lost: AtomicU64::new(0),
            reader: Mutex::default(),
            is_asleep: AtomicBool::new(false),
        })
    }

    /// The end for one more thread. It allocates the ring.
    pub fn writer(self: &Arc<AnswerLog>) -> Writer {
        let (producer, consumer) = RingBuffer::new(self.capacity);
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(consumer);
        Writer { log: Arc::clone(self), ring: producer, skip: 0 }
    }

    /// Gives everything that was noted to `each`, of every thread in its order; whether there was anything. To be called by one thread.
    pub fn drain(&self, mut each: impl FnMut(&Entry<'_>)) -> bool {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut message, mut any) = (Vec::new(), false);
        rings.retain_mut(|ring| {
            let is_over = ring.is_abandoned(); // Asked before: what came last is still taken.
            while let Some(entry) = pop(ring, &mut message) {
                each(&entry);
                any = true;
            }
            !is_over
        });
        any
    }

    /// Sleeps until something is noted, at most for `patience`. To be called by the thread that drains, after it has found nothing.
    pub fn sleep(&self, patience: Duration) {
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        self.is_asleep.store(true, Ordering::SeqCst);
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = rings.iter().all(Consumer::is_empty);
        drop(rings);
        if is_empty {
            std::thread::park_timeout(patience);
        }
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Wakes the thread that drains.
    pub fn wake(&self) {
        if let Some(reader) = &*self.reader.lock().unwrap_or_else(PoisonError::into_inner) {
            reader.unpark();
        }
    }

    /// Counts answers that were noted and could not be written.
    pub fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Answers that should be in the log and are not.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// The log that it belongs to.
    pub fn log(&self) -> &Arc<AnswerLog> {
        &self.log
    }

    /// What time it is, in nanoseconds since 1970.
    pub fn now(&self) -> u64 {
        (self.log.clock)()
    }

    /// Notes an answer, or counts it if there is no room, or passes over it if only a sample is noted.
    pub fn note(&mut self, entry: &Entry<'_>) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.skip = self.log.sample - 1;
        let len = HEADER_LEN + entry.message.len();
        let is_pushed = entry.message.len() <= MESSAGE_MAX
            && self.ring.slots() >= len
            && self.ring.push_entire_slice(&entry.header()).is_ok()
            && self.ring.push_entire_slice(entry.message).is_ok();
        if !is_pushed {
            self.log.lose(1);
        }
        if self.log.is_asleep.load(Ordering::Relaxed) && self.log.is_asleep.swap(false, Ordering::SeqCst) {
            self.log.wake();
        }
    }
}

/// Takes the oldest entry, if there is a whole one: the header becomes visible before its message does.
fn pop<'m>(ring: &mut Consumer<u8>, message: &'m mut Vec<u8>) -> Option<Entry<'m>> {
    let available = ring.slots();
    let chunk = ring.read_chunk(HEADER_LEN).ok()?;
    let (first, second) = chunk.as_slices();
    let mut header = [0; HEADER_LEN];
    header[..first.len()].copy_from_slice(first);
    header[first.len()..].copy_from_slice(second);
    let len = Entry::message_len(&header);
    if available < HEADER_LEN + len {
        return None;
    }
    chunk.commit_all();
    message.resize(len, 0);
    ring.pop_entire_slice(message).ok()?;
    Some(Entry::read(&header, message))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::Transport;

    fn entry(time_ns: u64, message: &[u8]) -> Entry<'_> {
        let client = SocketAddr::from(([192, 0, 2, 1], 4000));
        Entry { time_ns, took_ns: None, transport: Transport::Udp, client, server: None, message }
    }

    fn drained(log: &AnswerLog) -> Vec<(u64, Vec<u8>)> {
        let mut entries = Vec::new();
        log.drain(|entry| entries.push((entry.time_ns, entry.message.to_vec())));
        entries
    }

    #[test]
    fn what_all_threads_note_comes_out_whole_and_in_the_order_of_each() {
        let log = AnswerLog::new(1, 1000, || 0);
        let (mut one, mut two) = (log.writer(), log.writer());
        for round in 0..100 {
            one.note(&entry(round, b"one"));
            two.note(&entry(round, b""));
            one.note(&entry(round + 1, &[7; 200]));
            let expected = [(round, b"one".to_vec()), (round + 1, vec![7; 200]), (round, Vec::new())];
            assert_eq!(drained(&log), expected);
        }
        assert_eq!((log.lost(), drained(&log)), (0, Vec::new()));
    }

    #[test]
    fn what_finds_no_room_is_counted_and_later_entries_come_whole() {
        let log = AnswerLog::new(1, 2 * (HEADER_LEN + 3) + 2, || 0);
        let mut writer = log.writer();
        for round in 0..50 {
            (0..3).for_each(|at| writer.note(&entry(round, &[at, 0, 0])));
            assert_eq!(drained(&log), [(round, vec![0, 0, 0]), (round, vec![1, 0, 0])]);
            assert_eq!(log.lost(), round + 1);
        }
    }

    #[test]
    fn a_sample_is_one_answer_of_so_many() {
        let log = AnswerLog::new(10, 10_000, || 0);
        let mut writer = log.writer();
        (0..100).for_each(|time| writer.note(&entry(time, b"")));
        let times: Vec<u64> = drained(&log).into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, (0..100).step_by(10).collect::<Vec<u64>>());
        assert_eq!(log.lost(), 0);
    }

    #[test]
    fn what_a_thread_noted_before_it_ended_is_drained() {
        let log = AnswerLog::new(1, 1000, || 0);
        let mut writer = log.writer();
        writer.note(&entry(1, b"last"));
        drop(writer);
        assert_eq!(drained(&log), [(1, b"last".to_vec())]);
        assert!(log.rings.lock().unwrap().is_empty());
    }

    #[test]
    fn who_sleeps_is_woken_by_the_next_answer() {
        let log = AnswerLog::new(1, 1000, || 0);
        let mut writer = log.writer();
        let reader = std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                while !log.drain(|_| ()) {
                    log.sleep(Duration::from_secs(3600));
                }
            }
        });
        writer.note(&entry(1, b""));
        reader.join().unwrap();
    }
}
