//! HTTP/3 on one connection (RFC 9114), by the crate `h3`: it is asynchronous, and is polled here after each input.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use clock::Instant;
use h3::client::{Connection, RequestStream, SendRequest};
use h3::error::{Code, ConnectionError, StreamError};

use super::conversation::{Asked, End, Heard, Times};
use super::fault::Fault;
use super::http3_transport::{Incoming, Transport};
use super::quic::{Quic, Session, Spoken};
use super::request::HttpRequest;

type Link = (Connection<Transport, Bytes>, SendRequest<Transport, Bytes>);
type Task<T> = Pin<Box<dyn Future<Output = T>>>;

/// A connection of HTTP/3.
pub(crate) struct Http3 {
    session: Session,
    request: HttpRequest,
    stage: Stage,
    exchanges: Vec<Exchange>,
    pipeline: usize,
    requests_left: u64,
    /// The server said that it takes no more.
    is_closing: bool,
}

enum Stage {
    Opening(Task<Result<Link, ConnectionError>>),
    Open(Box<Link>),
    Failed,
}

/// A request and its answer.
struct Exchange {
    times: Times,
    progress: Progress,
}

enum Progress {
    /// For the connection to be open.
    Waits,
    UnderWay(Task<Result<Answer, StreamError>>),
    Over(Result<Answer, StreamError>),
}

struct Answer {
    status: u16,
    octets: u64,
    /// Octets that its header announced, if it did.
    announced: Option<u64>,
}

impl Exchange {
    /// Goes on.
    fn poll(&mut self, link: &Link, request: &HttpRequest) {
        if let Progress::Waits = self.progress {
            self.progress = Progress::UnderWay(exchange(link.1.clone(), request.clone()));
        }
        if let Progress::UnderWay(task) = &mut self.progress
            && let Poll::Ready(outcome) = task.as_mut().poll(&mut context())
        {
            self.progress = Progress::Over(outcome);
        }
    }

    /// Whether it is over, and not merely with its connection.
    fn is_over(&self) -> bool {
        match &self.progress {
            Progress::Waits | Progress::UnderWay(_) => false,
            Progress::Over(outcome) => !matches!(outcome, Err(StreamError::ConnectionError { .. })),
        }
    }
}

impl Http3 {
    /// `pipeline` requests under way at most. A connection that is not kept has one request. `None` if no connection can go there.
    pub(crate) fn new(
        quic: &Quic,
        request: HttpRequest,
        pipeline: usize,
        is_kept: bool,
        now: Instant,
    ) -> Option<Http3> {
        let session = Session::connect(quic, now)?;
        let transport = Transport(session.clone());
        // Unknown frames (RFC 9114, 7.2.8) try a server's manners, and aioquic 1.2 does not see a request's end behind one.
        let opening = async move { h3::client::builder().send_grease(false).build(transport).await };
        let stage = Stage::Opening(Box::pin(opening));
        Some(Http3 {
            session,
            request,
            stage,
            exchanges: Vec::with_capacity(pipeline),
            pipeline,
            requests_left: if is_kept { u64::MAX } else { 1 },
            is_closing: false,
        })
    }

    fn poll_connection(&mut self) {
        if let Stage::Opening(task) = &mut self.stage {
            match task.as_mut().poll(&mut context()) {
                Poll::Pending => return,
                Poll::Ready(Ok(link)) => self.stage = Stage::Open(Box::new(link)),
                Poll::Ready(Err(_)) => self.stage = Stage::Failed,
            }
        }
        if let Stage::Open(link) = &mut self.stage {
            match link.0.poll_close(&mut context()) {
                Poll::Ready(error) if !error.is_h3_no_error() => self.stage = Stage::Failed,
                Poll::Ready(_) => self.is_closing = true,
                Poll::Pending => {}
            }
        }
    }

    /// Whether an exchange has ended. Those that fail with their connection are left: they are counted with it.
    fn poll_exchanges(&mut self, heard: &mut Heard<'_>) -> bool {
        let Stage::Open(link) = &self.stage else { return false };
        self.exchanges.iter_mut().for_each(|exchange| exchange.poll(link, &self.request));
        let mut has_ended = false;
        for exchange in self.exchanges.extract_if(.., |exchange| exchange.is_over()) {
            has_ended = true;
            let Progress::Over(outcome) = exchange.progress else { continue };
            match outcome {
                // RFC 9114, 4.1.2: it is malformed.
                Ok(answer) if answer.announced.is_some_and(|announced| announced != answer.octets) => {
                    heard.fault(Fault::NotTheProtocol, 1);
                }
                Ok(answer) => heard.answered(exchange.times, answer.status, answer.octets),
                Err(error) if is_not_looked_at(&error) => {
                    self.is_closing = true;
                    heard.again(exchange.times);
                }
                Err(StreamError::RemoteTerminate { .. }) => heard.fault(Fault::StreamReset, 1),
                Err(_) => heard.fault(Fault::NotTheProtocol, 1),
            }
        }
        has_ended
    }
}

/// The server says that it takes no request more (GOAWAY), or has not looked at this one.
fn is_not_looked_at(error: &StreamError) -> bool {
    match error {
        StreamError::RemoteClosing { .. } => true,
        StreamError::RemoteTerminate { code, .. } => *code == Code::H3_REQUEST_REJECTED,
        _ => false,
    }
}

/// A request and its answer, from the first octet to the last. The answer may be whole before the request is.
fn exchange(
    mut sender: SendRequest<Transport, Bytes>,
    request: HttpRequest,
) -> Task<Result<Answer, StreamError>> {
    Box::pin(async move {
        let is_head = request.request.method() == http::Method::HEAD;
        let (mut outgoing, incoming) = sender.send_request(request.request).await?.split();
        let mut sending = pin!(async move {
            if !request.body.is_empty() {
                outgoing.send_data(request.body).await?;
            }
            outgoing.finish().await
        });
        let mut receiving = pin!(receive(incoming, is_head));
        let mut is_sending = true;
        poll_fn(|context| {
            if is_sending && let Poll::Ready(sent) = sending.as_mut().poll(context) {
                is_sending = false;
                sent?;
            }
            receiving.as_mut().poll(context)
        })
        .await
    })
}

/// Whether an answer has the body that its header announces (RFC 9110, 8.6).
fn has_body(response: &http::Response<()>, is_head: bool) -> bool {
    !is_head && response.status() != http::StatusCode::NOT_MODIFIED
}

async fn receive(mut stream: RequestStream<Incoming, Bytes>, is_head: bool) -> Result<Answer, StreamError> {
    let mut response = stream.recv_response().await?;
    while response.status().is_informational() {
        response = stream.recv_response().await?; // RFC 9110, 15.2.
    }
    let announced =
        response.headers().get(http::header::CONTENT_LENGTH).filter(|_| has_body(&response, is_head));
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let mut octets = 0;
    while let Some(data) = stream.recv_data().await? {
        octets += data.remaining() as u64;
    }
    Ok(Answer { status: response.status().as_u16(), octets, announced })
}

impl Spoken for Http3 {
    fn session(&self) -> &Session {
        &self.session
    }

    fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Opening(_))
    }

    fn room(&self) -> usize {
        let may_begin = matches!(self.stage, Stage::Open(_)) && !self.is_closing && self.requests_left > 0;
        usize::from(may_begin && self.exchanges.len() < self.pipeline && self.session.has_stream())
    }

    fn begun(&self) -> impl ExactSizeIterator<Item = Instant> {
        self.exchanges.iter().map(|exchange| exchange.times.begun)
    }

    fn begin(&mut self, times: Times, _: &mut Asked) {
        self.requests_left -= 1;
        let mut exchange = Exchange { times, progress: Progress::Waits };
        if let Stage::Open(link) = &self.stage {
            exchange.poll(link, &self.request);
        }
        self.exchanges.push(exchange);
    }

    fn drive(&mut self, heard: &mut Heard<'_>) -> Option<End> {
        self.session.take_readable(); // All of them are polled.
        self.poll_connection();
        while self.poll_exchanges(heard) {
            self.poll_connection();
        }
        self.session.settle();
        let has_done_all = self.exchanges.is_empty() && (self.is_closing || self.requests_left == 0);
        match &self.stage {
            Stage::Failed => {
                Some(self.session.end(self.exchanges.len()).unwrap_or(End::By(Fault::NotTheProtocol)))
            }
            Stage::Open(_) if has_done_all => Some(End::InOrder),
            Stage::Opening(_) | Stage::Open(_) => self.session.end(self.exchanges.len()),
        }
    }

    fn has_more(&self) -> bool {
        self.exchanges.iter().any(Exchange::is_over) // It failed before anything came.
    }

    fn give_up(&mut self, limit: Instant) -> usize {
        let before = self.exchanges.len();
        self.exchanges.retain(|exchange| exchange.times.begun > limit);
        before - self.exchanges.len()
    }

    fn no_error(&self) -> u64 {
        Code::H3_NO_ERROR.value()
    }
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
