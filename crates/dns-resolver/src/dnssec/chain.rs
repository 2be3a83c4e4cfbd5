//! The chain of trust, from an anchor down to a zone: its keys, if it has any, or where the chain ends (RFC 4035, 5.2).

use std::sync::Arc;

use dns_wire::{Name, Rtype};

use super::anchors::{Trust, TrustAnchor};
use super::keys::{self, Dnskey};
use super::{Budget, Security, denial};
use crate::iterator::last_labels;
use crate::message::{Ede, Question, Rdatas, Rrset};
use crate::options::Dnssec;

/// What the world is like.
pub(crate) struct Context<'a> {
    pub(crate) trust: &'a Trust,
    pub(crate) options: &'a Dnssec,
    /// Seconds since 1970.
    pub(crate) wall_secs: u64,
    pub(crate) budget: &'a dyn Budget,
}

impl Context<'_> {
    pub(super) fn anchor_for(&self, name: Name<'_>) -> Option<&TrustAnchor> {
        self.trust.anchor_for(name, self.wall_secs)
    }

    /// The same for records of `rtype` at `name`: a DS set is in the zone above.
    pub(super) fn anchor_of(&self, name: Name<'_>, rtype: Rtype) -> Option<&TrustAnchor> {
        let above = name.parent().filter(|_| rtype == Rtype::DS);
        self.anchor_for(above.unwrap_or(name))
    }

    /// As signatures count it: serial numbers of 32 bits (RFC 4034, 3.1.5).
    pub(super) fn wall_secs(&self) -> u32 {
        self.wall_secs as u32
    }
}

/// What became of a question for a DNSKEY or DS set.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// The set.
    Set(Box<Rrset>),
    /// There is none, says this SOA record with its proof.
    Absent(Arc<Rrset>),
    /// There is none: the name is an alias, or was denied without a proof.
    Other(Security),
    /// Nobody knows.
    Failed(Ede),
}

/// Why something cannot be judged as good.
pub(super) enum Stop {
    /// A fact is missing.
    Need(Box<Question>),
    /// It is false.
    Bogus(Ede),
    /// A fact cannot be had.
    Failed(Ede),
}

/// The keys of a zone.
pub(super) enum Keys<'a> {
    Secure(Vec<Dnskey<'a>>),
    Insecure(Option<Ede>),
}

/// What the parent of a zone says about its keys.
pub(super) enum Ds<'a> {
    Secure(&'a Rdatas),
    Insecure(Option<Ede>),
    /// No zone starts there.
    NoCut,
}

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<(Question, Fact)>);

impl Facts {
    pub(super) fn learn(&mut self, question: Question, fact: Fact) {
        self.0.push((question, fact));
    }

    /// What has no signature is insecure if the chain of trust ends above it, and else false: goes down from `from`, the zone of the server, one
    /// label after the other, as a server may serve zones below that no referral told of.
    pub(super) fn walk(
        &self,
        from: Name<'_>,
        name: Name<'_>,
        rtype: Rtype,
        context: &Context<'_>,
    ) -> Result<Security, Stop> {
        let Some(anchor) = context.anchor_of(name, rtype) else { return Ok(Security::Insecure(None)) };
        // A DS set is in the zone above.
        let lowest = if rtype == Rtype::DS { name.parent().unwrap_or(name) } else { name };
        let first = from.label_count().max(anchor.zone().as_name().label_count());
        for labels in first..=lowest.label_count() {
            match self.ds(last_labels(lowest, labels), context)? {
                Ds::Insecure(ede) => return Ok(Security::Insecure(ede)),
                Ds::Secure(_) | Ds::NoCut => {}
            }
        }
        Err(Stop::Bogus(Ede::RRSIGS_MISSING))
    }

    pub(super) fn keys(&self, zone: Name<'_>, context: &Context<'_>) -> Result<Keys<'_>, Stop> {
        if context.anchor_for(zone).is_none() {
            return Ok(Keys::Insecure(None));
        }
        let (security, set) = match self.fact(zone, Rtype::DNSKEY)? {
            Fact::Set(set) => (set.security, Some(set)),
            Fact::Absent(soa) => (soa.security, None),
            Fact::Other(security) => (*security, None),
            Fact::Failed(ede) => return Err(Stop::Failed(*ede)),
        };
        match (security, set) {
            (Security::Secure, Some(set)) => Ok(Keys::Secure(keys::keys(set))),
            (Security::Insecure(ede), _) => Ok(Keys::Insecure(ede)),
            _ => Err(Stop::Bogus(Ede::DNSKEY_MISSING)),
        }
    }

    /// Whether a chain of trust enters the zone at `zone`. One whose keys are all of kinds that we do not know is insecure (RFC 4035, 5.2).
    pub(super) fn ds<'a>(&'a self, zone: Name<'_>, context: &'a Context<'_>) -> Result<Ds<'a>, Stop> {
        let Some(anchor) = context.anchor_for(zone) else { return Ok(Ds::Insecure(None)) };
        if anchor.zone().as_name() == zone {
            return Ok(supported(anchor.ds(), context.options));
        }
        let (security, proof) = match self.fact(zone, Rtype::DS)? {
            Fact::Set(set) if set.security == Security::Secure => {
                return Ok(supported(&set.rdatas, context.options));
            }
            Fact::Set(set) => (set.security, &[][..]),
            Fact::Absent(soa) => (soa.security, soa.absence()),
            Fact::Other(security) => (*security, &[][..]),
            Fact::Failed(ede) => return Err(Stop::Failed(*ede)),
        };
        Ok(match security {
            Security::Insecure(ede) => Ds::Insecure(ede),
            _ if denial::is_delegation(zone, proof) => Ds::Insecure(None),
            _ => Ds::NoCut,
        })
    }

    fn fact(&self, zone: Name<'_>, rtype: Rtype) -> Result<&Fact, Stop> {
        let fits = |question: &Question| question.rtype == rtype && question.name.as_name() == zone;
        let found = self.0.iter().find(|(question, _)| fits(question));
        found.map(|(_, fact)| fact).ok_or_else(|| Stop::Need(Box::new(Question::new(zone, rtype))))
    }
}

fn supported<'a>(ds: &'a Rdatas, options: &Dnssec) -> Ds<'a> {
    match keys::check_support(ds, options.sha1) {
        Ok(()) => Ds::Secure(ds),
        Err(ede) => Ds::Insecure(Some(ede)),
    }
}
