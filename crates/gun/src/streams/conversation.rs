//! What is spoken on one connection, as a load sees it.

use clock::Instant;

use super::backlog::Backlog;
use super::fault::Fault;
use crate::answer::{AnswerHeader, Sample};
use crate::questions::Questions;
use crate::tally::Tally;

/// One connection's requests and answers. The order of calls is the load's: `begin` only while there is `room`, and nothing after an [`End`].
pub(crate) trait Conversation {
    /// Whether something has to be agreed on before the first request, although the driver's part is done.
    fn is_opening(&self) -> bool {
        false
    }

    /// How many requests may begin now.
    fn room(&self) -> usize;

    /// Requests without an answer.
    fn under_way(&self) -> usize;

    /// Takes a request, to be sent at the next `write`.
    fn begin(&mut self, times: Times, asked: &mut Asked);

    /// Takes what has come.
    fn on_octets(&mut self, octets: &[u8], heard: &mut Heard<'_>) -> Option<End>;

    /// The server has closed its side: how this connection ends.
    fn on_close(&mut self, heard: &mut Heard<'_>) -> End;

    /// Gives up requests that were begun at `limit` or before. Those that it can do without are counted by it; if the connection has to
    /// end, that is the answer.
    fn expire(&mut self, limit: Instant, heard: &mut Heard<'_>) -> Option<End>;

    /// When something is to be done, although nothing came.
    fn next_wake(&self) -> Option<Instant> {
        None
    }

    /// That time has come.
    fn on_wake(&mut self, _: &mut Heard<'_>) -> Option<End> {
        None
    }

    /// The connection is over for us. Whether there is something to be sent that tells the server so; TCP does that by itself.
    fn farewell(&mut self, _: Instant) -> bool {
        false
    }

    /// Whether there is something to be sent.
    fn has_output(&self) -> bool;

    /// Gives what is to be sent to `sink`, piece by piece, until it takes less than all of one.
    fn write(&mut self, sink: &mut dyn FnMut(&[u8]) -> usize);
}

/// Since when a request is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// When it was due.
    pub(crate) due: Instant,
    /// When a connection took it.
    pub(crate) begun: Instant,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As it may.
    InOrder,
    /// By a fault. It costs all requests that are under way.
    By(Fault),
}

/// What a connection has not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lateness {
    /// Nothing.
    None,
    /// Requests, but it does answer.
    Some,
    /// Nothing at all has come since the oldest request was begun.
    Silence,
}

impl Lateness {
    /// Of requests that were `begun` then, where those of `limit` and before are late.
    pub(crate) fn of(
        begun: impl Iterator<Item = Instant>,
        limit: Instant,
        heard_at: Option<Instant>,
    ) -> Lateness {
        match begun.filter(|begun| *begun <= limit).min() {
            None => Lateness::None,
            Some(oldest) if heard_at.is_none_or(|at| at < oldest) => Lateness::Silence,
            Some(_) => Lateness::Some,
        }
    }
}

/// What a load asks.
pub(crate) struct Asked {
    /// For DNS.
    pub(crate) questions: Option<Questions>,
    /// Questions that were begun, by earlier loads too.
    pub(crate) number: u64,
}

impl Asked {
    /// The next question, with its number.
    pub(crate) fn next(&mut self) -> Option<Question> {
        let questions = self.questions.as_ref()?;
        let number = self.number;
        self.number += 1;
        Some(Question { index: questions.pick(number), number })
    }
}

/// A question of DNS that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Which it is.
    pub(crate) index: u32,
    /// How many were begun before it.
    pub(crate) number: u64,
}

/// Why an answer belongs to no question that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// A question had its ID before: it is late, or doubled.
    WasAsked,
    /// No question had its ID.
    NeverAsked,
}

/// Where answers go.
pub(crate) struct Heard<'l> {
    pub(crate) now: Instant,
    pub(crate) tally: &'l mut Tally,
    pub(crate) questions: Option<&'l Questions>,
    /// Which answers of DNS are compared with their questions.
    pub(crate) sample: Sample,
    pub(crate) backlog: &'l mut Backlog,
}

impl Heard<'_> {
    /// A whole answer.
    pub(crate) fn answered(&mut self, times: Times, code: u16, octets: u64) {
        self.answered_by(times, code, octets, false);
    }

    fn answered_by(&mut self, times: Times, code: u16, octets: u64, is_cut: bool) {
        self.tally.on_answer(times.due, self.now, Some(code), is_cut);
        self.tally.counts_mut().octets += octets;
    }

    /// A message of DNS. `end` finds the question that an ID belongs to, and ends it.
    pub(crate) fn message(
        &mut self,
        message: &[u8],
        end: impl FnOnce(u16) -> Result<(Times, Question), Stray>,
    ) {
        let Some(header) = AnswerHeader::read(message) else {
            self.tally.counts_mut().malformed += 1;
            return;
        };
        let (times, question) = match end(header.id) {
            Ok(asked) => asked,
            Err(Stray::WasAsked) => return self.tally.counts_mut().unexpected += 1,
            Err(Stray::NeverAsked) => return self.tally.counts_mut().foreign += 1,
        };
        if self.sample.has(question.number) {
            let repeats = |it: &Questions| it.is_repeated(question.index, question.number, message);
            if !self.tally.on_compared(times.due, self.questions.is_some_and(repeats)) {
                return;
            }
        }
        self.answered_by(times, header.rcode(), message.len() as u64, header.is_cut());
    }

    /// A request that the server said it does not look at: it is asked again.
    pub(crate) fn again(&mut self, times: Times) {
        self.tally.on_unsent();
        self.backlog.put_back(times.due);
    }

    /// What is known of a fault beyond its name.
    pub(crate) fn explain(&mut self, fault: Fault, why: &str) {
        self.tally.explain(fault, why);
    }

    /// Requests that a fault cost.
    pub(crate) fn fault(&mut self, fault: Fault, times: usize) {
        self.tally.on_fault(fault.name(), times as u64);
    }
}
