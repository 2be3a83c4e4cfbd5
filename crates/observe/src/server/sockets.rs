//! The sockets of all engines.

use std::io;
use std::sync::Arc;

use engine::EngineHandle;
use stack::Stack;

use super::client::Out;
use super::engines::{Silence, ask};
use crate::filter::Filter;
use crate::protocol::{Reply, write_json};
use crate::report::{EngineReport, SocketReport, of_connection, of_listener, of_udp};

/// Connection slots that an engine examines in one turn: some tens of microseconds if all are in use.
const PLACES: u32 = 128;
/// Listeners and UDP sockets that it examines in one turn.
const OTHERS: usize = 128;

/// Writes the sockets that match, engine after engine.
pub(super) fn write(
    engines: &[EngineHandle],
    filter: Filter,
    listening: bool,
    out: &mut Out<'_>,
) -> io::Result<()> {
    let filter = Arc::new(filter);
    for (number, engine) in engines.iter().enumerate() {
        let mut listing = Listing { engine, number, filter: &filter, out };
        let report = match listing.write_all(listening)? {
            Ok(report) => report,
            Err(silence) => {
                EngineReport { missing: Some(silence.describe().to_owned()), ..EngineReport::default() }
            }
        };
        write_json(out, &Reply::Engine(EngineReport { engine: number, ..report }))?;
    }
    Ok(())
}

struct Listing<'l, 's> {
    engine: &'l EngineHandle,
    number: usize,
    filter: &'l Arc<Filter>,
    out: &'l mut Out<'s>,
}

impl Listing<'_, '_> {
    /// The sockets of one engine. The outer error is the client's, the inner one the engine's.
    fn write_all(&mut self, listening: bool) -> io::Result<Result<EngineReport, Silence>> {
        let summary = match ask(self.engine, |stack, _| summary(stack)) {
            Ok(summary) => summary,
            Err(silence) => return Ok(Err(silence)),
        };
        if let Err(silence) = self.write_listeners()? {
            return Ok(Err(silence));
        }
        if let Err(silence) = self.write_udp(listening)? {
            return Ok(Err(silence));
        }
        if !listening && let Err(silence) = self.write_connections()? {
            return Ok(Err(silence));
        }
        Ok(Ok(summary))
    }

    fn write_listeners(&mut self) -> io::Result<Result<(), Silence>> {
        self.write_pieces(|stack, filter, from| {
            let ids = stack.listeners().skip(from).take(OTHERS);
            let mut seen = 0;
            let sockets =
                ids.inspect(|_| seen += 1).filter_map(|id| of_listener(stack, id, filter)).collect();
            (sockets, (seen == OTHERS).then_some(from + seen))
        })
    }

    /// With `unconnected`, only UDP sockets without a peer.
    fn write_udp(&mut self, unconnected: bool) -> io::Result<Result<(), Silence>> {
        self.write_pieces(move |stack, filter, from| {
            let ids = stack.udp_sockets().skip(from).take(OTHERS);
            let mut seen = 0;
            let sockets = ids.inspect(|_| seen += 1).filter_map(|id| of_udp(stack, id, filter));
            let sockets = sockets.filter(|socket| !unconnected || socket.remote.is_none()).collect();
            (sockets, (seen == OTHERS).then_some(from + seen))
        })
    }

    fn write_connections(&mut self) -> io::Result<Result<(), Silence>> {
        let places = match ask(self.engine, |stack, _| stack.connection_places()) {
            Ok(places) => places,
            Err(silence) => return Ok(Err(silence)),
        };
        for from in (0..places).step_by(PLACES as usize) {
            let filter = Arc::clone(self.filter);
            let piece = ask(self.engine, move |stack, now| {
                let ids = stack.connections_at(from..from.saturating_add(PLACES));
                ids.filter_map(|id| of_connection(stack, id, &filter, now)).collect::<Vec<_>>()
            });
            match piece {
                Ok(sockets) => self.write_piece(sockets)?,
                Err(silence) => return Ok(Err(silence)),
            }
        }
        Ok(Ok(()))
    }

    /// Asks for one piece after the other: `look` returns what it finds from a number on, and where the next piece begins.
    fn write_pieces(
        &mut self,
        look: impl Fn(&Stack, &Filter, usize) -> (Vec<SocketReport>, Option<usize>) + Copy + Send + 'static,
    ) -> io::Result<Result<(), Silence>> {
        let mut next = Some(0);
        while let Some(from) = next {
            let filter = Arc::clone(self.filter);
            match ask(self.engine, move |stack, _| look(stack, &filter, from)) {
                Ok((sockets, more)) => {
                    self.write_piece(sockets)?;
                    next = more;
                }
                Err(silence) => return Ok(Err(silence)),
            }
        }
        Ok(Ok(()))
    }

    fn write_piece(&mut self, mut sockets: Vec<SocketReport>) -> io::Result<()> {
        if sockets.is_empty() {
            return Ok(());
        }
        sockets.iter_mut().for_each(|socket| socket.engine = self.number);
        write_json(self.out, &Reply::Sockets(sockets))
    }
}

fn summary(stack: &Stack) -> EngineReport {
    let (connections, half_open, time_wait) = stack.population();
    let (buffer_memory, buffer_memory_max) = stack.buffer_memory();
    EngineReport {
        connections,
        half_open,
        time_wait,
        buffer_memory,
        buffer_memory_max,
        ..EngineReport::default()
    }
}
