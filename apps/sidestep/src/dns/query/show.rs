//! Answers as text.

use std::io::{self, Write};

use dns_message::Record;
use dns_zone::text::rdata_text;

use super::answer::{Answer, option_text};

/// The sections behind the question.
const SECTIONS: [&str; 3] = ["answer", "authority", "additional"];

/// Everything, in zone file format; what is no record is a comment.
pub(super) fn long(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    let flags = answer.flags().collect::<Vec<_>>().join(" ");
    writeln!(out, ";; {}, flags {flags}, id {}", answer.rcode(), answer.id)?;
    if let Some(edns) = &answer.edns {
        let dnssec = if edns.dnssec { ", do" } else { "" };
        writeln!(out, ";; EDNS version {}{dnssec}, {} octets", edns.version, edns.payload)?;
        for (code, data) in &edns.options {
            writeln!(out, ";; {}", option_text(*code, data))?;
        }
    }
    if let Some(question) = &answer.question {
        writeln!(out, "\n;; question\n;{} {} {}", question.name, question.qclass, question.qtype)?;
    }
    for (name, records) in SECTIONS.iter().zip(&answer.sections) {
        if !records.is_empty() {
            writeln!(out, "\n;; {name}")?;
            records.iter().try_for_each(|record| writeln!(out, "{}", line(record)))?;
        }
    }
    writeln!(out, "\n;; {}", origin(answer))
}

/// The data of the answer section.
pub(super) fn short(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    answer.sections[0]
        .iter()
        .try_for_each(|record| writeln!(out, "{}", rdata_text(record.rtype, &record.rdata)))
}

/// From whom, how, and how fast.
pub(super) fn origin(answer: &Answer) -> String {
    let source = &answer.source;
    let took = source.took.as_secs_f64() * 1e3;
    format!("{} octets from {} over {} in {took:.1} ms", answer.len, source.address, source.transport.name())
}

/// A record as a line of a zone file.
pub(in crate::dns) fn line(record: &Record) -> String {
    format!(
        "{} {} {} {} {}",
        record.owner,
        record.ttl,
        record.class,
        record.rtype,
        rdata_text(record.rtype, &record.rdata)
    )
}
