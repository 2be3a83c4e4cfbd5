//! Passes the engine's batches to `dns-auth` and back.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use clock::Instant;
use device::BURST;
use dns_auth::{Catalog, Counters, Outcome, Prepared, Responder, Settings, Transport};
use dns_guard::COOKIE;
use dns_message::Compressor;
use dns_transfer::{Client, TooLong, Transfer, UpdateRequest};
use dns_wire::Rcode;
use engine::{Datagram, ReturnPath, UdpResponder};

use crate::guard::{Guard, GuardOptions, Judgement};
use crate::late::{LateAnswers, LateReply};
use crate::special::{Special, TransferService, count_reply, handle_special};

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

/// Answers DNS queries that came by UDP.
pub struct DnsResponder {
    responder: Responder,
    published: Arc<ArcSwap<Published>>,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    guard: Option<Guard>,
    prepared: Box<[Prepared; BURST]>,
    late: Arc<LateAnswers>,
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
            prepared: Box::new([Prepared::default(); BURST]),
            late: Arc::default(),
        }
    }

    /// Answers one query of `len` octets in `buffer`, which `client` sent by TCP, or by TLS, HTTPS or QUIC.
    pub fn respond_one(&mut self, buffer: &mut [u8], len: usize, client: Client) -> Answer {
        let published = self.published.load();
        self.pick_up(&published);
        let mut prepared = Prepared::default();
        self.responder.prepare(&published.catalog, buffer, len, &mut prepared);
        self.responder.fetch(&published.catalog, &mut prepared, &buffer[..len], || client.address);
        if let Some(guard) = &mut self.guard {
            let unix_secs = (published.transfers.unix_time)();
            let message = (&prepared, &buffer[..len]);
            // Over TCP nothing is limited, so the time of the limits does not matter.
            match guard.judge(message, client.address, Transport::Tcp, Instant::ZERO, unix_secs) {
                Judgement::Answer => {}
                judgement => {
                    let catalog = &published.catalog;
                    let message = (buffer, len);
                    let reply = answer_judged(
                        &mut self.responder,
                        catalog,
                        &prepared,
                        judgement,
                        message,
                        (Transport::Tcp, client.address),
                    );
                    return reply.map_or(Answer::None, Answer::Reply);
                }
            }
        }
        if prepared.is_special() {
            match self.respond_specially(&published, buffer, len, client, Transport::Tcp) {
                Special::Answered(answer) => return answer,
                Special::Update(update) => return Answer::Update(update),
                Special::Ordinary => {}
            }
        }
        match self
            .responder
            .complete(&published.catalog, &prepared, buffer, Transport::Tcp, || client.address)
        {
            Outcome::Reply(len) => Answer::Reply(len),
            Outcome::Drop(_) => Answer::None,
        }
    }

    /// Has an update carried out; `reply` gets its answer, or is dropped.
    pub fn submit(&self, update: Box<UpdateRequest>, reply: LateReply) {
        let counters = Arc::clone(&self.counters);
        let reply = move |answer: Vec<u8>| {
            count_reply(&counters, &answer);
            reply(answer);
        };
        (self.published.load().transfers.on_update)(update, Box::new(reply));
    }

    /// The messages of a transfer, one after the other, each when it is asked for. The last one may say that a record is too long.
    pub fn messages(
        &self,
        mut transfer: Box<Transfer>,
    ) -> impl Iterator<Item = Result<Vec<u8>, TooLong>> + Send + use<> {
        let (published, mut compressor) = (Arc::clone(&self.published), Compressor::default());
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if transfer.is_done() || has_failed {
                return None;
            }
            let (mut message, now) = (Vec::new(), (published.load().transfers.unix_time)());
            let written = transfer.write_next(&mut compressor, &mut message, now);
            has_failed = written.is_err();
            Some(written.map(|()| message))
        })
    }

    /// The time for signatures, in seconds since 1970.
    pub(crate) fn unix_time(&self) -> u64 {
        (self.published.load().transfers.unix_time)()
    }

    fn pick_up(&mut self, published: &Published) {
        if !Arc::ptr_eq(&self.settings, &published.settings) {
            self.settings = Arc::clone(&published.settings);
            self.responder.set_settings(Arc::clone(&published.settings));
        }
        match (&mut self.guard, &published.guard) {
            (None, None) => {}
            (Some(guard), Some(options)) => guard.adopt(options),
            (guard, options) => *guard = options.as_ref().map(Guard::new),
        }
    }

    #[cold]
    fn respond_specially(
        &mut self,
        published: &Published,
        buffer: &mut [u8],
        len: usize,
        client: Client,
        transport: Transport,
    ) -> Special {
        handle_special(published, &mut self.responder, &self.counters, buffer, len, client, transport)
    }
}

/// Octets of a COOKIE option in an answer.
const COOKIE_LEN: usize = 4 + 24;

/// Answers a query that was judged to be unlike others; the answer's length, if there is one.
#[inline(never)]
fn answer_judged(
    responder: &mut Responder,
    catalog: &Catalog,
    prepared: &Prepared,
    judgement: Judgement,
    (buffer, len): (&mut [u8], usize),
    (transport, client): (Transport, IpAddr),
) -> Option<usize> {
    let rcode = match judgement {
        Judgement::Answer | Judgement::AnswerWith(_) | Judgement::Truncate => Rcode::NoError,
        Judgement::Malformed => Rcode::FormErr,
        Judgement::Refuse => Rcode::Refused,
        Judgement::Drop => {
            responder.drop_for_rate(transport);
            return None;
        }
    };
    let Judgement::AnswerWith(cookie) = judgement else {
        let nothing = (rcode, judgement == Judgement::Truncate);
        return length(responder.answer_nothing(prepared, nothing, buffer, transport));
    };
    let room = responder.room(prepared, transport).min(buffer.len());
    let without_cookie = room.saturating_sub(COOKIE_LEN).max(len);
    let shorter = &mut buffer[..without_cookie];
    let outcome = responder.complete(catalog, prepared, shorter, transport, || client);
    Some(responder.add_option(&mut buffer[..room], length(outcome)?, COOKIE, &cookie))
}

fn length(outcome: Outcome) -> Option<usize> {
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
        for (datagram, prepared) in batch.iter().zip(&mut *self.prepared) {
            self.responder.prepare(catalog, datagram.buffer, datagram.len, prepared);
        }
        for (datagram, prepared) in batch.iter().zip(&mut *self.prepared) {
            let client = || datagram.source().ip();
            self.responder.fetch(catalog, prepared, &datagram.buffer[..datagram.len], client);
        }
        let unix_secs = if self.guard.is_some() { (published.transfers.unix_time)() } else { 0 };
        for (number, datagram) in batch.iter_mut().enumerate() {
            if let Some(guard) = &mut self.guard {
                let message = (&self.prepared[number], &datagram.buffer[..datagram.len]);
                let client = datagram.source().ip();
                let judgement = guard.judge(message, client, Transport::Udp, now, unix_secs);
                if judgement != Judgement::Answer {
                    let (prepared, message) = (&self.prepared[number], (&mut *datagram.buffer, datagram.len));
                    let responder = &mut self.responder;
                    let from = (Transport::Udp, client);
                    datagram.reply = answer_judged(responder, catalog, prepared, judgement, message, from);
                    continue;
                }
            }
            let prepared = &self.prepared[number];
            if prepared.is_special() {
                let (client, len) = (Client::plain(datagram.source().ip()), datagram.len);
                let outcome =
                    self.respond_specially(&published, datagram.buffer, len, client, Transport::Udp);
                match outcome {
                    Special::Ordinary => {}
                    Special::Answered(answer) => {
                        datagram.reply = if let Answer::Reply(len) = answer { Some(len) } else { None };
                        continue;
                    }
                    Special::Update(update) => {
                        datagram.reply = None;
                        let (late, path) = (Arc::clone(&self.late), datagram.return_path());
                        self.submit(update, Box::new(move |answer| late.push(path, answer)));
                        continue;
                    }
                }
            }
            let prepared = &self.prepared[number];
            let sender = datagram.sender();
            let client = || sender.address().ip();
            let outcome = self.responder.complete(catalog, prepared, datagram.buffer, Transport::Udp, client);
            datagram.reply = match outcome {
                Outcome::Reply(len) => Some(len),
                Outcome::Drop(_) => None,
            };
        }
    }

    fn has_late_answers(&self) -> bool {
        !self.late.is_empty()
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        self.late.pop()
    }
}
