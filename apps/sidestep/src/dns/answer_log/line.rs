//! An answer as a line of JSON.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use dns_log::Entry;
use dns_message::{Malformed, Message};
use dns_wire::Rtype;
use serde::Serialize;

use crate::dns::query::{extended_errors, flag_names, rcode_text};

/// What a line says.
#[derive(Serialize)]
pub(super) struct Line {
    time: String,
    client: SocketAddr,
    /// `None`: that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<SocketAddr>,
    via: &'static str,
    /// `None`: the answer does not say what was asked.
    name: Option<String>,
    #[serde(rename = "type")]
    rtype: Option<String>,
    rcode: String,
    flags: Vec<&'static str>,
    answers: u16,
    /// Info codes of extended errors (RFC 8914).
    ede: Vec<u16>,
    octets: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    us: Option<u64>,
}

impl Line {
    pub(super) fn of(entry: &Entry<'_>) -> Line {
        let mut line = Line {
            time: humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(entry.time_ns))
                .to_string(),
            client: entry.client,
            server: entry.server,
            via: entry.transport.name(),
            name: None,
            rtype: None,
            rcode: String::new(),
            flags: Vec::new(),
            answers: 0,
            ede: Vec::new(),
            octets: entry.message.len(),
            us: entry.took_ns.map(|took| took / 1000),
        };
        let _ = line.read(entry.message); // Our own answers have their form; of any other the line has the beginning.
        line
    }

    fn read(&mut self, answer: &[u8]) -> Result<(), Malformed> {
        let mut message = Message::parse(answer)?;
        let (flags, counts) = (message.flags(), message.counts());
        self.name = message.question().map(|question| question.name.to_string());
        self.rtype = message.question().map(|question| question.qtype.to_string());
        self.rcode = rcode_text(flags & 0xf);
        self.flags = flag_names(flags).collect();
        self.answers = counts[0];
        for _ in 0..counts.into_iter().map(u32::from).sum() {
            let record = message.next_record()?;
            if record.rtype == Rtype::OPT {
                self.rcode = rcode_text((record.ttl >> 20 & 0xff0) as u16 | flags & 0xf);
                self.ede = extended_errors(&record).ok_or(Malformed)?;
            }
        }
        Ok(())
    }
}
