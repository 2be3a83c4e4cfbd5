//! HTTP/1.1 on one connection: requests that are all the same, several under way if that is asked for (pipelining), answers in their order.

use std::collections::VecDeque;
use std::rc::Rc;

use clock::Instant;

use super::answer_reader::{Answer, AnswerReader};
use super::conversation::{Asked, Conversation, End, Heard, Times};
use super::fault::Fault;

/// Small requests are sent so many octets at a time.
const PIECE: usize = 16 * 1024;

/// A request as it is sent.
#[derive(Clone, Debug)]
pub struct Http1Request {
    /// The request, again and again up to [`PIECE`] octets, at least once. All connections share it, and nothing is copied to send it.
    repeated: Rc<[u8]>,
    len: usize,
    is_head: bool,
}

impl Http1Request {
    /// A request for `target`, as the request line has it. `fields` are names and values; a Host field and one for the length of the body
    /// come on top where they are not given.
    pub fn new(
        method: &str,
        target: &str,
        host: &str,
        fields: &[(String, Vec<u8>)],
        body: &[u8],
    ) -> Http1Request {
        let has_host = fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let mut one = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        if !has_host {
            one.extend(format!("Host: {host}\r\n").bytes());
        }
        // Whose body may be expected says also that there is none (RFC 9110, 8.6).
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            one.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
        }
        fields.iter().for_each(|(name, value)| one.extend([name.as_bytes(), b": ", value, b"\r\n"].concat()));
        one.extend_from_slice(b"\r\n");
        one.extend_from_slice(body);
        let repeated = one.repeat((PIECE / one.len()).max(1)).into();
        Http1Request { repeated, len: one.len(), is_head: method == "HEAD" }
    }
}

/// A connection of HTTP/1.1.
pub(crate) struct Http1 {
    request: Http1Request,
    under_way: VecDeque<Times>,
    /// Requests of which not all was sent, and how much of the first of them was.
    unwritten: usize,
    written: usize,
    reader: AnswerReader,
    pipeline: usize,
    /// How many requests it takes before it ends.
    requests_left: u64,
}

impl Http1 {
    /// `pipeline` requests under way at most. A connection that is not kept has one request.
    pub(crate) fn new(request: Http1Request, pipeline: usize, is_kept: bool) -> Http1 {
        Http1 {
            request,
            under_way: VecDeque::with_capacity(pipeline),
            unwritten: 0,
            written: 0,
            reader: AnswerReader::default(),
            pipeline,
            requests_left: if is_kept { u64::MAX } else { 1 },
        }
    }

    /// Whether the connection ends with this answer.
    fn take_answer(&mut self, answer: Answer, heard: &mut Heard<'_>) -> bool {
        let Some(times) = self.under_way.pop_front() else { return true };
        heard.answered(times, answer.status, answer.octets);
        // An answer may come before its request was sent; the rest of that would be taken for the next one.
        let is_amid_request = self.unwritten > self.under_way.len();
        answer.is_last || is_amid_request || (self.requests_left == 0 && self.under_way.is_empty())
    }

    /// A server that ends a connection looks at no request behind the answer that said so (RFC 9112, 9.6).
    fn end_in_order(&mut self, heard: &mut Heard<'_>) -> End {
        self.under_way.drain(..).rev().for_each(|times| heard.again(times));
        End::InOrder
    }
}

/// Whether a server ends a connection that asked for nothing for too long (RFC 9110, 15.5.9): 408 (Request Timeout), without a request.
fn is_farewell(octets: &[u8]) -> bool {
    octets.starts_with(b"HTTP/1.1 408 ") || octets.starts_with(b"HTTP/1.0 408 ")
}

impl Conversation for Http1 {
    fn room(&self) -> usize {
        (self.pipeline - self.under_way.len()).min(usize::try_from(self.requests_left).unwrap_or(usize::MAX))
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn begin(&mut self, times: Times, _: &mut Asked) {
        self.under_way.push_back(times);
        self.unwritten += 1;
        self.requests_left -= 1;
    }

    fn on_octets(&mut self, mut octets: &[u8], heard: &mut Heard<'_>) -> Option<End> {
        while !octets.is_empty() {
            if self.under_way.is_empty() {
                if is_farewell(octets) {
                    return Some(End::InOrder);
                }
                heard.tally.counts_mut().unexpected += 1;
                return Some(End::By(Fault::NotTheProtocol));
            }
            let Ok((used, answer)) = self.reader.read(octets, self.request.is_head) else {
                return Some(End::By(Fault::NotTheProtocol));
            };
            octets = &octets[used..];
            if answer.is_some_and(|answer| self.take_answer(answer, heard)) {
                return Some(self.end_in_order(heard));
            }
        }
        None
    }

    fn on_close(&mut self, heard: &mut Heard<'_>) -> End {
        if let Some(answer) = self.reader.close() {
            self.take_answer(answer, heard);
            return self.end_in_order(heard);
        }
        if self.under_way.is_empty() { End::InOrder } else { End::By(Fault::ClosedEarly) }
    }

    fn expire(&mut self, limit: Instant, _: &mut Heard<'_>) -> Option<End> {
        // Answers come in their order: those behind it would come later still.
        let is_late = self.under_way.front().is_some_and(|times| times.begun <= limit);
        is_late.then_some(End::By(Fault::TimedOut))
    }

    fn has_output(&self) -> bool {
        self.unwritten > 0
    }

    fn write(&mut self, sink: &mut dyn FnMut(&[u8]) -> usize) {
        let Http1Request { repeated, len, .. } = &self.request;
        while self.unwritten > 0 {
            let whole = self.unwritten.min(repeated.len() / len) * len;
            let piece = &repeated[self.written..whole];
            let taken = sink(piece).min(piece.len());
            self.written += taken;
            self.unwritten -= self.written / len;
            self.written %= len;
            if taken < piece.len() {
                return;
            }
        }
    }
}
