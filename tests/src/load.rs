//! A client that counts: each query it sends has an answer, or the loss is noticed.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use lab::message::{self, Answer};

/// What a [`Load`] sends.
pub struct Load {
    /// Where to.
    pub server: SocketAddr,
    /// The name asked for, type A.
    pub name: String,
    /// Queries on their way at a time; few enough for any socket's buffer.
    pub window: u16,
    /// Queries to send at most.
    pub queries_max: u64,
    /// The last octet of the address in its latest good answer.
    pub latest: AtomicU8,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Queries sent.
    pub sent: u64,
    /// Queries answered well.
    pub answered: u64,
    /// Queries without an answer.
    pub lost: u64,
    /// Answers with another code than NOERROR, without an A record at their end, or to no query of ours.
    pub wrong: u64,
    /// Answers by the last octet of the address in them.
    pub versions: BTreeMap<u8, u64>,
    /// Answers with a lower octet than one before.
    pub stepped_back: u64,
}

/// Silence after which what is still missing is lost.
const PATIENCE: Duration = Duration::from_secs(20);

impl Load {
    /// A load on `server` that asks for `name` until it is told to stop.
    pub fn new(server: SocketAddr, name: &str) -> Load {
        Load { server, name: name.to_owned(), window: 16, queries_max: u64::MAX, latest: AtomicU8::new(0) }
    }

    /// Sends and counts until `stop`, in the namespace of the calling thread.
    pub fn run(&self, stop: &AtomicBool) -> io::Result<Tally> {
        let any = if self.server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(self.server)?;
        let mut tally = Tally::default();
        let mut newest = 0;
        while !stop.load(Ordering::Relaxed) && tally.sent < self.queries_max {
            self.exchange(&socket, &mut tally, &mut newest)?;
        }
        Ok(tally)
    }

    /// Sends a window of queries and takes their answers.
    fn exchange(&self, socket: &UdpSocket, tally: &mut Tally, newest: &mut u8) -> io::Result<()> {
        let first = (tally.sent % 60_000) as u16;
        let mut missing: Vec<u16> = (first..first + self.window).collect();
        for &id in &missing {
            socket.send(&message::query(id, &self.name, message::A))?;
            tally.sent += 1;
        }
        let mut octets = [0; 2048];
        while !missing.is_empty() {
            let len = match socket.recv(&mut octets) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let answer = Answer::new(&octets[..len]);
            let index = answer.as_ref().and_then(|answer| missing.iter().position(|&id| id == answer.id()));
            let version = answer.as_ref().and_then(version);
            match (index, version) {
                (Some(index), Some(version)) => {
                    missing.swap_remove(index);
                    tally.answered += 1;
                    *tally.versions.entry(version).or_default() += 1;
                    tally.stepped_back += u64::from(version < *newest);
                    *newest = version;
                    self.latest.store(version, Ordering::Relaxed);
                }
                (Some(index), None) => {
                    missing.swap_remove(index);
                    tally.wrong += 1;
                }
                (None, _) => tally.wrong += 1,
            }
        }
        tally.lost += missing.len() as u64;
        Ok(())
    }
}

/// The last octet of a good answer with one record, whose data ends the message.
fn version(answer: &Answer) -> Option<u8> {
    let good = answer.is_response() && answer.rcode() == 0 && answer.answer_count() == 1;
    if good { answer.octets().last().copied() } else { None }
}
