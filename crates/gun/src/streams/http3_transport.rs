//! A connection of QUIC as the crate `h3` wants one. All of it is polled after each input, so nobody is woken.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    self, BidiStream, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream, StreamErrorIncoming,
    WriteBuf,
};
use quinn_proto::{Dir, StreamId};

use super::conversation::End;
use super::fault::Fault;
use super::quic::{Read, Session};

/// Octets that a server sends on a stream that it began, in one direction, at most: its settings, its GOAWAY. A frame of these streams is held
/// until it is whole.
const FOREIGN_MAX: usize = 1024 * 1024;

/// A connection.
#[derive(Clone)]
pub(super) struct Transport(pub(super) Session);

impl quic::Connection<Bytes> for Transport {
    type RecvStream = Incoming;
    type OpenStreams = Transport;

    fn poll_accept_recv(&mut self, _: &mut Context<'_>) -> Poll<Result<Incoming, ConnectionErrorIncoming>> {
        self.poll(|session| session.accept(Dir::Uni)).map_ok(|id| Incoming::new(&self.0, id))
    }

    fn poll_accept_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Both, ConnectionErrorIncoming>> {
        self.poll(|session| session.accept(Dir::Bi)).map_ok(|id| Both::new(&self.0, id))
    }

    fn opener(&self) -> Transport {
        self.clone()
    }
}

impl OpenStreams<Bytes> for Transport {
    type BidiStream = Both;
    type SendStream = Outgoing;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        self.poll(Session::open).map_ok(|id| Both::new(&self.0, id)).map_err(of_stream)
    }

    fn poll_open_send(&mut self, _: &mut Context<'_>) -> Poll<Result<Outgoing, StreamErrorIncoming>> {
        self.poll(Session::open_own).map_ok(|id| Outgoing::new(&self.0, id)).map_err(of_stream)
    }

    fn close(&mut self, code: Code, _: &[u8]) {
        let end = if code == Code::H3_NO_ERROR { End::InOrder } else { End::By(Fault::NotTheProtocol) };
        self.0.close(code.value(), end);
    }
}

impl Transport {
    /// A stream, if there is one.
    fn poll(
        &self,
        find: impl FnOnce(&Session) -> Option<StreamId>,
    ) -> Poll<Result<StreamId, ConnectionErrorIncoming>> {
        match find(&self.0) {
            Some(id) => Poll::Ready(Ok(id)),
            None if self.0.has_ended() => Poll::Ready(Err(ended())),
            None => Poll::Pending,
        }
    }
}

/// How a connection ended, its conversation asks the session.
fn ended() -> ConnectionErrorIncoming {
    ConnectionErrorIncoming::Undefined(Arc::new(std::io::Error::from(std::io::ErrorKind::NotConnected)))
}

fn of_stream(connection_error: ConnectionErrorIncoming) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

/// What comes on a stream.
pub(super) struct Incoming {
    session: Session,
    id: StreamId,
    has_ended: bool,
    octets: usize,
}

impl Incoming {
    fn new(session: &Session, id: StreamId) -> Incoming {
        Incoming { session: session.clone(), id, has_ended: false, octets: 0 }
    }

    /// Takes what came, unless it is too much.
    fn take(&mut self, octets: Bytes) -> Result<Option<Bytes>, StreamErrorIncoming> {
        self.octets = self.octets.saturating_add(octets.len());
        if self.id.dir() == Dir::Uni && self.octets > FOREIGN_MAX {
            self.session.close(Code::H3_EXCESSIVE_LOAD.value(), End::By(Fault::NotTheProtocol));
            return Err(of_stream(ended()));
        }
        Ok(Some(octets))
    }
}

impl RecvStream for Incoming {
    type Buf = Bytes;

    fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let read = self.session.read(self.id);
        self.has_ended = matches!(read, Read::Ended | Read::Reset(_));
        match read {
            Read::Data(octets) => Poll::Ready(self.take(octets)),
            Read::Ended => Poll::Ready(Ok(None)),
            Read::Reset(error_code) => Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code })),
            Read::Waits if self.session.has_ended() => Poll::Ready(Err(of_stream(ended()))),
            Read::Waits => Poll::Pending,
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.session.stop(self.id, error_code);
        }
    }

    fn recv_id(&self) -> quic::StreamId {
        name(self.id)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.stop_sending(Code::H3_REQUEST_CANCELLED.value());
    }
}

/// What goes on a stream.
pub(super) struct Outgoing {
    session: Session,
    id: StreamId,
    unsent: Option<WriteBuf<Bytes>>,
    is_finished: bool,
}

impl Outgoing {
    fn new(session: &Session, id: StreamId) -> Outgoing {
        Outgoing { session: session.clone(), id, unsent: None, is_finished: false }
    }
}

impl SendStream<Bytes> for Outgoing {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let Some(unsent) = &mut self.unsent else { return Poll::Ready(Ok(())) };
        // A server may answer without the whole body (RFC 9114, 4.1): the answer says what it makes of it.
        let is_stopped = self.session.send(self.id, unsent).is_err();
        if is_stopped || !unsent.has_remaining() {
            self.unsent = None;
            return Poll::Ready(Ok(()));
        }
        if self.session.has_ended() {
            return Poll::Ready(Err(of_stream(ended())));
        }
        Poll::Pending
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.unsent = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let ready = self.poll_ready(context);
        if let Poll::Ready(Ok(())) = ready {
            self.is_finished = true;
            self.session.finish(self.id);
        }
        ready
    }

    fn reset(&mut self, code: u64) {
        self.session.reset(self.id, code);
    }

    fn send_id(&self) -> quic::StreamId {
        name(self.id)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.is_finished {
            self.session.reset(self.id, Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

/// Both directions of a stream.
pub(super) struct Both {
    incoming: Incoming,
    outgoing: Outgoing,
}

impl Both {
    fn new(session: &Session, id: StreamId) -> Both {
        Both { incoming: Incoming::new(session, id), outgoing: Outgoing::new(session, id) }
    }
}

impl SendStream<Bytes> for Both {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.outgoing.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.outgoing.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.outgoing.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.outgoing.reset(code);
    }

    fn send_id(&self) -> quic::StreamId {
        self.outgoing.send_id()
    }
}

impl RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.incoming.poll_data(context)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.incoming.stop_sending(error_code);
    }

    fn recv_id(&self) -> quic::StreamId {
        self.incoming.recv_id()
    }
}

impl BidiStream<Bytes> for Both {
    type SendStream = Outgoing;
    type RecvStream = Incoming;

    fn split(self) -> (Outgoing, Incoming) {
        (self.outgoing, self.incoming)
    }
}

/// A stream's name for `h3`. Both crates keep to 2^62.
fn name(id: StreamId) -> quic::StreamId {
    quic::StreamId::try_from(u64::from(id)).unwrap_or_else(|_| unreachable!("{id} is beyond 2^62"))
}
