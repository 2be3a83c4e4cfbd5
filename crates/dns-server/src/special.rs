//! Transfers, notices and signed queries, beside the way of all other queries.

use std::net::IpAddr;

use clock::Instant;
use dns_auth::{Counters, Outcome, Responder, Transport};
use dns_message::{Compressor, Message, NOTIFY, UPDATE};
use dns_transfer::tsig::Signer;
use dns_transfer::{Client, Handled, Notice, Policy, Transfer, TransferError, UpdateRequest, handle};
use dns_wire::header::flag;
use dns_wire::{NameBuf, Query, Rcode, ReceivedRcode, Rtype};

use crate::late::LateReply;
use crate::{Answer, Published};

/// Hears of a request, and by which policy it was answered.
pub type OnSpecial = Box<dyn Fn(&Policy, &SpecialRequest) + Send + Sync>;

/// Who may transfer zones, what time it is, and who wants to hear of notices.
pub struct TransferService {
    /// Who may do what.
    pub policy: Policy,
    /// Seconds since 1970: signatures have the time in them.
    pub unix_time: fn() -> u64,
    /// Hears what became of transfers, notices and updates that are refused: for a log. It must not wait.
    pub on_special: OnSpecial,
    /// Gets each NOTIFY of a primary. It must not wait.
    pub on_notify: Box<dyn Fn(Notice) + Send + Sync>,
    /// Gets each update that is to be carried out, and the way back for its answer. It must not wait.
    pub on_update: Box<dyn Fn(Box<UpdateRequest>, LateReply) + Send + Sync>,
}

impl Default for TransferService {
    /// Nobody may transfer anything, and no zone is secondary.
    fn default() -> TransferService {
        TransferService {
            policy: Policy::default(),
            unix_time: || 0,
            on_special: Box::new(|_, _| {}),
            on_notify: Box::new(|_| {}),
            on_update: Box::new(|_, _| {}),
        }
    }
}

/// What somebody wanted besides an answer, and what became of it.
#[derive(Clone, Debug)]
pub struct SpecialRequest {
    /// The zone that it names.
    pub zone: NameBuf,
    /// Who asks.
    pub client: IpAddr,
    /// What for.
    pub wanted: Wanted,
    /// The code of the answer: what begins or is taken has NOERROR.
    pub rcode: ReceivedRcode,
}

/// A kind of request that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// AXFR or IXFR, with one message or many.
    Transfer,
    /// To tell of a change (NOTIFY).
    Notice,
    /// To change a zone (UPDATE).
    Update,
    /// To take a transfer that had begun more slowly than is allowed: it is ended.
    SlowTransfer,
}

impl SpecialRequest {
    /// What a request wanted that got this code; `None` if that was only an answer.
    fn of(request: &[u8], client: IpAddr, rcode: u16) -> Option<SpecialRequest> {
        let message = Message::parse(request).ok()?;
        let question = message.question()?;
        let wanted = match (message.flags() & flag::OPCODE, question.qtype) {
            (NOTIFY, _) => Wanted::Notice,
            (UPDATE, _) => Wanted::Update,
            (0, Rtype::AXFR | Rtype::IXFR) => Wanted::Transfer,
            _ => return None,
        };
        Some(SpecialRequest { zone: question.name.clone(), client, wanted, rcode: ReceivedRcode(rcode) })
    }
}

/// What became of a message that seemed special.
pub(crate) enum Special {
    /// It is answered so.
    Answered(Answer),
    /// It is answered once this is carried out.
    Update(Box<UpdateRequest>),
    /// It is to be answered like others.
    Ordinary,
}

/// Handles the message of `len` octets in `buffer`; a reply takes its place there.
#[cold]
pub(crate) fn handle_special(
    (published, responder, counters): (&Published, &mut Responder, &Counters),
    buffer: &mut [u8],
    len: usize,
    client: Client,
    transport: Transport,
) -> Special {
    let service = &*published.transfers;
    let now = (service.unix_time)();
    let handled = handle(&service.policy, &published.catalog, &buffer[..len], client, transport, now);
    if !matches!(handled, Handled::Ordinary | Handled::Query(..)) {
        counters.on_query(transport);
        if let Ok(query) = Query::parse(&buffer[..len]) {
            counters.on_type(query.qtype);
        }
    }
    let rcode = match &handled {
        Handled::Transfer(_) => Some(0),
        Handled::Reply(reply) | Handled::Notified(_, reply) => Some(u16::from(reply[3] & 0xf)),
        Handled::Ordinary | Handled::Query(..) | Handled::Update(_) => None,
    };
    if let Some(special) = rcode.and_then(|rcode| SpecialRequest::of(&buffer[..len], client.address, rcode)) {
        (service.on_special)(&service.policy, &special);
    }
    let reply = match handled {
        Handled::Ordinary => return Special::Ordinary,
        Handled::Transfer(transfer) => {
            counters.on_response(Rcode::NoError);
            return Special::Answered(Answer::Transfer(transfer));
        }
        Handled::Query(query, signer) => {
            answer_signed(published, responder, &query, *signer, (transport, client.address), now)
        }
        Handled::Update(update) => return Special::Update(update),
        Handled::Notified(notice, reply) => {
            (service.on_notify)(*notice);
            count_reply(counters, &reply);
            Some(reply)
        }
        Handled::Reply(reply) => {
            count_reply(counters, &reply);
            Some(reply)
        }
    };
    let Some(reply) = reply.filter(|reply| reply.len() <= buffer.len()) else {
        return Special::Answered(Answer::None);
    };
    buffer[..reply.len()].copy_from_slice(&reply);
    Special::Answered(Answer::Reply(reply.len()))
}

/// Writes the next message of a transfer, which `client` can take at `now`. That a transfer ends early is said where requests are.
pub(crate) fn continue_transfer(
    published: &Published,
    transfer: &mut Transfer,
    (compressor, message): (&mut Compressor, &mut Vec<u8>),
    client: IpAddr,
    now: Instant,
) -> Result<(), TransferError> {
    let service = &*published.transfers;
    let written = transfer.write_next(compressor, message, (now, (service.unix_time)()));
    if written == Err(TransferError::TooSlow) {
        let (zone, wanted) = (NameBuf::from(transfer.origin()), Wanted::SlowTransfer);
        let rcode = ReceivedRcode(Rcode::NoError as u16);
        (service.on_special)(&service.policy, &SpecialRequest { zone, client, wanted, rcode });
    }
    written
}

pub(crate) fn count_reply(counters: &Counters, reply: &[u8]) {
    let rcode = Rcode::ALL.into_iter().find(|rcode| *rcode as u8 == reply[3] & 0xf);
    rcode.into_iter().for_each(|rcode| counters.on_response(rcode));
}

/// Answers a query whose signature was right, and signs the answer, which leaves room for that.
fn answer_signed(
    published: &Published,
    responder: &mut Responder,
    query: &[u8],
    mut signer: Signer,
    (transport, client): (Transport, IpAddr),
    now: u64,
) -> Option<Vec<u8>> {
    let limit = match transport {
        Transport::Udp => {
            let size = Query::parse(query).ok()?.edns.map_or(512, |edns| edns.payload_size);
            usize::from(size.clamp(512, published.settings.udp_payload_max.max(512)))
        }
        _ => 65_535,
    };
    let mut buffer = vec![0; limit.saturating_sub(signer.record_len()).max(query.len())];
    buffer[..query.len()].copy_from_slice(query);
    match responder.respond(&published.catalog, &mut buffer, query.len(), transport, client) {
        Outcome::Reply(len) => buffer.truncate(len),
        Outcome::Drop(_) => return None,
    }
    signer.sign(&mut buffer, now);
    Some(buffer)
}
