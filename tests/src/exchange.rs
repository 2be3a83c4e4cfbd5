//! Clients that send a request and wait for the whole answer, over and over, and say of each failure what it was.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};

/// What is asked, and by how many.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Where to.
    pub server: SocketAddr,
    /// Connections at a time, each with one request under way.
    pub connections: usize,
    /// The octets sent.
    pub request: Vec<u8>,
    /// What has to come back.
    pub answer: Answer,
    /// Whether a connection is used for as many requests as the server allows; otherwise for one, at whose answer's end the server
    /// has to close it.
    pub reuse: bool,
    /// Silence after which a request has failed.
    pub patience: Duration,
}

/// What has to come back.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These octets.
    Octets(Vec<u8>),
    /// An HTTP response with status 200 and this body.
    Http(Vec<u8>),
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct ExchangeTally {
    /// Requests answered well.
    pub answered: u64,
    /// Requests that met the end of a connection that had been used before, before the first octet of an answer, and were sent again on
    /// a new one, as RFC 9112, 9.3.1 has it: no failure, but a server that is not about to end gives no reason for it.
    pub repeated: u64,
    /// What else happened, and how often.
    pub failures: BTreeMap<String, u64>,
    /// How long it took.
    pub took: Duration,
}

/// A server that closes a connection on which a request waits unread resets it, once. If that is lost, and the request was acknowledged,
/// nobody would ever say anything again, on the kernel as on the stack: so it is asked after this silence.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// On a wire that loses nothing.
const PATIENCE: Duration = Duration::from_secs(30);

impl Exchange {
    /// `connections` clients that ask `server` for the page `/` of a web server, which is `Hello, world!`.
    pub fn hello(server: SocketAddr, connections: usize, reuse: bool) -> Exchange {
        let close = if reuse { "" } else { "Connection: close\r\n" };
        let request = format!("GET / HTTP/1.1\r\nHost: lab\r\n{close}\r\n").into_bytes();
        let answer = Answer::Http(b"Hello, world!\n".to_vec());
        Exchange { server, connections, request, answer, reuse, patience: PATIENCE }
    }

    /// `connections` clients of a server that sends back what comes.
    pub fn echo(server: SocketAddr, connections: usize, octets: Vec<u8>) -> Exchange {
        let answer = Answer::Octets(octets.clone());
        Exchange { server, connections, answer, request: octets, reuse: true, patience: PATIENCE }
    }

    /// Asks for that long, in the namespace of the calling thread.
    pub fn run(&self, duration: Duration) -> ExchangeTally {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let tally = scope.spawn(|| self.run_until(&stop));
            thread::sleep(duration);
            stop.store(true, Ordering::Relaxed);
            tally.join().expect("failures are counted")
        })
    }

    /// Asks until `stop`, in the namespace of the calling thread; each client asks at least once, and has its answer.
    pub fn run_until(&self, stop: &AtomicBool) -> ExchangeTally {
        let began = Instant::now();
        let mut sum = thread::scope(|scope| {
            let clients: Vec<_> =
                (0..self.connections).map(|_| scope.spawn(|| Client::new(self).run(stop))).collect();
            let tallies = clients.into_iter().map(|client| client.join().expect("failures are counted"));
            tallies.fold(ExchangeTally::default(), ExchangeTally::plus)
        });
        sum.took = began.elapsed();
        sum
    }
}

impl ExchangeTally {
    /// Failures of all kinds.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64()
    }

    fn plus(mut self, other: ExchangeTally) -> ExchangeTally {
        self.answered += other.answered;
        self.repeated += other.repeated;
        for (failure, count) in other.failures {
            *self.failures.entry(failure).or_default() += count;
        }
        self
    }
}

/// One connection after the other.
struct Client<'a> {
    exchange: &'a Exchange,
    stream: Option<TcpStream>,
    /// Whether the stream has given an answer already.
    is_used: bool,
    octets: Vec<u8>,
}

/// What became of a request.
enum Outcome {
    Answered,
    /// The connection had been used before, and its end came instead of an answer.
    Ended,
    Failed(String),
}

impl<'a> Client<'a> {
    fn new(exchange: &'a Exchange) -> Client<'a> {
        Client { exchange, stream: None, is_used: false, octets: vec![0; 65536] }
    }

    fn run(mut self, stop: &AtomicBool) -> ExchangeTally {
        let mut tally = ExchangeTally::default();
        loop {
            match self.ask() {
                Outcome::Answered => tally.answered += 1,
                Outcome::Ended => {
                    tally.repeated += 1;
                    self.stream = None;
                }
                Outcome::Failed(what) => {
                    *tally.failures.entry(what).or_default() += 1;
                    self.stream = None;
                    thread::sleep(Duration::from_millis(1)); // Whoever refuses at once is not asked at full speed.
                }
            }
            if stop.load(Ordering::Relaxed) {
                return tally;
            }
        }
    }

    fn ask(&mut self) -> Outcome {
        if self.stream.is_none() {
            match connect(self.exchange.server, self.exchange.patience) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => return Outcome::Failed(format!("connecting: {error}")),
            }
            self.is_used = false;
        }
        let stream = self.stream.as_mut().expect("it was made above");
        let mut taken = 0;
        match transact(self.exchange, stream, &mut self.octets, &mut taken) {
            Ok(()) => {
                self.is_used = true;
                if !self.exchange.reuse {
                    self.stream = None;
                }
                Outcome::Answered
            }
            Err(failure) if taken == 0 && self.is_used && failure.is_end => Outcome::Ended,
            Err(failure) => Outcome::Failed(format!("{} after {taken} octets", failure.what)),
        }
    }
}

/// Why there is no whole answer.
struct Failure {
    what: String,
    /// The server ended the connection, one way or the other.
    is_end: bool,
}

impl Failure {
    fn of(what: impl fmt::Display) -> Failure {
        Failure { what: what.to_string(), is_end: false }
    }
}

fn connect(server: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, patience)?;
    stream.set_nodelay(true)?;
    set_socket_keepalive(&stream, true)?;
    set_tcp_keepidle(&stream, LOOK_AFTER)?;
    set_tcp_keepintvl(&stream, LOOK_AFTER)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Sends the request and takes the answer, of which `taken` octets have come.
fn transact(
    exchange: &Exchange,
    stream: &mut TcpStream,
    octets: &mut Vec<u8>,
    taken: &mut usize,
) -> Result<(), Failure> {
    let ends = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::ConnectionAborted];
    let failure =
        |error: io::Error| Failure { is_end: ends.contains(&error.kind()), what: error.to_string() };
    stream.write_all(&exchange.request).map_err(failure)?;
    while !exchange.answer.is_whole(&octets[..*taken])? {
        if *taken == octets.len() {
            octets.resize(2 * *taken, 0);
        }
        match stream.read(&mut octets[*taken..]).map_err(failure)? {
            0 => return Err(Failure { what: "end of stream".to_owned(), is_end: true }),
            count => *taken += count,
        }
    }
    if !exchange.reuse {
        match stream.read(&mut octets[..1]) {
            Ok(0) => {}
            Ok(_) => return Err(Failure::of("more than the answer")),
            Err(error) => return Err(Failure::of(format!("{error} instead of the end"))),
        }
    }
    Ok(())
}

impl Answer {
    /// Whether `octets` are all of the answer; an error if they can never be.
    fn is_whole(&self, octets: &[u8]) -> Result<bool, Failure> {
        match self {
            Answer::Octets(wanted) if wanted.starts_with(octets) => Ok(wanted.len() == octets.len()),
            Answer::Octets(_) => Err(Failure::of("another answer")),
            Answer::Http(body) => is_whole_response(octets, body),
        }
    }
}

fn is_whole_response(octets: &[u8], body: &[u8]) -> Result<bool, Failure> {
    let Some(end) = octets.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(false) };
    let head = String::from_utf8_lossy(&octets[..end]);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        return Err(Failure::of(format!("status {status}")));
    }
    let rest = &octets[end + 4..];
    let is_chunked = head.lines().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    let wanted = if is_chunked { chunk(body) } else { body.to_vec() };
    match wanted.starts_with(rest) {
        true => Ok(wanted.len() == rest.len()),
        false => Err(Failure::of("another body")),
    }
}

/// `body` in one chunk.
fn chunk(body: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    /// A server that does `serve` with each connection.
    fn server(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(serve));
        address
    }

    fn answer(mut stream: TcpStream, text: &str) {
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn good_answers_are_counted() {
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nHello, world!\n";
        let address = server(move |stream| answer(stream, good));
        let tally = Exchange::hello(address, 2, false).run(Duration::from_millis(100));
        assert!(tally.answered >= 2 && tally.failures.is_empty(), "{tally:?}");
    }

    #[test]
    fn another_answer_and_one_that_is_cut_are_failures() {
        for bad in
            ["HTTP/1.1 502 Bad\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nHello", "HTTP/1.1 200 OK\r\n\r\nHallo"]
        {
            let address = server(move |stream| answer(stream, bad));
            let tally = Exchange::hello(address, 1, false).run(Duration::from_millis(50));
            assert!(tally.answered == 0 && tally.failed() > 0, "{bad:?}: {tally:?}");
        }
    }

    #[test]
    fn a_request_on_a_used_connection_that_ended_is_repeated_and_one_on_a_new_connection_has_failed() {
        let stop = Arc::new(AtomicBool::new(false));
        let (served, enough) = (AtomicU32::new(0), Arc::clone(&stop));
        let address = server(move |stream| {
            answer(stream, "same");
            enough.store(served.fetch_add(1, Ordering::Relaxed) > 3, Ordering::Relaxed);
        });
        let tally = Exchange::echo(address, 1, b"same".to_vec()).run_until(&stop);
        assert!(
            tally.answered > 1 && tally.repeated + 1 >= tally.answered && tally.failures.is_empty(),
            "{tally:?}"
        );
        let address = server(drop);
        let tally = Exchange::echo(address, 1, b"same".to_vec()).run(Duration::from_millis(50));
        assert!(tally.answered == 0 && tally.repeated == 0 && tally.failed() > 0, "{tally:?}");
    }
}
