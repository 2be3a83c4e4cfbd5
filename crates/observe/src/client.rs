//! The tools' side of control sockets: finding programs and asking them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::directory::{directories, process_of};
use crate::protocol::{CHANGE_MAX, Decoder, Message, ProtocolError, Reply, Request, write_json};

/// How long a program may take to answer. A stopped program does not answer.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take for a part of its answer. Captures have no such limit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which programs to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All that run.
    All,
    /// This process.
    Process(u32),
    /// The one with this control socket.
    At(PathBuf),
}

/// Why a program could not be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No program is running.
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
    /// It belongs to another user.
    #[error("{}: permission denied: only its owner and root may connect", .0.display())]
    Permission(PathBuf),
    /// No program answers at the given path.
    #[error("no answer at {}: {error}", .path.display())]
    Silent {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The connection broke, or nothing came for too long.
    #[error("{}: {}", what_broke(.0), .0)]
    Connection(#[from] io::Error),
    /// The program ended in the middle of its answer.
    #[error("the program ended in the middle of its answer")]
    CutOff,
    /// The answer violates the protocol.
    #[error("unexpected answer: {0} (is the program of another version?)")]
    Protocol(#[from] ProtocolError),
    /// The program refused the request.
    #[error("{0}")]
    Refused(String),
}

impl ClientError {
    /// Whether it means that no such program runs. After other errors it may yet answer.
    pub fn is_gone(&self) -> bool {
        match self {
            ClientError::NothingRuns { .. } | ClientError::NoProcess { .. } => true,
            // One that is stopped, and has many tools waiting, has no room for another.
            ClientError::Silent { error, .. } => error.kind() != io::ErrorKind::WouldBlock,
            _ => false,
        }
    }
}

fn what_broke(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the program does not answer",
        _ => "the connection to the program broke",
    }
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// Connects to the programs that are wanted: at least one, or an error says why not. Removes sockets that dead programs left.
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

/// The same for the programs in `directories`; only for `process` if it is given.
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
            // Nobody listens there any more. The system does not let us remove another user's socket.
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

/// Ordered by process id. An unreadable directory counts as empty.
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
    /// Its process id, by the path of its socket.
    process: Option<u32>,
    /// How long it may take to answer, and for a part of its answer, if less than otherwise.
    limit: Option<Duration>,
}

/// The program that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its engines.
    pub engines: usize,
}

impl Connection {
    fn open(path: &Path) -> io::Result<Connection> {
        let stream = connect_now(path)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Connection { stream, path: path.to_owned(), process: None, limit: None })
    }

    /// The path of its control socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its process id, by the path of its socket, if it was found in a directory of sockets.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// With no more time for the answer to begin, and for each part of it, than `limit`.
    pub fn within(self, limit: Duration) -> Connection {
        Connection { limit: Some(limit), ..self }
    }

    /// Sends the request. The first part of the answer identifies the program. If its socket was found in the directory of sockets, the
    /// process id in the path counts, not what the program claims.
    pub fn ask(self, request: &Request) -> Result<(Answering, Answer), ClientError> {
        let mut octets = Vec::new();
        write_json(&mut octets, request)?;
        let within = |time: Duration| self.limit.map_or(time, |limit| time.min(limit));
        let is_change = matches!(request, Request::ChangeZone { .. });
        let patience = within(if is_change { CHANGE_MAX } else { PATIENCE });
        self.stream.set_read_timeout(Some(within(SILENCE)))?;
        match (&self.stream).write_all(&octets) {
            // A program that refuses the connection has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            outcome => outcome?,
        }
        let mut answer = Answer { stream: self.stream, decoder: Decoder::default(), ready: VecDeque::new() };
        match answer.next_message()? {
            Some(Message::Reply(Reply::Program { pid, name, engines })) => {
                answer.stream.set_read_timeout(Some(patience))?;
                Ok((Answering { pid: self.process.unwrap_or(pid), name, engines }, answer))
            }
            _ => Err(ClientError::CutOff),
        }
    }
}

/// Connects without waiting for room in the queue of a program that has not accepted for long: it is stopped.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
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

    /// The next part if it has already arrived; see [`Answer::fd`].
    pub fn has_message(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Reads once, and waits for data if there is none.
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

    /// Ends a capture; its last packets and its report still follow.
    pub fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write); // It has ended by itself if this fails.
    }
}
