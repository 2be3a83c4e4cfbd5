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
    /// The rings that the reader does not have yet. Nobody holds them for longer than to add or take some.
    new: Mutex<Vec<Consumer<u8>>>,
    lost: AtomicU64,
    /// The thread that writes, and whether it sleeps.
    reader: Mutex<Option<Thread>>,
    is_asleep: AtomicBool,
}

/// The end of the thread that writes the log.
#[derive(Debug)]
pub struct Reader {
    log: Arc<AnswerLog>,
    rings: Vec<Consumer<u8>>,
    message: Vec<u8>,
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
    pub fn new(sample: u32, capacity: usize, clock: fn() -> u64) -> (Arc<AnswerLog>, Reader) {
        let log = Arc::new(AnswerLog {
            capacity,
            sample: sample.max(1),
            clock,
            new: Mutex::default(),
            lost: AtomicU64::new(0),
            reader: Mutex::default(),
            is_asleep: AtomicBool::new(false),
        });
        let reader = Reader { log: Arc::clone(&log), rings: Vec::new(), message: Vec::new() };
        (log, reader)
    }

    /// The end for one more thread. It allocates the ring.
    pub fn writer(self: &Arc<AnswerLog>) -> Writer {
        let (producer, consumer) = RingBuffer::new(self.capacity);
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(consumer);
        Writer { log: Arc::clone(self), ring: producer, skip: 0 }
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

impl Reader {
    /// Gives what was noted when this is called to `each`, of every thread in its order; whether there was anything.
    pub fn drain(&mut self, mut each: impl FnMut(&Entry<'_>)) -> bool {
        self.take_new();
        let Reader { rings, message, .. } = self;
        let mut any = false;
        rings.retain_mut(|ring| {
            let is_over = ring.is_abandoned(); // Asked before: what came last is still taken.
            // Who answers faster than this must not keep the others waiting.
            let mut left = ring.slots();
            while left > 0
                && let Some(entry) = pop(ring, message)
            {
                left = left.saturating_sub(HEADER_LEN + entry.message.len());
                each(&entry);
                any = true;
            }
            !(is_over && ring.is_empty())
        });
        any
    }

    /// Sleeps until something is noted, at most for `patience`. To be called after nothing was found.
    pub fn sleep(&mut self, patience: Duration) {
        *self.log.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        self.log.is_asleep.store(true, Ordering::SeqCst);
        self.take_new();
        if self.rings.iter().all(Consumer::is_empty) {
            std::thread::park_timeout(patience);
        }
        self.log.is_asleep.store(false, Ordering::SeqCst);
    }

    fn take_new(&mut self) {
        self.rings.append(&mut self.log.new.lock().unwrap_or_else(PoisonError::into_inner));
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

    fn drained(reader: &mut Reader) -> Vec<(u64, Vec<u8>)> {
        let mut entries = Vec::new();
        reader.drain(|entry| entries.push((entry.time_ns, entry.message.to_vec())));
        entries
    }

    #[test]
    fn what_all_threads_note_comes_out_whole_and_in_the_order_of_each() {
        let (log, mut reader) = AnswerLog::new(1, 1000, || 0);
        let (mut one, mut two) = (log.writer(), log.writer());
        for round in 0..100 {
            one.note(&entry(round, b"one"));
            two.note(&entry(round, b""));
            one.note(&entry(round + 1, &[7; 200]));
            let expected = [(round, b"one".to_vec()), (round + 1, vec![7; 200]), (round, Vec::new())];
            assert_eq!(drained(&mut reader), expected);
        }
        assert_eq!((log.lost(), drained(&mut reader)), (0, Vec::new()));
    }

    #[test]
    fn what_finds_no_room_is_counted_and_later_entries_come_whole() {
        let (log, mut reader) = AnswerLog::new(1, 2 * (HEADER_LEN + 3) + 2, || 0);
        let mut writer = log.writer();
        for round in 0..50 {
            (0..3).for_each(|at| writer.note(&entry(round, &[at, 0, 0])));
            assert_eq!(drained(&mut reader), [(round, vec![0, 0, 0]), (round, vec![1, 0, 0])]);
            assert_eq!(log.lost(), round + 1);
        }
    }

    #[test]
    fn a_sample_is_one_answer_of_so_many() {
        let (log, mut reader) = AnswerLog::new(10, 10_000, || 0);
        let mut writer = log.writer();
        (0..100).for_each(|time| writer.note(&entry(time, b"")));
        let times: Vec<u64> = drained(&mut reader).into_iter().map(|(time, _)| time).collect();
        assert_eq!(times, (0..100).step_by(10).collect::<Vec<u64>>());
        assert_eq!(log.lost(), 0);
    }

    #[test]
    fn what_a_thread_noted_before_it_ended_is_drained() {
        let (log, mut reader) = AnswerLog::new(1, 1000, || 0);
        let mut writer = log.writer();
        writer.note(&entry(1, b"last"));
        drop(writer);
        assert_eq!(drained(&mut reader), [(1, b"last".to_vec())]);
        assert!(reader.rings.is_empty());
    }

    #[test]
    fn who_sleeps_is_woken_by_the_next_answer() {
        let (log, mut reader) = AnswerLog::new(1, 1000, || 0);
        let mut writer = log.writer();
        let reader = std::thread::spawn(move || {
            while !reader.drain(|_| ()) {
                reader.sleep(Duration::from_secs(3600));
            }
        });
        writer.note(&entry(1, b""));
        reader.join().unwrap();
    }

    #[test]
    fn who_answers_faster_than_is_written_keeps_nobody_waiting() {
        let (log, mut reader) = AnswerLog::new(1, 1000, || 0);
        let (mut fast, mut slow) = (log.writer(), log.writer());
        fast.note(&entry(1, b"fast"));
        slow.note(&entry(2, b"slow"));
        let mut times = Vec::new();
        reader.drain(|noted| {
            times.push(noted.time_ns);
            fast.note(&entry(3, b"fast"));
            drop(log.writer()); // One more thread begins, and waits for nobody.
        });
        assert_eq!(times, [1, 2]);
    }
}
