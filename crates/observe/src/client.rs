//! The tools' side of control sockets: finding programs and asking them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::directory::{directories, process_of};
use crate::protocol::{Decoder, Message, ProtocolError, Reply, Request, write_json};

/// How long a program may take until it answers: one that is stopped does not.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take for a part of its answer. Captures have no such limit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All that run.
    All,
    /// This process.
    Process(u32),
    /// The one whose control socket is there.
    At(PathBuf),
}

/// Why a program cannot be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is nothing to ask.
    #[error("no Sidestep process is running here; looked in {}", list(.looked_in))]
    NothingRuns {
        /// The directories.
        looked_in: Vec<PathBuf>,
    },
    /// The process does not run, or has no control socket.
    #[error("no Sidestep process {process} is running here; looked in {}", list(.looked_in))]
    NoProcess {
        /// Which.
        process: u32,
        /// The directories.
        looked_in: Vec<PathBuf>,
    },
    /// It is another user's.
    #[error("{}: permission denied: only its owner and root may connect", .0.display())]
    Permission(PathBuf),
    /// Nobody answers at a place that was named.
    #[error("no answer at {}: {error}", .path.display())]
    Silent {
        /// The place.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the program broke: {0}")]
    Connection(#[from] io::Error),
    /// It ended before the answer did.
    #[error("the program ended in the middle of its answer")]
    CutOff,
    /// What came is no answer.
    #[error("unexpected answer: {0} (is the program of another version?)")]
    Protocol(#[from] ProtocolError),
    /// The program refused.
    #[error("{0}")]
    Refused(String),
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// Connects to the programs that are wanted; at least one, or an error says why not. Sockets that dead programs left are
/// removed on the way.
pub fn connect(wanted: &Wanted) -> Result<Vec<Connection>, ClientError> {
    match wanted {
        Wanted::At(path) => match Connection::open(path) {
            Ok(connection) => Ok(vec![connection]),
            Err(error) => Err(explain(path, error)),
        },
        Wanted::All => connect_in(&directories(), None),
        Wanted::Process(process) => connect_in(&directories(), Some(*process)),
    }
}

/// The same for those in `directories`, and of them only `process` if it is named.
pub fn connect_in(directories: &[PathBuf], process: Option<u32>) -> Result<Vec<Connection>, ClientError> {
    let mut found = Vec::new();
    let mut denied = None;
    for path in directories.iter().flat_map(|directory| sockets_in(directory)) {
        if process.is_some() && process != process_of(&path) {
            continue;
        }
        match Connection::open(&path) {
            Ok(connection) => found.push(Connection { process: process_of(&path), ..connection }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(path),
            // Nobody listens there any more. Another user's remains are left alone, by the system.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                drop(std::fs::remove_file(&path))
            }
            Err(_) => {} // It went just now.
        }
    }
    let looked_in = directories.to_vec();
    match (denied, process) {
        _ if !found.is_empty() => Ok(found),
        (Some(path), _) => Err(ClientError::Permission(path)),
        (None, Some(process)) => Err(ClientError::NoProcess { process, looked_in }),
        (None, None) => Err(ClientError::NothingRuns { looked_in }),
    }
}

/// In the order of the numbers of their processes. A directory that cannot be read has none.
fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| process_of(path).is_some()).collect();
    paths.sort_by_key(|path| process_of(path));
    paths
}

fn explain(path: &Path, error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ClientError::Permission(path.to_owned()),
        _ => ClientError::Silent { path: path.to_owned(), error },
    }
}

/// A program that answers.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    path: PathBuf,
    /// Whose socket it is, by its place.
    process: Option<u32>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its engines.
    pub engines: usize,
}

impl Connection {
    fn open(path: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Connection { stream, path: path.to_owned(), process: None })
    }

    /// Where its control socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends the request; the answer's first part says who answers. Which process that is, the place of its socket knows better than
    /// it does, if it was found there.
    pub fn ask(self, request: &Request) -> Result<(Answering, Answer), ClientError> {
        let mut octets = Vec::new();
        write_json(&mut octets, request)?;
        match (&self.stream).write_all(&octets) {
            // Who was turned away has been told why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            outcome => outcome?,
        }
        let mut answer = Answer { stream: self.stream, decoder: Decoder::default(), ready: VecDeque::new() };
        match answer.next_message()? {
            Some(Message::Reply(Reply::Program { pid, name, engines })) => {
                answer.stream.set_read_timeout(Some(PATIENCE))?;
                Ok((Answering { pid: self.process.unwrap_or(pid), name, engines }, answer))
            }
            _ => Err(ClientError::CutOff),
        }
    }
}

/// The parts of an answer.
#[derive(Debug)]
pub struct Answer {
    stream: UnixStream,
    decoder: Decoder,
    ready: VecDeque<Message>,
}

impl Answer {
    /// The next part; `None` at the end. A refusal is an error.
    pub fn next_message(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            match self.ready.pop_front() {
                Some(Message::Reply(Reply::End)) => return Ok(None),
                Some(Message::Reply(Reply::Error(problem))) => return Err(ClientError::Refused(problem)),
                Some(message) => return Ok(Some(message)),
                None => self.read_more()?,
            }
        }
    }

    /// The next part if it has come already; see [`Answer::fd`] for when there may be one.
    pub fn has_message(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Reads once what the system has, waiting for it if need be.
    pub fn read_more(&mut self) -> Result<(), ClientError> {
        let mut octets = [0; 1 << 16];
        match self.stream.read(&mut octets) {
            Ok(0) => return Err(ClientError::CutOff),
            Ok(count) => self.decoder.push(&octets[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(message) = self.decoder.next_message()? {
            self.ready.push_back(message);
        }
        Ok(())
    }

    /// Readable when there is more to read.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Ends a capture; its last packets and its report are still to come.
    pub fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write); // It has ended by itself if this fails.
    }
}
