//! [`Running`]: a program that has started and is ready.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Network, Ready};
use crate::{CLIENT_V4, Child, Directory, Lab, LabError, SERVER_V4, Side};

/// Time from start to readiness: databases and Java are slow to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(120);
/// Time between two polls.
const PAUSE: Duration = Duration::from_millis(20);
/// Time for a handshake. A refused connection fails at once.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A running program. It ends when its owner drops it.
pub struct Running {
    /// The started process: the program, or `sidestep run`.
    pub process: Child,
    /// Its files; removed after the process.
    pub directory: Directory,
    network: Network,
    is_daemon: bool,
}

impl Running {
    pub(super) fn new(process: Child, directory: Directory, network: Network, is_daemon: bool) -> Running {
        Running { process, directory, network, is_daemon }
    }

    pub(super) fn wait_until_ready(&mut self, lab: &Lab, side: Side, ready: &Ready) -> Result<(), LabError> {
        let (own, other) = match side {
            Side::Server => (SERVER_V4, Side::Client),
            _ => (CLIENT_V4, Side::Server),
        };
        let address = |port| SocketAddr::new(own.parse().expect("an address"), port);
        match ready {
            Ready::AtOnce => Ok(()),
            Ready::Line(line) => self.process.wait_for_line(line, START_MAX).map(drop),
            Ready::Port(port) => self.wait_until(&format!("connection to port {port}"), || {
                lab.inside(other, || TcpStream::connect_timeout(&address(*port), CONNECT_MAX)).is_ok()
            }),
            Ready::Answer(port, question) => self.wait_until(&format!("answer from port {port}"), || {
                lab.inside(other, || is_answered(address(*port), question)).is_ok_and(|answered| answered)
            }),
        }
    }

    /// Waits until `happens`. Fails if the process ends first, unless the program is a daemon.
    fn wait_until(&mut self, what: &str, mut happens: impl FnMut() -> bool) -> Result<(), LabError> {
        let deadline = Instant::now() + START_MAX;
        while Instant::now() < deadline && (self.is_daemon || self.process.try_wait().is_none()) {
            if happens() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(self.process.not_seen(what.to_owned(), START_MAX))
    }

    /// The path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The text of one of its files; empty if the file is missing.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The process id in one of its files, if there is one.
    pub fn pid_in(&self, name: &str) -> Option<Pid> {
        Pid::from_raw(self.read(name).trim().parse().ok()?)
    }

    /// The program's own process, a child of `sidestep run`.
    pub fn program(&self) -> Option<Pid> {
        let started = self.process.pid();
        match self.network {
            Network::Kernel => Pid::from_raw(started as i32),
            Network::Sidestep(_) => children(started).first().copied(),
        }
    }

    /// Signals the program itself.
    pub fn signal_program(&self, signal: Signal) {
        if let Some(pid) = self.program() {
            let _ = kill_process(pid, signal); // Ended this moment: nobody to tell.
        }
    }

    /// Sends it SIGTERM and waits until it has ended.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus, LabError> {
        self.process.signal(Signal::TERM);
        self.process.wait(timeout)
    }
}

/// The children of a process, of all its threads, oldest first.
fn children(pid: u32) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut pids: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

fn is_answered(server: SocketAddr, question: &[u8]) -> std::io::Result<bool> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(PAUSE * 10))?;
    socket.connect(server)?;
    socket.send(question)?;
    Ok(socket.recv(&mut [0; 2048])? > 0)
}
