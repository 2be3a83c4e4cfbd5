//! `+trace`: the way from the root's servers to the answer, as a resolver goes it.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail};
use dns_client::{Server, Transport};
use dns_message::Record;
use dns_wire::{Name, NameBuf, Rcode, Rtype};

use super::answer::Answer;
use super::show::{line, origin};
use super::{Asker, Form, print};

/// Referrals that one name may need. Real ones need four or five.
const REFERRALS_MAX: usize = 32;
/// Name servers of one referral whose addresses are looked for.
const SERVERS_MAX: usize = 13;
/// Addresses of one of them that are asked.
const ADDRESSES_MAX: usize = 4;

/// Asks the servers of the root, then those that each answer names, until one has the answer. `resolver` is asked for the root's
/// servers, and for addresses that no referral has.
pub(super) fn trace(asker: &Asker<'_>, resolver: &Server, out: &mut dyn Write) -> anyhow::Result<()> {
    let question = asker.words.question();
    let transport = match asker.words.transport {
        Transport::Udp | Transport::Tcp => asker.words.transport,
        other => bail!("+trace asks authoritative servers, which have no {}: use UDP or +tcp", other.name()),
    };
    let root = asker.ask(resolver, transport, &question.about(NameBuf::from(Name::ROOT), Rtype::NS), true)?;
    let mut referral = Referral::of(&root)
        .with_context(|| format!("{} does not name the root's servers", resolver.address))?;
    referral.write(&root, asker.words.form, out)?;
    let iterative = question.without_recursion();
    for _ in 0..REFERRALS_MAX {
        let answer = ask_any(asker, resolver, &referral, transport, &iterative)?;
        match Referral::of(&answer).filter(|next| next.is_below(&referral, iterative.name.as_name())) {
            Some(next) if !answer.is_authoritative() && answer.sections[0].is_empty() => {
                next.write(&answer, asker.words.form, out)?;
                referral = next;
            }
            _ => return print(&answer, asker.words.form, out),
        }
    }
    bail!("more than {REFERRALS_MAX} referrals")
}

/// The answer of the first server of the referral that gives one.
fn ask_any(
    asker: &Asker<'_>,
    resolver: &Server,
    referral: &Referral,
    transport: Transport,
    question: &super::question::Question,
) -> anyhow::Result<Answer> {
    let mut last = None;
    for name in referral.servers.iter().take(SERVERS_MAX) {
        for address in referral.addresses(asker, resolver, transport, name.as_name()) {
            let address = SocketAddr::new(address, Transport::Udp.port());
            let server = Server { address, name: Some(name.to_string()), path: String::new() };
            match asker.ask(&server, transport, question, true) {
                Ok(answer) if is_of_use(&answer) => return Ok(answer),
                Ok(answer) => last = Some(anyhow::anyhow!("{address} says {}", answer.rcode())),
                Err(error) => last = Some(error),
            }
        }
    }
    let zone = &referral.zone;
    Err(last.unwrap_or_else(|| anyhow::anyhow!("none of them has an address")))
        .with_context(|| format!("no server of {zone} answers"))
}

/// Whether the other servers of a zone would say nothing else.
fn is_of_use(answer: &Answer) -> bool {
    [Rcode::NoError, Rcode::NxDomain].into_iter().any(|rcode| answer.rcode == rcode as u16)
}

/// Who serves a zone.
struct Referral {
    zone: NameBuf,
    servers: Vec<NameBuf>,
    /// Addresses of servers, as the referral has them.
    glue: Vec<(NameBuf, IpAddr)>,
}

impl Referral {
    /// The NS set of an answer, in the answer or the authority section.
    fn of(answer: &Answer) -> Option<Referral> {
        let records = || answer.sections[..2].iter().flatten();
        let zone = records().find(|record| record.rtype == Rtype::NS)?.owner.clone();
        let is_server = |record: &&Record| record.rtype == Rtype::NS && record.owner == zone;
        let servers = records().filter(is_server).filter_map(|record| Name::from_wire(&record.rdata).ok());
        let servers = servers.map(NameBuf::from).collect();
        let glue =
            answer.sections[2].iter().filter_map(|record| Some((record.owner.clone(), address(record)?)));
        Some(Referral { servers, glue: glue.collect(), zone })
    }

    /// Whether it leads nearer to `name`.
    fn is_below(&self, parent: &Referral, name: Name<'_>) -> bool {
        let zone = self.zone.as_name();
        name.ends_with(zone) && zone.ends_with(parent.zone.as_name()) && self.zone != parent.zone
    }

    fn addresses(
        &self,
        asker: &Asker<'_>,
        resolver: &Server,
        transport: Transport,
        name: Name<'_>,
    ) -> Vec<IpAddr> {
        let glue: Vec<IpAddr> = self
            .glue
            .iter()
            .filter(|(owner, _)| owner.as_name() == name)
            .map(|(_, address)| *address)
            .take(ADDRESSES_MAX)
            .collect();
        if !glue.is_empty() {
            return glue;
        }
        let ask = |qtype| {
            asker.ask(resolver, transport, &asker.words.question().about(NameBuf::from(name), qtype), true)
        };
        let found = [Rtype::A, Rtype::AAAA].into_iter().filter_map(|qtype| ask(qtype).ok());
        let found =
            found.flat_map(|answer| answer.sections[0].iter().filter_map(address).collect::<Vec<_>>());
        found.take(ADDRESSES_MAX).collect()
    }

    /// Short answers and JSON have no place for the way.
    fn write(&self, answer: &Answer, form: Form, out: &mut dyn Write) -> anyhow::Result<()> {
        if form != Form::Long {
            return Ok(());
        }
        let is_shown =
            |record: &&Record| record.owner == self.zone && matches!(record.rtype, Rtype::NS | Rtype::DS);
        for record in answer.sections[..2].iter().flatten().filter(is_shown) {
            writeln!(out, ";; {}", line(record))?;
        }
        writeln!(out, ";; {}\n", origin(answer))?;
        Ok(())
    }
}

fn address(record: &Record) -> Option<IpAddr> {
    match record.rtype {
        Rtype::A => Some(<[u8; 4]>::try_from(&record.rdata[..]).ok()?.into()),
        Rtype::AAAA => Some(<[u8; 16]>::try_from(&record.rdata[..]).ok()?.into()),
        _ => None,
    }
}
