//! The cache as octets, for a resolver that starts again: answers and denials, in no order. Failures and the ways to zones' servers are
//! not kept: both are soon found again, and may have changed.
//!
//! ```text
//! file   = MAGIC, terms (8), seconds since 1970 (8), entry*, checksum (8)
//! entry  = kind (4), rank (1), milliseconds since it was stored (8), milliseconds until it expires (8, signed), name, content
//! content = 0, rdatas, security, proof | 1, rrset
//! rrset  = owner, type (2), ttl (4), rdatas, security, proof
//! rdatas = count (2), (length (2), octets)*        proof = 0 | 1, rdatas, count (2), rrset*        name = length (1), octets
//! ```
//!
//! `terms` stand for what decides what is true: trust anchors, zones that are asked for elsewhere. Under other terms nothing is taken in.
//! Numbers are big-endian. The checksum finds what a disk did, not what a forger did: whoever may write the file is believed.

use std::io::{self, Write};
use std::sync::Arc;

use clock::{Duration, Instant};
use dns_wire::{Name, NameBuf, Rtype};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

use super::{Cache, Content, Entry, Kind, Rank};
use crate::dnssec::Security;
use crate::message::{Ede, Proof, Rdatas, Rrset};

const MAGIC: &[u8; 16] = b"sidestep-cache-1";
const CHECKSUM: usize = 8;
/// A proof's sets have signatures, and no proofs of their own: one level more than there is.
const DEPTH_MAX: u32 = 3;

/// How far the calendar may have been set back since a cache was saved: as much longer do its entries last.
const CALENDAR_OFF_MAX_S: u64 = 60;

/// When a cache is saved or restored, and under what terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion {
    pub(crate) terms: u64,
    /// Since 1970.
    pub(crate) unix_secs: u64,
    pub(crate) now: Instant,
}

/// Why nothing was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRestored {
    /// The octets are no saved cache, or were changed.
    Damaged,
    /// It was saved with other trust anchors, options of validation, or zones that are asked for elsewhere.
    OtherTerms,
    /// It was saved later than now, so nobody knows how old it is: the calendar was set back.
    OfTheFuture,
}

impl Cache {
    /// Writes what can be kept; returns how many entries that were.
    pub(crate) fn save(&self, occasion: Occasion, to: &mut impl Write) -> io::Result<usize> {
        let mut out = Checked { to, sum: SipHasher13::new() };
        out.write_all(MAGIC)?;
        out.write_all(&occasion.terms.to_be_bytes())?;
        out.write_all(&occasion.unix_secs.to_be_bytes())?;
        let (mut octets, mut count) = (Vec::new(), 0);
        for (_, entry) in self.entries.iter() {
            octets.clear();
            if write_entry(&mut octets, entry, occasion.now).is_some() {
                out.write_all(&octets)?;
                count += 1;
            }
        }
        let sum = out.sum.finish();
        to.write_all(&sum.to_be_bytes())?;
        Ok(count)
    }

    /// Takes in what was saved, as far as it is still of use; returns how many entries that were. What is there stays.
    pub(crate) fn restore(&mut self, octets: &[u8], occasion: Occasion) -> Result<usize, NotRestored> {
        let Occasion { terms, unix_secs, now } = occasion;
        let (body, sum) = octets.split_last_chunk::<CHECKSUM>().ok_or(NotRestored::Damaged)?;
        let mut hasher = SipHasher13::new();
        hasher.write(body);
        let rest = body.strip_prefix(&MAGIC[..]).filter(|_| hasher.finish().to_be_bytes() == *sum);
        let mut input = Input(rest.ok_or(NotRestored::Damaged)?);
        if input.number() != Some(terms.to_be_bytes()) {
            return Err(NotRestored::OtherTerms);
        }
        let written = u64::from_be_bytes(input.number().ok_or(NotRestored::Damaged)?);
        if written > unix_secs.saturating_add(CALENDAR_OFF_MAX_S) {
            return Err(NotRestored::OfTheFuture);
        }
        let passed = Duration::from_secs(unix_secs.saturating_sub(written));
        let mut count = 0;
        while !input.0.is_empty() {
            let entry = read_entry(&mut input, passed, now).ok_or(NotRestored::Damaged)?;
            let entry = entry.map(|entry| self.within_caps(entry, now));
            let of_use = entry.filter(|entry| entry.expires + self.keep > now);
            count += usize::from(of_use.and_then(|entry| self.insert(entry)).is_some());
        }
        Ok(count)
    }

    /// The largest TTLs may be smaller by now.
    fn within_caps(&self, entry: Entry, now: Instant) -> Entry {
        let denial = matches!(entry.content, Content::Denial(_));
        let ttl_max = if denial { self.options.negative_ttl_max } else { self.options.ttl_max };
        Entry { expires: entry.expires.min(now + ttl_max), ..entry }
    }
}

/// Passes octets on and sums them up.
struct Checked<'a, W> {
    to: &'a mut W,
    sum: SipHasher13,
}

impl<W: Write> Checked<'_, W> {
    fn write_all(&mut self, octets: &[u8]) -> io::Result<()> {
        self.sum.write(octets);
        self.to.write_all(octets)
    }
}

/// `None` for an entry that is not kept; then `out` has a part of it.
fn write_entry(out: &mut Vec<u8>, entry: &Entry, now: Instant) -> Option<()> {
    if !matches!(entry.kind, Kind::Type(_) | Kind::NoName) {
        return None;
    }
    out.extend_from_slice(&entry.kind.code().to_be_bytes());
    out.push(entry.rank as u8);
    out.extend_from_slice(&now.since(entry.stored).as_millis().to_be_bytes());
    let left = i64::try_from(entry.expires.since(now).as_millis()).ok()?;
    let over = i64::try_from(now.since(entry.expires).as_millis()).ok()?;
    out.extend_from_slice(&(left - over).to_be_bytes());
    write_name(out, &entry.name);
    match &entry.content {
        Content::Records(rdatas, security, proof) => {
            out.push(0);
            write_rdatas(out, rdatas);
            write_security(out, *security);
            write_proof(out, proof.as_deref());
        }
        Content::Denial(soa) => {
            out.push(1);
            write_rrset(out, soa);
        }
        Content::Failure(_) | Content::Zone(_) => return None,
    }
    Some(())
}

fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    out.push(name.len() as u8); // At most 255.
    out.extend_from_slice(name);
}

fn write_rdatas(out: &mut Vec<u8>, rdatas: &Rdatas) {
    // What fits a message has less than 65536 records, of less than 65536 octets.
    out.extend_from_slice(&(rdatas.iter().count() as u16).to_be_bytes());
    for rdata in rdatas.iter() {
        out.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
        out.extend_from_slice(rdata);
    }
}

/// 0: unchecked, 1: secure, 2: insecure, 3: insecure with a reason (2 octets).
fn write_security(out: &mut Vec<u8>, security: Security) {
    match security {
        Security::Unchecked => out.push(0),
        Security::Secure => out.push(1),
        Security::Insecure(None) => out.push(2),
        Security::Insecure(Some(ede)) => {
            out.push(3);
            out.extend_from_slice(&ede.0.to_be_bytes());
        }
    }
}

fn write_proof(out: &mut Vec<u8>, proof: Option<&Proof>) {
    out.push(u8::from(proof.is_some()));
    if let Some(proof) = proof {
        write_rdatas(out, &proof.sigs);
        out.extend_from_slice(&(proof.absence.len() as u16).to_be_bytes()); // Of one message.
        proof.absence.iter().for_each(|set| write_rrset(out, set));
    }
}

fn write_rrset(out: &mut Vec<u8>, set: &Rrset) {
    write_name(out, set.owner.as_name().as_bytes());
    out.extend_from_slice(&set.rtype.0.to_be_bytes());
    out.extend_from_slice(&set.ttl.to_be_bytes());
    write_rdatas(out, &set.rdatas);
    write_security(out, set.security);
    write_proof(out, set.proof.as_deref());
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.take(LEN)?.try_into().ok()
    }

    fn octet(&mut self) -> Option<u8> {
        self.number().map(|[octet]| octet)
    }

    fn count(&mut self) -> Option<u16> {
        self.number().map(u16::from_be_bytes)
    }

    fn name(&mut self) -> Option<NameBuf> {
        let len = self.octet()?;
        Name::from_wire(self.take(len.into())?).ok().map(NameBuf::from)
    }

    fn rdatas(&mut self) -> Option<Rdatas> {
        let count = self.count()?;
        let mut all = Vec::new();
        for _ in 0..count {
            let len = self.count()?;
            all.push(self.take(len.into())?);
        }
        Some(Rdatas::pack(all))
    }

    fn security(&mut self) -> Option<Security> {
        Some(match self.octet()? {
            0 => Security::Unchecked,
            1 => Security::Secure,
            2 => Security::Insecure(None),
            3 => Security::Insecure(Some(Ede(self.count()?))),
            _ => return None,
        })
    }

    fn proof(&mut self, depth: u32) -> Option<Option<Arc<Proof>>> {
        match self.octet()? {
            0 => Some(None),
            1 if depth < DEPTH_MAX => {
                let (sigs, count) = (self.rdatas()?, self.count()?);
                let absence = (0..count).map(|_| self.rrset(depth + 1)).collect::<Option<Vec<_>>>()?;
                Some(Some(Arc::new(Proof { sigs, absence })))
            }
            _ => None,
        }
    }

    fn rrset(&mut self, depth: u32) -> Option<Rrset> {
        Some(Rrset {
            owner: self.name()?,
            rtype: Rtype(self.count()?),
            ttl: u32::from_be_bytes(self.number()?),
            rdatas: self.rdatas()?,
            security: self.security()?,
            proof: self.proof(depth)?,
        })
    }
}

/// The inner `None` is an entry of before the clock began, which is of no use.
fn read_entry(input: &mut Input<'_>, passed: Duration, now: Instant) -> Option<Option<Entry>> {
    let kind = match u32::from_be_bytes(input.number()?) {
        code @ 0..=0xffff => Kind::Type(Rtype(code as u16)),
        code if code == Kind::NoName.code() => Kind::NoName,
        _ => return None,
    };
    let rank = [Rank::Unchecked, Rank::Plain, Rank::Authority].get(usize::from(input.octet()?)).copied()?;
    let age = Duration::from_millis(u64::from_be_bytes(input.number()?)) + passed;
    let left = i64::from_be_bytes(input.number()?);
    let over = Duration::from_millis(left.min(0).unsigned_abs()) + passed;
    let left = Duration::from_millis(left.max(0) as u64);
    let name: Box<[u8]> = input.name()?.as_name().as_bytes().into();
    let content = match input.octet()? {
        0 => Content::Records(input.rdatas()?, input.security()?, input.proof(0)?),
        1 => Content::Denial(Arc::new(input.rrset(0)?)),
        _ => return None,
    };
    let before = |span: Duration| Some(Instant::from_nanos(now.as_nanos().checked_sub(span.as_nanos())?));
    let expires = if left > over { Some(now + (left - over)) } else { before(over - left) };
    Some(before(age).zip(expires).map(|(stored, expires)| Entry {
        name,
        kind,
        rank,
        stored,
        expires,
        content,
    }))
}
