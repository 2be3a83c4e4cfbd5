//! One response, from what it says to what that is worth (RFC 4035, 5).
//!
//! A [`Validation`] goes through the links of a response: its aliases, then its answer or denial. For each link it takes DNSKEY and DS sets
//! of zones above, which are *facts*: it names the one that is missing, its owner looks that up (it is a question like any other, and
//! validated like any other) and calls again. All judging is in here; nothing of it waits.

use std::sync::Arc;

use dns_wire::{Name, Rtype};

use super::anchors::TrustAnchor;
use super::chain::{Context, Ds, Fact, Facts, Keys, Stop};
use super::denial::{self, Claim, Proven};
use super::keys::{self, Dnskey};
use super::{Security, signature};
use crate::iterator::classify::Verdict;
use crate::message::{Ede, Question, Rrset};

/// NSEC and NSEC3 sets of one response that are looked at. A proof takes at most three, and two for a wildcard on the way.
pub(crate) const ABSENCE_MAX: usize = 8;

/// What a validation has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It takes this fact.
    Need(Box<Question>),
    /// The verdict is what it seems; each of its sets says how far.
    Done,
    /// The response is false. Another server may have a better one.
    Bogus(Ede),
    /// A fact cannot be had. No other server of the zone can help.
    Failed(Ede),
}

/// A response that is being validated.
#[derive(Debug)]
pub(crate) struct Validation {
    verdict: Verdict,
    /// The type that was asked for.
    rtype: Rtype,
    /// The zone whose server answered; what it says may come from a zone below.
    zone: dns_wire::NameBuf,
    /// The NSEC and NSEC3 sets of the response.
    absence: Vec<Rrset>,
    /// Links that were found good.
    checked: usize,
    facts: Facts,
}

/// What a link is worth.
struct Judged {
    security: Security,
    ttl_max: u32,
    absence: Vec<Rrset>,
}

impl Judged {
    fn unsigned(security: Security) -> Judged {
        Judged { security, ttl_max: u32::MAX, absence: Vec::new() }
    }
}

impl Validation {
    pub(crate) fn new(verdict: Verdict, rtype: Rtype, zone: Name<'_>, absence: Vec<Rrset>) -> Validation {
        Validation { verdict, rtype, zone: zone.into(), absence, checked: 0, facts: Facts::default() }
    }

    /// The answer to a question that [`Progress::Need`] named.
    pub(crate) fn learn(&mut self, question: Question, fact: Fact) {
        self.facts.learn(question, fact);
    }

    /// The response, with what its sets are worth.
    pub(crate) fn into_verdict(self) -> Verdict {
        self.verdict
    }

    /// Goes on as far as the facts allow.
    pub(crate) fn advance(&mut self, context: &Context<'_>) -> Progress {
        match self.run(context) {
            Ok(()) => Progress::Done,
            Err(Stop::Need(question)) => Progress::Need(question),
            Err(Stop::Bogus(ede)) => Progress::Bogus(ede),
            Err(Stop::Failed(ede)) => Progress::Failed(ede),
        }
    }

    fn run(&mut self, context: &Context<'_>) -> Result<(), Stop> {
        while let Some(set) = self.verdict.link(self.checked) {
            let judged = self.judge(set, context)?;
            let set = self.verdict.link_mut(self.checked).expect("it was there");
            set.apply(judged);
            self.checked += 1;
        }
        let (name, soa) = match &self.verdict {
            Verdict::NoData { name, soa, .. } | Verdict::NoName { name, soa, .. } => (name.as_name(), soa),
            _ => return Ok(()),
        };
        let judged = self.judge_denial(name, soa.as_deref(), context)?;
        match self.verdict.soa_mut() {
            Some(soa) => soa.apply(judged),
            None if judged.security == Security::Secure => return Err(Stop::Bogus(Ede::NSEC_MISSING)),
            None => {}
        }
        Ok(())
    }

    fn judge(&self, set: &Rrset, context: &Context<'_>) -> Result<Judged, Stop> {
        let owner = set.owner.as_name();
        let Some(anchor) = context.anchor_of(owner, set.rtype) else {
            return Ok(Judged::unsigned(Security::Insecure(None)));
        };
        if let Some(dname) = self.dname_of_link(set) {
            return Ok(Judged { ttl_max: dname.ttl, ..Judged::unsigned(dname.security) });
        }
        if set.rtype == Rtype::DNSKEY {
            return self.judge_keys(set, context);
        }
        let Some(signer) = signer_of(set, owner, set.rtype, anchor) else {
            return self.facts.walk(self.zone.as_name(), owner, set.rtype, context).map(Judged::unsigned);
        };
        let keys = match self.facts.keys(signer, context)? {
            Keys::Secure(keys) => keys,
            Keys::Insecure(ede) => return Ok(Judged::unsigned(Security::Insecure(ede))),
        };
        let verified = verify(set, signer, &keys, context)?;
        let mut judged = Judged { ttl_max: verified.ttl_max, ..Judged::unsigned(Security::Secure) };
        if let Some(labels) = verified.wildcard_labels {
            let absence = self.verified_absence(signer, &keys, context);
            judged.security = prove(Claim::NoCloser(owner, labels), signer, &absence, context)?;
            judged.absence = absence;
        }
        Ok(judged)
    }

    /// The DNAME set that the link `set` was made from, if it was: it stands before it, and the maker signs nothing.
    fn dname_of_link(&self, set: &Rrset) -> Option<&Rrset> {
        let before = self.verdict.link(self.checked.checked_sub(1)?)?;
        (set.rtype == Rtype::CNAME && before.rtype == Rtype::DNAME).then_some(before)
    }

    /// RFC 4035, 5.2: one of the keys that the parent vouches for has signed them all.
    fn judge_keys(&self, set: &Rrset, context: &Context<'_>) -> Result<Judged, Stop> {
        let ds = match self.facts.ds(set.owner.as_name(), context)? {
            Ds::Secure(ds) => ds,
            Ds::Insecure(ede) => return Ok(Judged::unsigned(Security::Insecure(ede))),
            Ds::NoCut => return Err(Stop::Bogus(Ede::DNSKEY_MISSING)),
        };
        let verified = keys::verify_keys(set, ds, context.wall_secs(), context.options, context.budget);
        let ttl_max = verified.map_err(Stop::Bogus)?.ttl_max;
        Ok(Judged { ttl_max, ..Judged::unsigned(Security::Secure) })
    }

    fn judge_denial(
        &self,
        name: Name<'_>,
        soa: Option<&Rrset>,
        context: &Context<'_>,
    ) -> Result<Judged, Stop> {
        let Some(anchor) = context.anchor_of(name, self.rtype) else {
            return Ok(Judged::unsigned(Security::Insecure(None)));
        };
        let mut sets = soa.into_iter().chain(&self.absence);
        let Some(signer) = sets.find_map(|set| signer_of(set, name, self.rtype, anchor)) else {
            return self.facts.walk(self.zone.as_name(), name, self.rtype, context).map(Judged::unsigned);
        };
        let keys = match self.facts.keys(signer, context)? {
            Keys::Secure(keys) => keys,
            Keys::Insecure(ede) => return Ok(Judged::unsigned(Security::Insecure(ede))),
        };
        let soa = soa.ok_or(Stop::Bogus(Ede::NSEC_MISSING))?;
        let verified = verify(soa, signer, &keys, context)?;
        let absence = self.verified_absence(signer, &keys, context);
        let claim = match self.verdict {
            Verdict::NoName { .. } => Claim::NoName(name),
            _ => Claim::NoData(name, self.rtype),
        };
        let security = prove(claim, signer, &absence, context)?;
        let ttl_max = absence.iter().map(|set| set.ttl).fold(verified.ttl_max, u32::min);
        Ok(Judged { security, ttl_max, absence })
    }

    /// Those NSEC and NSEC3 sets that `signer` has signed, at their own names (RFC 4035, 5.4).
    fn verified_absence(&self, signer: Name<'_>, keys: &[Dnskey<'_>], context: &Context<'_>) -> Vec<Rrset> {
        let verified = self.absence.iter().filter_map(|set| {
            let verified = verify(set, signer, keys, context).ok()?;
            let ttl = set.ttl.min(verified.ttl_max);
            verified.wildcard_labels.is_none().then(|| Rrset {
                ttl,
                security: Security::Secure,
                ..set.clone()
            })
        });
        verified.collect()
    }
}

/// The zone that signed `set`, if it can speak of `name` and `rtype`: a DS set, or its absence, belongs to the zone above. Who claims to be above
/// the anchor that counts for the name is not believed: no chain of trust leads there, and it would make the name insecure.
fn signer_of<'a>(set: &'a Rrset, name: Name<'_>, rtype: Rtype, anchor: &TrustAnchor) -> Option<Name<'a>> {
    let is_above = |signer: &Name<'_>| {
        name.ends_with(*signer)
            && signer.ends_with(anchor.zone().as_name())
            && (rtype != Rtype::DS || *signer != name || name.is_root())
    };
    signature::signer(set).filter(is_above)
}

fn verify(
    set: &Rrset,
    signer: Name<'_>,
    keys: &[Dnskey<'_>],
    context: &Context<'_>,
) -> Result<signature::Verified, Stop> {
    signature::verify(set, signer, keys, context.wall_secs(), context.options, context.budget)
        .map_err(Stop::Bogus)
}

fn prove(
    claim: Claim<'_>,
    zone: Name<'_>,
    absence: &[Rrset],
    context: &Context<'_>,
) -> Result<Security, Stop> {
    match denial::prove(claim, zone, absence, context.options, context.budget).map_err(Stop::Bogus)? {
        Proven::Surely => Ok(Security::Secure),
        Proven::OptOut => Ok(Security::Insecure(None)),
        Proven::TooManyIterations => Ok(Security::Insecure(Some(Ede::UNSUPPORTED_ITERATIONS))),
    }
}

impl Rrset {
    fn apply(&mut self, judged: Judged) {
        self.security = judged.security;
        self.ttl = self.ttl.min(judged.ttl_max);
        if let Some(proof) = self.proof.as_mut().filter(|_| !judged.absence.is_empty()) {
            Arc::make_mut(proof).absence = judged.absence;
        }
    }
}
