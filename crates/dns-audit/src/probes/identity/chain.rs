//! Forwarders and caches between clients and the authority, as far as they can be told apart: what answers is held against what asks, and copies
//! of one answer against each other.

use std::collections::BTreeSet;

use dns_wire::{Rcode, Rtype};

use super::fingerprint::{self, Fingerprint, Known};
use super::front::{self, Reactions};
use crate::checks::{Finding, IDENTITY_CHAIN, Verdict};
use crate::edns;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Reply, Transcript};

/// The second time that a name is asked for.
const AGAIN_MS: u64 = 2500;
const TTL_S: u32 = 30;
const LONG_TTL_S: u32 = 2 * 604_800;
/// One name is asked for so often, to see copies of different age side by side.
const COPIES: u64 = 8;
const PACE_MS: u64 = 200;
/// A client's part of a cookie.
const COOKIE: [u8; 8] = *b"sidestep";

pub(super) fn plan(planner: &mut Planner<'_>, start_ms: u64) {
    front::plan(planner, start_ms);
    for (group, ttl_s, qtype) in
        [("kept", TTL_S, Rtype::A), ("text", TTL_S, Rtype::TXT), ("long", LONG_TTL_S, Rtype::A)]
    {
        let spec = planner.spec(ttl_s);
        let question = Question::new(planner.name(&spec), qtype)
            .with_option(edns::COOKIE, COOKIE.to_vec())
            .with_option(edns::NSID, Vec::new());
        for after in [0, AGAIN_MS] {
            planner.ask_question(group, start_ms + after, question.clone());
        }
    }
    let spec = planner.spec(60);
    let name = planner.name(&spec);
    for number in 0..COPIES {
        planner.ask("copies", start_ms + 500 + PACE_MS * number, &name, Rtype::A);
    }
}

/// What can be said of the servers on the way.
struct Seen {
    reactions: Option<Reactions>,
    asks: Fingerprint,
    /// Who answers: the known servers that react so.
    front: Vec<&'static Known>,
    /// The authority is asked as a resolver is: with RD set.
    is_asked_as_resolver: bool,
    /// Who asks: those that are nearest.
    egress: Vec<&'static Known>,
    distance: usize,
}

/// `said` is what it says of itself, by name.
pub(super) fn judge(
    transcript: &Transcript<'_>,
    asks: Option<Fingerprint>,
    said: &[(String, String)],
) -> Finding {
    let Some(asks) = asks else { return IDENTITY_CHAIN.unknown("no question was logged") };
    let seen = Seen::of(transcript, asks);
    let (caches, signs) = caches(transcript, &seen);
    let count = match caches {
        0 => "no cache was seen".to_owned(),
        1 => "one cache was seen".to_owned(),
        more => format!("{more} caches were seen"),
    };
    let (verdict, words) = seen.words();
    // A cache more is worth knowing, whosever it is.
    let verdict = if caches > 1 { Verdict::Notice } else { verdict };
    let lines = [
        seen.reactions.map(|reactions| {
            format!("odd questions are answered as {} does: {reactions}", names(&seen.front))
        }),
        Some(format!("questions look as if {} asks: {}", names(&seen.egress), seen.asks)),
        seen.behind().map(|behind| {
            format!("odd questions that are passed on are answered as {} does", names(&behind))
        }),
    ];
    let addresses: BTreeSet<String> =
        transcript.log.iter().flatten().map(|entry| entry.source.ip().to_string()).collect();
    let said = said.iter().map(|(name, text)| format!("it says of itself: {name} {text}"));
    let asked = format!("asked: {}; asking the authority: {}", transcript.target.ip(), shown(&addresses));
    IDENTITY_CHAIN
        .finding(verdict, format!("{words}; {count}"))
        .because(lines.into_iter().flatten().chain([asked]).chain(said).chain(signs))
}

const SHOWN_MAX: usize = 5;

fn shown(addresses: &BTreeSet<String>) -> String {
    let first: Vec<&str> = addresses.iter().take(SHOWN_MAX).map(String::as_str).collect();
    match addresses.len().saturating_sub(SHOWN_MAX) {
        0 => first.join(" "),
        more => format!("{} and {more} more", first.join(" ")),
    }
}

fn names(known: &[&'static Known]) -> String {
    match known.is_empty() {
        true => "none of the known servers".to_owned(),
        false => known.iter().map(|known| known.name).collect::<Vec<_>>().join(" or "),
    }
}

impl Seen {
    fn of(transcript: &Transcript<'_>, asks: Fingerprint) -> Seen {
        let reactions = Reactions::of(transcript);
        let by =
            |known: &&Known| reactions.is_some_and(|own| own.is_by(&known.answers, known.asks.is_none()));
        let (egress, distance) = fingerprint::nearest(&asks);
        let entries = || transcript.log.iter().flatten();
        let is_asked_as_resolver = entries().filter(|entry| entry.rd).count() * 2 > entries().count();
        Seen {
            reactions,
            asks,
            front: fingerprint::KNOWN.iter().filter(by).collect(),
            is_asked_as_resolver,
            egress,
            distance,
        }
    }

    /// Who answers what a forwarder passes on, if it is another one than those that ask.
    fn behind(&self) -> Option<Vec<&'static Known>> {
        let reactions = self.reactions.filter(|_| self.is_forwarder())?;
        let all = fingerprint::KNOWN.iter().filter(|known| reactions.is_behind_by(&known.answers));
        Some(all.filter(|known| known.asks.is_some()).collect())
    }

    /// The front never asks an authority.
    fn is_forwarder(&self) -> bool {
        !self.front.is_empty() && self.front.iter().all(|known| known.asks.is_none())
    }

    /// How many more traits of what asks differ from the front than from the nearest server.
    fn excess(&self) -> Option<usize> {
        let own = self.front.iter().filter_map(|known| Some(known.asks.as_ref()?.distance(&self.asks))).min();
        own.map(|own| own.saturating_sub(self.distance))
    }

    fn is_asking(&self, known: &Known) -> bool {
        self.egress.iter().any(|own| own.name == known.name)
    }

    fn words(&self) -> (Verdict, String) {
        let egress = match self.distance {
            0..=2 => names(&self.egress),
            _ => "a server that is not in the table".to_owned(),
        };
        let front = names(&self.front);
        let behind = self.behind().filter(|behind| !behind.is_empty());
        let has_more =
            behind.as_ref().is_some_and(|behind| !behind.iter().any(|known| self.is_asking(known)));
        if self.is_asked_as_resolver {
            let front = if self.front.is_empty() { "an unknown server" } else { &front };
            let words =
                format!("a forwarder of {front}, which asks the authority as if that were a resolver");
            return (Verdict::Notice, words);
        }
        match self.excess() {
            _ if self.front.is_empty() => (
                Verdict::Unknown,
                format!("what answers is like none of the known servers; what asks is like {egress}"),
            ),
            None if has_more => (
                Verdict::Notice,
                format!(
                    "a forwarder of {front} in front of {}, in front of {egress}",
                    names(&behind.unwrap_or_default())
                ),
            ),
            None => (Verdict::Notice, format!("a forwarder of {front} in front of {egress}")),
            Some(0) => (Verdict::Good, format!("one server as far as can be seen: {front}")),
            Some(1) => (
                Verdict::Good,
                format!(
                    "one server of {front}, or a forwarder of it in front of {egress}: one trait differs"
                ),
            ),
            Some(_) => (Verdict::Notice, format!("a forwarder of {front} in front of {egress}")),
        }
    }
}

/// A copy of an answer.
struct Copy {
    made_ms: u64,
    ttl: u32,
    reply: Reply,
}

fn copy(exchange: &Exchange) -> Option<Copy> {
    let reply = exchange.reply().filter(|reply| reply.is(Rcode::NoError))?;
    let ttl = reply.record(exchange.step.question.qtype)?.ttl;
    let made_ms = match exchange.step.question.qtype {
        Rtype::TXT => {
            let text = reply.text()?;
            text.strip_prefix("at=")?.split("server=").next()?.parse().ok()?
        }
        _ => exchange.dated()?.made_ms,
    };
    Some(Copy { made_ms, ttl, reply })
}

/// Two copies of one answer in the order in which they came, the second from a cache.
fn kept(transcript: &Transcript<'_>, group: &str) -> Option<[Copy; 2]> {
    let mut exchanges: Vec<&Exchange> = transcript.group(group).collect();
    exchanges.sort_by_key(|exchange| exchange.came_ms()); // What was asked again may have come later.
    let mut copies = exchanges.into_iter().map(copy);
    let pair = [copies.next()??, copies.next()??];
    (pair[0].made_ms == pair[1].made_ms).then_some(pair)
}

/// How many caches were seen, and by which signs. One that counts TTLs as it should behind another one that does so, too, is not seen.
fn caches(transcript: &Transcript<'_>, seen: &Seen) -> (usize, Vec<String>) {
    let (address, text, long) =
        (kept(transcript, "kept"), kept(transcript, "text"), kept(transcript, "long"));
    let mut signs = Vec::new();
    let copies: Vec<u64> = transcript.group("copies").filter_map(copy).map(|copy| copy.made_ms).collect();
    let different: BTreeSet<u64> = copies.iter().copied().collect();
    if address.is_some() || text.is_some() || different.len() < copies.len() {
        signs.push("cache: a name that is asked for again brings the same answer".to_owned());
        let place = seen.front.iter().any(|known| !known.keeps_texts).then_some(text.is_some());
        signs.extend(place.map(|is_behind| match is_behind {
            true => format!("it is behind {}, which keeps no texts: this text was kept", names(&seen.front)),
            false => {
                format!("it is that of {}, which keeps no texts: this text was not kept", names(&seen.front))
            }
        }));
    }
    let is_one = !signs.is_empty();
    let mut behind = Vec::new();
    for [first, second] in [&address, &text, &long].into_iter().flatten() {
        if second.ttl > first.ttl {
            behind.push(format!("its TTL was {} s, and then {} s", first.ttl, second.ttl));
        }
        let (one, other) = (shape(&first.reply), shape(&second.reply));
        if one != other {
            behind.push(format!("it was written with {one}, and then with {other}"));
        }
    }
    behind.dedup();
    signs.extend(
        behind.iter().map(|sign| format!("another cache: the same answer came from two servers: {sign}")),
    );
    let capped = long.as_ref().and_then(|[_, second]| cap(seen, second.ttl));
    signs.extend(capped.clone());
    let side_by_side = if is_one { different.len().max(1) } else { 0 };
    if side_by_side > 1 {
        signs.push(format!("caches side by side: {side_by_side} copies of one answer that differ in age"));
    }
    (side_by_side + usize::from(is_one && (!behind.is_empty() || capped.is_some())), signs)
}

/// The longest TTL is not the one that the server that asks gives, but the one of the server in front.
fn cap(seen: &Seen, ttl: u32) -> Option<String> {
    let near = |known: &&&Known| known.cap_s.abs_diff(ttl) <= (AGAIN_MS / 1000) as u32 + 1;
    let front = seen.front.iter().find(near)?;
    let is_lower = seen.egress.iter().all(|known| known.cap_s > front.cap_s) && seen.excess()? > 1;
    is_lower.then(|| {
        format!(
            "another cache: a TTL of two weeks became {ttl} s, as with {}, not as with {}",
            front.name,
            names(&seen.egress)
        )
    })
}

/// What a server chooses when it writes an answer.
fn shape(reply: &Reply) -> String {
    let flag = |bit: u16, word: &str| if reply.flags & bit != 0 { format!("{word} ") } else { String::new() };
    let size = reply.payload.map_or_else(|| "no EDNS".to_owned(), |size| format!("EDNS {size}"));
    let codes: BTreeSet<u16> = reply.options.iter().map(|(code, _)| *code).collect();
    let codes: Vec<String> = codes.iter().map(u16::to_string).collect();
    let codes = if codes.is_empty() { String::new() } else { format!(", options {}", codes.join(" ")) };
    format!("{}{}{size}{codes}", flag(0x0400, "AA"), flag(0x0020, "AD"))
}
