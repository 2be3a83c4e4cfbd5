//! What is done on one connection, as a line of words tells: options, then a behaviour.
//!
//! | behaviour | what is done |
//! | --- | --- |
//! | `echo` | sends back what comes, closes when the peer did |
//! | `sink` | takes all, answers with length and hash at the end of the stream, closes |
//! | `slow MS` | reads nothing for so long, then goes on as `sink` |
//! | `source N` | sends N octets of the pattern and a FIN, takes what comes until the end, closes |
//! | `source-reset N` | the same, but a reset in place of the FIN |
//! | `reset-after N` | takes N octets, then resets |
//!
//! Options: `congestion=reno|cubic|bbr`, `nodelay`, `cork`, `keepalive-ms=N`, `rcvbuf=N`, `sndbuf=N`.

use std::sync::Arc;

use clock::{Duration, Instant};
use stack::congestion::Algorithm;
use stack::tcp::Shutdown;
use stack::{ConnectionId, Stack, TcpOptions};
use tests::{StreamHash, fill_pattern};

/// Longest first line.
const LINE_MAX: usize = 128;

/// One connection and what has come on it.
pub(crate) struct Conversation {
    behaviour: Behaviour,
    received: StreamHash,
}

enum Behaviour {
    /// The peer's first line tells.
    Asking,
    Echo,
    Sink,
    Slow(Duration),
    /// Reads nothing before it is woken.
    Asleep,
    Source {
        at: u64,
        end: u64,
        then_reset: bool,
    },
    /// Sends no more, takes what comes.
    Drain,
    ResetAfter(u64),
}

/// What is to be done next.
pub(crate) enum Step {
    /// Nothing before an event.
    Wait,
    /// Nothing before this time has passed.
    Sleep(Duration),
    Close,
    Abort,
}

/// A connection in the middle of a call.
pub(crate) struct Io<'s> {
    pub(crate) stack: &'s mut Stack,
    pub(crate) id: ConnectionId,
    pub(crate) now: Instant,
}

impl Conversation {
    /// One that the peer's first line is to shape.
    pub(crate) fn asking() -> Conversation {
        Conversation { behaviour: Behaviour::Asking, received: StreamHash::default() }
    }

    /// One that follows `words`, and the options to connect with.
    pub(crate) fn following(words: &str) -> Result<(Conversation, TcpOptions), String> {
        let (behaviour, options) = parse(words, &TcpOptions::default())?;
        Ok((Conversation { behaviour, received: StreamHash::default() }, options))
    }

    /// Length and hash of what came.
    pub(crate) fn received(&self) -> StreamHash {
        self.received
    }

    /// The time of [`Step::Sleep`] has passed.
    pub(crate) fn wake(&mut self) {
        self.behaviour = Behaviour::Sink;
    }

    /// Does what can be done now.
    pub(crate) fn go_on(&mut self, io: &mut Io<'_>) -> Step {
        if matches!(self.behaviour, Behaviour::Asking) {
            match self.read_first_line(io) {
                Some(Ok(behaviour)) => self.behaviour = behaviour,
                Some(Err(complaint)) => {
                    io.send(complaint.as_bytes());
                    return Step::Abort;
                }
                None if io.is_ended() => return Step::Close,
                None => return Step::Wait,
            }
        }
        match &mut self.behaviour {
            Behaviour::Asking | Behaviour::Asleep => Step::Wait,
            Behaviour::Echo => self.echo(io),
            Behaviour::Sink => self.sink(io),
            Behaviour::Drain => self.drain(io),
            Behaviour::Slow(time) => {
                let time = *time;
                self.behaviour = Behaviour::Asleep;
                Step::Sleep(time)
            }
            Behaviour::Source { .. } => self.source(io),
            Behaviour::ResetAfter(count) => {
                let count = *count;
                self.take(io, count);
                if self.received.len() == count { Step::Abort } else { Step::Wait }
            }
        }
    }

    fn read_first_line(&mut self, io: &mut Io<'_>) -> Option<Result<Behaviour, String>> {
        let mut line = [0; LINE_MAX];
        let count = io.stack.peek(io.id, 0, &mut line).unwrap_or(0);
        let end = line[..count].iter().position(|&octet| octet == b'\n')?;
        io.stack.consume(io.id, end + 1, io.now);
        let words = String::from_utf8_lossy(&line[..end]);
        let before = io.stack.options(io.id)?.clone();
        Some(parse(&words, &before).map(|(behaviour, options)| {
            io.stack.set_options(io.id, Arc::new(options), io.now);
            behaviour
        }))
    }

    fn echo(&mut self, io: &mut Io<'_>) -> Step {
        let mut part = [0; 16384];
        loop {
            let count = io.stack.peek(io.id, 0, &mut part).unwrap_or(0);
            let sent = io.send(&part[..count]);
            self.received.update(&part[..sent]);
            io.stack.consume(io.id, sent, io.now);
            match sent {
                0 if count == 0 && io.is_ended() => return Step::Close,
                0 => return Step::Wait,
                _ => {}
            }
        }
    }

    fn sink(&mut self, io: &mut Io<'_>) -> Step {
        self.take(io, u64::MAX);
        if !io.is_ended() {
            return Step::Wait;
        }
        io.send(format!("{}\n", self.received).as_bytes());
        Step::Close
    }

    fn drain(&mut self, io: &mut Io<'_>) -> Step {
        self.take(io, u64::MAX);
        if io.is_ended() { Step::Close } else { Step::Wait }
    }

    fn source(&mut self, io: &mut Io<'_>) -> Step {
        self.take(io, u64::MAX);
        let Behaviour::Source { at, end, then_reset } = &mut self.behaviour else { return Step::Wait };
        let mut part = [0; 16384];
        while *at < *end {
            let part = &mut part[..(*end - *at).min(16384) as usize];
            fill_pattern(*at, part);
            let sent = io.send(part);
            *at += sent as u64;
            if sent < part.len() {
                return Step::Wait;
            }
        }
        if *then_reset {
            return Step::Abort;
        }
        io.stack.shutdown(io.id, Shutdown::Write, io.now);
        self.behaviour = Behaviour::Drain;
        self.drain(io)
    }

    /// Takes what has come, until `limit` octets have come in all.
    fn take(&mut self, io: &mut Io<'_>, limit: u64) {
        loop {
            let piece = io.stack.received(io.id);
            let count = (limit - self.received.len()).min(piece.len() as u64) as usize;
            if count == 0 {
                return;
            }
            self.received.update(&piece[..count]);
            io.stack.consume(io.id, count, io.now);
        }
    }
}

impl Io<'_> {
    fn send(&mut self, data: &[u8]) -> usize {
        if data.is_empty() { 0 } else { self.stack.send(self.id, data, self.now).unwrap_or(0) }
    }

    /// The peer sends no more, and all that it sent was taken.
    fn is_ended(&self) -> bool {
        let closed = self.stack.readiness(self.id).is_none_or(|ready| ready.read_closed);
        closed && self.stack.received(self.id).is_empty()
    }
}

/// Reads a line of words.
fn parse(line: &str, before: &TcpOptions) -> Result<(Behaviour, TcpOptions), String> {
    let mut options = before.clone();
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "congestion" => {
                options.congestion = Algorithm::from_name(value).ok_or_else(|| format!("{word}?"))?;
            }
            "nodelay" => options.no_delay = true,
            "cork" => options.cork = true,
            "keepalive-ms" => {
                options.keepalive = true;
                options.keepalive_idle = Duration::from_millis(number(value)?);
                options.keepalive_interval = options.keepalive_idle;
            }
            "rcvbuf" => options.receive_buffer = Some(number(value)? as u32),
            "sndbuf" => options.send_buffer = Some(number(value)? as u32),
            _ => return Ok((behaviour(name, words.next().unwrap_or(""))?, options)),
        }
    }
    Err(format!("no behaviour in {line:?}"))
}

fn behaviour(name: &str, value: &str) -> Result<Behaviour, String> {
    let source = |then_reset| Ok(Behaviour::Source { at: 0, end: number(value)?, then_reset });
    match name {
        "echo" => Ok(Behaviour::Echo),
        "sink" => Ok(Behaviour::Sink),
        "slow" => Ok(Behaviour::Slow(Duration::from_millis(number(value)?))),
        "source" => source(false),
        "source-reset" => source(true),
        "reset-after" => Ok(Behaviour::ResetAfter(number(value)?)),
        _ => Err(format!("no behaviour is called {name}")),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("no number: {text:?}"))
}
