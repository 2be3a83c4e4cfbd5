//! The trace rings of all engines.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;
use engine::EngineHandle;
use stack::Stack;
use stack::trace::TraceRecord;
use wire::protocol;

use super::client::Out;
use super::engines::ask;
use crate::filter::{Filter, Subject};
use crate::protocol::{Reply, write_json};
use crate::report::{TraceReport, of_record};
use crate::ring::wall_clock_ns;

/// Records that an engine copies in one turn.
const RECORDS: usize = 512;

/// Which records a client wants.
pub(super) struct Wanted {
    filter: Filter,
    /// Slot and, if the client named it, generation.
    connection: Option<(u32, Option<u16>)>,
}

impl Wanted {
    /// The records of connections that match `filter`, or of `connection` if it is given.
    pub(super) fn new(filter: Filter, connection: Option<&str>) -> Result<Wanted, String> {
        let connection = connection.map(|text| {
            parse_connection(text).ok_or_else(|| {
                format!("connection: expected PLACE or PLACE.GENERATION, as `sockets` shows it, not `{text}`")
            })
        });
        Ok(Wanted { filter, connection: connection.transpose()? })
    }

    /// A connection whose ends are unknown matches only an empty filter.
    fn includes(&self, record: &TraceRecord, ends: Option<(SocketAddr, SocketAddr)>) -> bool {
        let by_connection = self.connection.is_none_or(|(place, generation)| {
            place == record.connection && generation.is_none_or(|generation| generation == record.generation)
        });
        let subject = || ends.map(|(own, peer)| Subject::of_socket(protocol::TCP, own, Some(peer)));
        by_connection
            && (self.filter.is_everything() || subject().is_some_and(|ends| self.filter.matches(&ends)))
    }
}

fn parse_connection(text: &str) -> Option<(u32, Option<u16>)> {
    match text.split_once('.') {
        Some((place, generation)) => Some((place.parse().ok()?, Some(generation.parse().ok()?))),
        None => Some((text.parse().ok()?, None)),
    }
}

/// Writes what is in the rings now. Records that are overwritten meanwhile are missing.
pub(super) fn write(engines: &[EngineHandle], wanted: Wanted, out: &mut Out<'_>) -> io::Result<()> {
    let wanted = Arc::new(wanted);
    for (number, engine) in engines.iter().enumerate() {
        // An engine without a stack has no records; one that stops answering leaves the records that it has sent so far.
        // The time of day is read within the engine's turn, when its `now` is fresh.
        let begin = |stack: &Stack, now: Instant| {
            (stack.trace().recorded(), wall_clock_ns().saturating_sub(now.as_nanos()))
        };
        let Ok((end, epoch_ns)) = ask(engine, begin) else { continue };
        let mut next = 0;
        while next < end {
            let wanted = Arc::clone(&wanted);
            let Ok((mut records, seen)) = ask(engine, move |stack, _| piece(stack, next, &wanted, epoch_ns))
            else {
                break;
            };
            records.iter_mut().for_each(|record| record.engine = number);
            if !records.is_empty() {
                write_json(out, &Reply::Trace(records))?;
            }
            next = seen;
        }
    }
    Ok(())
}

/// The wanted records among the next [`RECORDS`] from number `first` on, and the number after them.
fn piece(stack: &Stack, first: usize, wanted: &Wanted, epoch_ns: u64) -> (Vec<TraceReport>, usize) {
    let mut next = usize::MAX; // The ring holds nothing more.
    let mut reports = Vec::new();
    for (number, record) in stack.trace().since(first).take(RECORDS) {
        next = number + 1;
        let ends = ends_of(stack, record);
        if wanted.includes(record, ends) {
            reports.push(of_record(record, ends, epoch_ns));
        }
    }
    (reports, next)
}

/// The ends of the connection that a record is about, if it still exists.
fn ends_of(stack: &Stack, record: &TraceRecord) -> Option<(SocketAddr, SocketAddr)> {
    let place = record.connection;
    let id = stack.connections_at(place..place.saturating_add(1)).next()?;
    stack.endpoints(id).filter(|_| id.generation() as u16 == record.generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_named_by_place_and_generation() {
        assert_eq!(parse_connection("12"), Some((12, None)));
        assert_eq!(parse_connection("12.3"), Some((12, Some(3))));
        for text in ["", ".", "12.", "a", "1.2.3", "-1"] {
            assert_eq!(parse_connection(text), None, "{text}");
        }
    }
}
