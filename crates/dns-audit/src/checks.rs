//! What is judged: one line a check, with what it means to users, where the rule is written, and what it weighs in the score.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What a finding says at most, in octets.
const SUMMARY_MAX: usize = 1000;
/// A line of evidence, in octets, and how many there are of them.
const LINE_MAX: usize = 500;
const EVIDENCE_MAX: usize = 1000;

/// How a check ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Could not be seen.
    Unknown,
    /// Worth knowing; not against a rule.
    Notice,
    /// Against a rule, or bad for users.
    Bad,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Unknown => "unknown",
            Verdict::Notice => "notice",
            Verdict::Bad => "BAD",
        }
    }
}

/// One thing that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Probe and check.
    pub id: &'static str,
    /// What is looked at.
    pub title: &'static str,
    /// What it means to users when it is bad.
    pub meaning: &'static str,
    /// Where the rule is written; empty if nowhere.
    pub reference: &'static str,
    /// What it costs of a hundred points when it is bad; a notice costs a fifth of it.
    pub weight: u32,
}

/// What a judge found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// [`Check::id`].
    pub check: Cow<'static, str>,
    /// [`Check::title`].
    pub title: Cow<'static, str>,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen, in a sentence.
    pub summary: String,
    /// The exchanges that show it.
    pub evidence: Vec<String>,
    /// [`Check::meaning`].
    pub meaning: Cow<'static, str>,
    /// [`Check::reference`].
    pub reference: Cow<'static, str>,
    /// [`Check::weight`].
    pub weight: u32,
}

impl Check {
    /// A finding without evidence so far.
    #[must_use]
    pub fn finding(&'static self, verdict: Verdict, summary: impl Into<String>) -> Finding {
        Finding {
            check: self.id.into(),
            title: self.title.into(),
            verdict,
            summary: shortened(summary.into(), SUMMARY_MAX),
            evidence: Vec::new(),
            meaning: self.meaning.into(),
            reference: self.reference.into(),
            weight: self.weight,
        }
    }

    /// The probe that it belongs to.
    #[must_use]
    pub fn probe(&self) -> &'static str {
        self.id.split('.').next().unwrap_or_default()
    }

    /// It could not be seen, for this reason.
    #[must_use]
    pub fn unknown(&'static self, reason: impl Into<String>) -> Finding {
        self.finding(Verdict::Unknown, reason)
    }
}

impl Finding {
    /// The same with these lines of evidence.
    #[must_use]
    pub fn because(mut self, evidence: impl IntoIterator<Item = String>) -> Finding {
        let mut lines = evidence.into_iter();
        let places = EVIDENCE_MAX.saturating_sub(self.evidence.len());
        self.evidence.extend(lines.by_ref().take(places).map(|line| shortened(line, LINE_MAX)));
        let left = lines.count();
        if left > 0 {
            self.evidence.push(format!("and {left} more"));
        }
        self
    }

    /// The same without a verdict, for this reason.
    #[must_use]
    pub fn not_tested(self, reason: &str) -> Finding {
        Finding { verdict: Verdict::Unknown, summary: format!("not tested: {reason}"), ..self }
    }

    /// The probe that it belongs to.
    #[must_use]
    pub fn probe(&self) -> &str {
        self.check.split('.').next().unwrap_or_default()
    }
}

/// A text of at most `max` octets, and a word about the rest: what a resolver says has any length.
#[must_use]
pub fn shortened(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}... and {} octets more", &text[..end], text.len() - end)
}

/// One line a check: constant, id, weight, title, reference, meaning.
macro_rules! checks {
    ($($constant:ident = $id:literal, $weight:literal, $title:literal, $reference:literal, $meaning:literal;)*) => {
        $(#[doc = $title] pub static $constant: Check =
            Check { id: $id, title: $title, meaning: $meaning, reference: $reference, weight: $weight };)*

        /// All of them, in the order of the probes.
        pub static ALL: &[&Check] = &[$(&$constant),*];
    };
}

/// Whether the resolver serves this host, and resolves names of the audit zone. It stands apart from [`ALL`]: it takes no points, as there are none
/// where it is bad, and all probes judge it.
pub static SERVICE: Check = Check {
    id: "service",
    title: "Names of the audit zone are resolved",
    meaning: "Nothing else can be said of this resolver: it is down, is not meant for this host, or does not reach the zone.",
    reference: "",
    weight: 0,
};

checks! {
    STALE_REACHABLE = "stale.reachable", 25, "Expired data while the authority answers", "RFC 8767, 4 and 5",
        "Users reach servers that the owner has left: sites that have moved are down for them, and mail goes astray.";
    STALE_REFRESH = "stale.refresh", 15, "Asking brings fresh data", "RFC 8767, 5",
        "The old address stays until something else ends it: reloading a page does not help.";
    STALE_SLOW = "stale.slow", 5, "An authority that is slow", "RFC 8767, 5",
        "An authority that needs a second is treated as if it were down. The recommended wait is 1.8 s.";
    STALE_OUTAGE = "stale.outage", 5, "Expired data while the authority is down", "RFC 8767, 4",
        "During an outage of a zone's servers users have its last known addresses, or none.";
    STALE_TTL = "stale.ttl", 5, "TTL of expired data", "RFC 8767, 4",
        "Stub caches and browsers keep expired data for longer than the 30 s that are recommended.";
    STALE_LABEL = "stale.label", 3, "Expired data is marked", "RFC 8914, 4.4",
        "Nobody can tell expired data from good data: support looks in the wrong place.";
    STALE_GONE = "stale.gone", 20, "Names that their owner has removed", "RFC 8767, 4; RFC 2308, 5",
        "A name that was removed, perhaps for an abuse, goes on to work.";
    STALE_RECOVERY = "stale.recovery", 10, "Fresh data after an outage", "RFC 8767, 5",
        "The outage lasts longer for users than for the zone.";
    FLUSH_WAY = "flush.way", 5, "Ways to make it look again", "",
        "The owner of a zone has no way to get a changed record to the users of this resolver.";
    TTL_DECREMENT = "ttl.decrement", 10, "TTLs count down", "RFC 1035, 3.2.1; RFC 2181, 8",
        "Caches behind this resolver keep data for up to twice the time that its owner allows.";
    TTL_MINIMUM = "ttl.minimum", 10, "Short TTLs are kept", "RFC 2181, 8",
        "Failover and load balancing by DNS are slower than their owner planned.";
    TTL_ZERO = "ttl.zero", 5, "TTL 0 is not cached", "RFC 1035, 3.2.1",
        "An answer made for one client is given to others.";
    TTL_MAXIMUM = "ttl.maximum", 3, "Long TTLs have a cap", "RFC 8767, 4",
        "A mistake in a zone, or a forged record, stays for longer than a week.";
    TTL_NEGATIVE = "ttl.negative", 10, "Negative answers end in time", "RFC 2308, 5",
        "A name that was just made does not exist for users for longer than the zone says.";
    TTL_NEGATIVE_CAP = "ttl.negative-cap", 3, "Negative answers have a cap", "RFC 2308, 5",
        "A name that was missing by mistake stays missing for more than some hours.";
    TTL_PREFETCH = "ttl.prefetch", 0, "Popular names are refreshed before they expire", "",
        "Users of a popular name wait for the authority once in each TTL.";
    WHO_EGRESS = "who.egress", 5, "Who asks the authority", "",
        "Authorities that choose by the asking address see somebody else than the users' network.";
    WHO_SUBNET = "who.subnet", 15, "Client subnet on its own account", "RFC 7871, 7.1 and 11.1",
        "Authorities that choose by the client's network get a wrong one, or users' networks are told to everybody.";
    WHO_PASSED = "who.passed", 3, "Client subnet of a client", "RFC 7871, 7.1.2 and 12.1",
        "Any client can choose for which network answers are made.";
    WHO_SCOPE = "who.scope", 15, "Answers for one network stay there", "RFC 7871, 7.3.1",
        "Users get addresses that were chosen for another network.";
    WHO_REUSE = "who.reuse", 1, "Answers are kept for the networks that they are good for", "RFC 7871, 7.3.1",
        "The authority is asked more often than it needs to be, and users wait for it.";
    WHO_OPT_OUT = "who.opt-out", 10, "Clients that want no client subnet", "RFC 7871, 7.1.2",
        "Users who do not want their network to be told have it told all the same.";
    WHO_LINES = "who.lines", 10, "The country that authorities see", "",
        "Users get the line of another country: slow servers, wrong language, blocked content.";
    SELECTION_SHARE = "selection.share", 10, "The fastest server gets most questions", "RFC 1035, 7.2; RFC 9520",
        "Each new name takes longer than it would need to.";
    SELECTION_OUTAGE = "selection.outage", 15, "A dead server is left", "RFC 1035, 7.2",
        "Names fail, or take seconds, although other servers of the zone answer.";
    SELECTION_RETURN = "selection.return", 5, "A server that is back is used again", "",
        "The fastest server stays unused after a short outage.";
    SELECTION_LOSS = "selection.loss", 10, "Lost queries are asked again", "RFC 1035, 7.2",
        "On a lossy way names fail, or take seconds, although most queries are answered.";
    IDENTITY_VERSION = "identity.version", 2, "What it says of itself", "RFC 4892",
        "Whoever looks for a server with a known hole finds this one by its version.";
    IDENTITY_MINIMISATION = "identity.minimisation", 3, "Query name minimisation", "RFC 9156",
        "The servers of the root and of top-level domains see the whole names that users ask for.";
    IDENTITY_FINGERPRINT = "identity.fingerprint", 0, "What it behaves like", "",
        "Tells which software asks, and whether it is the same that answers.";
    IDENTITY_CHAIN = "identity.chain", 0, "Forwarders and caches on the way", "",
        "Each server on the way can change answers and keep them for longer, and its owner may be somebody else.";
    INTEGRITY_MISSING = "integrity.missing", 20, "Names that do not exist", "RFC 8020; RFC 4924, 2.5.2",
        "Mistyped names lead to a third party, and programs take what is missing for there.";
    INTEGRITY_ADDRESS = "integrity.address", 25, "Addresses arrive as they were sent", "RFC 4924, 2.5.2",
        "Users are led to servers that the owner did not name.";
    INTEGRITY_NAMES = "integrity.names", 10, "Names that were given", "",
        "Answers for these names are made by the resolver, or by somebody on its way.";
    INTEGRITY_VALID = "integrity.valid", 5, "Signed data is validated", "RFC 4035, 4.9.3",
        "Programs that rely on the resolver's validation (SSHFP, DANE) do not work.";
    INTEGRITY_BOGUS = "integrity.bogus", 20, "Data with a wrong signature is refused", "RFC 4035, 5.5",
        "Forged data reaches users although the owner has signed the zone.";
    INTEGRITY_EXPIRED = "integrity.expired", 10, "Data with an expired signature is refused", "RFC 4035, 5.3.1",
        "Old signed data can be replayed to users.";
    INTEGRITY_UNKNOWN = "integrity.unknown", 10, "Zones of an unknown algorithm", "RFC 4035, 5.2; RFC 6840, 5.2",
        "Zones fail that use an algorithm that this resolver does not know.";
    INTEGRITY_REBINDING = "integrity.rebinding", 1, "Private addresses in public names", "",
        "A web page can reach hosts in the user's own network. Resolvers that filter break names that are meant to be so.";
    INTEGRITY_CASE = "integrity.case", 5, "The question comes back as it was asked", "RFC 5452, 9.1; RFC 4343, 4.1",
        "Clients that mix case to hold off forgers get no answer.";
    INTEGRITY_PORTS = "integrity.ports", 20, "Source ports are random", "RFC 5452, 9.2",
        "Forgers can guess the port: wrong data can be put into the cache.";
    INTEGRITY_IDS = "integrity.ids", 20, "IDs are random", "RFC 5452, 9.2",
        "Forgers can guess the ID: wrong data can be put into the cache.";
    INTEGRITY_OPEN = "integrity.open", 15, "Strangers get no recursion", "RFC 5358, 4",
        "Anybody can send attacks by way of this resolver.";
    INTEGRITY_SIZE = "integrity.size", 10, "Answers over UDP keep to a size", "RFC 6891, 6.2.5; RFC 9715",
        "Long answers are fragmented and get lost, and serve attackers who forge addresses.";
    INTEGRITY_COOKIES = "integrity.cookies", 1, "Cookies", "RFC 7873",
        "The resolver cannot tell clients from forged addresses.";
    INTEGRITY_TCP = "integrity.tcp", 10, "Answers over TCP", "RFC 7766, 5",
        "Long answers, signed ones among them, do not reach users.";
    INTEGRITY_ENCRYPTED = "integrity.encrypted", 2, "Answers over TLS, HTTPS and QUIC", "RFC 7858; RFC 8484; RFC 9250",
        "Everybody on the way sees, and can change, what users ask.";
    LATENCY_COLD = "latency.cold", 5, "New names", "",
        "Each new name takes long, or fails.";
    LATENCY_HOT = "latency.hot", 5, "Known names", "",
        "Even names that the resolver has take long: it is far away or busy.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_finding_has_a_bound_whatever_was_said() {
        let evidence = (0..5000).map(|_| "\u{e4}".repeat(60_000));
        let finding = IDENTITY_VERSION.finding(Verdict::Bad, "x".repeat(60_000)).because(evidence);
        let octets = finding.evidence.iter().map(String::len).sum::<usize>() + finding.summary.len();
        assert!(octets < SUMMARY_MAX + EVIDENCE_MAX * (LINE_MAX + 40), "{octets}");
        assert_eq!(finding.evidence.last().map(String::as_str), Some("and 4000 more"));
        assert!(finding.summary.ends_with("... and 59000 octets more"), "{}", finding.summary);
    }

    #[test]
    fn each_check_has_an_id_of_its_own_behind_the_name_of_its_probe() {
        let ids: BTreeSet<&str> = ALL.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), ALL.len());
        let probes: BTreeSet<&str> = ids.iter().filter_map(|id| id.split('.').next()).collect();
        let own: BTreeSet<&str> = crate::probes::ALL.iter().map(|probe| probe.name).collect();
        assert_eq!(probes, own);
    }
}
