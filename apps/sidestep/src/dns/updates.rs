//! Dynamic updates on their way from the responders to the one thread that changes zones (RFC 2136).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use dns_auth::compile::compile_changed;
use dns_server::LateReply;
use dns_transfer::{UpdateRequest, Updated};
use dns_wire::{NameBuf, Rcode};

use super::events::Event;
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

/// The version that an update leads to from `held`, once the journal of its file has it; `None` if nothing changes.
///
/// # Errors
/// The code of the answer. A zone that cannot be written stays as it is.
pub(crate) fn carry_out(
    request: &UpdateRequest,
    held: &Version,
    file: &std::path::Path,
) -> Result<Option<Version>, Rcode> {
    let zone = held.source().ok_or(Rcode::ServFail)?;
    if zone.is_signed() {
        log::warn!("zone {}: an update is refused, as the zone is signed by somebody else", zone.origin());
    }
    let Updated::Next(changed, difference) = request.update().apply(zone)? else { return Ok(None) };
    let differences = [Arc::new(*difference)];
    let not_carried_out = |error: anyhow::Error| {
        log::error!("zone {}: an update is not carried out: {error:#}", request.origin());
        Rcode::ServFail
    };
    let zone = &changed.zone;
    let Some(signing) = &held.signing else {
        store::add(file, &differences, zone).map_err(not_carried_out)?;
        return Ok(Some(held.next(compile_changed(&held.served, *changed), &differences)));
    };
    let names: Vec<NameBuf> = differences[0].records().iter().map(|record| record.owner.clone()).collect();
    let signing = signing.with_source(zone.clone());
    let next = signing.next(held, &names).map_err(not_carried_out)?;
    // The update is kept before the version that it leads to: that one can be made from it again.
    store::add(file, &differences, zone).map_err(not_carried_out)?;
    Ok(Some(signing.keep(held, next)))
}
