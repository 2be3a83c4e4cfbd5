//! What tests ask of the program beside its connections: one question a connection of a Unix socket.
//!
//! | question | answer |
//! | --- | --- |
//! | `connect REMOTE WORDS` | our end of the connection, or why none was begun; WORDS as in `behaviour` |
//! | `again LOCAL REMOTE WORDS` | the same, from our end of an earlier connection |
//! | `endings` | how conversations ended since the last such question, a line each behind their number |
//! | `counts` | names and numbers: connections, buffers, the stack's counters |
//! | `trace` | the latest events of the stack |

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use engine::EngineHandle;
use native::{Departure, Interface};
use stack::{Connect, Hop, LinkId, Stack};

use crate::application::Shared;
use crate::behaviour::Conversation;

/// Who answers.
pub(crate) struct Control {
    interface: Interface,
    engine: EngineHandle,
    shared: Shared,
    /// Ports that connections were begun from, until the program ends.
    departures: BTreeMap<SocketAddr, Departure>,
}

impl Control {
    pub(crate) fn new(interface: Interface, engine: EngineHandle, shared: Shared) -> Control {
        Control { interface, engine, shared, departures: BTreeMap::new() }
    }

    /// Answers until the program ends.
    pub(crate) fn serve(&mut self, listener: &UnixListener) {
        for stream in listener.incoming().flatten() {
            if let Err(error) = self.answer(&stream) {
                eprintln!("tcp_peer: control: {error}");
            }
        }
    }

    fn answer(&mut self, mut stream: &UnixStream) -> std::io::Result<()> {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let answer = match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("connect", rest) => self.connect(rest).unwrap_or_else(|error| error),
            ("again", rest) => self.connect_again(rest).unwrap_or_else(|error| error),
            ("endings", _) => self.endings(),
            ("counts", _) => self.engine.ask_stack(|stack, _| counts(stack)).unwrap_or_default(),
            ("trace", _) => self.engine.ask_stack(|stack, _| trace(stack)).unwrap_or_default(),
            (other, _) => format!("no question: {other}"),
        };
        stream.write_all(answer.as_bytes())
    }

    fn connect(&mut self, words: &str) -> Result<String, String> {
        let (remote, words) = first_address(words)?;
        let departure = self.interface.depart(remote.ip()).map_err(|error| error.to_string())?;
        let (local, hop) = (departure.local, departure.hop);
        self.departures.insert(local, departure);
        self.begin(local, remote, hop, words)
    }

    fn connect_again(&mut self, words: &str) -> Result<String, String> {
        let (local, words) = first_address(words)?;
        let (remote, words) = first_address(words)?;
        let hop = self.departures.get(&local).ok_or("no such port")?.hop;
        self.begin(local, remote, hop, words)
    }

    fn begin(&self, local: SocketAddr, remote: SocketAddr, hop: Hop, words: &str) -> Result<String, String> {
        let (conversation, options) = Conversation::following(words)?;
        let shared = self.shared.clone();
        let begin = move |stack: &mut Stack, now| {
            let connect =
                Connect { local, remote, is_bound: false, hop, options: Arc::new(options), data: b"" };
            let id = stack.tcp_connect(&connect, now).map_err(|error| format!("{error:?}"))?;
            shared.lock().begun.push((id, conversation));
            Ok(local.to_string())
        };
        self.engine.ask_stack(begin).ok_or("the engine does not answer")?
    }

    fn endings(&self) -> String {
        let endings = std::mem::take(&mut self.shared.lock().endings);
        endings.iter().map(|(ending, count)| format!("{count} {ending}\n")).collect()
    }
}

fn first_address(words: &str) -> Result<(SocketAddr, &str), String> {
    let (address, rest) = words.split_once(' ').ok_or("too few words")?;
    Ok((address.parse().map_err(|_| format!("no address: {address}"))?, rest))
}

fn counts(stack: &Stack) -> String {
    let (connections, half_open, time_wait) = stack.population();
    let (buffers, _) = stack.buffer_memory();
    let link = stack.link(LinkId(0));
    let mut text = format!(
        "connections {connections}\nhalf_open {half_open}\ntime_wait {time_wait}\nbuffers {buffers}\nmtu {}\n",
        link.mtu
    );
    for (name, value) in stack.counters().named() {
        let _ = writeln!(text, "{name} {value}"); // A String takes everything.
    }
    text
}

fn trace(stack: &Stack) -> String {
    stack.trace().iter().map(|record| format!("{record:?}\n")).collect()
}
