//! What a response means for the question that was asked (RFC 1034, 5.3.3; RFC 2308, 2).
//!
//! Only records that the server's zone contains are looked at (*bailiwick*): answers and aliases at or below the zone, SOA records within
//! it, delegations strictly below it. All else in the message is as if it were not there. Zones below it that the user sends elsewhere are not
//! its own, either. A forwarder is believed, but likewise only about its zone: an alias that leads out of it is followed from the start.

use std::sync::Arc;

use dns_wire::header::flag::AA;
use dns_wire::{Name, NameBuf, Rtype};

use crate::cache::Rank;
use crate::dnssec::Security;
use crate::message::flag::RA;
use crate::message::{Message, Rdatas, Rrset};
use crate::resolver::Directed;

/// What was asked, and whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The zone that the server is to know.
    pub(crate) zone: Name<'a>,
    pub(crate) qname: Name<'a>,
    pub(crate) rtype: Rtype,
    /// The server resolves for us.
    pub(crate) is_forwarder: bool,
    /// Zones whose servers the user names.
    pub(crate) directed: &'a [Directed],
    /// The query had an OPT record.
    pub(crate) had_edns: bool,
}

/// What a response says. `aliases` lead from the question's name to the name that it is about.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The records asked for.
    Answer { aliases: Vec<Rrset>, set: Rrset, rank: Rank },
    /// The name is an alias of another one, about which this server says nothing.
    Alias { aliases: Vec<Rrset>, target: NameBuf, rank: Rank },
    /// The last name has no records of the type.
    NoData { aliases: Vec<Rrset>, name: NameBuf, soa: Option<Arc<Rrset>> },
    /// The last name does not exist.
    NoName { aliases: Vec<Rrset>, name: NameBuf, soa: Option<Arc<Rrset>> },
    /// Servers of a zone further down know more.
    Referral(Rrset),
    /// The server seems not to understand EDNS.
    NoEdns,
    /// The server does not know the zone, refuses, fails, or makes no sense.
    Lame,
    /// A DNAME makes the name too long (RFC 6672, 2.2).
    TooLong,
}

impl Verdict {
    /// The set number `index` of the answer section, aliases first.
    pub(crate) fn link(&self, index: usize) -> Option<&Rrset> {
        let (aliases, set) = match self {
            Verdict::Answer { aliases, set, .. } => (aliases, Some(set)),
            Verdict::Alias { aliases, .. }
            | Verdict::NoData { aliases, .. }
            | Verdict::NoName { aliases, .. } => (aliases, None),
            _ => return None,
        };
        aliases.iter().chain(set).nth(index)
    }

    /// The same, to be changed.
    pub(crate) fn link_mut(&mut self, index: usize) -> Option<&mut Rrset> {
        let (aliases, set) = match self {
            Verdict::Answer { aliases, set, .. } => (aliases, Some(set)),
            Verdict::Alias { aliases, .. }
            | Verdict::NoData { aliases, .. }
            | Verdict::NoName { aliases, .. } => (aliases, None),
            _ => return None,
        };
        aliases.iter_mut().chain(set).nth(index)
    }

    /// The SOA record of a denial.
    pub(crate) fn soa_mut(&mut self) -> Option<&mut Rrset> {
        match self {
            Verdict::NoData { soa, .. } | Verdict::NoName { soa, .. } => soa.as_mut().map(Arc::make_mut),
            _ => None,
        }
    }

    /// Says of all sets that they are worth `security`.
    pub(crate) fn set_security(&mut self, security: Security) {
        let mut index = 0;
        while let Some(set) = self.link_mut(index) {
            set.security = security;
            index += 1;
        }
        if let Some(soa) = self.soa_mut() {
            soa.security = security;
        }
    }
}

const FORMERR: u16 = 1;
const NXDOMAIN: u16 = 3;
const NOTIMP: u16 = 4;
const YXDOMAIN: u16 = 6;
const BADVERS: u16 = 16;

/// Aliases that are followed within one message.
const ALIASES_MAX: usize = 16;

/// Says what `message` means.
pub(crate) fn classify(message: &Message, asked: &Asked<'_>) -> Verdict {
    match message.rcode {
        0 | NXDOMAIN | YXDOMAIN => {}
        BADVERS if asked.had_edns => return Verdict::NoEdns,
        // Who sends an OPT record understands EDNS, and objects to something else (RFC 6891, 7).
        FORMERR | NOTIMP if asked.had_edns && !message.has_opt => return Verdict::NoEdns,
        _ => return Verdict::Lame,
    }
    let is_authority = message.flags & AA != 0 || asked.is_forwarder;
    if !is_authority && message.flags & RA != 0 {
        return Verdict::Lame; // Another resolver: what it says comes from its cache.
    }
    let rank = if is_authority { Rank::Authority } else { Rank::Plain };
    let mut name = NameBuf::from(asked.qname);
    let mut aliases = Vec::new();
    while aliases.len() <= ALIASES_MAX {
        if let Some(set) = message.answer_set(name.as_name(), asked.rtype) {
            return Verdict::Answer { aliases, set, rank };
        }
        match next_alias(message, name.as_name(), asked.zone, &mut aliases) {
            Next::End => return end(message, asked, aliases, name, is_authority),
            Next::TooLong => return Verdict::TooLong,
            Next::Target(target) if may_speak_of(asked, target.as_name()) => name = *target,
            Next::Target(target) => return Verdict::Alias { aliases, target: *target, rank },
        }
    }
    Verdict::Lame
}

/// Whether `name` is in the server's zone, and in none below it that the user sends elsewhere.
fn may_speak_of(asked: &Asked<'_>, name: Name<'_>) -> bool {
    let is_elsewhere = |zone: Name<'_>| name.ends_with(zone) && zone.label_count() > asked.zone.label_count();
    name.ends_with(asked.zone) && !asked.directed.iter().any(|other| is_elsewhere(other.zone.as_name()))
}

enum Next {
    Target(Box<NameBuf>),
    TooLong,
    End,
}

/// The alias at `name`, if the message has one: by a DNAME above it (RFC 6672, 3.4.1), whose CNAME we make ourselves, or by a CNAME.
fn next_alias(message: &Message, name: Name<'_>, zone: Name<'_>, aliases: &mut Vec<Rrset>) -> Next {
    let mut above = name.parent();
    while let Some(owner) = above.filter(|owner| owner.ends_with(zone)) {
        if let Some(dname) = message.answer_set(owner, Rtype::DNAME) {
            let Some(cname) = synthesise(name, &dname) else { return Next::TooLong };
            let Some(target) = cname.target() else { return Next::End };
            aliases.extend([dname, cname]);
            return Next::Target(target.into());
        }
        above = owner.parent();
    }
    let Some(cname) = message.answer_set(name, Rtype::CNAME) else { return Next::End };
    let Some(target) = cname.target() else { return Next::End };
    aliases.push(cname);
    Next::Target(target.into())
}

/// The CNAME that a DNAME above `name` means; `None` if its target would be too long.
pub(crate) fn synthesise(name: Name<'_>, dname: &Rrset) -> Option<Rrset> {
    let ahead = name.len() - dname.owner.as_name().len();
    let target = dname.target()?;
    let wire = [&name.as_bytes()[..ahead], target.as_name().as_bytes()].concat();
    let target = Name::from_wire(&wire).ok()?;
    let rdatas = Rdatas::pack([target.as_bytes()]);
    let security = dname.security; // Nobody signs what everybody can make (RFC 6672, 5.3.1).
    Some(Rrset { owner: name.into(), rtype: Rtype::CNAME, ttl: dname.ttl, rdatas, security, proof: None })
}

/// What a message says that has no records of the type at `name`, the end of the aliases.
fn end(
    message: &Message,
    asked: &Asked<'_>,
    aliases: Vec<Rrset>,
    name: NameBuf,
    is_authority: bool,
) -> Verdict {
    let soa = find_soa(message, asked, name.as_name());
    if message.rcode == YXDOMAIN {
        return Verdict::TooLong;
    }
    if message.rcode == NXDOMAIN {
        if !is_authority && soa.is_none() {
            return Verdict::Lame;
        }
        return Verdict::NoName { aliases, name, soa };
    }
    if soa.is_some() {
        return Verdict::NoData { aliases, name, soa };
    }
    if !aliases.is_empty() {
        let rank = if is_authority { Rank::Authority } else { Rank::Plain };
        return Verdict::Alias { aliases, target: name, rank };
    }
    if let Some(set) = find_referral(message, asked) {
        return Verdict::Referral(set);
    }
    let speaks_for_itself = asked.is_forwarder || is_authority && !has_foreign_referral(message, asked);
    if speaks_for_itself { Verdict::NoData { aliases, name, soa: None } } else { Verdict::Lame }
}

/// The SOA record of a zone that contains `name` and is within the server's; a forwarder's may be above, as all it does is to say
/// how long the denial lasts.
fn find_soa(message: &Message, asked: &Asked<'_>, name: Name<'_>) -> Option<Arc<Rrset>> {
    let mut owners = message.authority.iter().filter(|record| record.rtype == Rtype::SOA);
    let fits = |owner: Name<'_>| name.ends_with(owner) && (asked.is_forwarder || owner.ends_with(asked.zone));
    let owner = owners.find(|record| fits(record.owner.as_name()))?;
    message.authority_set(owner.owner.as_name(), Rtype::SOA).map(Arc::new)
}

/// The NS records of a zone strictly below the server's, on the way to the question's name. Anything else would lead nowhere, or in
/// a circle.
fn find_referral(message: &Message, asked: &Asked<'_>) -> Option<Rrset> {
    if asked.is_forwarder {
        return None;
    }
    let mut sets = message.authority.iter().filter(|record| record.rtype == Rtype::NS);
    let leads_on = |owner: Name<'_>| {
        asked.qname.ends_with(owner) && owner.ends_with(asked.zone) && owner.len() > asked.zone.len()
    };
    let owner = sets.find(|record| leads_on(record.owner.as_name()))?;
    message.authority_set(owner.owner.as_name(), Rtype::NS)
}

/// Whether the message sends us to a zone that is not on the way down.
fn has_foreign_referral(message: &Message, asked: &Asked<'_>) -> bool {
    let is_foreign = |owner: Name<'_>| owner != asked.zone;
    message.authority.iter().any(|record| record.rtype == Rtype::NS && is_foreign(record.owner.as_name()))
}
