//! A zone on its way in: the messages of an answer to AXFR or IXFR, checked and made into a zone (RFC 5936, 2.2; RFC 1995, 4).
//!
//! Nothing of a transfer is used before all of it has come: whatever is wrong leaves the held version as it is.

use std::sync::Arc;

use dns_auth::ServedZone;
use dns_wire::header::flag;
use dns_wire::{Class, Name, NameBuf, ReceivedRcode, Rtype};
use dns_zone::{Changed, Zone, ZoneBuilder};

use crate::difference::{Difference, Unfit, apply, explain, push};

use dns_message::{
    Malformed, Message, Record, add_to_count, is_older, push_record, question_message, serial_of,
};

/// Why a transfer gives no new version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncomingError {
    /// A message cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is the answer to something else.
    #[error("the message is no answer to our request")]
    Unrelated,
    /// The primary refuses.
    #[error("the primary answers with {}", ReceivedRcode(*.0))]
    Rcode(u16),
    /// There are no records: the primary may not know requests for differences.
    #[error("the answer has no records")]
    Empty,
    /// There is a newer SOA alone, in place of differences.
    #[error("the primary has a newer SOA, and sends nothing behind it")]
    SoaAlone,
    /// The first record is no SOA of the zone.
    #[error("the transfer does not begin with the SOA of the zone")]
    NoSoa,
    /// The primary's version is older than ours.
    #[error("the primary has the older serial {theirs}, and we have {ours}: it is not followed")]
    WentBack {
        /// The held SERIAL.
        ours: u32,
        /// The primary's.
        theirs: u32,
    },
    /// A record of another class.
    #[error("the record {0} is not of class IN")]
    Class(String),
    /// There is more behind the end.
    #[error("records follow the SOA that ends the transfer")]
    BehindEnd,
    /// More octets than a zone may have.
    #[error("the transfer exceeds {0} octets")]
    TooLong(u64),
    /// A record that cannot be in the zone, or differences that do not fit the held version: ask for the whole zone then.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// What came of a transfer.
#[derive(Debug)]
pub enum Received {
    /// We have the primary's version.
    Current,
    /// A new version, and what leads to it from the held one, if that came.
    New(Box<Changed>, Vec<Arc<Difference>>),
}

/// A request for the zone; with the held SOA, for the differences from that version.
pub fn transfer_request(id: u16, origin: Name<'_>, held: Option<&Zone>) -> Vec<u8> {
    let mut request = question_message(id, 0, origin, if held.is_some() { Rtype::IXFR } else { Rtype::AXFR });
    if let Some(rdata) = held.and_then(|zone| zone.soa().records().next()) {
        push_record(&mut request, origin, Rtype::SOA, Class::IN, 0, rdata);
        add_to_count(&mut request, 1, 1);
    }
    request
}

/// The SERIAL in an answer to a question for the SOA.
pub fn serial_in(answer: &[u8], id: u16, origin: Name<'_>) -> Result<u32, IncomingError> {
    let mut message = check_head(answer, id, origin)?;
    for _ in 0..message.counts()[0] {
        let record = message.next_record()?;
        if record.rtype == Rtype::SOA && record.owner.as_name() == origin && message.flags() & flag::AA != 0 {
            return serial_of(&record.rdata).ok_or(IncomingError::NoSoa);
        }
    }
    Err(IncomingError::NoSoa)
}

/// Reads the header of an answer, and its question if it has one.
fn check_head<'m>(octets: &'m [u8], id: u16, origin: Name<'_>) -> Result<Message<'m>, IncomingError> {
    let message = Message::parse(octets)?;
    let is_ours = message.question().is_none_or(|question| question.name.as_name() == origin);
    let wanted = flag::QR | flag::OPCODE | flag::TC;
    if message.id() != id || !is_ours || message.flags() & wanted != flag::QR {
        return Err(IncomingError::Unrelated);
    }
    match message.flags() & 0xf {
        0 => Ok(message),
        rcode => Err(IncomingError::Rcode(rcode)),
    }
}

/// Where an answer stands.
enum State {
    /// Nothing has come.
    Start,
    /// The SOA has come: the next record says of which form the answer is.
    Form,
    /// The whole zone.
    Whole(Box<ZoneBuilder>),
    /// Differences: those that are whole, and the octets of the one that comes. Its new SOA is there once records are added.
    Removing(Vec<Arc<Difference>>, Vec<u8>),
    Adding(Vec<Arc<Difference>>, Vec<u8>, u32),
    /// All has come.
    End(Vec<Arc<Difference>>),
    /// All of a whole zone has come.
    EndOfWhole(Box<ZoneBuilder>),
}

/// An answer on its way in.
pub struct Incoming {
    id: u16,
    origin: NameBuf,
    /// The version that differences are applied to; without one the whole zone was asked for.
    held: Option<Arc<ServedZone>>,
    /// What keys the hashes of the new version.
    seed: u64,
    octets_left: u64,
    octets_max: u64,
    soa: Option<Record>,
    state: State,
}

impl Incoming {
    /// An answer to a request with this ID. `held` is the version that the request named, if it asked for differences.
    pub fn new(
        id: u16,
        origin: Name<'_>,
        held: Option<Arc<ServedZone>>,
        octets_max: u64,
        seed: u64,
    ) -> Incoming {
        let (origin, state) = (NameBuf::from(origin), State::Start);
        Incoming { id, origin, held, seed, octets_left: octets_max, octets_max, soa: None, state }
    }

    /// Takes the next message, without its signature; true if it was the last one.
    pub fn on_message(&mut self, octets: &[u8]) -> Result<bool, IncomingError> {
        let left = self.octets_left.checked_sub(octets.len() as u64);
        self.octets_left = left.ok_or(IncomingError::TooLong(self.octets_max))?;
        let origin = self.origin.clone();
        let mut message = check_head(octets, self.id, origin.as_name())?;
        for _ in 0..message.counts()[0] {
            self.on_record(message.next_record()?)?;
        }
        if matches!(self.state, State::Start) {
            return Err(IncomingError::Empty);
        }
        // One SOA alone that is not newer than ours: there are no differences (RFC 1995, 4).
        let is_newer = |ours| self.serial().is_some_and(|theirs| is_older(ours, theirs));
        let is_current =
            matches!(self.state, State::Form) && self.held_serial().is_some_and(|ours| !is_newer(ours));
        Ok(is_current || matches!(self.state, State::End(_) | State::EndOfWhole(_)))
    }

    /// Whether a newer SOA alone has come in place of differences, which may be all that comes: by UDP it says that the answer is too long
    /// (RFC 1995, 2), and some primaries that have no differences send the same by TCP. Others put each record into a message of its own, so the
    /// rest may follow. If it does not, [`IncomingError::SoaAlone`] is what came.
    pub fn is_soa_alone(&self) -> bool {
        matches!(self.state, State::Form) && self.held_serial().is_some()
    }

    fn held_serial(&self) -> Option<u32> {
        self.held.as_ref()?.tree().ok().map(Zone::serial)
    }

    fn on_record(&mut self, record: Record) -> Result<(), IncomingError> {
        if record.class != Class::IN {
            return Err(IncomingError::Class(record.owner.to_string()));
        }
        let is_soa = record.rtype == Rtype::SOA && record.owner == self.origin;
        let serial = serial_of(&record.rdata).filter(|_| is_soa);
        self.state = match std::mem::replace(&mut self.state, State::Start) {
            State::Start => {
                serial.ok_or(IncomingError::NoSoa)?;
                self.soa = Some(record);
                State::Form
            }
            State::Form if serial.is_some() && serial == self.held_serial() => {
                State::Removing(Vec::new(), octets_of(&record))
            }
            State::Form => {
                let mut builder = Box::new(ZoneBuilder::new(self.origin.as_name(), self.seed));
                let soa = self.soa.clone().ok_or(IncomingError::NoSoa)?;
                add(&mut builder, &soa)?;
                self.continue_whole(builder, record, serial)?
            }
            State::Whole(builder) => self.continue_whole(builder, record, serial)?,
            State::Removing(done, mut octets) => {
                push(&mut octets, &record);
                match serial {
                    Some(reached) => State::Adding(done, octets, reached),
                    None => State::Removing(done, octets),
                }
            }
            State::Adding(mut done, mut octets, reached) => match serial {
                None => {
                    push(&mut octets, &record);
                    State::Adding(done, octets, reached)
                }
                Some(serial) if serial != reached => return Err(Unfit::Version.into()),
                Some(serial) => {
                    let difference = Difference::received(octets).ok_or(Unfit::Version)?;
                    done.push(Arc::new(difference));
                    match Some(serial) == self.serial() {
                        true => State::End(done),
                        false => State::Removing(done, octets_of(&record)),
                    }
                }
            },
            State::End(_) | State::EndOfWhole(_) => return Err(IncomingError::BehindEnd),
        };
        Ok(())
    }

    fn continue_whole(
        &self,
        mut builder: Box<ZoneBuilder>,
        record: Record,
        serial: Option<u32>,
    ) -> Result<State, IncomingError> {
        if serial.is_some() {
            // RFC 5936, 2.2: the SOA comes again, and ends it.
            return if serial == self.serial() {
                Ok(State::EndOfWhole(builder))
            } else {
                Err(IncomingError::Unrelated)
            };
        }
        add(&mut builder, &record)?;
        Ok(State::Whole(builder))
    }

    /// The SERIAL of the version that comes.
    fn serial(&self) -> Option<u32> {
        serial_of(&self.soa.as_ref()?.rdata)
    }

    /// Makes the new version, once all has come. `ours` is the held SERIAL, if there is a held version.
    ///
    /// # Errors
    /// The version is older than the held one, or the differences do not fit that.
    pub fn finish(self, ours: Option<u32>) -> Result<Received, IncomingError> {
        let theirs = self.serial().ok_or(IncomingError::NoSoa)?;
        match ours {
            Some(ours) if ours == theirs => return Ok(Received::Current),
            Some(ours) if !is_older(ours, theirs) => return Err(IncomingError::WentBack { ours, theirs }),
            _ => {}
        }
        match self.state {
            State::EndOfWhole(builder) => {
                let zone = builder.finish().map_err(|_| IncomingError::NoSoa)?;
                Ok(Received::New(Box::new(Changed { zone, names: None }), Vec::new()))
            }
            State::End(differences) => {
                let held = self.held.as_ref().and_then(|held| held.tree().ok()).ok_or(Unfit::Version)?;
                Ok(Received::New(Box::new(apply(held, &differences)?), differences))
            }
            _ => Err(IncomingError::NoSoa),
        }
    }
}

/// The first octets of a difference.
fn octets_of(soa: &Record) -> Vec<u8> {
    let mut octets = Vec::new();
    push(&mut octets, soa);
    octets
}

fn add(builder: &mut ZoneBuilder, record: &Record) -> Result<(), IncomingError> {
    let added = builder.add(record.owner.as_name(), record.ttl, record.rtype, &record.rdata);
    added.map_err(|error| explain(record.owner.as_name(), record.rtype, error).into())
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
