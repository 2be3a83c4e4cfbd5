//! Sizes over UDP, cookies, openness, and answers over TCP, TLS, HTTPS and QUIC.

use dns_wire::{Rcode, Rtype};

use super::super::presence::needed;
use crate::authority::Via;
use crate::checks::{
    Finding, INTEGRITY_COOKIES, INTEGRITY_ENCRYPTED, INTEGRITY_OPEN, INTEGRITY_SIZE, INTEGRITY_TCP, Verdict,
};
use crate::edns;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Outcome, Transcript};

/// Octets of a long answer.
const LONG: u16 = 4000;
/// The largest answer that is not fragmented on its way (RFC 9715, 3.2).
const SAFE_MAX: usize = 1400;
/// Announced by a client without EDNS, and by one that takes all.
const SIZES: [(&str, u16); 2] = [("size.512", 512), ("size.4096", 4096)];
/// A client's part of a cookie.
const COOKIE: [u8; 8] = *b"sidestep";
const ENCRYPTED: [Via; 3] = [Via::Tls, Via::Https, Via::Quic];

pub(super) fn plan(planner: &mut Planner<'_>) {
    let mut spec = planner.spec(60);
    spec.size = LONG;
    let long = planner.name(&spec);
    for (number, (group, payload)) in SIZES.into_iter().enumerate() {
        let mut question = Question::new(long.clone(), Rtype::TXT);
        if let Some(edns) = &mut question.edns {
            edns.payload = payload;
        }
        planner.ask_question(group, 4000 + 500 * number as u64, question);
    }
    planner.ask("size.tcp", 4900, &long, Rtype::TXT).via = Via::Tcp;
    let spec = planner.spec(60);
    let name = planner.name(&spec);
    let question = Question::new(name.clone(), Rtype::A);
    // Long before the others, which find out how this name is carried, and not whether it can be resolved.
    planner.ask_question("cookie", 650, question.clone().with_option(edns::COOKIE, COOKIE.to_vec()));
    planner.ask_question("tcp", 5100, question.clone()).via = Via::Tcp;
    if planner.options.encrypted {
        for (number, via) in ENCRYPTED.into_iter().enumerate() {
            for is_verified in [true, false] {
                let step = planner.ask_question(word(via), 5200 + 50 * number as u64, question.clone());
                (step.via, step.is_verified) = (via, is_verified);
            }
        }
    }
}

fn word(via: Via) -> &'static str {
    match via {
        Via::Udp => "UDP",
        Via::Tcp => "TCP",
        Via::Tls => "TLS",
        Via::Https => "HTTPS",
        Via::Quic => "QUIC",
    }
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        transcript.options.is_outside.then(|| open(transcript)).into_iter().collect();
    findings.extend([needed(size(transcript), transcript, &["size"]), cookies(transcript), tcp(transcript)]);
    findings.extend(transcript.options.encrypted.then(|| encrypted(transcript)));
    findings
}

/// This host is a stranger to the resolver.
fn open(transcript: &Transcript<'_>) -> Finding {
    let answered = transcript.group("queries").filter(|exchange| exchange.dated().is_some()).count();
    match answered {
        0 => INTEGRITY_OPEN.finding(Verdict::Good, "it resolves nothing for this host"),
        count => INTEGRITY_OPEN.finding(
            Verdict::Bad,
            format!("it resolved {count} names for this host, which is not among its clients"),
        ),
    }
}

fn size(transcript: &Transcript<'_>) -> Finding {
    let seen: Vec<(u16, usize)> = SIZES
        .iter()
        .filter_map(|(group, payload)| Some((*payload, transcript.one(group)?.reply()?.len)))
        .collect();
    let whole = transcript.one("size.tcp").and_then(Exchange::reply);
    let is_cut = whole.as_ref().is_some_and(|reply| reply.len < usize::from(LONG));
    let lines = seen.iter().map(|(payload, len)| format!("a client that takes {payload} octets got {len}"));
    let lines = lines.chain(whole.iter().map(|reply| format!("a client over TCP got {}", reply.len)));
    let finding = match seen.iter().map(|(_, len)| *len).max() {
        None => INTEGRITY_SIZE.unknown("no answer came"),
        Some(_) if seen.iter().any(|(payload, len)| *len > usize::from(*payload)) => {
            INTEGRITY_SIZE.finding(Verdict::Bad, "answers are longer than their client takes")
        }
        Some(_) if is_cut => INTEGRITY_SIZE
            .finding(Verdict::Bad, format!("a long answer of {LONG} octets is cut over TCP, too")),
        Some(len) if len > SAFE_MAX => INTEGRITY_SIZE.finding(
            Verdict::Notice,
            format!("answers of {len} octets over UDP: they are fragmented, and amplify"),
        ),
        Some(_) if whole.is_none() => {
            INTEGRITY_SIZE.finding(Verdict::Notice, "long answers over UDP are cut, and TCP brings none")
        }
        Some(_) => INTEGRITY_SIZE.finding(Verdict::Good, "long answers over UDP are cut, and whole over TCP"),
    };
    finding.because(lines)
}

fn cookies(transcript: &Transcript<'_>) -> Finding {
    let Some(reply) = transcript.one("cookie").and_then(Exchange::reply) else {
        return INTEGRITY_COOKIES.unknown("no answer came");
    };
    match reply.option(edns::COOKIE) {
        Some(data) if data.len() > COOKIE.len() => INTEGRITY_COOKIES.finding(Verdict::Good, "it has cookies"),
        _ => INTEGRITY_COOKIES.finding(Verdict::Notice, "it has no cookies"),
    }
}

fn is_answer(exchange: &Exchange) -> bool {
    exchange.reply().is_some_and(|reply| reply.is(Rcode::NoError) && !reply.answers.is_empty())
}

fn tcp(transcript: &Transcript<'_>) -> Finding {
    match transcript.one("tcp") {
        None => INTEGRITY_TCP.unknown("not asked"),
        Some(exchange) if is_answer(exchange) => INTEGRITY_TCP.finding(Verdict::Good, "it answers over TCP"),
        Some(exchange) if matches!(exchange.outcome, Outcome::Answer(_)) => {
            INTEGRITY_TCP.unknown(exchange.said())
        }
        Some(exchange) if is_known(transcript, exchange) => {
            let summary = format!("over UDP it answers the same question; over TCP: {}", exchange.said());
            INTEGRITY_TCP.finding(Verdict::Bad, summary)
        }
        Some(exchange) => {
            INTEGRITY_TCP.unknown(format!("no answer came over UDP before; over TCP: {}", exchange.said()))
        }
    }
}

/// Whether the answer had come over UDP before this question was asked: then the resolver has it, and needs no authority.
fn is_known(transcript: &Transcript<'_>, later: &Exchange) -> bool {
    transcript.one("cookie").is_some_and(|first| is_answer(first) && first.came_ms() <= later.sent_ms)
}

fn encrypted(transcript: &Transcript<'_>) -> Finding {
    let state = |via: Via| {
        let answers = |is_verified| {
            transcript
                .group(word(via))
                .any(|exchange| exchange.step.is_verified == is_verified && is_answer(exchange))
        };
        (answers(true), answers(false))
    };
    let states = ENCRYPTED.map(|via| (via, state(via)));
    let lines = states.iter().map(|(via, state)| {
        let words = match state {
            (true, _) => "answers, with a good certificate",
            (false, true) => "answers, with a certificate that is not good for its address",
            (false, false) => "no answer",
        };
        format!("{}: {words}", word(*via))
    });
    let good = states.iter().filter(|(_, (is_good, _))| *is_good).count();
    let any = states.iter().filter(|(_, (_, any))| *any).count();
    let is_known = transcript.one(word(Via::Tls)).is_some_and(|first| is_known(transcript, first));
    let finding = match (good, any) {
        (0, 0) if !is_known => INTEGRITY_ENCRYPTED.unknown("no answer came over UDP before, either"),
        (0, 0) => INTEGRITY_ENCRYPTED.finding(Verdict::Notice, "it answers over none of them"),
        (0, any) => INTEGRITY_ENCRYPTED.finding(
            Verdict::Notice,
            format!("{any} of three answer, and no certificate is good for this address"),
        ),
        (good, _) => INTEGRITY_ENCRYPTED
            .finding(Verdict::Good, format!("{good} of three answer with a good certificate")),
    };
    finding.because(lines)
}
