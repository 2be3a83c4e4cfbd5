//! DNS over QUIC on one connection: a stream for each question, with the length in front, and 0 for its ID (RFC 9250, 4.2).

use bytes::Bytes;
use clock::Instant;
use quinn_proto::StreamId;

use super::conversation::{Asked, Conversation, End, Heard, Lateness, Question, Times};
use super::dns::{LENGTH_LEN, QUESTION_MAX};
use super::fault::Fault;
use super::quic::{Quic, Read, Session};

/// Reasons to end connections and streams (RFC 9250, 4.3).
const NO_ERROR: u64 = 0x0;
const REQUEST_CANCELLED: u64 = 0x3;
/// Octets of an answer at most, with its length.
const ANSWER_MAX: usize = LENGTH_LEN + 65535;

/// A connection of DNS over QUIC.
pub(crate) struct Doq {
    session: Session,
    flights: Vec<Flight>,
    pipeline: usize,
    opened_at: Instant,
    heard_at: Option<Instant>,
}

struct Flight {
    id: StreamId,
    times: Times,
    question: Question,
    /// What the stream has no room for yet.
    unsent: Bytes,
    answer: Vec<u8>,
}

/// What came of a stream.
enum Outcome {
    Waits,
    Ended,
    Reset,
}

impl Doq {
    /// `pipeline` questions under way at most. `None` if no connection can go there.
    pub(crate) fn new(quic: &Quic, pipeline: usize, now: Instant) -> Option<Doq> {
        let session = Session::connect(quic, now)?;
        Some(Doq { session, flights: Vec::with_capacity(pipeline), pipeline, opened_at: now, heard_at: None })
    }

    /// Looks at what came, and sends what there is room for now.
    fn drive(&mut self, heard: &mut Heard<'_>) -> Option<End> {
        for id in self.session.take_readable() {
            let Some(at) = self.flights.iter().position(|flight| flight.id == id) else { continue };
            match self.flights[at].read(&self.session) {
                Outcome::Waits => {}
                Outcome::Ended => self.flights.swap_remove(at).answered(heard),
                Outcome::Reset => {
                    self.flights.swap_remove(at);
                    heard.fault(Fault::StreamReset, 1);
                }
            }
        }
        self.flights.iter_mut().for_each(|flight| flight.send(&self.session));
        self.session.settle();
        self.session.end(self.flights.len())
    }
}

impl Flight {
    fn read(&mut self, session: &Session) -> Outcome {
        loop {
            match session.read(self.id) {
                Read::Data(octets) => self.answer.extend_from_slice(&octets),
                Read::Waits => return Outcome::Waits,
                Read::Ended => return Outcome::Ended,
                Read::Reset(_) => return Outcome::Reset,
            }
            if self.answer.len() > ANSWER_MAX {
                session.stop(self.id, REQUEST_CANCELLED);
                return Outcome::Ended; // Its length says that it is none.
            }
        }
    }

    fn send(&mut self, session: &Session) {
        if self.unsent.is_empty() {
            return;
        }
        if session.send(self.id, &mut self.unsent).is_err() {
            self.unsent.clear(); // The server says by an answer or a reset what it makes of that.
        } else if self.unsent.is_empty() {
            session.finish(self.id);
        }
    }

    fn answered(self, heard: &mut Heard<'_>) {
        let message = match self.answer.split_first_chunk::<LENGTH_LEN>() {
            Some((length, message)) if usize::from(u16::from_be_bytes(*length)) == message.len() => message,
            _ => &[],
        };
        let message = if message.starts_with(&[0, 0]) { message } else { &[] }; // Its ID.
        heard.message(message, |_| Some((self.times, self.question)));
    }
}

impl Conversation for Doq {
    fn is_opening(&self) -> bool {
        !self.session.is_connected()
    }

    fn room(&self) -> usize {
        usize::from(self.flights.len() < self.pipeline && self.session.has_stream())
    }

    fn under_way(&self) -> usize {
        self.flights.len()
    }

    fn begin(&mut self, times: Times, asked: &mut Asked) {
        self.session.set_now(times.begun);
        let (Some(id), Some(question)) = (self.session.open(), asked.next()) else { return };
        let mut room = [0; LENGTH_LEN + QUESTION_MAX];
        let questions = asked.questions.as_ref();
        let written =
            questions.and_then(|it| it.write(question.index, question.number, 0, &mut room[LENGTH_LEN..]));
        let len = written.unwrap_or(0); // The room is enough for every question.
        room[..LENGTH_LEN].copy_from_slice(&(len as u16).to_be_bytes());
        let unsent = Bytes::copy_from_slice(&room[..LENGTH_LEN + len]);
        let mut flight = Flight { id, times, question, unsent, answer: Vec::new() };
        flight.send(&self.session);
        self.session.settle();
        self.flights.push(flight);
    }

    fn on_octets(&mut self, datagram: &[u8], heard: &mut Heard<'_>) -> Option<End> {
        self.heard_at = Some(heard.now);
        self.session.on_datagram(datagram, heard.now);
        self.drive(heard)
    }

    fn on_close(&mut self, _: &mut Heard<'_>) -> End {
        End::By(Fault::ClosedEarly) // Datagrams have no end.
    }

    fn next_wake(&self) -> Option<Instant> {
        self.session.next_wake()
    }

    fn on_wake(&mut self, heard: &mut Heard<'_>) -> Option<End> {
        self.session.on_wake(heard.now);
        self.drive(heard)
    }

    fn expire(&mut self, limit: Instant, heard: &mut Heard<'_>) -> Option<End> {
        if self.is_opening() && self.opened_at <= limit {
            return Some(End::By(Fault::NotConnected));
        }
        let begun = self.flights.iter().map(|flight| flight.times.begun);
        match Lateness::of(begun, limit, self.heard_at) {
            Lateness::None => return None,
            Lateness::Silence => return Some(End::By(Fault::TimedOut)),
            Lateness::Some => {}
        }
        for late in self.flights.extract_if(.., |flight| flight.times.begun <= limit) {
            self.session.stop(late.id, REQUEST_CANCELLED);
            self.session.reset(late.id, REQUEST_CANCELLED);
            heard.fault(Fault::TimedOut, 1);
        }
        self.drive(heard)
    }

    fn has_output(&self) -> bool {
        self.session.has_output()
    }

    fn write(&mut self, sink: &mut dyn FnMut(&[u8]) -> usize) {
        self.session.write(sink);
    }

    fn farewell(&mut self, now: Instant) -> bool {
        self.session.set_now(now);
        self.session.close(NO_ERROR, End::InOrder);
        self.session.has_output()
    }
}
