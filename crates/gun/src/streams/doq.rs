//! DNS over QUIC on one connection: a stream for each question, with the length in front, and 0 for its ID (RFC 9250, 4.2).

use bytes::Bytes;
use clock::Instant;
use quinn_proto::StreamId;

use super::conversation::{Asked, End, Heard, Question, Times};
use super::dns::{LENGTH_LEN, QUESTION_MAX};
use super::fault::Fault;
use super::quic::{Quic, Read, Session, Spoken};

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
        Some(Doq { session, flights: Vec::with_capacity(pipeline), pipeline })
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
        heard.message(message, |_| Ok((self.times, self.question)));
    }
}

impl Spoken for Doq {
    fn session(&self) -> &Session {
        &self.session
    }

    fn is_opening(&self) -> bool {
        !self.session.is_connected()
    }

    fn room(&self) -> usize {
        usize::from(self.flights.len() < self.pipeline && self.session.has_stream())
    }

    fn begun(&self) -> impl ExactSizeIterator<Item = Instant> {
        self.flights.iter().map(|flight| flight.times.begun)
    }

    fn begin(&mut self, times: Times, asked: &mut Asked) {
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
        self.flights.push(flight);
    }

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

    fn has_more(&self) -> bool {
        false
    }

    fn give_up(&mut self, limit: Instant) -> usize {
        let late = self.flights.extract_if(.., |flight| flight.times.begun <= limit);
        let cancel = |late: Flight| {
            self.session.stop(late.id, REQUEST_CANCELLED);
            self.session.reset(late.id, REQUEST_CANCELLED);
        };
        late.map(cancel).count()
    }

    fn no_error(&self) -> u64 {
        NO_ERROR
    }
}
