//! What a resolver says of itself (RFC 4892, RFC 5001), and what its queries and failures look like.

use dns_wire::{Class, Rtype};

use crate::authority::{Behaviour, Entry, Phase};
use crate::checks::{
    Finding, IDENTITY_FINGERPRINT, IDENTITY_MINIMISATION, IDENTITY_VERSION, Verdict, shortened,
};
use crate::edns;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, TEXT_MAX, Transcript};

mod chain;
mod fingerprint;
mod front;

use fingerprint::Fingerprint;
pub(super) use front::ODD_GROUPS;

/// Class CH (RFC 1035, 3.2.4).
const CHAOS: Class = Class(3);
/// Names by which servers say what they are.
const NAMES: [[&str; 2]; 4] =
    [["version", "bind"], ["version", "server"], ["hostname", "bind"], ["id", "server"]];
/// When the questions begin that take chains apart: the others tell how the first server asks.
const CHAIN_MS: u64 = 1000;
/// How long a name is watched whose authority is silent.
const SILENT_MS: u64 = 12_000;

pub(super) fn plan(planner: &mut Planner<'_>) {
    for (number, [first, second]) in NAMES.into_iter().enumerate() {
        let text = format!("{first}.{second}.");
        let Ok(name) = dns_wire::NameBuf::from_text(text.as_bytes(), None) else { continue };
        let mut question = Question::new(name, Rtype::TXT).with_option(edns::NSID, Vec::new());
        question.class = CHAOS;
        planner.ask_question("chaos", 100 * number as u64, question);
    }
    let spec = planner.spec(60);
    let question = Question::new(planner.name(&spec), Rtype::A).with_option(edns::NSID, Vec::new());
    planner.ask_question("nsid", 400, question);
    let label = planner.spec(60).to_string();
    let deep = planner.name_below(&[b"d", b"c", b"b", b"a", label.as_bytes()]);
    planner.ask("deep", 500, &deep, Rtype::A);
    let mut spec = planner.spec(60);
    spec.phases.push(Phase::always(Behaviour::Silent));
    let name = planner.name(&spec);
    let step = planner.ask("silent", 600, &name, Rtype::A);
    // What the resolver asks again should be its own doing.
    (step.patience_ms, step.tries) = (SILENT_MS, 1);
    chain::plan(planner, CHAIN_MS);
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let asks = fingerprint(transcript);
    let chain = chain::judge(transcript, asks, &said(transcript));
    vec![version(transcript), minimisation(transcript), looks(transcript, asks), chain]
}

/// What it says under each name, escaped.
fn said(transcript: &Transcript<'_>) -> Vec<(String, String)> {
    let texts = transcript.group("chaos").filter_map(|exchange| {
        let text = exchange.reply()?.text().filter(|text| !text.is_empty())?;
        Some((exchange.step.question.name.to_string(), text))
    });
    let nsid = transcript.one("nsid").and_then(Exchange::reply);
    let nsid = nsid.as_ref().and_then(|reply| reply.option(edns::NSID)).filter(|data| !data.is_empty());
    let nsid = nsid.map(|data| shortened(data.escape_ascii().to_string(), TEXT_MAX));
    texts.chain(nsid.map(|text| ("NSID".to_owned(), text))).collect()
}

fn version(transcript: &Transcript<'_>) -> Finding {
    let said = said(transcript);
    let lines = said.iter().map(|(name, text)| format!("{name}: {text}"));
    let version = said.iter().find(|(name, _)| name.starts_with("version")).map(|(_, text)| text);
    let finding = match version {
        Some(text) if text.bytes().any(|octet| octet.is_ascii_digit()) => {
            IDENTITY_VERSION.finding(Verdict::Notice, format!("it tells everybody its version: {text}"))
        }
        Some(text) => IDENTITY_VERSION.finding(Verdict::Good, format!("it calls itself {text}")),
        None => IDENTITY_VERSION.finding(Verdict::Good, "it tells nobody its version"),
    };
    finding.because(lines)
}

/// The queries for a name four labels below the one that says what happens.
fn minimisation(transcript: &Transcript<'_>) -> Finding {
    let entries = transcript.logged_for("deep");
    if entries.is_empty() {
        return IDENTITY_MINIMISATION.unknown("no question was logged");
    }
    let lines = entries.iter().map(|entry| format!("{} type {}", entry.qname, entry.qtype));
    let finding = if fingerprint::is_minimised(&entries) {
        IDENTITY_MINIMISATION.finding(Verdict::Good, "servers see no more of a name than they need")
    } else {
        IDENTITY_MINIMISATION.finding(Verdict::Notice, "servers see whole names")
    };
    finding.because(lines)
}

/// Of what asks the authority; `None` if nobody did.
fn fingerprint(transcript: &Transcript<'_>) -> Option<Fingerprint> {
    let all: Vec<&Entry> = transcript.log.iter().flatten().collect();
    let (deep, silent) = (transcript.logged_for("deep"), transcript.logged_for("silent"));
    (!all.is_empty()).then(|| Fingerprint::of(&all, &deep, &silent))
}

fn looks(transcript: &Transcript<'_>, asks: Option<Fingerprint>) -> Finding {
    let Some(seen) = asks else { return IDENTITY_FINGERPRINT.unknown("no question was logged") };
    let (nearest, distance) = fingerprint::nearest(&seen);
    let names: Vec<&str> = nearest.iter().map(|known| known.name).collect();
    let alike = names.join(" or ");
    let summary = match distance {
        0 => format!("like {alike}"),
        1 | 2 => format!("rather like {alike} ({distance} traits differ)"),
        _ => "like none of the servers in the table".to_owned(),
    };
    let claim = said(transcript).iter().find_map(|(_, text)| fingerprint::named_in(text));
    let finding = match claim.filter(|claim| !names.contains(claim)) {
        Some(claim) => {
            let summary = format!("it calls itself {claim}, and asks {summary}");
            IDENTITY_FINGERPRINT.finding(Verdict::Notice, summary)
        }
        None => IDENTITY_FINGERPRINT.finding(Verdict::Good, summary),
    };
    finding.because([seen.to_string()])
}
