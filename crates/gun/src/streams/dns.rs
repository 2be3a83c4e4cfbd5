//! DNS over TCP or TLS on one connection: many questions under way, each with a length in front (RFC 7766, RFC 7858).

use std::collections::VecDeque;

use clock::Instant;

use super::conversation::{Asked, Conversation, End, Heard, Lateness, Question, Stray, Times};
use super::fault::Fault;

/// Octets of a question at most: a header, a name, an OPT record.
pub(crate) const QUESTION_MAX: usize = 512;
/// Octets of a length.
pub(crate) const LENGTH_LEN: usize = 2;

/// A connection of DNS.
pub(crate) struct DnsStream {
    under_way: VecDeque<Flight>,
    /// Questions that were begun. The last 16 bits are the next one's ID.
    begun: u64,
    pipeline: usize,
    outgoing: Vec<u8>,
    written: usize,
    /// The beginning of a message whose end has not come yet.
    held: Vec<u8>,
    /// When octets came last.
    heard_at: Option<Instant>,
}

struct Flight {
    id: u16,
    times: Times,
    question: Question,
}

impl DnsStream {
    /// `pipeline` questions under way at most.
    pub(crate) fn new(pipeline: usize) -> DnsStream {
        DnsStream {
            under_way: VecDeque::with_capacity(pipeline),
            begun: 0,
            pipeline: pipeline.min(usize::from(u16::MAX)),
            outgoing: Vec::new(),
            written: 0,
            held: Vec::new(),
            heard_at: None,
        }
    }

    fn take(&mut self, message: &[u8], heard: &mut Heard<'_>) {
        let stray = |id| if u64::from(id) < self.begun { Stray::WasAsked } else { Stray::NeverAsked };
        heard.message(message, |id| {
            let at = self.under_way.iter().position(|flight| flight.id == id); // Mostly the first one.
            let flight = at.and_then(|at| self.under_way.remove(at)).ok_or_else(|| stray(id))?;
            Ok((flight.times, flight.question))
        });
    }

    /// Takes the whole messages at the front of `octets`; how many octets that were.
    fn take_messages(&mut self, octets: &[u8], heard: &mut Heard<'_>) -> usize {
        let mut used = 0;
        while let Some((length, rest)) = octets[used..].split_first_chunk::<LENGTH_LEN>() {
            let Some(message) = rest.get(..usize::from(u16::from_be_bytes(*length))) else { break };
            self.take(message, heard);
            used += LENGTH_LEN + message.len();
        }
        used
    }
}

impl Conversation for DnsStream {
    fn room(&self) -> usize {
        self.pipeline - self.under_way.len()
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn begin(&mut self, times: Times, asked: &mut Asked) {
        let Some(question) = asked.next() else { return };
        let id = self.begun as u16;
        self.begun += 1;
        let mut room = [0; QUESTION_MAX];
        let questions = asked.questions.as_ref();
        let len = questions.and_then(|it| it.write(question.index, question.number, id, &mut room));
        let len = len.unwrap_or(0); // The room is enough for every question.
        self.outgoing.extend_from_slice(&(len as u16).to_be_bytes());
        self.outgoing.extend_from_slice(&room[..len]);
        self.under_way.push_back(Flight { id, times, question });
    }

    fn on_octets(&mut self, octets: &[u8], heard: &mut Heard<'_>) -> Option<End> {
        self.heard_at = Some(heard.now);
        if self.held.is_empty() {
            let used = self.take_messages(octets, heard);
            self.held.extend_from_slice(&octets[used..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(octets);
            let used = self.take_messages(&held, heard);
            held.drain(..used);
            self.held = held;
        }
        None
    }

    fn on_close(&mut self, _: &mut Heard<'_>) -> End {
        if self.under_way.is_empty() { End::InOrder } else { End::By(Fault::ClosedEarly) }
    }

    fn expire(&mut self, limit: Instant, heard: &mut Heard<'_>) -> Option<End> {
        let oldest = self.under_way.front().map(|flight| flight.times.begun);
        match Lateness::of(oldest.into_iter(), limit, self.heard_at) {
            Lateness::None => return None,
            Lateness::Silence => return Some(End::By(Fault::TimedOut)),
            Lateness::Some => {}
        }
        let before = self.under_way.len();
        self.under_way.retain(|flight| flight.times.begun > limit);
        heard.fault(Fault::TimedOut, before - self.under_way.len());
        None
    }

    fn has_output(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn write(&mut self, sink: &mut dyn FnMut(&[u8]) -> usize) {
        let rest = self.outgoing.len() - self.written;
        let taken = sink(&self.outgoing[self.written..]).min(rest);
        self.written += taken;
        if taken == rest {
            self.outgoing.clear();
            self.written = 0;
        }
    }
}
