//! Passes the engine's batches to `dns-auth` and back.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use clock::{Duration, Instant};
use device::BURST;
use dns_auth::{Catalog, Counters, Outcome, Prepared, Responder, Settings, Transport};
use dns_log::{AnswerLog, Entry, Writer};
use dns_message::Compressor;
use dns_transfer::{Client, Transfer, TransferError, UpdateRequest};
use engine::{Clock, Datagram, ReturnPath, Sampling, UdpResponder};

use crate::extras::{self, Extras};
use crate::guard::{Guard, GuardOptions};
use crate::late::{LateAnswers, LateReply};
use crate::special::{self, Special, TransferService, count_reply, handle_special};

/// What all responders answer from. Replaced as a whole; each responder takes it for a batch, and holds it no longer than that: what
/// was replaced is soon its owner's alone, to be freed where no query waits for it.
pub struct Published {
    /// The zones.
    pub catalog: Arc<Catalog>,
    /// The choices about answers.
    pub settings: Arc<Settings>,
    /// Who may transfer zones, and where notices go.
    pub transfers: Arc<TransferService>,
    /// Cookies and limits of rate, if there are any.
    pub guard: Option<Arc<GuardOptions>>,
    /// Where answers are noted, if they are.
    pub log: Option<Arc<AnswerLog>>,
}

/// Who asks by a connection.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Where the connection comes from.
    pub remote: SocketAddr,
    /// What kind it is; not UDP.
    pub transport: dns_log::Transport,
    /// How long it may be idle.
    pub idle_timeout: Duration,
    /// Whether it may carry a transfer.
    pub takes_transfers: bool,
}

/// What a message over TCP gets.
#[derive(Debug)]
pub enum Answer {
    /// The message of this many octets in the buffer.
    Reply(usize),
    /// The messages of a transfer.
    Transfer(Box<Transfer>),
    /// One that comes after [`DnsResponder::submit`].
    Update(Box<UpdateRequest>),
    /// Nothing.
    None,
}

/// The time of one answer over a connection in so many is taken. Each costs some microseconds, for the connection alone.
const SAMPLED: u32 = 64;

/// Answers DNS queries that came by UDP.
pub struct DnsResponder {
    responder: Responder,
    published: Arc<ArcSwap<Published>>,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    guard: Option<Guard>,
    log: Option<Writer>,
    prepared: Box<[Prepared; BURST]>,
    late: Arc<LateAnswers>,
    /// Of answers over connections; the engine takes the time of others.
    sampling: Sampling,
    clock: Clock,
}

impl DnsResponder {
    /// A responder of its own core, counting in `counters`.
    pub fn new(published: &Arc<ArcSwap<Published>>, counters: Arc<Counters>) -> DnsResponder {
        let settings = Arc::clone(&published.load().settings);
        DnsResponder {
            responder: Responder::new(Arc::clone(&settings), Arc::clone(&counters)),
            published: Arc::clone(published),
            settings,
            counters,
            guard: None,
            log: None,
            prepared: Box::new([Prepared::default(); BURST]),
            late: Arc::default(),
            sampling: Sampling::one_in(SAMPLED),
            clock: Clock::start(),
        }
    }

    /// Answers one query of `len` octets in `buffer`, which came by a connection.
    pub fn respond_one(&mut self, buffer: &mut [u8], len: usize, asker: &Asker) -> Answer {
        let began = self.sampling.is_due(1).then(|| self.clock.now());
        let answer = self.answer_one(buffer, len, asker);
        if let Some(began) = began {
            let took = self.clock.now().since(began);
            self.counters.on_sample(counted_as(asker.transport), took.as_nanos());
        }
        if let (Some(log), Answer::Reply(len)) = (&mut self.log, &answer) {
            let (transport, client) = (asker.transport, asker.remote);
            let (time_ns, message) = (log.now(), &buffer[..*len]);
            log.note(&Entry { time_ns, took_ns: None, transport, client, server: None, message });
        }
        answer
    }

    fn answer_one(&mut self, buffer: &mut [u8], len: usize, asker: &Asker) -> Answer {
        let published = self.published.load();
        self.pick_up(&published);
        let (catalog, address) = (&*published.catalog, asker.remote.ip());
        let transport = counted_as(asker.transport);
        let mut prepared = Prepared::default();
        self.responder.prepare(catalog, buffer, len, &mut prepared);
        if self.responder.may_sign(catalog, &prepared) {
            self.responder.set_time(self.clock.now());
        }
        self.responder.fetch(catalog, &mut prepared, &buffer[..len], || address);
        let mut extras = Extras::default();
        if let Some(guard) = &mut self.guard {
            let unix_secs = (published.transfers.unix_time)();
            let message = (&prepared, &buffer[..len]);
            // Over connections nothing is limited, so the time of the limits does not matter.
            let asker = (address, transport);
            match guard.judge(message, &published.transfers.policy, asker, Instant::ZERO, unix_secs) {
                Ok(cookie) => extras.push_cookie(cookie),
                Err((unlike, cookie)) => {
                    let responder = &mut self.responder;
                    let reply = unlike.answer(cookie, responder, &prepared, buffer, transport);
                    return reply.map_or(Answer::None, Answer::Reply);
                }
            }
        }
        // HTTP and QUIC have times of their own (RFC 9250, 5.5.2).
        let has_keepalive = matches!(asker.transport, dns_log::Transport::Tcp | dns_log::Transport::Tls);
        if has_keepalive && extras::asks(&prepared, |edns| edns.more.keepalive()) {
            extras.push_keepalive(asker.idle_timeout);
        }
        if prepared.is_special() {
            let is_encrypted = asker.transport.is_encrypted();
            let client = Client { address, is_encrypted, takes_transfers: asker.takes_transfers };
            let special = (&**published, &mut self.responder, &*self.counters);
            match handle_special(special, buffer, len, client, transport) {
                Special::Answered(answer) => return answer,
                Special::Update(update) => return Answer::Update(update),
                Special::Ordinary => {}
            }
        }
        let message = (buffer, len);
        complete(&mut self.responder, catalog, &prepared, extras, message, transport, || address)
            .map_or(Answer::None, Answer::Reply)
    }

    /// Has an update carried out; `reply` gets its answer, or is dropped.
    pub fn submit(&self, update: Box<UpdateRequest>, reply: LateReply) {
        submit(&self.published.load(), &self.counters, update, reply);
    }

    /// The messages of a transfer to `client`, one after the other, each when it is asked for: when the client can take it. The last one may say that
    /// the transfer cannot go on.
    pub fn messages(
        &self,
        mut transfer: Box<Transfer>,
        client: IpAddr,
    ) -> impl Iterator<Item = Result<Vec<u8>, TransferError>> + Send + use<> {
        let (published, mut compressor) = (Arc::clone(&self.published), Compressor::default());
        let (clock, mut has_failed) = (Clock::start(), false);
        std::iter::from_fn(move || {
            if transfer.is_done() || has_failed {
                return None;
            }
            let mut message = Vec::new();
            let out = (&mut compressor, &mut message);
            let published = published.load();
            let written = special::continue_transfer(&published, &mut transfer, out, client, clock.now());
            has_failed = written.is_err();
            Some(written.map(|()| message))
        })
    }

    /// Writes the next message of a transfer, which `client` can take at `now`.
    pub(crate) fn continue_transfer(
        &self,
        transfer: &mut Transfer,
        out: (&mut Compressor, &mut Vec<u8>),
        client: IpAddr,
        now: Instant,
    ) -> Result<(), TransferError> {
        special::continue_transfer(&self.published.load(), transfer, out, client, now)
    }

    fn pick_up(&mut self, published: &Published) {
        if !Arc::ptr_eq(&self.settings, &published.settings) {
            self.settings = Arc::clone(&published.settings);
            self.responder.set_settings(Arc::clone(&published.settings));
        }
        if self.log.as_ref().map(|log| Arc::as_ptr(log.log())) != published.log.as_ref().map(Arc::as_ptr) {
            self.log = published.log.as_ref().map(AnswerLog::writer);
        }
        match (&mut self.guard, &published.guard) {
            (None, None) => {}
            (Some(guard), Some(options)) => guard.adopt(options),
            (guard, options) => *guard = options.as_ref().map(Guard::new),
        }
    }
}

/// The name that counters have for a transport.
fn counted_as(transport: dns_log::Transport) -> Transport {
    match transport {
        dns_log::Transport::Udp => Transport::Udp,
        dns_log::Transport::Tcp => Transport::Tcp,
        dns_log::Transport::Tls => Transport::Tls,
        dns_log::Transport::Https => Transport::Https,
        dns_log::Transport::Quic => Transport::Quic,
    }
}

/// Writes the answer of `dns-auth` to the message in `buffer`, with more options if there are any; its length, if there is one.
#[inline(always)]
fn complete(
    responder: &mut Responder,
    catalog: &Catalog,
    prepared: &Prepared,
    mut extras: Extras,
    (buffer, len): (&mut [u8], usize),
    transport: Transport,
    client: impl Fn() -> IpAddr,
) -> Option<usize> {
    if extras::asks(prepared, |edns| edns.more.zone_version()) {
        extras.push_zone_version(catalog, prepared, &buffer[..len]);
    }
    if extras.octets().is_empty() {
        return length(responder.complete(catalog, prepared, buffer, transport, client));
    }
    let room = responder.room(prepared, transport).min(buffer.len());
    let without = room.saturating_sub(extras.octets().len()).max(len);
    let outcome = responder.complete(catalog, prepared, &mut buffer[..without], transport, client);
    Some(responder.add_options(&mut buffer[..room], length(outcome)?, extras.octets()))
}

/// Notes the answers to datagrams.
#[inline(never)]
fn note_batch(log: &mut Writer, batch: &[Datagram<'_>]) {
    let time_ns = log.now();
    for datagram in batch {
        let Some(len) = datagram.reply else { continue };
        log.note(&Entry {
            time_ns,
            took_ns: None,
            transport: dns_log::Transport::Udp,
            client: datagram.source(),
            server: Some(datagram.destination()),
            message: &datagram.buffer[..len],
        });
    }
}

fn submit(published: &Published, counters: &Arc<Counters>, update: Box<UpdateRequest>, reply: LateReply) {
    let counters = Arc::clone(counters);
    let reply = move |answer: Vec<u8>| {
        count_reply(&counters, &answer);
        reply(answer);
    };
    (published.transfers.on_update)(update, Box::new(reply));
}

pub(crate) fn length(outcome: Outcome) -> Option<usize> {
    match outcome {
        Outcome::Reply(len) => Some(len),
        Outcome::Drop(_) => None,
    }
}

impl UdpResponder for DnsResponder {
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: Instant) {
        let published = self.published.load();
        self.pick_up(&published);
        let catalog = &*published.catalog;
        self.responder.set_time(now);
        for (datagram, prepared) in batch.iter().zip(&mut *self.prepared) {
            self.responder.prepare(catalog, datagram.buffer, datagram.len, prepared);
        }
        for (datagram, prepared) in batch.iter().zip(&mut *self.prepared) {
            let client = || datagram.source().ip();
            self.responder.fetch(catalog, prepared, &datagram.buffer[..datagram.len], client);
        }
        let unix_secs = if self.guard.is_some() { (published.transfers.unix_time)() } else { 0 };
        for (prepared, datagram) in self.prepared.iter().zip(&mut *batch) {
            let mut extras = Extras::default();
            if let Some(guard) = &mut self.guard {
                let message = (prepared, &datagram.buffer[..datagram.len]);
                let asker = (datagram.source().ip(), Transport::Udp);
                match guard.judge(message, &published.transfers.policy, asker, now, unix_secs) {
                    Ok(cookie) => extras.push_cookie(cookie),
                    Err((unlike, cookie)) => {
                        let (responder, buffer) = (&mut self.responder, &mut *datagram.buffer);
                        datagram.reply = unlike.answer(cookie, responder, prepared, buffer, Transport::Udp);
                        continue;
                    }
                }
            }
            if prepared.is_special() {
                let (client, len) = (Client::plain(datagram.source().ip()), datagram.len);
                let special = (&**published, &mut self.responder, &*self.counters);
                match handle_special(special, datagram.buffer, len, client, Transport::Udp) {
                    Special::Ordinary => {}
                    Special::Answered(answer) => {
                        datagram.reply = if let Answer::Reply(len) = answer { Some(len) } else { None };
                        continue;
                    }
                    Special::Update(update) => {
                        datagram.reply = None;
                        let (late, path) = (Arc::clone(&self.late), datagram.return_path());
                        let reply = move |answer| late.push(path, answer);
                        submit(&published, &self.counters, update, Box::new(reply));
                        continue;
                    }
                }
            }
            let sender = datagram.sender();
            let client = || sender.address().ip();
            let message = (&mut *datagram.buffer, datagram.len);
            let responder = &mut self.responder;
            datagram.reply = complete(responder, catalog, prepared, extras, message, Transport::Udp, client);
        }
        if let Some(log) = &mut self.log {
            note_batch(log, batch);
        }
    }

    fn on_sample(&mut self, took: Duration) {
        self.counters.on_sample(Transport::Udp, took.as_nanos());
    }

    fn has_late_answers(&self) -> bool {
        !self.late.is_empty()
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        self.late.pop()
    }
}
