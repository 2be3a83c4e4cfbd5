//! The authority's clock and its log, read by DNS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, ensure};
use dns_audit::authority::{Condition, Entry, Nonce, Spec, Via};
use dns_audit::plan::{Question, REPEAT_MS, Step};
use dns_audit::transcript::Reply;
use dns_client::{Asker, Server, Transport};
use dns_message::Record;
use dns_wire::header::flag;
use dns_wire::{Name, NameBuf, Rcode, Rtype};
use rustix::rand::{GetRandomFlags, getrandom};

use super::pace::Turns;

/// How long the authority may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pages of one run's log; each has a hundred entries or more.
const PAGES_MAX: usize = 100;
/// The clock is asked for so often; the fastest answer counts.
const READINGS: usize = 4;

/// So often the authority is asked for a sign of life until it counts as absent: lost datagrams are no absence.
const LIFE_TRIES: u32 = 5;

/// Milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Octets that nobody can guess.
pub(super) fn random<const LEN: usize>() -> anyhow::Result<[u8; LEN]> {
    let mut octets = [0; LEN];
    getrandom(&mut octets, GetRandomFlags::empty()).context("random numbers")?;
    Ok(octets)
}

/// A nonce that nobody can guess.
pub(super) fn nonce() -> anyhow::Result<Nonce> {
    random().map(|octets| Nonce(u64::from_be_bytes(octets)))
}

/// By how much the authority's clock is ahead of ours, in milliseconds, as `server` says: itself, or a resolver that asks it.
pub(super) async fn offset_ms(
    asker: &Asker,
    server: SocketAddr,
    zone: Name<'_>,
    turns: &Turns<'_>,
) -> anyhow::Result<i64> {
    let run = nonce()?;
    let mut best: Option<(u64, i64)> = None;
    for number in 0..READINGS {
        turns.wait().await;
        let before = unix_ms();
        let spec = Spec::new(run, number as u32, before, 0);
        let Ok(reply) = ask(asker, server, Transport::Udp, below(zone, &spec.to_string())?, PATIENCE).await
        else {
            continue;
        };
        let took = unix_ms().saturating_sub(before);
        let text = reply.text().unwrap_or_default();
        let at = text.strip_prefix("at=").and_then(|rest| rest.split("server=").next()?.parse::<u64>().ok());
        let Some(at) = at else { continue };
        // What a resolver says may be anything.
        let Ok(offset) = i64::try_from(i128::from(at) - i128::from(before + took / 2)) else { continue };
        if best.is_none_or(|(fastest, _)| took < fastest) {
            best = Some((took, offset));
        }
    }
    best.map(|(_, offset)| offset)
        .with_context(|| format!("{server} gives no answer for names of the audit zone {zone}"))
}

/// How the zone's servers differ from each other, as they say; in their order.
pub(super) async fn conditions(
    asker: &Asker,
    server: SocketAddr,
    zone: Name<'_>,
    turns: &Turns<'_>,
) -> anyhow::Result<Vec<Condition>> {
    turns.wait().await;
    let reply = ask(asker, server, Transport::Tcp, below(zone, "servers")?, PATIENCE).await?;
    ensure!(
        is_authority(&reply),
        "authority: {server} is none of the servers of {zone}: it answers without authority (AA), as resolvers do"
    );
    let read = |record: &Record| -> Option<(usize, Condition)> {
        let text = String::from_utf8(joined(&record.rdata)).ok()?;
        let (number, condition) = text.split_once(',')?;
        Some((number.parse().ok()?, condition.parse().ok()?))
    };
    let numbered: BTreeMap<usize, Condition> = reply.answers.iter().filter_map(read).collect();
    Ok(numbered.into_values().collect())
}

/// The question whether the authority is there.
pub(super) fn sign_of_life(zone: Name<'_>) -> anyhow::Result<Step> {
    Ok(Step {
        at_ms: 0,
        group: String::new(),
        via: Via::Udp,
        question: below(zone, "servers")?,
        tries: LIFE_TRIES,
        patience_ms: u64::from(LIFE_TRIES) * REPEAT_MS,
        is_verified: true,
    })
}

/// Whether an answer to that question is a sign of life: others that listen there know nothing of the zone, and caches have no authority over it (AA). Where it
/// is asked too much it cuts.
pub(super) fn is_alive(answer: &[u8]) -> bool {
    let is_own = |reply: &Reply| reply.is_truncated() || reply.record(Rtype::TXT).is_some();
    Reply::read(answer).is_ok_and(|reply| reply.is(Rcode::NoError) && is_authority(&reply) && is_own(&reply))
}

/// Whether the zone's own server has answered: a resolver that asks it does not set AA (RFC 1035, 4.1.1).
fn is_authority(reply: &Reply) -> bool {
    reply.flags & flag::AA != 0
}

/// What the authority logged of a run.
pub(super) async fn log(
    asker: &Asker,
    server: SocketAddr,
    zone: Name<'_>,
    nonce: Nonce,
    turns: &Turns<'_>,
) -> anyhow::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..PAGES_MAX {
        let label = format!("log-{nonce}-{}", entries.len());
        turns.wait().await;
        let reply = ask(asker, server, Transport::Tcp, below(zone, &label)?, PATIENCE).await?;
        let strings =
            reply.answers.iter().map(|record| joined(&record.rdata)).filter(|text| !text.is_empty());
        let page: Vec<Entry> = strings.filter_map(|text| serde_json::from_slice(&text).ok()).collect();
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    Ok(entries)
}

/// The strings of a TXT record put together.
fn joined(mut rdata: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some((len, rest)) = rdata.split_first() {
        let (own, tail) = rest.split_at(usize::from(*len).min(rest.len()));
        whole.extend(own);
        rdata = tail;
    }
    whole
}

/// For the texts of a name of the zone.
fn below(zone: Name<'_>, label: &str) -> anyhow::Result<Question> {
    let mut name = NameBuf::from(zone);
    name.prepend(label.as_bytes()).map_err(|error| anyhow!("{label}.{zone}: {error}"))?;
    Ok(Question::new(name, Rtype::TXT))
}

async fn ask(
    asker: &Asker,
    server: SocketAddr,
    transport: Transport,
    question: Question,
    patience: Duration,
) -> anyhow::Result<Reply> {
    let message = question.message(u16::from_be_bytes(random()?));
    let server = Server { address: server, name: None, path: String::new() };
    let answer = tokio::time::timeout(patience, asker.ask(&server, transport, &message)).await;
    let answer = answer.with_context(|| format!("{} gives no answer", server.address))??;
    Reply::read(&answer).map_err(|error| anyhow!("{}: {error}", server.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_nothing_of_the_zone_is_no_sign_of_the_authority() {
        let zone = NameBuf::from_text(b"probe.example.", None).unwrap();
        let mut message = sign_of_life(zone.as_name()).unwrap().question.message(7);
        message[2] |= ((flag::QR | flag::AA) >> 8) as u8;
        assert!(!is_alive(&message), "no record");
        message[2] |= (flag::TC >> 8) as u8;
        assert!(is_alive(&message), "cut");
        message[2] &= !((flag::AA >> 8) as u8);
        assert!(!is_alive(&message), "a cache");
        message[2] |= (flag::AA >> 8) as u8;
        for rcode in [Rcode::Refused, Rcode::ServFail, Rcode::NxDomain] {
            message[3] = rcode as u8;
            assert!(!is_alive(&message), "{rcode:?}");
        }
        assert!(!is_alive(&message[..20]));
    }
}
