//! A zone on its way out: the messages of an AXFR or IXFR, one at a time (RFC 5936; RFC 1995).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use clock::{Duration, Instant};
use dns_auth::ServedZone;
use dns_wire::{Name, Rtype};
use dns_zone::{Node, Zone};

use crate::difference::{Difference, RecordRef};
use crate::tsig::Signer;
use dns_message::{Compressor, add_to_count};

/// A message ends when it has that many octets: no name behind them can be pointed to. One record may make it longer, up to 65535.
const MESSAGE_LEN: usize = 16 << 10;
/// Octets of the longest message, with its signature.
const MESSAGE_MAX: usize = 65_535;

/// An OPT record that takes 1232 octets over UDP and has no options.
pub(crate) const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

/// For so long a client may take a transfer at any rate.
const ANY_RATE: Duration = Duration::from_secs(600);
/// What it has to take a second on the whole after that, in octets: otherwise it would hold a version and a slot for as long as it likes.
const RATE_MIN: u64 = 16 << 10;

/// Why a transfer cannot go on: its connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// A record has no room in any message beside the signature.
    #[error("a record is too long for a message with a signature")]
    TooLong,
    /// The client has taken less than 16 KiB a second, apart from the first ten minutes. [`Slots`] have counted it.
    #[error("the client takes less than 16 KiB a second")]
    TooSlow,
}

/// How many transfers there may be at once, and are.
#[derive(Debug)]
pub struct Slots {
    max: usize,
    taken: AtomicUsize,
    /// Transfers that were too slow.
    ended_slow: AtomicU64,
}

impl Slots {
    /// `max` slots, none of them taken.
    pub fn new(max: usize) -> Arc<Slots> {
        Arc::new(Slots { max, taken: AtomicUsize::new(0), ended_slow: AtomicU64::new(0) })
    }

    /// How many transfers were ended because their clients were too slow.
    pub fn ended_slow(&self) -> u64 {
        self.ended_slow.load(Ordering::Relaxed)
    }

    /// Takes one; `None` if all are taken.
    pub fn take(self: &Arc<Slots>) -> Option<Slot> {
        let take = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Slot(Arc::clone(self)))
    }
}

/// One transfer's slot, until it is dropped.
#[derive(Debug)]
pub struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A transfer to one client. It holds one version of the zone, and goes on whenever the client can take another message.
#[derive(Debug)]
pub struct Transfer {
    zone: Arc<ServedZone>,
    content: Content,
    /// The first message up to the end of its question, with the flags of all.
    head: Vec<u8>,
    /// Whether the client knows EDNS.
    has_edns: bool,
    signer: Option<Signer>,
    next: Next,
    /// When the first message was wanted.
    began: Option<Instant>,
    /// Octets of all messages.
    written: u64,
    slot: Slot,
}

/// What a transfer has between the two SOA records that frame it.
#[derive(Debug)]
pub(crate) enum Content {
    /// All records.
    Whole,
    /// What leads from the client's version to ours.
    Differences(Vec<Arc<Difference>>),
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The SOA, with which a transfer begins.
    FirstSoa,
    /// Of the part of this number, the record at this place: of a node its number, of a difference its offset.
    Record(usize, usize),
    /// The SOA, with which it ends.
    LastSoa,
    /// All is written.
    Nothing,
}

impl Transfer {
    /// A transfer that answers a request. `head` is the answer's header and question.
    pub(crate) fn new(
        zone: Arc<ServedZone>,
        content: Content,
        head: Vec<u8>,
        has_edns: bool,
        signer: Option<Signer>,
        slot: Slot,
    ) -> Transfer {
        let (next, began, written) = (Next::FirstSoa, None, 0);
        Transfer { zone, content, head, has_edns, signer, next, began, written, slot }
    }

    /// The name of the zone.
    pub fn origin(&self) -> Name<'_> {
        self.zone.origin()
    }

    /// Whether all messages were written.
    pub fn is_done(&self) -> bool {
        self.next == Next::Nothing
    }

    /// Writes the next message into `message`, in place of what that has. It is to be called when the client can take another message, at `now`.
    /// `unix_time` is the same in seconds since 1970, for signatures.
    ///
    /// # Panics
    /// If the transfer is done.
    ///
    /// # Errors
    /// The transfer cannot go on.
    pub fn write_next(
        &mut self,
        compressor: &mut Compressor,
        message: &mut Vec<u8>,
        (now, unix_time): (Instant, u64),
    ) -> Result<(), TransferError> {
        assert!(!self.is_done(), "a transfer that is done has no more messages");
        if self.is_slow(now) {
            self.slot.0.ended_slow.fetch_add(1, Ordering::Relaxed);
            return Err(TransferError::TooSlow);
        }
        let zone = Arc::clone(&self.zone);
        let zone = zone.tree().expect("only zones that have data are transferred");
        let with_opt = self.next == Next::FirstSoa && self.has_edns;
        self.begin(compressor, message);
        let start = message.len();
        let reserved =
            self.signer.as_ref().map_or(0, Signer::record_len) + if with_opt { OPT.len() } else { 0 };
        loop {
            let end = message.len();
            let ((owner, rtype, ttl, rdata), next) = match self.next {
                Next::FirstSoa => (soa(zone), Next::Record(0, 0)),
                Next::LastSoa => (soa(zone), Next::Nothing),
                Next::Record(part, place) => match self.content.record_at(zone, part, place) {
                    Found::Record(record, next) => (record, Next::Record(part, next)),
                    Found::EndOfPart => {
                        self.next = Next::Record(part + 1, 0);
                        continue;
                    }
                    Found::End => {
                        self.next = Next::LastSoa;
                        continue;
                    }
                },
                Next::Nothing => break,
            };
            compressor.push_record(message, owner, rtype, ttl, rdata);
            if message.len() + reserved > MESSAGE_MAX {
                message.truncate(end);
                if end == start {
                    return Err(TransferError::TooLong); // Another message would have no more room.
                }
                break;
            }
            add_to_count(message, 0, 1);
            self.next = next;
            if message.len() >= MESSAGE_LEN {
                break;
            }
        }
        if with_opt {
            message.extend_from_slice(OPT);
            add_to_count(message, 2, 1);
        }
        if let Some(signer) = &mut self.signer {
            signer.sign(message, unix_time);
        }
        self.written += message.len() as u64;
        Ok(())
    }

    /// Whether the client has taken too little until `now`, when it can take another message.
    fn is_slow(&mut self, now: Instant) -> bool {
        let began = *self.began.get_or_insert(now);
        let allowed = ANY_RATE + Duration::from_secs(self.written / RATE_MIN);
        now.since(began) > allowed
    }

    /// Writes the header; in the first message also the question and, for a client with EDNS, the OPT record (RFC 5936, 2.2).
    fn begin(&self, compressor: &mut Compressor, message: &mut Vec<u8>) {
        compressor.clear();
        message.clear();
        if self.next != Next::FirstSoa {
            message.extend_from_slice(&self.head[..4]);
            message.extend_from_slice(&[0; 8]);
            return;
        }
        message.extend_from_slice(&self.head[..12]);
        // Through the compressor, so that the records' owners point to it.
        compressor.push_name(message, &self.head[12..self.head.len() - 4]);
        message.extend_from_slice(&self.head[self.head.len() - 4..]);
    }
}

type RecordParts<'z> = (&'z [u8], Rtype, u32, &'z [u8]);

fn soa(zone: &Zone) -> RecordParts<'_> {
    let soa = zone.soa();
    let rdata = soa.records().next().expect("a record set has a record");
    (zone.apex().name(), Rtype::SOA, soa.ttl(), rdata)
}

enum Found<'z> {
    /// A record, and the place of the next one in its part.
    Record(RecordParts<'z>, usize),
    EndOfPart,
    End,
}

impl Content {
    /// The record at a place in part number `part`.
    fn record_at<'z>(&'z self, zone: &'z Zone, part: usize, place: usize) -> Found<'z> {
        let (parts, found) = match self {
            Content::Whole => {
                let found = zone.node_at(part).and_then(|node| record_of(node, place));
                (zone.node_count(), found.map(|record| (record, place + 1)))
            }
            Content::Differences(list) => {
                let found = list.get(part).and_then(|difference| difference.record_at(place));
                let parts = |it: RecordRef<'z>| (it.owner.as_bytes(), it.rtype, it.ttl, it.rdata);
                (list.len(), found.map(|(record, next)| (parts(record), next)))
            }
        };
        match found {
            Some((record, next)) => Found::Record(record, next),
            None if part < parts => Found::EndOfPart,
            None => Found::End,
        }
    }
}

/// Record number `record` of a node, without the SOA, which frames a transfer.
fn record_of(node: Node<'_>, record: usize) -> Option<RecordParts<'_>> {
    let mut before = record;
    for rrset in node.rrsets().filter(|rrset| rrset.rtype() != Rtype::SOA) {
        let count = usize::from(rrset.count());
        if before < count {
            let rdata = rrset.records().nth(before).expect("a record set has as many records as it counts");
            return Some((Node::name(node), rrset.rtype(), rrset.ttl(), rdata));
        }
        before -= count;
    }
    None
}
