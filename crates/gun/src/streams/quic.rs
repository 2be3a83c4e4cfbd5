//! One connection of QUIC (RFC 9000), by the crate `quinn-proto`: datagrams and times come in, datagrams go out.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time;

use bytes::{Buf, Bytes, BytesMut};
use clock::{Duration, Instant};
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, FinishError, ReadError, ReadableError, StreamEvent, StreamId, TransportConfig,
    TransportErrorCode, VarInt, WriteError,
};
use rustls::pki_types::ServerName;

use super::conversation::{Asked, Conversation, End, Heard, Lateness, Times};
use super::fault::Fault;

/// Octets of an answer that a server may send ahead of what we have looked at.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Streams that a server of HTTP may have at the same time: it needs three, and may try our manners with more (RFC 9114, 6.2.3).
const FOREIGN_STREAMS: u32 = 100;
/// Before a connection that has nothing to do sends a ping. Servers end silent ones without a word, mostly after 30 s.
const KEEP_ALIVE: time::Duration = time::Duration::from_secs(10);

/// Whom connections go to, and how its certificate is judged.
#[derive(Clone)]
pub struct Quic {
    server: SocketAddr,
    name: String,
    config: ClientConfig,
    /// `quinn-proto` has a clock of its own: any instant of it.
    origin: time::Instant,
}

impl Quic {
    /// A server of DNS whose certificate has to have `name`. `tls` says what is spoken (ALPN) and whom to trust; it has to know TLS 1.3. The
    /// server begins no streams (RFC 9250, 4.3.3). `origin` is any instant, as no clock is read here.
    pub fn for_dns(
        server: SocketAddr,
        name: &ServerName<'_>,
        tls: Arc<rustls::ClientConfig>,
        origin: time::Instant,
    ) -> Result<Quic, NoInitialCipherSuite> {
        Quic::new(server, name, tls, origin, 0)
    }

    /// As [`Quic::for_dns`], for HTTP: the server begins streams in one direction alone (RFC 9114, 6.1).
    pub fn for_http(
        server: SocketAddr,
        name: &ServerName<'_>,
        tls: Arc<rustls::ClientConfig>,
        origin: time::Instant,
    ) -> Result<Quic, NoInitialCipherSuite> {
        Quic::new(server, name, tls, origin, FOREIGN_STREAMS)
    }

    fn new(
        server: SocketAddr,
        name: &ServerName<'_>,
        tls: Arc<rustls::ClientConfig>,
        origin: time::Instant,
        foreign_streams: u32,
    ) -> Result<Quic, NoInitialCipherSuite> {
        let mut transport = TransportConfig::default();
        transport.max_concurrent_bidi_streams(0_u32.into());
        transport.max_concurrent_uni_streams(foreign_streams.into());
        transport.stream_receive_window(STREAM_WINDOW.into());
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(Arc::new(transport));
        Ok(Quic { server, name: name.to_str().into_owned(), config, origin })
    }
}

/// A connection, for the conversation on it and all its streams.
#[derive(Clone)]
pub(super) struct Session(Rc<RefCell<Inner>>);

struct Inner {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    server: SocketAddr,
    /// The same instant on our clock and on that of `quinn-proto`.
    origin: (Instant, time::Instant),
    now: Instant,
    /// When a datagram came last.
    heard_at: Option<Instant>,
    is_connected: bool,
    end: Option<End>,
    /// Why TLS has failed.
    why: Option<String>,
    /// The next stream, once the server lets us have one.
    next_stream: Option<StreamId>,
    /// Streams on which something came.
    readable: Vec<StreamId>,
    /// What is to be sent next; empty if there is nothing.
    outgoing: Vec<u8>,
}

/// What is spoken on a connection of QUIC: with the session below it, a conversation as any other.
pub(super) trait Spoken {
    fn session(&self) -> &Session;

    /// Whether something has to be agreed on before the first request.
    fn is_opening(&self) -> bool;

    /// How many requests may begin now.
    fn room(&self) -> usize;

    /// When the requests were begun that have no answer.
    fn begun(&self) -> impl ExactSizeIterator<Item = Instant>;

    /// Takes a request.
    fn begin(&mut self, times: Times, asked: &mut Asked);

    /// Goes on with everything, until nothing moves without the server. How the connection ends, if it does.
    fn drive(&mut self, heard: &mut Heard<'_>) -> Option<End>;

    /// Whether there is something to go on with, though nothing came.
    fn has_more(&self) -> bool;

    /// Gives up requests that were begun at `limit` or before; how many.
    fn give_up(&mut self, limit: Instant) -> usize;

    /// The code of a connection that ends in order.
    fn no_error(&self) -> u64;
}

impl<S: Spoken> Conversation for S {
    fn is_opening(&self) -> bool {
        Spoken::is_opening(self)
    }

    fn room(&self) -> usize {
        Spoken::room(self)
    }

    fn under_way(&self) -> usize {
        self.begun().len()
    }

    fn begin(&mut self, times: Times, asked: &mut Asked) {
        self.session().set_now(times.begun);
        Spoken::begin(self, times, asked);
        self.session().settle();
    }

    fn on_octets(&mut self, datagram: &[u8], heard: &mut Heard<'_>) -> Option<End> {
        self.session().on_datagram(datagram, heard.now);
        drive_and_explain(self, heard)
    }

    fn on_close(&mut self, _: &mut Heard<'_>) -> End {
        End::By(Fault::ClosedEarly) // Datagrams have no end.
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.has_more() { Some(self.session().begun_at()) } else { self.session().next_wake() }
    }

    fn on_wake(&mut self, heard: &mut Heard<'_>) -> Option<End> {
        self.session().on_wake(heard.now);
        drive_and_explain(self, heard)
    }

    fn expire(&mut self, limit: Instant, heard: &mut Heard<'_>) -> Option<End> {
        if Spoken::is_opening(self) && self.session().begun_at() <= limit {
            return Some(End::By(Fault::NotConnected));
        }
        match self.session().lateness(self.begun(), limit) {
            Lateness::None => return None,
            Lateness::Silence => return Some(End::By(Fault::TimedOut)),
            Lateness::Some => {}
        }
        let late = self.give_up(limit);
        heard.fault(Fault::TimedOut, late);
        drive_and_explain(self, heard)
    }

    fn has_output(&self) -> bool {
        self.session().has_output()
    }

    fn write(&mut self, sink: &mut dyn FnMut(&[u8]) -> usize) {
        self.session().write(sink);
    }

    fn farewell(&mut self, now: Instant) -> bool {
        self.session().set_now(now);
        self.session().close(self.no_error(), End::InOrder);
        self.session().has_output()
    }
}

/// What a stream has for us.
pub(super) enum Read {
    Data(Bytes),
    Waits,
    Ended,
    /// The server has reset it, for this reason.
    Reset(u64),
}

/// A stream that takes nothing more, as the server asked for that.
pub(super) struct Stopped;

impl Session {
    /// Begins a connection; `None` if none can go there, as to port 0.
    pub(super) fn connect(quic: &Quic, now: Instant) -> Option<Session> {
        let origin = (now, quic.origin);
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let (handle, connection) =
            endpoint.connect(origin.1, quic.config.clone(), quic.server, &quic.name).ok()?;
        let mut inner = Inner {
            endpoint,
            handle,
            connection,
            server: quic.server,
            origin,
            now,
            heard_at: None,
            is_connected: false,
            end: None,
            why: None,
            next_stream: None,
            readable: Vec::new(),
            outgoing: Vec::new(),
        };
        inner.settle();
        Some(Session(Rc::new(RefCell::new(inner))))
    }

    fn on_datagram(&self, datagram: &[u8], now: Instant) {
        self.0.borrow_mut().on_datagram(datagram, now);
    }

    /// A time that was asked for has come.
    fn on_wake(&self, now: Instant) {
        let mut inner = self.0.borrow_mut();
        inner.now = now;
        let now = inner.foreign_now();
        inner.connection.handle_timeout(now);
        inner.settle();
    }

    /// When something is to be done, although nothing came.
    fn next_wake(&self) -> Option<Instant> {
        let mut inner = self.0.borrow_mut();
        let (ours, theirs) = inner.origin;
        let at = inner.connection.poll_timeout()?;
        Some(ours + Duration::from_nanos(at.saturating_duration_since(theirs).as_nanos() as u64))
    }

    /// What is done next is done now.
    pub(super) fn set_now(&self, now: Instant) {
        self.0.borrow_mut().now = now;
    }

    pub(super) fn is_connected(&self) -> bool {
        self.0.borrow().is_connected
    }

    /// How the connection has ended, if it has, with so many requests `under_way`.
    pub(super) fn end(&self, under_way: usize) -> Option<End> {
        match self.0.borrow().end? {
            End::InOrder if under_way > 0 => Some(End::By(Fault::ClosedEarly)),
            // It had nothing to do for longer than one of the two wants to wait.
            End::By(Fault::TimedOut) if under_way == 0 => Some(End::InOrder),
            end => Some(end),
        }
    }

    /// Why TLS has failed, if it has.
    fn take_why(&self) -> Option<String> {
        self.0.borrow_mut().why.take()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.borrow().end.is_some()
    }

    /// Whether a stream may begin.
    pub(super) fn has_stream(&self) -> bool {
        self.0.borrow().next_stream.is_some()
    }

    /// A new stream, in both directions.
    pub(super) fn open(&self) -> Option<StreamId> {
        let mut inner = self.0.borrow_mut();
        let id = inner.next_stream.take();
        inner.settle();
        id
    }

    /// A new stream from us alone.
    pub(super) fn open_own(&self) -> Option<StreamId> {
        self.0.borrow_mut().connection.streams().open(Dir::Uni)
    }

    /// A stream that the server began.
    pub(super) fn accept(&self, direction: Dir) -> Option<StreamId> {
        self.0.borrow_mut().connection.streams().accept(direction)
    }

    /// The streams on which something came since this was asked last.
    pub(super) fn take_readable(&self) -> Vec<StreamId> {
        std::mem::take(&mut self.0.borrow_mut().readable)
    }

    pub(super) fn read(&self, id: StreamId) -> Read {
        let mut inner = self.0.borrow_mut();
        let mut stream = inner.connection.recv_stream(id);
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return Read::Ended,
        };
        let read = match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => Read::Data(chunk.bytes),
            Ok(None) => Read::Ended,
            Err(ReadError::Blocked) => Read::Waits,
            Err(ReadError::Reset(code)) => Read::Reset(code.into_inner()),
        };
        // Whether the server hears of more room: `settle` sends whatever there is.
        let _ = chunks.finalize();
        read
    }

    /// Gives the front of `octets` to a stream: what there is room for.
    pub(super) fn send(&self, id: StreamId, octets: &mut impl Buf) -> Result<(), Stopped> {
        let mut inner = self.0.borrow_mut();
        while octets.has_remaining() {
            match inner.connection.send_stream(id).write(octets.chunk()) {
                Ok(len) => octets.advance(len),
                Err(WriteError::Blocked) => return Ok(()),
                Err(WriteError::Stopped(code)) => {
                    let _ = inner.connection.send_stream(id).reset(code); // Else it never ends (RFC 9000, 3.5).
                    return Err(Stopped);
                }
                Err(WriteError::ClosedStream) => return Err(Stopped),
            }
        }
        Ok(())
    }

    /// Ends our side of a stream.
    pub(super) fn finish(&self, id: StreamId) {
        let mut inner = self.0.borrow_mut();
        if let Err(FinishError::Stopped(code)) = inner.connection.send_stream(id).finish() {
            let _ = inner.connection.send_stream(id).reset(code); // As above. One that has ended is ended.
        }
    }

    /// Ends our side of a stream amid what it sends.
    pub(super) fn reset(&self, id: StreamId, code: u64) {
        let _ = self.0.borrow_mut().connection.send_stream(id).reset(reason(code));
    }

    /// Wants nothing more from a stream.
    pub(super) fn stop(&self, id: StreamId, code: u64) {
        let _ = self.0.borrow_mut().connection.recv_stream(id).stop(reason(code));
    }

    /// Ends the connection in this way: [`Session::write`] then has the last datagram.
    pub(super) fn close(&self, code: u64, end: End) {
        let mut inner = self.0.borrow_mut();
        inner.end.get_or_insert(end);
        let now = inner.foreign_now();
        inner.connection.close(now, reason(code), Bytes::new());
        inner.settle();
    }

    /// Makes what is to be sent after streams were used.
    pub(super) fn settle(&self) {
        self.0.borrow_mut().settle();
    }

    fn has_output(&self) -> bool {
        !self.0.borrow().outgoing.is_empty()
    }

    /// When the connection was begun.
    fn begun_at(&self) -> Instant {
        self.0.borrow().origin.0
    }

    fn lateness(&self, begun: impl Iterator<Item = Instant>, limit: Instant) -> Lateness {
        Lateness::of(begun, limit, self.0.borrow().heard_at)
    }

    /// Gives datagrams to `sink`, until it takes none.
    fn write(&self, sink: &mut dyn FnMut(&[u8]) -> usize) {
        let mut inner = self.0.borrow_mut();
        while !inner.outgoing.is_empty() && sink(&inner.outgoing) > 0 {
            inner.outgoing.clear();
            inner.next_datagram();
        }
    }
}

impl Inner {
    fn foreign_now(&self) -> time::Instant {
        self.origin.1 + time::Duration::from_nanos(self.now.since(self.origin.0).as_nanos())
    }

    fn on_datagram(&mut self, datagram: &[u8], now: Instant) {
        (self.now, self.heard_at) = (now, Some(now));
        let (now, mut reply) = (self.foreign_now(), Vec::new());
        // A reply would be to what is of no connection: it is not ours to give.
        let event = self.endpoint.handle(now, self.server, None, None, BytesMut::from(datagram), &mut reply);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
        self.settle();
    }

    /// Takes what the connection has to say, and makes the next datagram.
    fn settle(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => {
                    let end = *self.end.get_or_insert(end_by(&reason, self.is_connected));
                    self.why = (end == End::By(Fault::Tls)).then(|| reason.to_string());
                }
                Event::Stream(StreamEvent::Readable { id }) => self.readable.push(id),
                Event::Stream(_)
                | Event::HandshakeDataReady
                | Event::DatagramReceived
                | Event::DatagramsUnblocked => {}
            }
        }
        if self.is_connected && self.next_stream.is_none() {
            self.next_stream = self.connection.streams().open(Dir::Bi);
        }
        self.next_datagram();
    }

    fn next_datagram(&mut self) {
        if self.outgoing.is_empty() {
            let now = self.foreign_now();
            if self.connection.poll_transmit(now, 1, &mut self.outgoing).is_none() {
                self.outgoing.clear();
            }
        }
    }
}

fn drive_and_explain(spoken: &mut impl Spoken, heard: &mut Heard<'_>) -> Option<End> {
    let end = spoken.drive(heard);
    if let Some(why) = spoken.session().take_why() {
        heard.explain(Fault::Tls, &why);
    }
    end
}

/// Codes above 2^62 do not exist.
fn reason(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn end_by(error: &ConnectionError, was_connected: bool) -> End {
    let is_crypto =
        |code: TransportErrorCode| u64::from(code) & !0xff == u64::from(TransportErrorCode::crypto(0));
    End::By(match error {
        ConnectionError::LocallyClosed | ConnectionError::ApplicationClosed(_) if was_connected => {
            return End::InOrder; // Whether a request was under way, its conversation knows.
        }
        ConnectionError::TransportError(error) if is_crypto(error.code) => Fault::Tls,
        ConnectionError::ConnectionClosed(close) if is_crypto(close.error_code) => Fault::Tls,
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            Fault::Refused
        }
        ConnectionError::Reset => Fault::Reset,
        ConnectionError::TimedOut if was_connected => Fault::TimedOut,
        ConnectionError::TimedOut => Fault::NotConnected,
        ConnectionError::ConnectionClosed(_)
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::LocallyClosed => Fault::ClosedEarly,
        ConnectionError::TransportError(_)
        | ConnectionError::VersionMismatch
        | ConnectionError::CidsExhausted => Fault::NotTheProtocol,
    })
}
