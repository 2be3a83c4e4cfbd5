//! The tools' side of control sockets: finding programs and asking them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use serde::de::DeserializeOwned;

use crate::directory::{directories, sockets_in};
use crate::peer::Peer;
use crate::protocol::{
    CHANGE_MAX, Decoder, MESSAGE_MAX, Message, ProtocolError, Reply, Request, printable, write_json,
};

/// How long a program may take to answer. A stopped program does not answer.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it may take for a part of its answer. Captures have no such limit.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all counters may take: tools keep them.
const COUNTERS_MAX: Duration = Duration::from_secs(60);
/// Octets of an answer at most that a tool keeps as a whole.
const WHOLE_MAX: usize = 64 << 20;
/// Octets that are read at a time.
const READ_MAX: usize = 1 << 16;

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
    /// Another user answers there in the name of a process that is not that user's.
    #[error("{}: user {user} answers there for a process that is not that user's", .path.display())]
    Stranger {
        /// The path.
        path: PathBuf,
        /// Who.
        user: u32,
    },
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
    Connection(io::Error),
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

// Not as the source, which is named already.
impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Connection(error)
    }
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
    for (named, path) in directories.iter().flat_map(|directory| sockets_in(directory)) {
        if process.is_some_and(|process| process != named) {
            continue;
        }
        match Connection::open(&path) {
            Ok(connection) => {
                let behind = connection.peer.behind(named);
                if behind == 0 || process.is_some_and(|process| process != behind) {
                    denied = Some(ClientError::Stranger { path, user: connection.peer.uid });
                    continue;
                }
                found.push(Connection { process: Some(behind), ..connection });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                denied = Some(ClientError::Permission(path));
            }
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
        (Some(error), _) => Err(error),
        (None, Some(process)) => Err(ClientError::NoProcess { process, looked_in }),
        (None, None) => Err(ClientError::NothingRuns { looked_in }),
    }
}

/// What is said at a path to whoever connects, which is JSON, until the connection is closed: the status socket of a broker. It has to be there
/// within `time` in all. Says who answers, too. `None`: nobody does any more.
pub fn read_report<T: DeserializeOwned>(
    path: &Path,
    time: Duration,
) -> Result<Option<(Peer, T)>, ClientError> {
    let until = Instant::now() + time;
    let stream = match connect_now(path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            drop(std::fs::remove_file(path)); // What a broker left that was killed.
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(explain(path, error)),
    };
    let peer = Peer::of(&stream).map_err(io::Error::from)?;
    let most = if peer.is_root_or_oneself() { WHOLE_MAX } else { MESSAGE_MAX };
    let (mut octets, mut room) = (Vec::new(), vec![0; READ_MAX]);
    loop {
        match read_before(&stream, &mut room, until)? {
            0 if octets.is_empty() => return Ok(None), // It is ending.
            0 => return Ok(Some((peer, printable(&octets)?))),
            count => octets.extend_from_slice(&room[..count]),
        }
        if octets.len() > most {
            return Err(ProtocolError::Length(octets.len()).into());
        }
    }
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
    peer: Peer,
    path: PathBuf,
    /// Its process id, by the path of its socket, as far as whoever answers there may say so.
    process: Option<u32>,
    /// How long it may take to answer, and for a part of its answer, if less than otherwise.
    limit: Option<Duration>,
    /// How long the whole answer may take.
    whole: Option<Duration>,
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
        stream.set_write_timeout(Some(SILENCE))?;
        let peer = Peer::of(&stream)?;
        Ok(Connection { stream, peer, path: path.to_owned(), process: None, limit: None, whole: None })
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

    /// With no more time for the whole answer than `time`, and no more octets than a tool can keep. For tools that keep all of it: a program may be another
    /// user's, and go on for ever.
    pub fn in_all(self, time: Duration) -> Connection {
        Connection { whole: Some(time), ..self }
    }

    /// Sends the request. The first part of the answer identifies the program. If its socket was found in the directory of sockets, the
    /// process id in the path counts, not what the program claims; and neither does if it is not of the user who answers.
    pub fn ask(self, request: &Request) -> Result<(Answering, Answer), ClientError> {
        let mut octets = Vec::new();
        write_json(&mut octets, request)?;
        let within = |time: Duration| self.limit.map_or(time, |limit| time.min(limit));
        let is_change = matches!(request, Request::ChangeZone { .. });
        let patience = within(if is_change { CHANGE_MAX } else { PATIENCE });
        let is_kept = matches!(request, Request::Counters);
        let whole = self.whole.or(is_kept.then_some(COUNTERS_MAX));
        let until = whole.map(|time| Instant::now() + time);
        match (&self.stream).write_all(&octets) {
            // A program that refuses the connection has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            outcome => outcome?,
        }
        let mut answer = Answer {
            stream: self.stream,
            decoder: Decoder::default(),
            ready: VecDeque::new(),
            patience: within(SILENCE),
            until,
            room: if until.is_some() { WHOLE_MAX } else { usize::MAX },
        };
        match answer.next_message()? {
            Some(Message::Reply(Reply::Program { pid, name, engines })) => {
                answer.patience = patience;
                let pid = self.process.unwrap_or_else(|| self.peer.behind(pid));
                Ok((Answering { pid, name, engines }, answer))
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

/// Reads once, waiting until then.
fn read_before(mut stream: &UnixStream, room: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(room) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// The parts of an answer.
#[derive(Debug)]
pub struct Answer {
    stream: UnixStream,
    decoder: Decoder,
    ready: VecDeque<Message>,
    /// How long each part may take, whatever pieces it comes in.
    patience: Duration,
    /// When all of them have to be there.
    until: Option<Instant>,
    /// Octets that they may still have.
    room: usize,
}

impl Answer {
    /// The next part; `None` at the end. A refusal is an error.
    pub fn next_message(&mut self) -> Result<Option<Message>, ClientError> {
        let until = self.patience_ends();
        loop {
            match self.ready.pop_front() {
                Some(Message::Reply(Reply::End)) => return Ok(None),
                Some(Message::Reply(Reply::Error(problem))) => return Err(ClientError::Refused(problem)),
                Some(message) => return Ok(Some(message)),
                None => self.read_before(until)?,
            }
        }
    }

    /// The next part if it has already arrived; see [`Answer::fd`].
    pub fn has_message(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Reads once, and waits for data if there is none.
    pub fn read_more(&mut self) -> Result<(), ClientError> {
        self.read_before(self.patience_ends())
    }

    fn patience_ends(&self) -> Instant {
        let part = Instant::now() + self.patience;
        self.until.map_or(part, |until| until.min(part))
    }

    fn read_before(&mut self, until: Instant) -> Result<(), ClientError> {
        let mut octets = [0; READ_MAX];
        let count = match read_before(&self.stream, &mut octets, until)? {
            0 => return Err(ClientError::CutOff),
            count => count,
        };
        self.room = self.room.checked_sub(count).ok_or(ProtocolError::Length(WHOLE_MAX))?;
        self.decoder.push(&octets[..count]);
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
