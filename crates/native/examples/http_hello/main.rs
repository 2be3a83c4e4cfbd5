//! One page over HTTP/1.1, with keep-alive and pipelining: something to measure with, not a web server.
//!
//! Usage: `cargo run --release --example http_hello -- --device IF --listen ADDR:PORT [--core N] [--spin-us N]`

mod request;
mod response;
#[path = "../support/mod.rs"]
mod support;

use clock::{Duration, Instant};
use engine::{Connection, Echo, TcpHandler};
use request::{HEAD_MAX, Method, Parsed, Request, parse};
use response::Responses;

/// How long a connection may be idle.
const IDLE_MAX: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = support::Options::from_command_line("http_hello");
    support::serve(&options, None::<Echo>, Hello::new())
}

struct Hello {
    responses: Responses,
    /// When the date in the responses is looked at again.
    refresh_at: Instant,
}

/// What a connection is in the middle of.
#[derive(Default)]
struct Progress {
    /// The rest of a response for which there was no room.
    unsent: Vec<u8>,
    /// Octets of a body that are still to be skipped.
    body: u64,
    /// Nothing follows what is unsent.
    closing: bool,
}

impl Hello {
    fn new() -> Hello {
        Hello { responses: Responses::new(), refresh_at: Instant::ZERO }
    }

    fn answer(&mut self, request: Request, progress: &mut Progress, connection: &mut Connection<'_>) {
        connection.consume(request.len);
        progress.body = request.body;
        progress.closing = request.close;
        match request.method {
            Method::Get => send(self.responses.page(true, request.close), progress, connection),
            Method::Head => send(self.responses.page(false, request.close), progress, connection),
            Method::Other => send(&self.responses.method_not_allowed(request.close), progress, connection),
        }
    }
}

impl TcpHandler for Hello {
    type State = Progress;

    fn on_open(&mut self, connection: &mut Connection<'_>) -> Progress {
        connection.set_deadline(Some(connection.now() + IDLE_MAX));
        Progress::default()
    }

    fn on_data(&mut self, progress: &mut Progress, connection: &mut Connection<'_>) {
        if connection.now() >= self.refresh_at {
            self.responses.refresh();
            self.refresh_at = connection.now() + Duration::from_millis(500);
        }
        while flush(progress, connection) && skip_body(progress, connection) && !progress.closing {
            match parse_next(connection) {
                Parsed::Incomplete if connection.is_ended() => return connection.close(),
                Parsed::Incomplete => return,
                Parsed::Request(request) => self.answer(request, progress, connection),
                Parsed::Refused(status) => {
                    progress.closing = true;
                    send(&self.responses.refusal(status), progress, connection);
                }
            }
        }
        if progress.closing && progress.unsent.is_empty() {
            // Data that is left unread would have the connection reset, and the response lost with it.
            connection.consume(connection.unread());
            connection.close();
        }
    }

    fn on_end(&mut self, progress: &mut Progress, connection: &mut Connection<'_>) {
        progress.closing = true;
        if progress.unsent.is_empty() {
            connection.close();
        }
    }

    fn on_timeout(&mut self, _: &mut Progress, connection: &mut Connection<'_>) {
        let idle = connection.info().map_or(IDLE_MAX, |info| info.last_data_recv);
        match IDLE_MAX - idle {
            Duration::ZERO => connection.close(),
            left => connection.set_deadline(Some(connection.now() + left)),
        }
    }
}

/// Reads the next request where it lies, or from a copy if it lies in several pieces.
fn parse_next(connection: &mut Connection<'_>) -> Parsed {
    match parse(connection.received()) {
        Parsed::Incomplete => parse(connection.contiguous(HEAD_MAX + 1)),
        parsed => parsed,
    }
}

/// Sends a response; what finds no room is kept.
fn send(response: &[u8], progress: &mut Progress, connection: &mut Connection<'_>) {
    let sent = connection.send(response);
    progress.unsent.extend_from_slice(&response[sent..]);
}

/// Sends what was kept; false if there is no room for all of it.
fn flush(progress: &mut Progress, connection: &mut Connection<'_>) -> bool {
    let sent = connection.send(&progress.unsent);
    progress.unsent.drain(..sent);
    progress.unsent.is_empty()
}

/// Drops what came of a body; false if more is to come.
fn skip_body(progress: &mut Progress, connection: &mut Connection<'_>) -> bool {
    let count = progress.body.min(connection.unread() as u64);
    connection.consume(count as usize);
    progress.body -= count;
    progress.body == 0
}
