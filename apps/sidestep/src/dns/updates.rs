//! Dynamic updates on their way from the responders to the one thread that changes zones (RFC 2136).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use anyhow::Context;
use dns_auth::LeftOut;
use dns_auth::compile::compile_changed;
use dns_server::LateReply;
use dns_transfer::{Difference, UpdateRequest, Updated};
use dns_wire::{NameBuf, Rcode};
use dns_zone::{Changed, Zone};
use log::Level;

use super::events::Event;
use super::request_log::RequestLog;
use super::store;
use super::version::Version;

/// Updates that wait at most: each may be as long as a message. Others get SERVFAIL, and their senders try again.
const WAITING_MAX: usize = 1000;

/// Where responders leave updates.
#[derive(Clone)]
pub(crate) struct Queue {
    events: Sender<Event>,
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    pub(crate) fn new(events: Sender<Event>) -> Queue {
        Queue { events, waiting: Arc::default() }
    }

    /// Leaves an update, whose answer `reply` takes.
    pub(crate) fn push(&self, request: Box<UpdateRequest>, reply: LateReply) {
        let place = Place::take(&self.waiting);
        if self.waiting.load(Ordering::Relaxed) > WAITING_MAX {
            return reply(request.answer(Rcode::ServFail));
        }
        // A server that ends carries no more out, and whoever gets no answer asks again.
        let _ = self.events.send(Event::Update(Pending { request, reply, _place: place }));
    }
}

/// An update that waits for its turn.
pub(crate) struct Pending {
    pub(crate) request: Box<UpdateRequest>,
    reply: LateReply,
    _place: Place,
}

impl Pending {
    pub(crate) fn answer(self, rcode: Rcode) {
        (self.reply)(self.request.answer(rcode));
    }
}

/// Counts an update while it waits.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>) -> Place {
        count.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(count))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of updates of one zone: for each the code of its answer, and what there is of it.
pub(crate) type CarriedOut = (Vec<Rcode>, Outcome);

/// What comes of updates of one zone together.
pub(crate) enum Outcome {
    /// Nothing changes.
    Same,
    /// The version that all of them lead to, by these differences.
    Next(Box<Version>, Vec<Arc<Difference>>),
    /// None is carried out, though the zone might have them.
    Failed(Failure),
}

/// Why the zone does not have updates that it might have.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) why: String,
    /// Its keys do not sign: it is no matter of writing.
    pub(crate) is_of_keys: bool,
}

/// That a version cannot be signed.
#[derive(Debug, thiserror::Error)]
#[error("the zone cannot be signed now")]
struct NotSigned;

/// Carries updates of one zone out in their order, from `held`. The journal of its file has all of them before this returns, written once.
/// A zone that cannot be written stays as it is, and no update of them is carried out.
pub(crate) fn carry_out<'r>(
    requests: impl ExactSizeIterator<Item = &'r UpdateRequest>,
    held: &Version,
    file: &Path,
    log: &RequestLog,
) -> CarriedOut {
    let count = requests.len();
    let failed = || vec![Rcode::ServFail; count];
    let Some(source) = held.source() else { return (failed(), Outcome::Same) };
    if source.is_signed() {
        let origin = source.origin();
        let why = "updates are refused, as the zone is signed by somebody else";
        log.failed(Level::Warn, &format_args!("zone {origin}: {why}"));
    }
    let (mut codes, mut steps, mut differences) = (Vec::new(), Vec::<Changed>::new(), Vec::new());
    for request in requests {
        let zone = steps.last().map_or(source, |step| &step.zone);
        let code = match request.update().apply(zone) {
            Ok(Updated::Next(changed, difference)) => {
                steps.push(*changed);
                differences.push(Arc::new(*difference));
                Rcode::NoError
            }
            Ok(_) => Rcode::NoError,
            Err(code) => code,
        };
        if code == Rcode::NoError {
            for owner in request.update().wildcard_servers() {
                let line = format_args!("zone {}: NS records at {owner} are passed over", source.origin());
                log.failed(Level::Warn, &line);
            }
        }
        codes.push(code);
    }
    let Some(last) = steps.last().map(|step| step.zone.clone()) else { return (codes, Outcome::Same) };
    match next(held, steps, &differences, &last, file) {
        Ok(version) => {
            tell_left_out(source, &version, &differences);
            tell_odd_sets(source, version.source(), &names_in(&differences));
            (codes, Outcome::Next(Box::new(version), differences))
        }
        Err(error) => {
            let line =
                format_args!("zone {}: updates that are not carried out, {count}: {error:#}", last.origin());
            log.failed(Level::Error, &line);
            let failure = Failure { why: format!("{error:#}"), is_of_keys: error.is::<NotSigned>() };
            // Those that change nothing were judged by what the others would have changed.
            (failed(), Outcome::Failed(failure))
        }
    }
}

/// Says what lines have and the zone has no place for any more.
fn tell_left_out(before: &Zone, after: &Version, differences: &[Arc<Difference>]) {
    let (Some(lines), Some(zone)) = (after.served.lines(), after.source()) else { return };
    let misfits = lines.data().newly_misfit(before, zone, &names_in(differences));
    if let Some(left_out) = LeftOut::of(misfits) {
        log::warn!("zone {}: by an update, {left_out}", zone.origin());
    }
}

/// Says which sets come by updates that secondaries of other makes refuse a whole zone for.
fn tell_odd_sets(before: &Zone, after: Option<&Zone>, names: &BTreeSet<NameBuf>) {
    let Some(after) = after else { return };
    for name in names {
        let held = dns_zone::findings::odd_set(before, name.as_name());
        if let Some(odd) = dns_zone::findings::odd_set(after, name.as_name()).filter(|_| held.is_none()) {
            log::warn!("zone {} {name}: by an update, {odd}", after.origin());
        }
    }
}

fn names_in(differences: &[Arc<Difference>]) -> BTreeSet<NameBuf> {
    let records = differences.iter().flat_map(|difference| difference.records());
    records.map(|record| NameBuf::from(record.owner)).collect()
}

/// The version that `steps` lead to, the `last` of which is the zone, once the journal has their differences.
fn next(
    held: &Version,
    steps: Vec<Changed>,
    differences: &[Arc<Difference>],
    last: &Zone,
    file: &Path,
) -> anyhow::Result<Version> {
    let Some(signing) = &held.signing else {
        store::add_update(file, differences, last)?;
        let mut steps = steps.into_iter();
        let first = compile_changed(&held.served, steps.next().context("there is a step")?);
        let served = steps.fold(first, |served, step| compile_changed(&served, step));
        return Ok(held.next(served, differences));
    };
    let names: Vec<NameBuf> = names_in(differences).into_iter().collect();
    let signing = signing.with_source(last.clone());
    let next = signing.next(held, &names).context(NotSigned)?;
    if let Some(next) = &next {
        next.check().context(NotSigned)?;
    }
    // Updates are kept before the version that they lead to: that one can be made from them again.
    store::add_update(file, differences, last)?;
    Ok(signing.keep(held, next))
}
