//! The broker's status socket: `run-PID.sock` beside the control sockets of programs.
//!
//! A client gets the report in JSON, and is disconnected. Tools ask the brokers of other users too, which have fewer rights than root: they are
//! asked within bounds, and believed of their own users' processes alone.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use broker::server::{Reporter, StatusReport};
use observe::client::{ClientError, read_report};
use observe::{ControlListener, Peer};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// How long each side waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// An open status socket.
#[must_use]
pub(crate) struct StatusSocket {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Opens the status socket of a broker.
pub(crate) fn serve(reporter: Reporter) -> io::Result<StatusSocket> {
    let directory = observe::make_own_directory()?;
    remove_remains(&directory);
    let listener = ControlListener::at(&directory.join(observe::broker_name(std::process::id())))?;
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let woken = Arc::clone(&wake);
    let answer = move || answer_until(&listener, &woken, &reporter);
    let thread = std::thread::Builder::new().name("status".to_owned()).spawn(answer)?;
    Ok(StatusSocket { wake, thread: Some(thread) })
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // Cannot block, nor be full.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It has no reason to panic; the program ends all the same.
        }
    }
}

fn answer_until(listener: &ControlListener, wake: &OwnedFd, reporter: &Reporter) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        // A signal, or lack of memory, ends the wait early; it starts again.
        let _ = poll(&mut fds, None);
        if fds[1].revents().contains(PollFlags::IN) {
            return;
        }
        match listener.accept() {
            Ok(Some(stream)) => drop(answer(&stream, reporter)), // Who goes has seen enough.
            Ok(None) => {}
            // For instance no free descriptor; there may be one soon.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn answer(mut stream: &UnixStream, reporter: &Reporter) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let report = reporter.report().ok_or(io::ErrorKind::ConnectionAborted)?;
    stream.write_all(&serde_json::to_vec(&report)?)
}

/// A broker's status socket that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// The broker's process id, by the name of the socket.
    pub(crate) process: u32,
    path: PathBuf,
}

/// What one broker told.
pub(crate) struct Told {
    /// The broker's process id.
    pub(crate) process: u32,
    /// When it told: others may have taken longer.
    pub(crate) at: Instant,
    pub(crate) report: StatusReport,
}

/// The brokers' answers.
#[derive(Default)]
pub(crate) struct Answers {
    /// What they told.
    pub(crate) reports: Vec<Told>,
    /// For each broker that did not answer: which one, and why.
    pub(crate) failures: Vec<(u32, String)>,
}

/// The sockets of all brokers, or of one of them.
pub(crate) fn find(pid: Option<u32>) -> Vec<Socket> {
    let sockets = observe::directories().into_iter().flat_map(|directory| observe::brokers_in(&directory));
    let sockets = sockets.map(|(process, path)| Socket { process, path });
    sockets.filter(|socket| pid.is_none_or(|pid| pid == socket.process)).collect()
}

/// Asks these brokers, all at once. One that is stopped, or of another version, does not hide the others.
pub(crate) fn ask(sockets: &[Socket], patience: Duration) -> Answers {
    let mut answers = Answers::default();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let ask = move |socket: &Socket| {
            let told = read_report::<StatusReport>(&socket.path, patience)?;
            Ok(told.map(|(peer, report)| (peer, report, Instant::now())))
        };
        let asked: Vec<_> = sockets.iter().map(|socket| scope.spawn(move || ask(socket))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or(Ok(None))).collect()
    });
    for (socket, outcome) in sockets.iter().zip(outcomes) {
        match outcome {
            Ok(Some((peer, report, at))) => answers.take(socket.process, peer, report, at),
            Ok(None) => {} // It has ended.
            Err(error) => answers.fail(socket.process, &why_silent(&error)),
        }
    }
    answers
}

fn why_silent(error: &ClientError) -> String {
    use io::ErrorKind::{TimedOut, WouldBlock};
    match error {
        ClientError::Connection(error) | ClientError::Silent { error, .. }
            if matches!(error.kind(), TimedOut | WouldBlock) =>
        {
            "does not answer (is it stopped?)".to_owned()
        }
        ClientError::Protocol(error) => {
            format!("sent an unexpected answer (is it of another version?): {error}")
        }
        error => format!("cannot be reached: {error}"),
    }
}

impl Answers {
    /// Enters what `peer` says, who answers at the socket of this broker. Of another user's broker, its name in the file system may be anybody's, and its
    /// programs as well.
    fn take(&mut self, named: u32, peer: Peer, mut report: StatusReport, at: Instant) {
        let process = peer.behind(named);
        let told = report.programs.len();
        report.programs.retain(|program| peer.may_speak_of(program.pid));
        let strange = told - report.programs.len();
        if !peer.is_root_or_oneself() {
            // It may have claimed an interface; which one that is in its network namespace is for it to say.
            report.interfaces.iter_mut().for_each(|it| it.name = format!("{} of user {}", it.name, peer.uid));
        }
        if strange > 0 {
            self.fail(process, &format!("of user {} tells of {strange} processes of others", peer.uid));
        }
        self.reports.push(Told { process, at, report });
    }

    fn fail(&mut self, process: u32, why: &str) {
        self.failures.push((process, format!("`sidestep run` {process} {why}")));
    }

    /// What did not go well, in lines.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().map(|(_, why)| why.as_str())
    }

    /// The answers; an error if there are none.
    pub(super) fn unless_none(self, pid: Option<u32>) -> anyhow::Result<Answers> {
        match pid {
            _ if !self.reports.is_empty() => Ok(self),
            _ if !self.failures.is_empty() => {
                anyhow::bail!(self.complaints().collect::<Vec<_>>().join("; "))
            }
            Some(pid) if is_sidestep(pid) => anyhow::bail!(
                "process {pid} has no broker of its own: `sidestep status` without --pid shows all, also what has joined another one's"
            ),
            Some(pid) => anyhow::bail!("no `sidestep run` {pid} is running here"),
            None => anyhow::bail!("no `sidestep run` is running here"),
        }
    }
}

/// Whether a process is one of this command's, by its name (proc(5)).
fn is_sidestep(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "sidestep")
}

/// Removes the sockets of brokers that were killed. One without a process here may still live in another PID namespace.
fn remove_remains(directory: &Path) {
    let is_here = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    for (_, path) in observe::brokers_in(directory).into_iter().filter(|(pid, _)| !is_here(*pid)) {
        let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if UnixStream::connect(&path).is_err_and(refuses) {
            let _ = std::fs::remove_file(&path); // Another's remains are left alone, by the system.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A socket that refuses is taken for what a dead broker left, and removed.
    #[test]
    fn who_asks_a_broker_that_begins_does_not_take_its_socket_away() {
        let directory = std::env::temp_dir().join(format!("sidestep-status-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, done) = (directory.join("run-1.sock"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = read_report::<StatusReport>(&path, PATIENCE); // Nobody answers here.
                }
            });
            let is_taken = || ControlListener::at(&path).map(|_listener| !path.exists()).unwrap_or(true);
            let taken = (0..2000).filter(|_| is_taken()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(taken, 0, "of 2000");
        });
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
