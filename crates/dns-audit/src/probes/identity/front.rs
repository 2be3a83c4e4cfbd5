//! What a server makes of odd questions, which it answers by itself: that tells the one that answers clients from the one that asks authorities.

use std::fmt;

use dns_wire::header::flag;
use dns_wire::{Class, NameBuf, Rtype};

use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Outcome, Reply, Transcript};

/// RA: recursion is available (RFC 1035, 4.1.1).
const RA: u16 = 0x0080;
/// All records of mail agents: obsolete (RFC 1035, 3.2.3).
const MAILA: Rtype = Rtype(254);
/// How often an odd question is sent, and for how long it is waited: some servers answer none of them.
const TRIES: u32 = 2;
const PATIENCE_MS: u64 = 3000;

/// How the names of the groups of odd questions begin.
pub(in crate::probes) const ODD_GROUPS: &str = "odd.";

/// An odd question.
struct Odd {
    group: &'static str,
    /// In its place in the flags (RFC 1035, 4.1.1).
    opcode: u16,
    class: Class,
    qtype: Rtype,
}

/// What forwarders do not forward stands first.
const ODD: [Odd; 6] = [
    Odd { group: "odd.server", opcode: 0, class: Class(3), qtype: Rtype::TXT },
    Odd { group: "odd.status", opcode: 2 << 11, class: Class::IN, qtype: Rtype::A },
    Odd { group: "odd.notify", opcode: 4 << 11, class: Class::IN, qtype: Rtype::SOA },
    Odd { group: "odd.class", opcode: 0, class: Class(9), qtype: Rtype::A },
    Odd { group: "odd.transfer", opcode: 0, class: Class::IN, qtype: Rtype::AXFR },
    Odd { group: "odd.mail", opcode: 0, class: Class::IN, qtype: MAILA },
];
/// So many of them are never forwarded.
const OWN: usize = 1;
/// The last ones, whose RCODEs come from behind a forwarder as they are.
const BEHIND: usize = 3;

/// What came of an odd question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    Silence,
    /// RCODE, and whether AA and RA are set and the question is there.
    Answer(u16, bool, bool, bool),
}

/// What came of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reactions(pub(super) [Reaction; ODD.len()]);

pub(super) fn plan(planner: &mut Planner<'_>, start_ms: u64) {
    for (number, odd) in (0..).zip(&ODD) {
        let name = match odd.qtype {
            // A name that no cache knows: some answer by what they know of a name.
            MAILA => {
                let spec = planner.spec(60);
                planner.name(&spec)
            }
            // By such names servers say what they are (RFC 4892); nobody has this one.
            Rtype::TXT => NameBuf::from_text(b"z.server.", None).unwrap_or_else(|_| planner.name_below(&[])),
            _ => planner.name_below(&[]),
        };
        let mut question = Question::new(name, odd.qtype);
        question.flags |= odd.opcode;
        (question.class, question.edns) = (odd.class, None);
        let step = planner.ask_question(odd.group, start_ms + 100 * number, question);
        (step.tries, step.patience_ms) = (TRIES, PATIENCE_MS);
    }
}

impl Reaction {
    fn of(exchange: &Exchange) -> Option<Reaction> {
        match (&exchange.outcome, exchange.reply()) {
            (Outcome::Silence, _) => Some(Reaction::Silence),
            (_, Some(Reply { flags, rcode, question, .. })) => {
                Some(Reaction::Answer(rcode, flags & flag::AA != 0, flags & RA != 0, question.is_some()))
            }
            _ => None,
        }
    }
}

impl Reactions {
    /// None if some question was not asked, or failed before it could be answered.
    pub(super) fn of(transcript: &Transcript<'_>) -> Option<Reactions> {
        let mut reactions = [Reaction::Silence; ODD.len()];
        for (odd, reaction) in ODD.iter().zip(&mut reactions) {
            *reaction = transcript.one(odd.group).and_then(Reaction::of)?;
        }
        // Who answers none of them may be anybody, or behind a way that loses them.
        reactions.iter().any(|reaction| *reaction != Reaction::Silence).then_some(Reactions(reactions))
    }

    /// Whether the server in front is the same: one that forwards lets the one behind it answer some of them.
    pub(super) fn is_by(&self, known: &Reactions, forwards: bool) -> bool {
        let count = if forwards { OWN } else { ODD.len() };
        self.0[..count] == known.0[..count]
    }

    /// Whether the RCODEs of what forwarders forward are the same.
    pub(super) fn is_behind_by(&self, known: &Reactions) -> bool {
        let rcodes = |own: &Reactions| {
            let rcode = |reaction: &Reaction| match reaction {
                Reaction::Silence => None,
                Reaction::Answer(rcode, ..) => Some(*rcode),
            };
            own.0[ODD.len() - BEHIND..].iter().map(rcode).collect::<Vec<_>>()
        };
        rcodes(self) == rcodes(known)
    }
}

impl fmt::Display for Reactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = ["z.server of class CH", "STATUS", "NOTIFY", "class 9", "AXFR", "MAILA"];
        for (place, (word, reaction)) in words.iter().zip(&self.0).enumerate() {
            f.write_str(if place == 0 { "" } else { "; " })?;
            let (rcode, aa, ra, question) = match reaction {
                Reaction::Silence => {
                    write!(f, "{word}: no answer")?;
                    continue;
                }
                Reaction::Answer(rcode, aa, ra, question) => (rcode, aa, ra, question),
            };
            write!(f, "{word}: RCODE {rcode}")?;
            for (is_set, text) in [(*aa, " AA"), (*ra, " RA"), (!*question, " without question")] {
                f.write_str(if is_set { text } else { "" })?;
            }
        }
        Ok(())
    }
}
