//! Looks at servers: whether what they say is one version, and one that was written.
//!
//! A version can be told from its answers, because each has its serial in it three times as text, and as the exclusive or of sixteen
//! addresses. Answers between two equal serials on one connection are of that version, as serials never go back. Transfers say their
//! serial themselves, and the sum of all their records has to be that version's.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dns_message::{is_older, serial_of};
use dns_wire::Rtype;

use crate::client::{Client, Transfer, other};
use crate::ledger::{Ledger, Run};
use crate::model::{GROUP, group_name, mark_names};
use crate::records::{key_of_record, weight};
use crate::servers::{Make, ORIGINS, Server};

/// One in so many looks asks for differences, too.
const DIFFERENCES_IN: u64 = 5;
/// How far back they may begin.
const VERSIONS_BACK: u64 = 40;
/// A version may be that old where nothing is done to anybody.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(600);

/// Connections that NSD may reset one after the other: its processes end with every new version, whoever talks to them.
const RESETS_MAX: u64 = 5;
/// How long its processes of before may take to end.
const SETTLING: Duration = Duration::from_millis(500);

/// How often readers have seen what.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) looks: AtomicU64,
    /// The version changed meanwhile, which proves nothing.
    pub(crate) changed: AtomicU64,
    pub(crate) differences: AtomicU64,
    /// Asked for differences, servers have sent something else: the whole zone, or the SOA alone.
    pub(crate) without_differences: AtomicU64,
    pub(crate) wholes: AtomicU64,
    /// Servers to which something was done did not answer.
    pub(crate) away: AtomicU64,
    /// Connections that NSD has reset.
    pub(crate) resets: AtomicU64,
}

impl Tally {
    /// Whether something has not been seen at all.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.looks, &self.differences].iter().any(|count| count.load(Ordering::Relaxed) == 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        write!(to, "{} looks ({} while the version changed), ", count(&self.looks), count(&self.changed))?;
        let (with, without) = (count(&self.differences), count(&self.without_differences));
        write!(to, "{with} transfers of differences ({without} answered without), ")?;
        write!(to, "{} of whole zones, {} reset by NSD, ", count(&self.wholes), count(&self.resets))?;
        write!(to, "{} without an answer while something was done", count(&self.away))
    }
}

pub(crate) struct Reader<'a> {
    pub(crate) server: &'a Server,
    pub(crate) zone: usize,
    pub(crate) ledger: &'a Ledger,
    pub(crate) run: &'a Run,
    pub(crate) tally: &'a Tally,
    pub(crate) interval: Duration,
}

/// What a look has seen.
enum Look {
    Version(u32),
    /// One after the other.
    Versions(u32),
    /// What cannot be, whatever is done to the server.
    Wrong(String),
}

impl Reader<'_> {
    pub(crate) fn read(&self) {
        let mut last: Option<(u32, u64)> = None;
        let mut count = 0;
        while !self.run.is_over() {
            let (disturbance, began) = (self.server.disturbance(), Instant::now());
            let look = self.look_again_after_resets();
            let is_calm = disturbance.is_multiple_of(2) && disturbance == self.server.disturbance();
            match look {
                Ok(Look::Version(serial) | Look::Versions(serial)) => {
                    if is_calm {
                        self.server
                            .slowest_ms
                            .fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                    }
                    // Others may begin again with an old file.
                    let goes_on = |(_, then)| self.server.is_ours() || (is_calm && then == disturbance);
                    let older = last.filter(|&seen| is_older(serial, seen.0) && goes_on(seen));
                    if let Some((old, _)) = older.filter(|(old, _)| !self.is_of_a_process_before(*old)) {
                        self.fault(format!("serial {serial} after {old}"));
                    }
                    last = Some((serial, disturbance));
                    let age = self.ledger.age(serial);
                    if is_calm && age > AGE_MAX {
                        self.fault(format!("serial {serial} was replaced {age:?} ago"));
                    }
                }
                Ok(Look::Wrong(text)) => self.fault(text),
                Err(error) if is_calm => self.fault(format!("no answer: {error}")),
                Err(_) => {
                    self.tally.away.fetch_add(1, Ordering::Relaxed);
                }
            }
            count += 1;
            if let Some((serial, _)) = last.filter(|_| count % DIFFERENCES_IN == 0) {
                self.look_at_differences(serial.wrapping_sub((count * 7 % VERSIONS_BACK) as u32 + 1));
            }
            self.run.sleep(self.interval);
        }
    }

    fn look_again_after_resets(&self) -> io::Result<Look> {
        let mut resets = 0;
        loop {
            let look = self.look();
            if resets == RESETS_MAX || !look.as_ref().is_err_and(|error| self.is_reset(error)) {
                return look;
            }
            resets += 1;
            self.tally.resets.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether NSD has replaced the process that was asked.
    /// NSD serves each version by new processes, and one of those before may answer once more while it is told to end. Then the next look is right.
    fn is_of_a_process_before(&self, newest: u32) -> bool {
        if self.server.make != Make::Nsd {
            return false;
        }
        self.run.sleep(SETTLING);
        let look = self.look_again_after_resets();
        matches!(look, Ok(Look::Version(serial) | Look::Versions(serial)) if !is_older(serial, newest))
    }

    fn is_reset(&self, error: &io::Error) -> bool {
        self.server.make == Make::Nsd
            && matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
    }

    fn look(&self) -> io::Result<Look> {
        let origin = ORIGINS[self.zone];
        let mut client = Client::connect(self.server.address)?;
        let before = client.serial(origin)?;
        let mut texts = Vec::new();
        for name in mark_names(origin) {
            let records = client.ask(&name, Rtype::TXT)?;
            texts.push(records.iter().map(|record| text_of(&record.rdata)).collect::<Vec<_>>().join(" "));
        }
        let mut all = 0;
        for at in 0..GROUP {
            let records = client.ask(&group_name(origin, at), Rtype::A)?;
            let addresses = records.iter().filter_map(|record| record.rdata.first_chunk::<4>());
            all = addresses.fold(all, |all, address| all ^ u32::from_be_bytes(*address));
        }
        let after = client.serial(origin)?;
        self.tally.looks.fetch_add(1, Ordering::Relaxed);
        if before != after {
            self.tally.changed.fetch_add(1, Ordering::Relaxed);
            return Ok(if is_older(after, before) {
                Look::Wrong(format!("serial {after} after {before} on one connection"))
            } else {
                Look::Versions(after)
            });
        }
        let is_one = all == before && texts.iter().all(|text| *text == before.to_string());
        Ok(match self.ledger.sum(before) {
            None => Look::Wrong(format!("serial {before}, which nobody has written")),
            Some(_) if is_one => Look::Version(before),
            Some(_) => Look::Wrong(format!("serial {before}, but {texts:?} and addresses for {all}")),
        })
    }

    fn look_at_differences(&self, from: u32) {
        let disturbance = self.server.disturbance();
        match differences(self.server, self.zone, self.ledger, from) {
            Ok(None) => drop(self.tally.without_differences.fetch_add(1, Ordering::Relaxed)),
            Ok(Some(Ok(_))) => drop(self.tally.differences.fetch_add(1, Ordering::Relaxed)),
            Ok(Some(Err(text))) => self.fault(text),
            Err(error) if self.is_reset(&error) => drop(self.tally.resets.fetch_add(1, Ordering::Relaxed)),
            Err(error) if disturbance.is_multiple_of(2) && disturbance == self.server.disturbance() => {
                self.fault(format!("differences from {from}: {error}"));
            }
            Err(_) => drop(self.tally.away.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn fault(&self, text: String) {
        self.run.fault(format!("{} of {}: {text}", ORIGINS[self.zone], self.server.name));
    }
}

/// Asks for differences: how many versions there were, or what is wrong. None if the server sends no differences.
pub(crate) fn differences(
    server: &Server,
    zone: usize,
    ledger: &Ledger,
    from: u32,
) -> io::Result<Option<Result<u32, String>>> {
    let mut transfer = Client::connect(server.address)?.transfer(ORIGINS[zone], Some(from))?;
    let newest = serial(&transfer.next()?.rdata)?;
    // The SOA alone, which may also come before the whole zone in other messages.
    if !transfer.has_more_here() {
        return Ok(None);
    }
    let first = transfer.next()?;
    if first.rtype != Rtype::SOA || serial(&first.rdata)? != from {
        return Ok(None);
    }
    let Some(mut sum) = ledger.sum(from) else { return Ok(Some(Err(format!("nobody has written {from}")))) };
    let mut versions = 0;
    loop {
        let new = until_soa(&mut transfer, |weight| sum = sum.wrapping_sub(weight))?;
        let next = until_soa(&mut transfer, |weight| sum = sum.wrapping_add(weight))?;
        versions += 1;
        if ledger.sum(new) != Some(sum) {
            return Ok(Some(Err(format!("differences from {from} make another {new} than was written"))));
        }
        if next != new {
            return Ok(Some(Err(format!("differences from {from}: {new} is followed by {next}"))));
        }
        if new == newest {
            return Ok(Some(Ok(versions)));
        }
    }
}

/// Reads records up to the next SOA, whose serial is returned.
fn until_soa(transfer: &mut Transfer, mut with_weight: impl FnMut(u64)) -> io::Result<u32> {
    loop {
        let record = transfer.next()?;
        if record.rtype == Rtype::SOA {
            return serial(&record.rdata);
        }
        with_weight(weight(&key_of_record(&record)));
    }
}

/// Whole zone: its serial, its sum, and its records if they are `wanted`.
pub(crate) struct Whole {
    pub(crate) serial: u32,
    pub(crate) sum: u64,
    pub(crate) count: usize,
    pub(crate) keys: Vec<Vec<u8>>,
}

pub(crate) fn whole(server: &Server, zone: usize, is_wanted: bool) -> io::Result<Whole> {
    let mut transfer = Client::connect(server.address)?.transfer(ORIGINS[zone], None)?;
    let mut whole = Whole { serial: serial(&transfer.next()?.rdata)?, sum: 0, count: 0, keys: Vec::new() };
    loop {
        let record = transfer.next()?;
        if record.rtype == Rtype::SOA {
            let last = serial(&record.rdata)?;
            let first = whole.serial;
            return if last == first {
                Ok(whole)
            } else {
                Err(other(format!("begins with {first}, ends with {last}")))
            };
        }
        let key = key_of_record(&record);
        whole.sum = whole.sum.wrapping_add(weight(&key));
        whole.count += 1;
        if is_wanted {
            whole.keys.push(key);
        }
    }
}

fn serial(rdata: &[u8]) -> io::Result<u32> {
    serial_of(rdata).ok_or_else(|| other("no SOA where one has to be".to_owned()))
}

/// The first string of a TXT record.
fn text_of(rdata: &[u8]) -> String {
    String::from_utf8_lossy(rdata.get(1..).unwrap_or_default()).into_owned()
}
