//! Composes the part of a message behind its question: records with compressed names, within a limit.

use arrayvec::ArrayVec;
use dns_wire::{LabelStarts, Rtype, fold};
use dns_zone::Rrset;

/// The message has no room for what was to be written; nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Names that later ones can point to, at most. More would cost more to search than they save.
const POINTS_MAX: usize = 48;

/// A name that stands in the message.
#[derive(Clone, Copy)]
struct Point<'a> {
    name: &'a [u8],
    offset: u16,
}

/// Where a message stood, to return to when something does not fit.
#[derive(Clone, Copy)]
pub struct Mark {
    position: usize,
    points: usize,
}

/// The owner of records that are written.
#[derive(Clone, Copy)]
pub enum Owner<'a> {
    /// The question's name, in the question's spelling.
    Question,
    /// Any name, in wire format.
    Name(&'a [u8]),
}

/// The question's name, and where its labels start.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// A copy of the name.
    pub name: &'a [u8],
    /// Its labels.
    pub labels: &'a LabelStarts,
}

/// Writes records into a message behind its question.
///
/// A name is compressed to an earlier one of the zone without regard to case (RFC 4343, 4.1), so it may take the spelling that the zone has
/// there. It is compressed to the question only where that has the same octets, and not at all in an answer with records in its answer
/// section: what follows the question is then the same however a client spells it, and can be made in advance. Only an owner that is
/// the question's name takes the question's spelling.
pub struct Writer<'m, 'a> {
    message: &'m mut [u8],
    position: usize,
    limit: usize,
    /// `None` when no name is compressed to it.
    question: Option<Question<'a>>,
    points: ArrayVec<Point<'a>, POINTS_MAX>,
    /// The owner of the last record, and where that name stands: mostly the next record has the same.
    last_owner: Option<Point<'a>>,
}

/// The pointer to the question's name, at offset 12 of every message (RFC 1035, 4.1.4).
pub const TO_QNAME: [u8; 2] = [0xc0, 0x0c];
const QNAME_OFFSET: usize = 12;

impl<'m, 'a> Writer<'m, 'a> {
    /// Starts behind `question`, at `position`, and never writes at or beyond `limit`.
    pub fn new(
        message: &'m mut [u8],
        position: usize,
        limit: usize,
        question: Question<'a>,
    ) -> Writer<'m, 'a> {
        let limit = limit.min(message.len());
        Writer {
            message,
            position,
            limit,
            question: Some(question),
            points: ArrayVec::new(),
            last_owner: None,
        }
    }

    /// Compresses no name to the question from here on.
    pub fn forget_question(&mut self) {
        self.question = None;
        self.last_owner = None;
    }

    /// Offset behind the last octet written.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The place that [`Writer::rewind`] returns to.
    pub fn mark(&self) -> Mark {
        Mark { position: self.position, points: self.points.len() }
    }

    /// Takes back all that was written since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.position = mark.position;
        self.points.truncate(mark.points);
        self.last_owner = None;
    }

    /// Writes a whole RRset, its records in order beginning with number `first` modulo their count, with `ttl`. Returns
    /// how many records that are; on `Full`, nothing was written.
    pub fn rrset(&mut self, owner: Owner<'a>, rrset: Rrset<'a>, ttl: u32, first: u16) -> Result<u16, Full> {
        let mark = self.mark();
        let count = rrset.count();
        let skip = if first == 0 { 0 } else { usize::from(first % count) };
        let mut write = |rdata| self.record(owner, rrset.rtype(), ttl, rdata);
        let written = match skip {
            0 => rrset.records().try_for_each(write),
            skip => rrset.records().skip(skip).chain(rrset.records().take(skip)).try_for_each(&mut write),
        };
        written.inspect_err(|_| self.rewind(mark))?;
        Ok(count)
    }

    /// Writes one record; on `Full`, what was written must be taken back by the caller.
    pub fn record(&mut self, owner: Owner<'a>, rtype: Rtype, ttl: u32, rdata: &'a [u8]) -> Result<(), Full> {
        self.head(owner, rtype, ttl)?;
        let start = self.position;
        self.rdata(rtype, rdata)?;
        let len = (self.position - start) as u16; // Not longer than `rdata`, whose length is a u16.
        self.message[start - 2..start].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    /// Writes a record that was made for this answer, and whose data holds no name that may be compressed. On `Full` as [`Writer::record`].
    #[inline(never)]
    pub fn made(&mut self, owner: Owner<'a>, rtype: Rtype, ttl: u32, rdata: &[u8]) -> Result<(), Full> {
        self.head(owner, rtype, ttl)?;
        let start = self.position;
        self.octets(rdata)?;
        let len = rdata.len() as u16; // It had room in a message.
        self.message[start - 2..start].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    /// What stands in front of a record's data; the length is left at 0.
    #[inline(always)]
    fn head(&mut self, owner: Owner<'a>, rtype: Rtype, ttl: u32) -> Result<(), Full> {
        match owner {
            Owner::Question => self.octets(&TO_QNAME)?,
            Owner::Name(name) => self.owner(name)?,
        }
        let mut fixed = [0; 10];
        fixed[..2].copy_from_slice(&rtype.0.to_be_bytes());
        fixed[3] = 1; // Class IN.
        fixed[4..8].copy_from_slice(&ttl.to_be_bytes());
        self.octets(&fixed)
    }

    /// RFC 3597, 4: only names in the data of the types of RFC 1035 are compressed.
    fn rdata(&mut self, rtype: Rtype, rdata: &'a [u8]) -> Result<(), Full> {
        match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR => self.name(rdata).map(drop),
            Rtype::MX => {
                self.octets(&rdata[..2])?;
                self.name(&rdata[2..]).map(drop)
            }
            Rtype::SOA => {
                let (names, numbers) = rdata.split_at(rdata.len() - 20);
                let (mname, rname) = names.split_at(name_len(names));
                self.name(mname)?;
                self.name(rname)?;
                self.octets(numbers)
            }
            _ => self.octets(rdata),
        }
    }

    #[inline(always)]
    fn owner(&mut self, name: &'a [u8]) -> Result<(), Full> {
        if let Some(last) = self.last_owner.filter(|last| std::ptr::eq(last.name, name)) {
            return self.octets(&(0xc000 | last.offset).to_be_bytes());
        }
        let offset = self.name(name)?;
        self.last_owner = offset.map(|offset| Point { name, offset });
        Ok(())
    }

    /// Returns where the name stands, if a pointer can say it.
    fn name(&mut self, name: &'a [u8]) -> Result<Option<u16>, Full> {
        let mut suffix = name;
        let mut pointer = None;
        while suffix[0] != 0 {
            pointer = self.find(suffix);
            if pointer.is_some() {
                break;
            }
            suffix = &suffix[1 + usize::from(suffix[0])..];
        }
        let spelled = name.len() - suffix.len();
        let start = self.position;
        match pointer {
            Some(offset) => {
                self.octets(&name[..spelled])?;
                self.octets(&(0xc000 | offset).to_be_bytes())?;
            }
            None => self.octets(name)?,
        }
        self.remember(name, spelled, start);
        // RFC 1035, 4.1.4: a pointer has 14 bits. It would be longer than the root's name.
        let here = (name[0] != 0 && start < 0x4000).then_some(start as u16);
        Ok(if spelled == 0 { pointer } else { here })
    }

    fn find(&self, name: &[u8]) -> Option<u16> {
        let point = self.points.iter().find(|point| fold::equal(point.name, name));
        point.map(|point| point.offset).or_else(|| self.find_in_question(name))
    }

    fn find_in_question(&self, name: &[u8]) -> Option<u16> {
        let question = self.question?;
        let start = question.name.len().checked_sub(name.len())?;
        let found = question.name[start..] == *name && question.labels.contains(start);
        found.then_some((QNAME_OFFSET + start) as u16) // At most 267.
    }

    /// Notes `name`, of which `spelled` octets stand at `offset`, and its ancestors that begin among those.
    fn remember(&mut self, name: &'a [u8], spelled: usize, offset: usize) {
        let mut at = 0;
        // RFC 1035, 4.1.4: a pointer has 14 bits.
        while at < spelled && name[at] != 0 && !self.points.is_full() && offset + at < 0x4000 {
            self.points.push(Point { name: &name[at..], offset: (offset + at) as u16 });
            at += 1 + usize::from(name[at]);
        }
    }

    #[inline(always)]
    fn octets(&mut self, octets: &[u8]) -> Result<(), Full> {
        let end = self.position + octets.len();
        if end > self.limit {
            return Err(Full);
        }
        self.message[self.position..end].copy_from_slice(octets);
        self.position = end;
        Ok(())
    }
}

/// Length of the valid name that `octets` start with.
pub(crate) fn name_len(octets: &[u8]) -> usize {
    let mut at = 0;
    while octets[at] != 0 {
        at += 1 + usize::from(octets[at]);
    }
    at + 1
}
