//! Clients of a control socket.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Program, capture, counters, sockets, trace};
use crate::filter::Filter;
use crate::protocol::{Decoder, Reply, Request, write_json};
use crate::report::CountersReport;

/// Clients at one time. A client beyond this number gets an error.
const CLIENTS_MAX: usize = 16;
/// Time for a client to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// How long a client may take to read a part of an answer. Captures drop packets instead.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// Where answers are written.
pub(super) type Out<'s> = BufWriter<&'s UnixStream>;

/// All clients, and the program that they observe.
pub(super) struct Clients {
    program: Program,
    streams: Mutex<BTreeMap<u64, Arc<UnixStream>>>,
    gone: Condvar,
    ending: AtomicBool,
}

impl Clients {
    pub(super) fn new(program: Program) -> Clients {
        Clients { program, streams: Mutex::default(), gone: Condvar::new(), ending: AtomicBool::new(false) }
    }

    /// Serves a client on a thread of its own.
    pub(super) fn admit(self: &Arc<Self>, stream: UnixStream) {
        let stream = Arc::new(stream);
        let Some(number) = self.register(&stream) else {
            let full = refusal(&format!("{CLIENTS_MAX} others are looking already"));
            let _ = (&*stream).write_all(&full); // It fits the socket's buffer, or the client has gone.
            return;
        };
        let clients = Arc::clone(self);
        let serve = move || {
            attend(&stream, &clients.program, &clients.ending);
            clients.unregister(number);
        };
        if std::thread::Builder::new().name("control-client".to_owned()).spawn(serve).is_err() {
            self.unregister(number);
        }
    }

    /// Asks all client threads to end, and waits for them up to `patience`. Then their connections are closed.
    pub(super) fn dismiss(&self, patience: Duration) {
        self.ending.store(true, Ordering::Relaxed);
        let streams = self.streams();
        let waited = self.gone.wait_timeout_while(streams, patience, |streams| !streams.is_empty());
        let (streams, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for stream in streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn register(&self, stream: &Arc<UnixStream>) -> Option<u64> {
        let mut streams = self.streams();
        let number = streams.last_key_value().map_or(0, |(last, _)| last + 1);
        (streams.len() < CLIENTS_MAX).then(|| {
            streams.insert(number, Arc::clone(stream));
            number
        })
    }

    fn unregister(&self, number: u64) {
        self.streams().remove(&number);
        self.gone.notify_all();
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<UnixStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one client until it closes the connection; a capture also ends by `ending`. The last error is ignored: it concerns only a
/// client that has closed the connection or broken the protocol. Writes use MSG_NOSIGNAL, as std does on sockets.
pub fn attend(stream: &UnixStream, program: &Program, ending: &AtomicBool) {
    let _ = serve(stream, program, ending);
    let _ = stream.shutdown(Shutdown::Both);
}

/// The error that a client gets, before anything else, if no thread can serve it.
pub fn refusal(reason: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    let written = write_json(&mut octets, &Reply::Error(reason.to_owned()));
    written.expect("memory takes what is written");
    octets
}

fn serve(stream: &UnixStream, program: &Program, ending: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let request = read_request(stream)?;
    let mut out = Out::new(stream);
    let (pid, engines) = (program.pid, program.engines.len());
    write_json(&mut out, &Reply::Program { pid, name: program.name.clone(), engines })?;
    out.flush()?; // What follows may take long.
    match request {
        Err(problem) => write_json(&mut out, &Reply::Error(problem))?,
        Ok(request) => answer(request, program, ending, &mut out)?,
    }
    write_json(&mut out, &Reply::End)?;
    out.flush()
}

fn answer(request: Request, program: &Program, ending: &AtomicBool, out: &mut Out<'_>) -> io::Result<()> {
    let engines = &program.engines;
    let outcome = match request {
        Request::Counters => {
            return write_counters(counters::read(program), out);
        }
        Request::NameServers => {
            return write_pieces(&program.subject.name_servers(), Reply::NameServers, out);
        }
        Request::Zones => return write_pieces(&program.subject.zones(), Reply::Zones, out),
        Request::Zone { name } => program.subject.write_zone(&name, &mut Lines { out, text: Vec::new() }),
        Request::ChangeZone { name, action } => {
            program.subject.change_zone(&name, action).map(|said| write_pieces(&said, Reply::Lines, out))
        }
        Request::Explain(question) => {
            program.subject.explain(&question).map(|said| write_pieces(&said, Reply::Lines, out))
        }
        Request::Flush { name, below } => {
            program.subject.flush(&name, below).map(|count| write_json(out, &Reply::Flushed(count)))
        }
        Request::Sockets { filter, listening } => {
            parse(&filter).map(|filter| sockets::write(engines, filter, listening, out))
        }
        Request::Trace { filter, connection } => parse(&filter).and_then(|filter| {
            let wanted = trace::Wanted::new(filter, connection.as_deref())?;
            Ok(trace::write(engines, wanted, out))
        }),
        Request::Capture { filter, snaplen } => {
            parse(&filter).map(|filter| capture::run(engines, filter, snaplen, ending, out))
        }
    };
    outcome.unwrap_or_else(|problem| write_json(out, &Reply::Error(problem)))
}

/// A text, whose lines become pieces of the answer.
struct Lines<'o, 's> {
    out: &'o mut Out<'s>,
    /// What was not sent yet. It may end within a line.
    text: Vec<u8>,
}

impl Lines<'_, '_> {
    fn send(&mut self, octets: usize) -> io::Result<()> {
        let text = std::str::from_utf8(&self.text[..octets]).map_err(io::Error::other)?;
        write_json(self.out, &Reply::Lines(text.lines().map(str::to_owned).collect()))?;
        self.text.drain(..octets);
        Ok(())
    }
}

impl Write for Lines<'_, '_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        const PIECE: usize = 64 << 10;
        let octets = &octets[..octets.len().min(PIECE)];
        self.text.extend_from_slice(octets);
        let whole = self.text.iter().rposition(|octet| *octet == b'\n');
        if let Some(end) = whole.filter(|end| *end >= PIECE / 2) {
            self.send(end + 1)?;
        }
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send(self.text.len())
    }
}

/// Many counts of the program's own follow in pieces: a name has up to a thousand octets, where it has that of a zone.
fn write_counters(mut report: CountersReport, out: &mut Out<'_>) -> io::Result<()> {
    const PIECE: usize = 500;
    let more = report.own.split_off(report.own.len().min(PIECE));
    write_json(out, &Reply::Counters(report))?;
    more.chunks(PIECE).try_for_each(|piece| write_json(out, &Reply::MoreCounts(piece.to_vec())))
}

/// In pieces, each far below the largest message.
fn write_pieces<T: Clone>(all: &[T], reply: fn(Vec<T>) -> Reply, out: &mut Out<'_>) -> io::Result<()> {
    const PIECE: usize = 1000;
    all.chunks(PIECE).try_for_each(|piece| write_json(out, &reply(piece.to_vec())))
}

fn parse(text: &str) -> Result<Filter, String> {
    text.parse().map_err(|error: crate::FilterError| error.to_string())
}

/// Reads the request; the inner error is sent to the client.
fn read_request(mut stream: &UnixStream) -> io::Result<Result<Request, String>> {
    let deadline = Instant::now() + REQUEST_TIME;
    let (mut decoder, mut octets) = (Decoder::default(), [0; 1024]);
    loop {
        match decoder.next_request() {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) => {}
            Err(error) => return Ok(Err(error.to_string())),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut octets)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => decoder.push(&octets[..count]),
        }
    }
}
