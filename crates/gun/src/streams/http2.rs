//! HTTP/2 on one connection (RFC 9113), by the crate `h2`: it is asynchronous, and is polled here after each input. DNS over HTTPS (RFC 8484) is
//! HTTP/2 with a question as its body.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use clock::Instant;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conversation::{Asked, Conversation, End, Heard, Lateness, Question, Stray, Times};
use super::fault::Fault;
use super::request::{HttpRequest, MESSAGE_MAX, body_of};

/// Requests that were given up, and whose late answers are still known as such.
const RESETS_MAX: usize = 4096;
/// Octets that wait to be sent at most: bodies wait where they are.
const OUTGOING_MAX: usize = 64 * 1024;
/// Octets that wait to be read at most: a server that sends more while it takes nothing is cut off.
const INCOMING_MAX: usize = 1024 * 1024;
/// What a server may send of one body, and of all, before we have looked at it.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// Requests before the server has said how many it takes at a time: no server should take fewer (RFC 9113, 6.5.2).
const FIRST_REQUESTS_MAX: usize = 100;

/// A connection of HTTP/2.
pub(crate) struct Http2 {
    request: HttpRequest,
    pipe: Transport,
    /// `None` if its beginning failed.
    session: Option<(SendRequest<Bytes>, Connection<Transport, Bytes>)>,
    streams: Vec<Stream>,
    pipeline: usize,
    requests_left: u64,
    /// Whether the next request may begin.
    is_ready: bool,
    /// The server said that it takes no more.
    is_closing: bool,
    heard_at: Option<Instant>,
}

struct Stream {
    times: Times,
    /// For DNS over HTTPS.
    question: Option<Question>,
    response: ResponseFuture,
    /// The request's body; a stream that is dropped is reset.
    _body: SendStream<Bytes>,
    status: u16,
    answer: Option<RecvStream>,
    octets: u64,
    /// The answer's body, of a message of DNS alone.
    message: Vec<u8>,
}

/// What came of a stream.
enum Outcome {
    Answered,
    /// The server did not look at it.
    Refused,
    Failed(Fault),
}

impl Http2 {
    /// `pipeline` requests under way at most. A connection that is not kept has one request.
    pub(crate) fn new(request: HttpRequest, pipeline: usize, is_kept: bool) -> Http2 {
        let pipe = Transport::default();
        let mut builder = Builder::new();
        builder.enable_push(false);
        // Requests that were given up are reset, and their late answers are no fault of the server.
        builder.max_concurrent_reset_streams(RESETS_MAX).max_local_error_reset_streams(None);
        builder.initial_max_send_streams(FIRST_REQUESTS_MAX);
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        let handshake = builder.handshake::<_, Bytes>(pipe.clone());
        // It writes into the pipe, which has room, and waits for nothing.
        let session = match pin!(handshake).poll(&mut context()) {
            Poll::Ready(Ok(session)) => Some(session),
            Poll::Ready(Err(_)) | Poll::Pending => None,
        };
        let mut own = Http2 {
            request,
            pipe,
            session,
            streams: Vec::with_capacity(pipeline),
            pipeline,
            requests_left: if is_kept { u64::MAX } else { 1 },
            is_ready: true,
            is_closing: false,
            heard_at: None,
        };
        own.poll_connection();
        own
    }

    /// How the connection ends, if it does.
    fn poll_connection(&mut self) -> Option<End> {
        let Some((sender, connection)) = &mut self.session else {
            return Some(End::By(Fault::NotTheProtocol));
        };
        let ended = match Pin::new(connection).poll(&mut context()) {
            Poll::Pending => None,
            Poll::Ready(Ok(())) => Some(End::InOrder),
            Poll::Ready(Err(error)) => Some(end_by(&error)),
        };
        let ready = sender.poll_ready(&mut context());
        self.is_ready = matches!(ready, Poll::Ready(Ok(())));
        self.is_closing |= matches!(ready, Poll::Ready(Err(_)));
        ended
    }

    /// Goes on with everything, until nothing moves without the server.
    fn drive(&mut self, heard: &mut Heard<'_>) -> Option<End> {
        loop {
            let ended = self.poll_connection();
            let is_broken = matches!(ended, Some(End::By(_)));
            let has_moved = self.poll_streams(is_broken, heard);
            if ended.is_some() {
                return ended;
            }
            let has_done_all = self.streams.is_empty() && (self.is_closing || self.requests_left == 0);
            if has_done_all {
                return Some(End::InOrder);
            }
            if !has_moved {
                return None;
            }
        }
    }

    /// Whether an answer moved on. Streams that fail with their connection are left: they are counted with it.
    fn poll_streams(&mut self, is_broken: bool, heard: &mut Heard<'_>) -> bool {
        let (mut has_moved, mut at) = (false, 0);
        while let Some(stream) = self.streams.get_mut(at) {
            let octets = stream.octets;
            let outcome = stream.poll().filter(|outcome| !is_broken || matches!(outcome, Outcome::Answered));
            let Some(outcome) = outcome else {
                has_moved |= stream.octets != octets;
                at += 1;
                continue;
            };
            has_moved = true;
            let stream = self.streams.swap_remove(at);
            match outcome {
                Outcome::Answered => stream.answered(heard),
                Outcome::Refused => heard.again(stream.times),
                Outcome::Failed(fault) => heard.fault(fault, 1),
            }
        }
        has_moved
    }

    fn send(&mut self, times: Times, asked: &mut Asked) -> Result<(), h2::Error> {
        let Some((sender, _)) = &mut self.session else { return Ok(()) };
        let question = asked.next();
        let body = body_of(&self.request, question, asked);
        let mut request = self.request.request.clone();
        if question.is_some() {
            // BIND 9.18 wants it.
            request.headers_mut().insert(http::header::CONTENT_LENGTH, body.len().into());
        }
        let (response, mut stream) = sender.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?; // Waits for the server's window by itself, without a copy.
        }
        self.streams.push(Stream {
            times,
            question,
            response,
            _body: stream,
            status: 0,
            answer: None,
            octets: 0,
            message: Vec::new(),
        });
        Ok(())
    }
}

impl Stream {
    fn poll(&mut self) -> Option<Outcome> {
        loop {
            let Some(answer) = &mut self.answer else {
                match Pin::new(&mut self.response).poll(&mut context()) {
                    Poll::Pending => return None,
                    Poll::Ready(Err(error)) => return Some(failed(&error)),
                    Poll::Ready(Ok(response)) => {
                        self.status = response.status().as_u16();
                        self.answer = Some(response.into_body());
                        continue;
                    }
                }
            };
            match answer.poll_data(&mut context()) {
                Poll::Pending => return None,
                Poll::Ready(None) => return Some(Outcome::Answered),
                Poll::Ready(Some(Err(error))) => return Some(failed(&error)),
                Poll::Ready(Some(Ok(data))) => {
                    let _ = answer.flow_control().release_capacity(data.len()); // The stream may have ended.
                    self.octets += data.len() as u64;
                    if self.question.is_some() && self.message.len() + data.len() <= MESSAGE_MAX {
                        self.message.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn answered(self, heard: &mut Heard<'_>) {
        let Some(question) = self.question else {
            return heard.answered(self.times, self.status, self.octets);
        };
        if self.status != 200 {
            heard.explain(Fault::Status, &self.status.to_string());
            return heard.fault(Fault::Status, 1);
        }
        let asked = (self.times, question);
        heard.message(&self.message, |id| if id == 0 { Ok(asked) } else { Err(Stray::NeverAsked) });
    }
}

fn failed(error: &h2::Error) -> Outcome {
    match error.reason() {
        // Behind the last one that the server looks at (RFC 9113, 6.8).
        Some(Reason::NO_ERROR) if error.is_remote() && error.is_go_away() => Outcome::Refused,
        Some(Reason::REFUSED_STREAM) if error.is_remote() => Outcome::Refused, // RFC 9113, 8.7.
        _ if error.is_reset() => Outcome::Failed(Fault::StreamReset),
        _ if error.is_io() => Outcome::Failed(Fault::ClosedEarly),
        _ => Outcome::Failed(Fault::NotTheProtocol),
    }
}

fn end_by(error: &h2::Error) -> End {
    match error.reason() {
        Some(Reason::NO_ERROR) => End::InOrder,
        _ if error.is_io() => End::By(Fault::ClosedEarly),
        _ => End::By(Fault::NotTheProtocol),
    }
}

impl Conversation for Http2 {
    fn room(&self) -> usize {
        if !self.is_ready || self.is_closing || self.streams.len() >= self.pipeline || self.requests_left == 0
        {
            return 0;
        }
        1 // Whether there is room for the next one shows when this one has begun.
    }

    fn under_way(&self) -> usize {
        self.streams.len()
    }

    fn begin(&mut self, times: Times, asked: &mut Asked) {
        self.requests_left -= 1;
        if self.send(times, asked).is_err() {
            self.is_closing = true; // The connection has ended, and says so at its next input.
        }
        self.poll_connection();
    }

    fn on_octets(&mut self, octets: &[u8], heard: &mut Heard<'_>) -> Option<End> {
        self.heard_at = Some(heard.now);
        if !self.pipe.add(octets) {
            return Some(End::By(Fault::NotTheProtocol));
        }
        self.drive(heard)
    }

    fn on_close(&mut self, heard: &mut Heard<'_>) -> End {
        self.pipe.end();
        let end = self.drive(heard);
        match end {
            _ if self.streams.is_empty() => End::InOrder,
            Some(End::By(fault)) => End::By(fault),
            Some(End::InOrder) | None => End::By(Fault::ClosedEarly),
        }
    }

    fn expire(&mut self, limit: Instant, heard: &mut Heard<'_>) -> Option<End> {
        if self.is_closing && self.streams.is_empty() {
            return Some(End::InOrder);
        }
        let begun = self.streams.iter().map(|stream| stream.times.begun);
        match Lateness::of(begun, limit, self.heard_at) {
            Lateness::None => return None,
            Lateness::Silence => return Some(End::By(Fault::TimedOut)),
            Lateness::Some => {}
        }
        let before = self.streams.len();
        self.streams.retain(|stream| stream.times.begun > limit);
        heard.fault(Fault::TimedOut, before - self.streams.len());
        self.drive(heard)
    }

    fn has_output(&self) -> bool {
        self.pipe.has_output()
    }

    fn write(&mut self, sink: &mut dyn FnMut(&[u8]) -> usize) {
        while self.pipe.write(sink) {
            self.poll_connection(); // There is room for more. An end that shows here shows again at the next input.
        }
    }
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Octets between `h2` and the load.
#[derive(Clone, Default)]
struct Transport(Rc<RefCell<Pipe>>);

#[derive(Default)]
struct Pipe {
    incoming: Vec<u8>,
    read: usize,
    is_ended: bool,
    outgoing: Vec<u8>,
    written: usize,
}

impl Transport {
    /// Whether there was room.
    fn add(&self, octets: &[u8]) -> bool {
        let pipe = &mut *self.0.borrow_mut();
        pipe.incoming.drain(..pipe.read);
        pipe.read = 0;
        pipe.incoming.extend_from_slice(octets);
        pipe.incoming.len() <= INCOMING_MAX
    }

    fn end(&self) {
        self.0.borrow_mut().is_ended = true;
    }

    fn has_output(&self) -> bool {
        !self.0.borrow().outgoing.is_empty()
    }

    /// Whether there was something, and all of it was taken.
    fn write(&self, sink: &mut dyn FnMut(&[u8]) -> usize) -> bool {
        let pipe = &mut *self.0.borrow_mut();
        let rest = pipe.outgoing.len() - pipe.written;
        if rest == 0 {
            return false;
        }
        let taken = sink(&pipe.outgoing[pipe.written..]).min(rest);
        pipe.written += taken;
        if taken == rest {
            pipe.outgoing.clear();
            pipe.written = 0;
        }
        taken == rest
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pipe = &mut *self.0.borrow_mut();
        let rest = &pipe.incoming[pipe.read..];
        if rest.is_empty() {
            return if pipe.is_ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let len = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..len]);
        pipe.read += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let pipe = &mut *self.0.borrow_mut();
        let len = OUTGOING_MAX.saturating_sub(pipe.outgoing.len()).min(octets.len());
        if len == 0 && !octets.is_empty() {
            return Poll::Pending;
        }
        pipe.outgoing.extend_from_slice(&octets[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
