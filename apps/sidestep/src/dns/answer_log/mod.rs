//! The query log of a server or a resolver: each answer, or a sample of them, in a file or by a socket.
//!
//! | file | what it has |
//! | --- | --- |
//! | `config.rs` | the option `query-log` |
//! | `sink.rs` | where answers go |
//! | `line.rs` | an answer as a line of JSON |

mod config;
mod line;
mod sink;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use dns_log::dnstap::Role;
use dns_log::{AnswerLog, Reader};

pub(crate) use self::config::{QueryLogOption, QueryLogSpec};
use self::sink::{FileId, Sink};

/// Octets of answers of each thread that may wait to be written.
const WAITING_MAX: usize = 4 << 20;
/// How long what was found is left to become more, so that an answer is not a wake-up.
const GATHER: Duration = Duration::from_millis(10);
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A log that is written, by a thread of its own. Dropped, it ends when everything that was noted is written.
pub(crate) struct QueryLog {
    spec: QueryLogSpec,
    file: Option<FileId>,
    /// Where answers are noted.
    pub(crate) answers: Arc<AnswerLog>,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Default)]
struct Orders {
    stop: AtomicBool,
    next: Mutex<Option<Sink>>,
}

impl QueryLog {
    /// Begins what `spec` says, of a server of this role.
    pub(crate) fn start(spec: &QueryLogSpec, role: Role) -> anyhow::Result<QueryLog> {
        let sink = Sink::open(spec, role).with_context(|| format!("query-log: {}", spec.place))?;
        let file = sink.file();
        let (answers, reader) = AnswerLog::new(spec.sample, WAITING_MAX, unix_ns);
        let orders = Arc::new(Orders::default());
        let (of_thread, told) = (Arc::clone(&answers), Arc::clone(&orders));
        let thread = std::thread::Builder::new().name("query log".to_owned());
        let thread =
            thread.spawn(move || write(reader, &of_thread, &told, sink)).context("starting a thread")?;
        Ok(QueryLog { spec: spec.clone(), file, answers, orders, thread: Some(thread) })
    }

    /// Does in place of `current` what `spec` says now, and gives the log that is no longer needed, which is to be dropped when nobody notes in
    /// it any more. A file that has got another name, as who rotates files does, is begun anew.
    pub(crate) fn follow(
        current: &mut Option<QueryLog>,
        spec: Option<&QueryLogSpec>,
        role: Role,
    ) -> anyhow::Result<Option<QueryLog>> {
        let Some(spec) = spec else { return Ok(current.take()) };
        if let Some(log) = current
            && log.spec == *spec
        {
            log.reopen(role).with_context(|| format!("query-log: {}", spec.place))?;
            return Ok(None);
        }
        let next = QueryLog::start(spec, role)?;
        if let Some(log) = current {
            next.answers.lose(log.answers.lost()); // The count goes on.
        }
        Ok(current.replace(next))
    }

    fn reopen(&mut self, role: Role) -> io::Result<()> {
        if self.file.is_none() || self.file == FileId::at(&self.spec.place) {
            return Ok(());
        }
        let sink = Sink::open(&self.spec, role)?;
        self.file = sink.file();
        *self.orders.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(sink);
        self.answers.wake();
        Ok(())
    }
}

impl Drop for QueryLog {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::SeqCst);
        self.answers.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A thread that panicked has said so on stderr.
        }
    }
}

/// Writes what is noted until it is to stop.
fn write(mut reader: Reader, answers: &AnswerLog, orders: &Orders, mut sink: Sink) {
    loop {
        // Asked before the last look at the rings.
        let is_last = orders.stop.load(Ordering::SeqCst);
        let found = reader.drain(|entry| sink.write(entry, answers));
        sink.flush(answers);
        if let Some(next) = orders.next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::mem::replace(&mut sink, next).finish(answers);
        }
        if is_last {
            return sink.finish(answers);
        }
        if found {
            std::thread::sleep(GATHER);
        } else {
            reader.sleep(SLEEP_MAX);
        }
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use dns_log::{Entry, Transport};

    use super::config::{Form, Place};
    use super::*;

    const ENTRY: Entry<'_> = Entry {
        time_ns: 0,
        took_ns: None,
        transport: Transport::Udp,
        client: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000),
        server: None,
        message: b"an answer",
    };

    fn spec(place: Place) -> QueryLogSpec {
        QueryLogSpec { place, form: Form::Json, sample: 1 }
    }

    /// A file on a device that is always full (full(4)).
    #[test]
    fn what_cannot_be_written_is_counted_and_holds_nobody_up() {
        let log = QueryLog::start(&spec(Place::File("/dev/full".into())), Role::Resolver).unwrap();
        let answers = Arc::clone(&log.answers);
        let mut writer = answers.writer();
        (0..3).for_each(|_| writer.note(&ENTRY));
        drop(log);
        assert_eq!(answers.lost(), 3);
    }

    #[test]
    fn a_socket_that_nobody_reads_loses_answers_and_nothing_else() {
        let spec = QueryLogSpec { form: Form::Dnstap, ..spec(Place::Socket("/nowhere/dnstap.sock".into())) };
        let mut current = Some(QueryLog::start(&spec, Role::Authority).unwrap());
        let answers = Arc::clone(&current.as_ref().unwrap().answers);
        let mut writer = answers.writer();
        writer.note(&ENTRY);
        drop(QueryLog::follow(&mut current, None, Role::Authority).unwrap());
        assert_eq!((answers.lost(), current.is_none()), (1, true));
    }
}
