//! The broker's status socket: `run-PID.sock` beside the control sockets of programs.
//!
//! A client gets the report in JSON, and is disconnected.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use broker::server::{Reporter, StatusReport};
use observe::ControlListener;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// How long each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

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
    let listener = ControlListener::at(&directory.join(format!("run-{}.sock", std::process::id())))?;
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

/// The brokers' answers.
#[derive(Default)]
pub(crate) struct Answers {
    /// Each with the broker's process id.
    pub(crate) reports: Vec<(u32, StatusReport)>,
    /// For each broker that did not answer: which one, and why.
    pub(crate) failures: Vec<String>,
}

/// Asks all brokers of this user, or one of them. A broker that is stopped, or of another version, does not hide the others.
pub(crate) fn ask(pid: Option<u32>) -> Answers {
    let mut answers = Answers::default();
    for path in observe::directories().iter().flat_map(|directory| sockets_in(directory)) {
        let process = process_of(&path).unwrap_or_default();
        if pid.is_some_and(|pid| pid != process) {
            continue;
        }
        match ask_at(&path) {
            Ok(Some(report)) => answers.reports.push((process, report)),
            Ok(None) => {}
            Err(error) => answers.failures.push(format!("`sidestep run` {process} {error:#}")),
        }
    }
    answers
}

impl Answers {
    /// The answers; an error if there are none.
    pub(super) fn unless_none(self, pid: Option<u32>) -> anyhow::Result<Answers> {
        match pid {
            _ if !self.reports.is_empty() => Ok(self),
            _ if !self.failures.is_empty() => anyhow::bail!(self.failures.join("; ")),
            Some(pid) => anyhow::bail!("no `sidestep run` {pid} is running here"),
            None => anyhow::bail!("no `sidestep run` is running here"),
        }
    }
}

/// `None`: the broker has ended.
fn ask_at(path: &Path) -> anyhow::Result<Option<StatusReport>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = std::fs::remove_file(path); // What a broker left that was killed.
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("cannot be reached"),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut octets = Vec::new();
    stream.read_to_end(&mut octets).context("does not answer (is it stopped?)")?;
    if octets.is_empty() {
        return Ok(None); // It is ending.
    }
    let report =
        serde_json::from_slice(&octets).context("sent an unexpected answer (is it of another version?)")?;
    Ok(Some(report))
}

/// Removes the sockets of brokers that were killed. One without a process here may still live in another PID namespace.
fn remove_remains(directory: &Path) {
    let is_here =
        |path: &PathBuf| process_of(path).is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
    for path in sockets_in(directory).into_iter().filter(|path| !is_here(path)) {
        let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if UnixStream::connect(&path).is_err_and(refuses) {
            let _ = std::fs::remove_file(&path); // Another's remains are left alone, by the system.
        }
    }
}

/// In the order of the numbers of their processes. A directory that cannot be read has none.
fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| process_of(path).is_some()).collect();
    paths.sort_by_key(|path| process_of(path));
    paths
}

fn process_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("run-")?.strip_suffix(".sock")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn only_sockets_of_brokers_are_asked() {
        assert_eq!(process_of(Path::new("/run/sidestep/run-12.sock")), Some(12));
        assert_eq!(process_of(Path::new("/run/sidestep/12.sock")), None);
        assert_eq!(process_of(Path::new("/run/sidestep/run-x.sock")), None);
    }

    /// A socket that refuses is taken for what a dead broker left, and removed.
    #[test]
    fn who_asks_a_broker_that_begins_does_not_take_its_socket_away() {
        let directory = std::env::temp_dir().join(format!("sidestep-status-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, done) = (directory.join("run-1.sock"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = ask_at(&path); // Nobody answers here.
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
