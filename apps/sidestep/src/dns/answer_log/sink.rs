//! Where answers go: a file of lines, a file of frames, or a program at a socket that takes frames.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use dns_log::dnstap::{CONTENT_TYPE, Role, encode};
use dns_log::{AnswerLog, Entry, frames};
use socket2::{Domain, SockAddr, Socket, Type};

use super::config::{Form, Place, QueryLogSpec};
use super::line::Line;

/// Who asked for what is nobody else's business.
const OWNER_ONLY: u32 = 0o600;
/// How long a reader at a socket may take nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two attempts to reach such a reader.
const PAUSE: Duration = Duration::from_secs(1);

/// Which file a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at a place; `None` if there is none.
    pub(super) fn at(place: &Place) -> Option<FileId> {
        std::fs::metadata(place.path()).ok().map(|metadata| FileId::of(&metadata))
    }

    fn of(metadata: &std::fs::Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// One place, and its form.
pub(super) struct Sink {
    output: Output,
    /// Its file or socket, for messages.
    place: String,
    /// Answers that were given to the output since it was flushed: an error then is theirs.
    pending: u64,
    has_failed: bool,
    frames: Frames,
}

enum Output {
    Lines(WholeFile),
    Frames(WholeFile),
    Reader(Reader),
}

/// A file that ends with a whole line or frame, whatever becomes of a write.
struct WholeFile {
    file: BufWriter<File>,
    /// Octets up to the end of the last one that is known to be there.
    good: u64,
}

/// How answers become frames.
struct Frames {
    role: Role,
    identity: Vec<u8>,
}

/// A program at a socket.
struct Reader {
    path: PathBuf,
    stream: Option<BufWriter<UnixStream>>,
    /// When it was tried to reach last.
    tried: Option<Instant>,
}

impl Sink {
    /// Opens what `spec` names. A socket that nobody listens at is tried again later.
    pub(super) fn open(spec: &QueryLogSpec, role: Role) -> io::Result<Sink> {
        let output = match (&spec.place, spec.form) {
            (Place::File(path), Form::Json) => Output::Lines(WholeFile::open(path)?),
            (Place::File(path), Form::Dnstap) => {
                keep_old(path)?;
                let mut file = WholeFile::open(path)?;
                frames::start(&mut file.file, CONTENT_TYPE)?;
                file.flush()?;
                Output::Frames(file)
            }
            (Place::Socket(path), _) => {
                Output::Reader(Reader { path: path.clone(), stream: None, tried: None })
            }
        };
        let identity = rustix::system::uname().nodename().to_bytes().to_vec();
        Ok(Sink {
            output,
            place: spec.place.to_string(),
            pending: 0,
            has_failed: false,
            frames: Frames { role, identity },
        })
    }

    /// The file, if it is one.
    pub(super) fn file(&self) -> Option<FileId> {
        match &self.output {
            Output::Lines(file) | Output::Frames(file) => {
                file.file.get_ref().metadata().ok().map(|metadata| FileId::of(&metadata))
            }
            Output::Reader(_) => None,
        }
    }

    /// Writes an answer, or counts it in `log`.
    pub(super) fn write(&mut self, entry: &Entry<'_>, log: &AnswerLog) {
        self.pending += 1;
        let outcome = match &mut self.output {
            Output::Lines(file) => write_line(&mut file.file, entry),
            Output::Frames(file) => frames::write(&mut file.file, &self.frames.encode(entry)),
            Output::Reader(reader) => reader.write(|| self.frames.encode(entry)),
        };
        self.settle(outcome, log);
    }

    /// Gives everything that was written to the system.
    pub(super) fn flush(&mut self, log: &AnswerLog) {
        let outcome = match &mut self.output {
            Output::Lines(file) | Output::Frames(file) => file.flush(),
            Output::Reader(reader) => reader.flush(),
        };
        if outcome.is_ok() && self.pending > 0 && std::mem::take(&mut self.has_failed) {
            log::info!("the query log goes on");
        }
        self.settle(outcome, log);
        self.pending = 0;
    }

    /// The last answer was written.
    pub(super) fn finish(mut self, log: &AnswerLog) {
        self.flush(log);
        let outcome = match &mut self.output {
            Output::Lines(_) => Ok(()),
            Output::Frames(file) => frames::stop(&mut file.file),
            Output::Reader(reader) => reader.finish(),
        };
        self.settle(outcome, log);
    }

    /// Counts what is lost by an error, of which the first is said.
    fn settle(&mut self, outcome: io::Result<()>, log: &AnswerLog) {
        let Err(error) = outcome else { return };
        log.lose(std::mem::take(&mut self.pending));
        if !std::mem::replace(&mut self.has_failed, true) {
            log::error!("the query log {} has gaps from now on: {error}", self.place);
        }
        if let Output::Lines(file) | Output::Frames(file) = &mut self.output {
            file.take_back();
        }
    }
}

impl WholeFile {
    fn open(path: &Path) -> io::Result<WholeFile> {
        let file = append_to(path)?;
        let good = file.metadata()?.len();
        Ok(WholeFile { file: BufWriter::new(file), good })
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.file.buffer().is_empty() {
            self.file.flush()?;
        }
        self.good = self.file.get_ref().metadata()?.len();
        Ok(())
    }

    /// Takes back what was written since, after an error: what follows half of a frame cannot be read.
    fn take_back(&mut self) {
        if let Ok(same) = self.file.get_ref().try_clone() {
            let _ = same.set_len(self.good); // A device has no length.
            drop(std::mem::replace(&mut self.file, BufWriter::new(same)).into_parts());
        }
    }
}

impl Frames {
    fn encode(&self, entry: &Entry<'_>) -> Vec<u8> {
        const VERSION: &str = concat!("sidestep ", env!("CARGO_PKG_VERSION"));
        encode(entry, self.role, &self.identity, VERSION.as_bytes())
    }
}

impl Reader {
    /// Writes a frame to the reader; an error if there is none.
    fn write(&mut self, frame: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        let now = Instant::now();
        if self.stream.is_none() && self.tried.is_none_or(|tried| now.duration_since(tried) >= PAUSE) {
            let connected = connect(&self.path);
            self.tried = Some(Instant::now()); // A reader that says nothing is not asked all the time.
            self.stream = Some(connected?);
            log::info!("the query log goes to {}", self.path.display());
        }
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        frames::write(stream, &frame()).inspect_err(|_| self.give_up())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.flush().inspect_err(|_| self.give_up())
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        stream.flush()?;
        frames::stop_with_reader(stream.get_mut())
    }

    /// Ends a connection at an error. Its buffer is lost: the reader may have a part of a frame.
    fn give_up(&mut self) {
        drop(self.stream.take().map(BufWriter::into_parts));
    }
}

fn connect(path: &Path) -> io::Result<BufWriter<UnixStream>> {
    // Where too many wait already, that is an error, and not one more who waits.
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(false)?;
    let mut stream = UnixStream::from(OwnedFd::from(socket));
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    frames::start_with_reader(&mut stream, CONTENT_TYPE)?;
    Ok(BufWriter::new(stream))
}

fn write_line(file: &mut impl Write, entry: &Entry<'_>) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Line::of(entry)).unwrap_or_default();
    line.push(b'\n');
    file.write_all(&line)
}

fn append_to(path: &Path) -> io::Result<File> {
    // A pipe that nobody reads is an error, and waits for nobody.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().append(true).create(true).mode(OWNER_ONLY).custom_flags(flags).open(path)
}

/// A file of frames has one beginning: an older one gets the time behind its name.
fn keep_old(path: &Path) -> io::Result<()> {
    let is_old = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
    if !is_old {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", humantime::format_rfc3339_nanos(SystemTime::now())));
    std::fs::rename(path, name)
}
