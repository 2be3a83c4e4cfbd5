//! The broker's thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use clock::{Duration, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::broker::Broker;
use super::notice::Notice;
use super::status::StatusReport;

/// Notices are about what `sidestep run` does.
const LOG_TARGET: &str = "sidestep::run";
/// Longer than the broker ever sleeps, or takes for a turn.
const SLEEP_MAX: Duration = Duration::from_secs(2);
/// How long programs may take to move their connections to the kernel when the broker ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// How long a program may take to report.
const PATIENCE: Duration = Duration::from_millis(300);

/// A broker that serves. Stop it, or it ends with the process.
pub struct Handle {
    reporter: Reporter,
    thread: JoinHandle<()>,
}

/// Asks a broker how things are. Once it has stopped, it says nothing.
#[derive(Clone)]
pub struct Reporter {
    requests: Sender<Request>,
    wake: Arc<OwnedFd>,
}

/// What the thread can be asked.
enum Request {
    Report(Sender<StatusReport>),
    #[cfg(test)]
    ReportAtOnce(Sender<StatusReport>),
    TellWhenAlone(Sender<()>),
    Stop,
}

/// What the thread works on.
struct Serving {
    broker: Broker,
    /// The output of notices, if notices are wanted.
    teller: Option<SyncSender<Notice>>,
    receiver: Receiver<Request>,
    wake: Arc<OwnedFd>,
    started: std::time::Instant,
    time: ServedTime,
    /// The requests for reports of programs, and their deadlines.
    reports: Vec<(Instant, Sender<StatusReport>)>,
    alone: Vec<Sender<()>>,
}

pub(super) fn start(broker: Broker, verbose: bool) -> io::Result<Handle> {
    let (requests, receiver) = channel();
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let mut serving = Serving {
        broker,
        teller: if verbose { Some(start_teller()?) } else { None },
        receiver,
        wake: Arc::clone(&wake),
        started: std::time::Instant::now(),
        time: ServedTime::default(),
        reports: Vec::new(),
        alone: Vec::new(),
    };
    let serve = move || {
        while serving.turn() {}
        serving.end();
    };
    let thread = std::thread::Builder::new().name("broker".to_owned()).spawn(serve)?;
    Ok(Handle { reporter: Reporter { requests, wake }, thread })
}

/// A thread that writes notices to the log: a stopped terminal, or a pipe without a reader, delays only this thread.
fn start_teller() -> io::Result<SyncSender<Notice>> {
    const NOTICES_MAX: usize = 1024;
    let (sender, notices) = sync_channel::<Notice>(NOTICES_MAX);
    let tell = move || {
        for notice in notices {
            log::log!(target: LOG_TARGET, notice.level(), "{notice}");
        }
    };
    std::thread::Builder::new().name("notices".to_owned()).spawn(tell)?;
    Ok(sender)
}

impl Handle {
    /// For requests of the status.
    pub fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// Tells all clients that this is the end, gives everything back to the kernel, and waits until that is done. If others have joined
    /// ([`Member`](super::Member)), it leaves everything to the one of them that is first to take its place.
    pub fn stop(self) {
        self.reporter.send(Request::Stop);
        let _ = self.thread.join(); // A panic there has been reported; the rest is to end all the same.
    }
}

impl Reporter {
    /// How things are. Programs get some tenths of a second to say what they see.
    pub fn report(&self) -> Option<StatusReport> {
        let (sender, receiver) = channel();
        self.send(Request::Report(sender));
        receiver.recv().ok()
    }

    /// Waits until no client is connected, but no longer than `max`.
    pub fn linger(&self, max: Duration) {
        let (sender, receiver) = channel();
        self.send(Request::TellWhenAlone(sender));
        let _ = receiver.recv_timeout(std::time::Duration::from_nanos(max.as_nanos())); // Both answers are fine.
    }

    /// Has programs asked, and does not wait for them.
    #[cfg(test)]
    pub(super) fn look_at_once(&self, sender: Sender<StatusReport>) {
        self.send(Request::ReportAtOnce(sender));
    }

    fn send(&self, request: Request) {
        let _ = self.requests.send(request); // A thread that ended answers nothing.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // Only fails if it is to wake already.
    }
}

impl Serving {
    /// Sleeps until there is something to do, and does it; false when it is time to end.
    fn turn(&mut self) -> bool {
        self.wait();
        let now = self.now();
        while let Ok(request) = self.receiver.try_recv() {
            match request {
                Request::Report(sender) => {
                    self.broker.ask_for_reports(now);
                    self.reports.push((now + PATIENCE, sender));
                }
                #[cfg(test)]
                Request::ReportAtOnce(sender) => {
                    self.broker.ask_for_reports(now);
                    self.reports.push((now, sender));
                }
                Request::TellWhenAlone(sender) => self.alone.push(sender),
                Request::Stop => return false,
            }
        }
        self.broker.turn(now);
        self.answer(now);
        for notice in self.broker.take_notices() {
            // Notices beyond the reader's speed are dropped.
            let _ = self.teller.as_ref().map(|teller| teller.try_send(notice));
        }
        true
    }

    /// Where others have joined, one of them takes this one's place.
    fn end(mut self) {
        if self.broker.has_joined() {
            let now = self.now();
            return self.broker.leave(now);
        }
        self.close();
    }

    /// Gives programs the time to move what they have to the kernel. One that makes no calls, or is stopped, is not waited for longer.
    fn close(&mut self) {
        let now = self.now();
        let until = now + CLOSE_MAX;
        self.broker.begin_to_close(now);
        while self.broker.has_to_finish() && self.now() < until {
            self.wait();
            let now = self.now();
            self.broker.turn(now);
        }
    }

    fn answer(&mut self, now: Instant) {
        let is_whole = !self.broker.awaits_reports();
        for (_, sender) in self.reports.extract_if(.., |(until, _)| is_whole || now >= *until) {
            let _ = sender.send(self.broker.status(now)); // Who asked may have given up.
        }
        if self.broker.is_alone() {
            for sender in self.alone.drain(..) {
                let _ = sender.send(()); // As above.
            }
        }
    }

    fn wait(&mut self) {
        let now = self.now();
        let reports = self.reports.iter().map(|(until, _)| *until);
        let left = reports.fold(self.broker.poll_timeout(now), Instant::min).since(now);
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [
            PollFd::from_borrowed_fd(self.broker.fd(), PollFlags::IN),
            PollFd::new(&*self.wake, PollFlags::IN),
        ];
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]); // Never blocks; the count does not matter.
        }
    }

    fn now(&mut self) -> Instant {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.time.at(Duration::from_nanos(elapsed))
    }
}

/// The broker's time. While the process is stopped it stands still: what clients and helpers did not get done in that time is not their
/// fault.
#[derive(Debug, Default)]
struct ServedTime {
    seen: Duration,
    stopped: Duration,
}

impl ServedTime {
    /// The time when so much has passed since the start.
    fn at(&mut self, elapsed: Duration) -> Instant {
        let unseen = elapsed - self.seen;
        if unseen > SLEEP_MAX {
            self.stopped += unseen;
        }
        self.seen = elapsed;
        Instant::ZERO + (elapsed - self.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_broker_was_stopped_does_not_count() {
        let mut time = ServedTime::default();
        let mut at = |millis| time.at(Duration::from_millis(millis)).since(Instant::ZERO);
        assert_eq!(at(900), Duration::from_millis(900));
        assert_eq!(at(1900), Duration::from_millis(1900));
        assert_eq!(at(11_900), Duration::from_millis(1900));
        assert_eq!(at(12_000), Duration::from_millis(2000));
    }
}
