//! Sizes over UDP, cookies, openness, and answers over TCP, TLS, HTTPS and QUIC.

use dns_wire::{Rcode, Rtype};

use super::super::presence::needed;
use crate::authority::Via;
use crate::checks::{
    Finding, INTEGRITY_COOKIES, INTEGRITY_ENCRYPTED, INTEGRITY_OPEN, INTEGRITY_SIZE, INTEGRITY_TCP, Verdict,
};
use crate::edns;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Outcome, Reply, Transcript};

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
    let seen: Vec<(u16, Reply)> = SIZES
        .iter()
        .filter_map(|(group, payload)| Some((*payload, transcript.one(group)?.reply()?)))
        .collect();
    let whole = transcript.one("size.tcp").and_then(Exchange::reply);
    let lines = seen
        .iter()
        .map(|(payload, reply)| format!("a client that takes {payload} octets got {}", got(reply)));
    let lines = lines.chain(whole.iter().map(|reply| format!("a client over TCP got {}", got(reply))));
    let (verdict, summary) = judged_size(&seen, whole.as_ref());
    INTEGRITY_SIZE.finding(verdict, summary).because(lines)
}

/// An answer in few words.
fn got(reply: &Reply) -> String {
    let cut = if reply.is_truncated() { ", cut" } else { "" };
    format!("{} octets ({}{cut})", reply.len, reply.rcode_name())
}

/// The answers over UDP, each with what its client takes, and the one over TCP.
fn judged_size(seen: &[(u16, Reply)], whole: Option<&Reply>) -> (Verdict, String) {
    let is_short = |reply: &Reply| reply.len < usize::from(LONG);
    // It holds less than there is, and does not say that it is cut.
    let is_silent = |reply: &Reply| is_short(reply) && !reply.is_truncated();
    let Some(longest) = seen.iter().map(|(_, reply)| reply.len).max() else {
        return (Verdict::Unknown, "no answer came".to_owned());
    };
    if seen.iter().any(|(payload, reply)| reply.len > usize::from(*payload)) {
        return (Verdict::Bad, "answers are longer than their client takes".to_owned());
    }
    if let Some((_, reply)) = seen.iter().find(|(_, reply)| is_silent(reply)) {
        return if reply.is(Rcode::NoError) {
            (
                Verdict::Bad,
                "over UDP a long answer is cut, and does not say so (TC): nobody asks over TCP".to_owned(),
            )
        } else {
            (Verdict::Unknown, format!("a long answer does not come over UDP: {}", reply.rcode_name()))
        };
    }
    let is_data =
        |reply: &Reply| reply.is(Rcode::NoError) && (reply.is_truncated() || !reply.answers.is_empty());
    match whole {
        Some(reply) if !is_data(reply) => {
            (Verdict::Unknown, format!("a long answer does not come over TCP: {}", got(reply)))
        }
        Some(reply) if is_short(reply) => {
            (Verdict::Bad, format!("a long answer of {LONG} octets is cut over TCP, too"))
        }
        _ if longest > SAFE_MAX => (
            Verdict::Notice,
            format!("answers of {longest} octets over UDP: they are fragmented, and amplify"),
        ),
        None => (Verdict::Notice, "long answers over UDP are cut, and TCP brings none".to_owned()),
        Some(_) => (Verdict::Good, "long answers over UDP are cut, and whole over TCP".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use dns_message::{add_to_count, push_record, question_message};
    use dns_wire::header::flag;
    use dns_wire::{Class, Name};

    use super::*;

    /// An answer with these flags and RCODE, and data of so many octets.
    fn reply(flags: u16, data: usize) -> Reply {
        let mut message = question_message(7, flag::QR | flags, Name::ROOT, Rtype::TXT);
        if data > 0 {
            push_record(&mut message, Name::ROOT, Rtype::TXT, Class::IN, 60, &vec![0; data]);
            add_to_count(&mut message, 0, 1);
        }
        Reply::read(&message).unwrap()
    }

    fn verdict(udp: u16, tcp: Option<Reply>) -> Verdict {
        let seen = SIZES.map(|(_, payload)| (payload, reply(udp, 0)));
        judged_size(&seen, tcp.as_ref()).0
    }

    #[test]
    fn a_short_answer_over_udp_says_that_it_is_cut() {
        let whole = || Some(reply(0, usize::from(LONG)));
        assert_eq!(verdict(flag::TC, whole()), Verdict::Good);
        assert_eq!(verdict(flag::TC, None), Verdict::Notice);
        assert_eq!(verdict(0, whole()), Verdict::Bad, "NOERROR without data");
        assert_eq!(verdict(Rcode::Refused as u16, whole()), Verdict::Unknown);
    }

    #[test]
    fn an_error_over_tcp_is_no_cut_answer() {
        assert_eq!(verdict(flag::TC, Some(reply(Rcode::ServFail as u16, 0))), Verdict::Unknown);
        assert_eq!(verdict(flag::TC, Some(reply(0, 0))), Verdict::Unknown);
        assert_eq!(verdict(flag::TC, Some(reply(flag::TC, 0))), Verdict::Bad);
        assert_eq!(verdict(flag::TC, Some(reply(0, 100))), Verdict::Bad);
    }

    #[test]
    fn a_whole_answer_over_udp_is_long() {
        let seen = [(512, reply(flag::TC, 0)), (4096, reply(0, 4020))];
        assert_eq!(judged_size(&seen, Some(&reply(0, 4020))).0, Verdict::Notice);
        let seen = [(512, reply(0, 4020))];
        assert_eq!(judged_size(&seen, None).0, Verdict::Bad);
    }
}
