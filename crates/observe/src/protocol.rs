//! The protocol of a control socket.
//!
//! ```text
//! message = length (4 octets, little-endian, of what follows the kind), kind (1 octet), content
//!           kind `J`: JSON, a [`Request`] or a [`Reply`]      kind `P`: a packet, [`Header`] and octets
//! ```
//!
//! The client sends one request. The program answers with [`Reply::Program`], the parts of the answer, and [`Reply::End`].
//! An answer without [`Reply::End`] is incomplete. A capture lasts until the client shuts its direction down. A side that breaks a
//! rule is disconnected.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::{
    CaptureReport, Count, CountersReport, EngineReport, InterfaceReport, NameServerReport, SocketReport,
    TraceReport, ZoneReport,
};
use crate::ring::Header;

/// How long a [`Request::ChangeZone`] may take: a large zone is read.
pub const CHANGE_MAX: Duration = Duration::from_secs(600);
/// Content of a request at most.
pub const REQUEST_MAX: usize = 8 << 10;
/// Content of any other message at most.
pub const MESSAGE_MAX: usize = 1 << 20;

const JSON: u8 = b'J';
const PACKET: u8 = b'P';
const PREFIX_LEN: usize = 5;

/// What can be done with a zone of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneAction {
    /// Its file is read again, or its primaries are asked.
    Reload,
    /// It takes no updates until it is thawed, and its file has all of them.
    Freeze,
    /// Its file is read again, and it takes updates.
    Thaw,
    /// All of it is transferred, whatever serial its primaries have.
    Retransfer,
    /// Nothing but a report of what works badly in it.
    Check,
}

/// A question whose answer is to be explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The name that is asked for.
    pub name: String,
    /// The type.
    pub qtype: String,
    /// The address from which the query comes.
    pub from: IpAddr,
    /// The network of the client that the query names.
    pub network: Option<String>,
}

/// Requests of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// All counters: a [`Reply::Counters`], and a [`Reply::MoreCounts`] for each part of many.
    Counters,
    /// Sockets: for each engine any number of [`Reply::Sockets`], then a [`Reply::Engine`].
    Sockets {
        /// Only sockets that match; see [`crate::filter`].
        filter: String,
        /// Only listeners and unconnected UDP sockets.
        listening: bool,
    },
    /// The trace rings: any number of [`Reply::Trace`].
    Trace {
        /// Only records of matching connections whose ends are still known.
        filter: String,
        /// Only records of this connection, as in [`SocketReport::id`]; without generation, of all that used its slot.
        connection: Option<String>,
    },
    /// The name servers that a resolver knows: any number of [`Reply::NameServers`].
    NameServers,
    /// The zones that a server has: any number of [`Reply::Zones`].
    Zones,
    /// The records of a zone, as a zone file: any number of [`Reply::Lines`].
    Zone {
        /// Its name.
        name: String,
    },
    /// Something is done with a zone: a [`Reply::Lines`] that says what came of it.
    ChangeZone {
        /// Its name.
        name: String,
        /// What is done.
        action: ZoneAction,
    },
    /// Which line answers a question, and why: a [`Reply::Lines`].
    Explain(ExplainRequest),
    /// What a resolver's cache has about a name is dropped: a [`Reply::Flushed`].
    Flush {
        /// The name.
        name: String,
        /// And all below it.
        below: bool,
    },
    /// Packets from now on: a [`Reply::Interface`] before the first one of each interface, and a [`Reply::Capture`] of each engine at
    /// the end.
    Capture {
        /// Only packets that match.
        filter: String,
        /// Octets of each at most.
        snaplen: u32,
    },
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The program that answers; comes first.
    Program {
        /// Its process id.
        pid: u32,
        /// Its name.
        name: String,
        /// Its engines.
        engines: usize,
    },
    /// Counters.
    Counters(CountersReport),
    /// More counters of the program's own, behind a [`Reply::Counters`] that they do not fit into.
    MoreCounts(Vec<Count>),
    /// Some sockets.
    Sockets(Vec<SocketReport>),
    /// Some name servers.
    NameServers(Vec<NameServerReport>),
    /// Some zones.
    Zones(Vec<ZoneReport>),
    /// Some lines of a text, without what ends them.
    Lines(Vec<String>),
    /// How many entries were dropped.
    Flushed(u64),
    /// An engine, after its sockets.
    Engine(EngineReport),
    /// Some records, oldest first within an engine.
    Trace(Vec<TraceReport>),
    /// An interface of a capture.
    Interface(InterfaceReport),
    /// The result of a capture at one engine.
    Capture(CaptureReport),
    /// The request cannot be carried out.
    Error(String),
    /// The end of the answer.
    End,
}

/// A received message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// JSON.
    Reply(Reply),
    /// A packet of a capture.
    Packet(Header, Vec<u8>),
}

/// Why something received is not a message.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// It is longer than any message may be.
    #[error("a message of {0} octets")]
    Length(usize),
    /// It is of no known kind.
    #[error("a message of kind {0}")]
    Kind(u8),
    /// Its content does not fit its kind.
    #[error("unreadable message: {0}")]
    Content(String),
}

/// Writes a request or a reply.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let content = serde_json::to_vec(value)?;
    write_prefix(out, content.len(), JSON)?;
    out.write_all(&content)
}

/// Writes a packet.
pub(crate) fn write_packet(out: &mut impl Write, header: &Header, frame: &[u8]) -> io::Result<()> {
    write_prefix(out, Header::LEN + frame.len(), PACKET)?;
    out.write_all(&header.encode())?;
    out.write_all(frame)
}

fn write_prefix(out: &mut impl Write, len: usize, kind: u8) -> io::Result<()> {
    let len = u32::try_from(len).map_err(io::Error::other)?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(&[kind])
}

/// Splits received octets into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    octets: Vec<u8>,
    /// Octets at the front that were already used.
    done: usize,
}

impl Decoder {
    /// Appends received octets.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.drain(..std::mem::take(&mut self.done));
        self.octets.extend_from_slice(octets);
    }

    /// The next message, if it is complete. After an error there is none.
    pub fn next_message(&mut self) -> Result<Option<Message>, ProtocolError> {
        let Some((kind, content)) = self.next_content(MESSAGE_MAX)? else { return Ok(None) };
        if kind == JSON {
            return reply(content).map(|reply| Some(Message::Reply(reply)));
        }
        match Header::decode(content) {
            Some((header, frame)) if header.captured_len as usize == frame.len() => {
                Ok(Some(Message::Packet(header, frame.to_vec())))
            }
            _ => Err(ProtocolError::Content("the length of a packet".to_owned())),
        }
    }

    /// The request, if it is complete.
    pub(crate) fn next_request(&mut self) -> Result<Option<Request>, ProtocolError> {
        match self.next_content(REQUEST_MAX)? {
            Some((JSON, content)) => json(content).map(Some),
            Some((kind, _)) => Err(ProtocolError::Kind(kind)),
            None => Ok(None),
        }
    }

    fn next_content(&mut self, len_max: usize) -> Result<Option<(u8, &[u8])>, ProtocolError> {
        let Some((prefix, rest)) = self.octets[self.done..].split_first_chunk::<PREFIX_LEN>() else {
            return Ok(None);
        };
        let [a, b, c, d, kind] = *prefix;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > len_max {
            return Err(ProtocolError::Length(len));
        }
        if kind != JSON && kind != PACKET {
            return Err(ProtocolError::Kind(kind));
        }
        let Some(content) = rest.get(..len) else { return Ok(None) };
        self.done += PREFIX_LEN + len;
        Ok(Some((kind, content)))
    }
}

/// Parses a reply without control characters: the program may have fewer rights than the user who reads its texts. Errors may contain
/// line breaks. Control characters are looked for first, because serde's error would quote them.
fn reply(content: &[u8]) -> Result<Reply, ProtocolError> {
    let unfit = || ProtocolError::Content("control characters".to_owned());
    match controls_of(content) {
        Controls::None => json(content),
        Controls::Newlines => json(content).ok().filter(|it| matches!(it, Reply::Error(_))).ok_or_else(unfit),
        Controls::Others => Err(unfit()),
    }
}

/// Parses a text of others that is to be shown as a whole, such as what a broker says. It passes on texts of programs, and one of them is no reason to
/// hide the others: control characters are replaced.
///
/// # Errors
/// `Content`: it is no JSON, or another one.
pub fn printable<T: DeserializeOwned>(content: &[u8]) -> Result<T, ProtocolError> {
    if controls_of(content) == Controls::None {
        return json(content);
    }
    // serde's error would quote them.
    let parsed: serde_json::Result<serde_json::Value> = serde_json::from_slice(content);
    let mut value = parsed.map_err(|_| ProtocolError::Content("control characters".to_owned()))?;
    replace_controls(&mut value);
    T::deserialize(value).map_err(|error| ProtocolError::Content(error.to_string()))
}

fn replace_controls(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => *text = text.replace(char::is_control, "?"),
        Value::Array(values) => values.iter_mut().for_each(replace_controls),
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                replace_controls(&mut value);
                fields.insert(name.replace(char::is_control, "?"), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Control characters in texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Controls {
    None,
    Newlines,
    Others,
}

/// Control characters of the texts in `json`, even if it is not well-formed: most are escaped there, the others are not allowed in a text.
fn controls_of(json: &[u8]) -> Controls {
    let mut worst = Controls::None;
    let mut rest = json;
    while let Some(at) = rest.iter().position(|octet| matches!(octet, b'\\' | 0x7f | 0xc2)) {
        let (len, found) = match &rest[at..] {
            [b'\\', b'n', ..] => (2, Controls::Newlines),
            [b'\\', b'b' | b'f' | b'r' | b't', ..] => (2, Controls::Others),
            [b'\\', b'u', digits @ ..] => (6, of_escape(digits)),
            [b'\\', ..] => (2, Controls::None),
            [0xc2, 0x80..=0x9f, ..] | [0x7f, ..] => (1, Controls::Others),
            _ => (1, Controls::None),
        };
        worst = worst.max(found);
        rest = rest.get(at + len..).unwrap_or_default();
    }
    worst
}

/// The value of four hexadecimal digits.
fn of_escape(digits: &[u8]) -> Controls {
    let digits = digits.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
    match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
        Some(0x0a) => Controls::Newlines,
        Some(0x20..=0x7e | 0xa0..) => Controls::None,
        _ => Controls::Others,
    }
}

fn json<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(content).map_err(|error| ProtocolError::Content(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Direction;

    fn header(captured_len: u32) -> Header {
        Header { time_ns: 1, original_len: 9, captured_len, source: 0, direction: Direction::Inbound }
    }

    #[test]
    fn messages_survive_however_they_are_cut() {
        let mut octets = Vec::new();
        write_json(&mut octets, &Reply::Error("no".to_owned())).unwrap();
        write_packet(&mut octets, &header(3), b"abc").unwrap();
        write_json(&mut octets, &Reply::End).unwrap();
        let wanted = [
            Message::Reply(Reply::Error("no".to_owned())),
            Message::Packet(header(3), b"abc".to_vec()),
            Message::Reply(Reply::End),
        ];
        for part in 1..octets.len() {
            let (mut decoder, mut seen) = (Decoder::default(), Vec::new());
            for octets in octets.chunks(part) {
                decoder.push(octets);
                while let Some(message) = decoder.next_message().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, wanted, "in parts of {part}");
        }
    }

    #[test]
    fn a_request_that_is_too_long_is_refused_before_it_is_there() {
        let mut decoder = Decoder::default();
        decoder.push(&[&(REQUEST_MAX as u32 + 1).to_le_bytes()[..], b"J"].concat());
        assert!(matches!(decoder.next_request(), Err(ProtocolError::Length(_))));
    }

    #[test]
    fn a_packet_shorter_than_it_says_is_refused() {
        let (mut octets, mut decoder) = (Vec::new(), Decoder::default());
        write_packet(&mut octets, &header(4), b"abc").unwrap();
        decoder.push(&octets);
        assert!(decoder.next_message().is_err());
    }

    #[test]
    fn texts_that_would_move_the_cursor_are_no_replies() {
        let read = |json: &str| reply(json.as_bytes()).map_err(|error| error.to_string());
        let named = |name: &str| format!(r#"{{"program":{{"pid":1,"name":"{name}","engines":1}}}}"#);
        for name in ["nginx", "a b", r#"\"\\u001b\\"#, "\u{fc}", r"\u00fc", "\u{2192}"] {
            read(&named(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for name in [r"\u001b[2J", r"\r", r"\n", r"\u000a", r"\t", r"\u009b", "\u{9b}", "\u{7f}", r"\\\b"] {
            assert!(read(&named(name)).unwrap_err().ends_with("control characters"), "{name}");
        }
        assert!(read(r#"{"error":"filter:\n  foo\n  ^"}"#).is_ok());
        assert!(read(r#"{"error":"\u001b[2J"}"#).is_err());
    }

    #[test]
    fn why_something_is_no_reply_is_told_without_what_would_move_the_cursor() {
        let complaint = |json: &str| reply(json.as_bytes()).unwrap_err().to_string();
        for json in [
            r#"{"\u001b[2J":1}"#,
            r#"{"a\nb":1}"#,
            r#"{"program":{"\u009b2J":1}}"#,
            r#"{"counters":"\u001b"}"#,
            "{\"\u{9b}\":1}",
            "\"\u{1b}\"",
            "\u{1b}",
        ] {
            assert!(!complaint(json).contains(char::is_control), "{json}: {:?}", complaint(json));
        }
        assert!(complaint(r#"{"later":1}"#).contains("unknown variant `later`"));
    }

    #[test]
    fn what_brokers_pass_on_is_printable() {
        let read = |json: &str| printable::<Vec<(String, u64)>>(json.as_bytes());
        assert_eq!(read(r#"[["a b",1]]"#).unwrap(), [("a b".to_owned(), 1)]);
        let said = read(r#"[["\u001b[2J\u009b\n",1],["\u007f",2],["ü",3]]"#).unwrap();
        assert_eq!(said, [("?[2J??".to_owned(), 1), ("?".to_owned(), 2), ("ü".to_owned(), 3)]);
        for json in ["\"\u{1b}\"", r#"[["\u001b"]"#, r#"{"\u001b":"\n"}"#, "\u{9b}"] {
            let complaint = read(json).unwrap_err().to_string();
            assert!(!complaint.contains(char::is_control), "{complaint:?}");
        }
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(&octets);
            while let Ok(Some(_)) = decoder.next_message() {}
            let mut decoder = Decoder::default();
            decoder.push(&octets);
            let _ = decoder.next_request();
        }
    }
}
