//! The query log: a line of JSON for each answer, in a file.
//!
//! The resolver's thread passes each answer on, and another thread reads it and writes the line. Where that one falls behind (a slow or full
//! disk), answers go without a line, and are counted: nobody waits for the log.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use clock::{Duration, Instant};
use dns_front::Via;
use dns_message::{Malformed, Message};
use dns_wire::Rtype;
use serde::Serialize;

use super::front::Way;
use crate::dns::query::{extended_errors, flag_names, rcode_text};

/// Octets of answers that may wait to be written.
const WAITING_MAX: usize = 4 << 20;
/// Who asked for what is nobody else's business.
const OWNER_ONLY: u32 = 0o600;

/// A log that is written to.
pub(super) struct QueryLog {
    entries: Sender<Entry>,
    counts: Arc<Counts>,
    writer: JoinHandle<()>,
}

/// What both threads count.
#[derive(Default)]
struct Counts {
    /// Octets of answers that wait.
    waiting: AtomicUsize,
    /// Answers without a line.
    lost: AtomicU64,
}

/// A question, until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) client: SocketAddr,
    pub(super) way: Way,
    pub(super) at: Instant,
}

/// An answer that waits for its line.
struct Entry {
    time: SystemTime,
    asked: Asked,
    took: Duration,
    answer: Vec<u8>,
}

impl QueryLog {
    /// Appends to the file at `path`, which is made if there is none. Goes on counting where the log `before` it does.
    pub(super) fn open(path: &Path, before: Option<&QueryLog>) -> io::Result<QueryLog> {
        let file = OpenOptions::new().append(true).create(true).mode(OWNER_ONLY).open(path)?;
        let (entries, receiver) = channel();
        let counts = before.map(|log| Arc::clone(&log.counts)).unwrap_or_default();
        let of_writer = Arc::clone(&counts);
        let writer = std::thread::Builder::new().name("query log".to_owned());
        let writer = writer.spawn(move || write(&receiver, file, &of_writer))?;
        Ok(QueryLog { entries, counts, writer })
    }

    /// An answer leaves, at `now`.
    pub(super) fn note(&self, asked: Asked, answer: &[u8], now: Instant) {
        if self.counts.waiting.load(Ordering::Relaxed) + answer.len() > WAITING_MAX {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.counts.waiting.fetch_add(answer.len(), Ordering::Relaxed);
        let took = now.since(asked.at);
        let entry = Entry { time: SystemTime::now(), asked, took, answer: answer.to_vec() };
        let _ = self.entries.send(entry); // A writer that panicked has said so on stderr.
    }

    /// Waits until what was noted is written. A log that is dropped is written, too, and nobody waits.
    pub(super) fn finish(self) {
        drop(self.entries);
        let _ = self.writer.join(); // As above.
    }

    /// Answers that have no line: too many waited, or the file could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

/// Writes a line for each entry until there will be no more. The file has all lines whenever none waits.
fn write(entries: &Receiver<Entry>, file: File, counts: &Counts) {
    let mut file = BufWriter::new(file);
    let mut has_failed = false;
    while let Ok(first) = entries.recv() {
        let waiting = std::iter::once(first).chain(std::iter::from_fn(|| entries.try_recv().ok()));
        for entry in waiting {
            counts.waiting.fetch_sub(entry.answer.len(), Ordering::Relaxed);
            let mut line = serde_json::to_vec(&Line::of(&entry)).unwrap_or_default();
            line.push(b'\n');
            has_failed |= file.write_all(&line).inspect_err(|error| tell(error, has_failed, counts)).is_err();
        }
        has_failed |= file.flush().inspect_err(|error| tell(error, has_failed, counts)).is_err();
    }
}

/// A line is lost, or part of one; only the first is said.
fn tell(error: &io::Error, has_failed: bool, counts: &Counts) {
    counts.lost.fetch_add(1, Ordering::Relaxed);
    if !has_failed {
        log::error!("the query log has gaps from now on: {error}");
    }
}

/// What a line says.
#[derive(Serialize)]
struct Line {
    time: String,
    client: SocketAddr,
    via: &'static str,
    /// `None`: the answer does not say what was asked.
    name: Option<String>,
    #[serde(rename = "type")]
    rtype: Option<String>,
    rcode: String,
    flags: Vec<&'static str>,
    answers: u16,
    /// Info codes of extended errors (RFC 8914).
    ede: Vec<u16>,
    octets: usize,
    us: u64,
}

impl Line {
    fn of(entry: &Entry) -> Line {
        let mut line = Line {
            time: humantime::format_rfc3339_millis(entry.time).to_string(),
            client: entry.asked.client,
            via: name_of(entry.asked.way),
            name: None,
            rtype: None,
            rcode: String::new(),
            flags: Vec::new(),
            answers: 0,
            ede: Vec::new(),
            octets: entry.answer.len(),
            us: entry.took.as_micros(),
        };
        let _ = line.read(&entry.answer); // Our own answers have their form; of any other the line has the beginning.
        line
    }

    fn read(&mut self, answer: &[u8]) -> Result<(), Malformed> {
        let mut message = Message::parse(answer)?;
        let (flags, counts) = (message.flags(), message.counts());
        self.name = message.question().map(|question| question.name.to_string());
        self.rtype = message.question().map(|question| question.qtype.to_string());
        self.rcode = rcode_text(flags & 0xf);
        self.flags = flag_names(flags).collect();
        self.answers = counts[0];
        for _ in 0..counts.into_iter().map(u32::from).sum() {
            let record = message.next_record()?;
            if record.rtype == Rtype::OPT {
                self.rcode = rcode_text((record.ttl >> 20 & 0xff0) as u16 | flags & 0xf);
                self.ede = extended_errors(&record).ok_or(Malformed)?;
            }
        }
        Ok(())
    }
}

fn name_of(way: Way) -> &'static str {
    match way {
        Way::Udp => "udp",
        Way::Tcp => "tcp",
        Way::Encrypted(Via::Tls) => "tls",
        Way::Encrypted(Via::Https) => "https",
        Way::Encrypted(Via::Quic) => "quic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked {
        client: SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), 4000),
        way: Way::Udp,
        at: Instant::ZERO,
    };

    /// A file on a device that is always full (full(4)).
    #[test]
    fn what_cannot_be_written_is_counted_and_holds_nobody_up() {
        let log = QueryLog::open(Path::new("/dev/full"), None).unwrap();
        for _ in 0..3 {
            log.note(ASKED, b"an answer", Instant::ZERO);
        }
        let counts = Arc::clone(&log.counts);
        log.finish();
        assert!(counts.lost.load(Ordering::Relaxed) > 0);
        assert_eq!(counts.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn more_than_may_wait_goes_without_a_line() {
        let (entries, receiver) = channel();
        let writer = std::thread::spawn(|| ());
        let log = QueryLog { entries, counts: Arc::default(), writer };
        let half = vec![0; WAITING_MAX / 2];
        for _ in 0..3 {
            log.note(ASKED, &half, Instant::ZERO);
        }
        assert_eq!((receiver.try_iter().count(), log.lost()), (2, 1));
    }
}
