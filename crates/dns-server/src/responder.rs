//! Passes the engine's batches to `dns-auth` and back.

use std::sync::Arc;

use arc_swap::ArcSwap;
use device::BURST;
use dns_auth::{Catalog, Counters, Outcome, Prepared, Responder, Settings, Transport};
use engine::{Datagram, UdpResponder};

/// What all responders answer from. Replaced as a whole; each responder takes it for a batch, and holds it no longer than that: what
/// was replaced is soon its owner's alone, to be freed where no query waits for it.
pub struct Published {
    /// The zones.
    pub catalog: Arc<Catalog>,
    /// The choices about answers.
    pub settings: Arc<Settings>,
}

/// Answers DNS queries that came by UDP.
pub struct DnsResponder {
    responder: Responder,
    published: Arc<ArcSwap<Published>>,
    settings: Arc<Settings>,
    prepared: Box<[Prepared; BURST]>,
}

impl DnsResponder {
    /// A responder of its own core, counting in `counters`.
    pub fn new(published: &Arc<ArcSwap<Published>>, counters: Arc<Counters>) -> DnsResponder {
        let settings = Arc::clone(&published.load().settings);
        DnsResponder {
            responder: Responder::new(Arc::clone(&settings), counters),
            published: Arc::clone(published),
            settings,
            prepared: Box::new([Prepared::default(); BURST]),
        }
    }

    /// Answers one query of `len` octets in `buffer`, which came by `transport`.
    pub fn respond_one(&mut self, buffer: &mut [u8], len: usize, transport: Transport) -> Outcome {
        let published = self.published.load();
        self.pick_up(&published);
        self.responder.respond(&published.catalog, buffer, len, transport)
    }

    fn pick_up(&mut self, published: &Published) {
        if !Arc::ptr_eq(&self.settings, &published.settings) {
            self.settings = Arc::clone(&published.settings);
            self.responder.set_settings(Arc::clone(&published.settings));
        }
    }
}

impl UdpResponder for DnsResponder {
    fn respond(&mut self, batch: &mut [Datagram<'_>]) {
        let published = self.published.load();
        self.pick_up(&published);
        let catalog = &*published.catalog;
        let prepared = &mut self.prepared[..batch.len()];
        for (datagram, prepared) in batch.iter().zip(&mut *prepared) {
            self.responder.prepare(catalog, datagram.buffer, datagram.len, prepared);
        }
        for prepared in &mut *prepared {
            self.responder.fetch(catalog, prepared);
        }
        for (datagram, prepared) in batch.iter_mut().zip(prepared) {
            let outcome = self.responder.complete(catalog, prepared, datagram.buffer, Transport::Udp);
            datagram.reply = match outcome {
                Outcome::Reply(len) => Some(len),
                Outcome::Drop(_) => None,
            };
        }
    }
}
