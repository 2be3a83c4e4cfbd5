//! HTTP requests at a fixed rate, whatever the answers do, as wrk2 sends them: each connection has a schedule of its own, and the
//! time of an answer counts from when its request was due.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fd::OwnedFd;

/// What is sent.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n";
/// Connections whose answers are taken at a time.
const EVENTS_MAX: usize = 64;
/// Time for the last answers.
const PATIENCE: Duration = Duration::from_secs(2);

/// A load at a fixed rate.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// Where to.
    pub server: SocketAddr,
    /// Connections, each with one request under way at most.
    pub connections: usize,
    /// Requests a second, of all connections together.
    pub rate: u32,
    /// How long.
    pub duration: Duration,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct OpenLoopReport {
    /// Answers with status 200.
    pub answered: u64,
    /// Requests without an answer, with another one, and connections that ended.
    pub failed: u64,
    /// Times from when requests were due to their answers, in microseconds, in order.
    pub latencies_us: Vec<u32>,
}

struct Connection {
    stream: TcpStream,
    /// When the next request is to be sent.
    due: Instant,
    /// When the request under way was due.
    asked: Option<Instant>,
}

impl OpenLoop {
    /// Sends requests and takes answers on the calling thread. Wakes up once a millisecond, and for answers.
    pub fn run(&self) -> io::Result<OpenLoopReport> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let between = Duration::from_secs(1).mul_f64(self.connections as f64 / f64::from(self.rate));
        let began = Instant::now() + Duration::from_millis(10);
        let mut connections = Vec::new();
        for number in 0..self.connections {
            let due = began + between.mul_f64(number as f64 / self.connections as f64);
            connections.push(open(self.server, due, number as u64, &epoll)?);
        }
        let mut report = OpenLoopReport::default();
        let end = began + self.duration;
        while Instant::now() < end {
            send_due(&mut connections, between, &mut report);
            take_answers(&epoll, &mut connections, Duration::from_millis(1), &mut report)?;
        }
        let last = Instant::now() + PATIENCE;
        while connections.iter().any(|connection| connection.asked.is_some()) && Instant::now() < last {
            take_answers(&epoll, &mut connections, Duration::from_millis(10), &mut report)?;
        }
        report.failed += connections.iter().filter(|connection| connection.asked.is_some()).count() as u64;
        report.latencies_us.sort_unstable();
        Ok(report)
    }
}

impl OpenLoopReport {
    /// The latency that this part of the answers does not exceed, in microseconds.
    pub fn percentile_us(&self, part: f64) -> u32 {
        let index = (self.latencies_us.len() as f64 * part) as usize;
        self.latencies_us.get(index.min(self.latencies_us.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

fn open(server: SocketAddr, due: Instant, number: u64, epoll: &OwnedFd) -> io::Result<Connection> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    epoll::add(epoll, &stream, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    Ok(Connection { stream, due, asked: None })
}

/// Sends what is due on connections that wait for nothing; the others are late, and their next answers show it.
fn send_due(connections: &mut [Connection], between: Duration, report: &mut OpenLoopReport) {
    let now = Instant::now();
    for connection in
        connections.iter_mut().filter(|connection| connection.asked.is_none() && connection.due <= now)
    {
        match connection.stream.write(REQUEST) {
            Ok(len) if len == REQUEST.len() => connection.asked = Some(connection.due),
            _ => report.failed += 1,
        }
        connection.due += between;
    }
}

fn take_answers(
    epoll: &OwnedFd,
    connections: &mut [Connection],
    timeout: Duration,
    report: &mut OpenLoopReport,
) -> io::Result<()> {
    let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    let (ready, _) = epoll::wait(epoll, &mut events, Some(&timeout))?;
    let now = Instant::now();
    for event in ready {
        let connection = &mut connections[event.data.u64() as usize];
        let mut octets = [0; 4096];
        match connection.stream.read(&mut octets) {
            // The answers asked for are small, and come in one piece.
            Ok(len) if octets[..len].starts_with(b"HTTP/1.1 200") => report.answered += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            _ => report.failed += 1,
        }
        if let Some(asked) = connection.asked.take() {
            report.latencies_us.push(now.duration_since(asked).as_micros() as u32);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    while stream.read(&mut [0; 1024]).is_ok_and(|len| len > 0) {
                        let _ = stream.write_all(answer.as_bytes());
                    }
                });
            }
        });
        address
    }

    fn load(server: SocketAddr) -> OpenLoopReport {
        OpenLoop { server, connections: 4, rate: 1000, duration: Duration::from_millis(300) }.run().unwrap()
    }

    #[test]
    fn the_rate_is_kept() {
        let report = load(server("HTTP/1.1 200 OK\r\n\r\n"));
        assert!((250..=300).contains(&report.answered) && report.failed == 0, "{report:?}");
        assert!(report.percentile_us(0.5) <= report.percentile_us(0.99));
    }

    #[test]
    fn other_answers_are_failures() {
        let report = load(server("HTTP/1.1 500 No\r\n\r\n"));
        assert!(report.answered == 0 && report.failed > 200, "{report:?}");
    }
}
