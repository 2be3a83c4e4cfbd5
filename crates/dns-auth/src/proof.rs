//! What proves to a validator that something is not there (RFC 4035, 3.1.3; RFC 5155, 7.2).
//!
//! | what is denied | by NSEC | by NSEC3 |
//! | --- | --- | --- |
//! | the name, and a wildcard in its place | records that cover both | encloser matched, next closer name and wildcard covered |
//! | a type at a name | the name matched, or covered if it has no records | the name matched; opt-out: encloser matched, next closer covered |
//! | a name closer than the wildcard that answers | the name covered | the next closer name covered |
//! | a type at the wildcard that answers | the wildcard matched, the name covered | encloser and wildcard matched, next closer covered |
//!
//! With compact denial (RFC 9824, 3) one NSEC record that matches the name is all, and nothing denies closer names than a wildcard's. If the name has no
//! records of its own, that record is [`Made`] for the answer.

use arrayvec::ArrayVec;
use dns_wire::{LabelStarts, Name, NameBuf, Rtype};
use dns_zone::{Denial, Node, Nsec3, Zone};

use crate::resolve::HOPS_MAX;

/// Nodes that one answer proves by, at most: one for each wildcard that a chain of aliases comes by, and four at its end.
const NODES_MAX: usize = HOPS_MAX + 4;

/// The nodes whose NSEC or NSEC3 records belong into an answer's authority section, each once.
#[derive(Default)]
pub(crate) struct Proof<'a> {
    nodes: ArrayVec<Node<'a>, NODES_MAX>,
    /// How many of them were taken.
    taken: usize,
    /// A record that is to be made.
    made: Option<Made<'a>>,
}

/// An NSEC record that no zone has, and whose types are no more than these.
#[derive(Clone, Copy)]
pub(crate) struct Made<'a> {
    /// The zone that denies.
    pub(crate) zone: &'a Zone,
    /// Its owner.
    pub(crate) name: &'a [u8],
    /// Its bit maps (RFC 4034, 4.1.2).
    pub(crate) types: &'a [u8],
}

/// RRSIG (46) and NSEC (47).
const NO_TYPES: &[u8] = &[0, 6, 0, 0, 0, 0, 0, 0b11];

/// The same and NXNAME (128).
const NO_NAME: &[u8] = &[0, 17, 0, 0, 0, 0, 0, 0b11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];

/// A name that does not exist.
#[derive(Clone, Copy)]
pub(crate) struct Missing<'n, 'a> {
    /// The name, which is below `encloser`.
    pub(crate) name: &'a [u8],
    /// Its labels.
    pub(crate) labels: &'n LabelStarts,
    /// The longest of its ancestors that exists.
    pub(crate) encloser: Node<'a>,
}

impl<'a> Proof<'a> {
    /// The next node whose record is to be written.
    pub(crate) fn take(&mut self) -> Option<Node<'a>> {
        let node = *self.nodes.get(self.taken)?;
        self.taken += 1;
        Some(node)
    }

    /// The record that is to be made, once.
    pub(crate) fn take_made(&mut self) -> Option<Made<'a>> {
        self.made.take()
    }

    /// Neither the name exists nor a wildcard in its place.
    pub(crate) fn no_name(&mut self, zone: &'a Zone, missing: Missing<'_, 'a>) {
        match zone.denial() {
            Some(Denial::Nsec(names)) => {
                self.add(names.at_or_before(checked(missing.name)));
                let encloser = missing.encloser;
                let at_wildcard = match encloser.parent() {
                    None => names.at_or_before_wildcard(),
                    Some(_) => wildcard_below(encloser).map(|name| names.at_or_before(name.as_name())),
                };
                self.add_if(at_wildcard);
            }
            Some(Denial::Nsec3(hashes)) => {
                let Some(encloser) = provable(hashes, missing.encloser) else { return };
                self.add_if(hashes.matching(encloser));
                self.add_if(hashes.covering(next_closer(missing.name, missing.labels, encloser)));
                // Below the encloser that is proven, which opt-out may put further up. A wildcard that is there cannot be denied.
                let wildcard = wildcard_below(encloser);
                wildcard.into_iter().for_each(|name| self.add_if(hashes.covering(name.as_name())));
            }
            Some(Denial::Compact) => self.made = Some(Made { zone, name: missing.name, types: NO_NAME }),
            None => {}
        }
    }

    /// The name of `node` exists, and has no records of the type in question, or none at all.
    pub(crate) fn no_data(&mut self, zone: &'a Zone, node: Node<'a>) {
        match zone.denial() {
            Some(Denial::Nsec(names)) => self.add(names.at_or_before(name_of(node))),
            Some(Denial::Nsec3(hashes)) => {
                let Some(encloser) = provable(hashes, node) else { return };
                self.add_if(hashes.matching(encloser));
                if encloser.id() != node.id() {
                    let labels = LabelStarts::of(name_of(node));
                    self.add_if(hashes.covering(next_closer(node.name(), &labels, encloser)));
                }
            }
            Some(Denial::Compact) if node.denying().is_some() => self.add(node),
            Some(Denial::Compact) if node.rrsets().next().is_none() => {
                self.made = Some(Made { zone, name: node.name(), types: NO_TYPES });
            }
            Some(Denial::Compact) => {} // Whoever signed the zone has forgotten it.
            None => {}
        }
    }

    /// A wildcard answers for the name: none is closer to it.
    pub(crate) fn no_closer(&mut self, zone: &'a Zone, missing: Missing<'_, 'a>) {
        match zone.denial() {
            Some(Denial::Nsec(names)) => self.add(names.at_or_before(checked(missing.name))),
            Some(Denial::Nsec3(hashes)) => {
                let Some(encloser) = provable(hashes, missing.encloser) else { return };
                self.add_if(hashes.covering(next_closer(missing.name, missing.labels, encloser)));
            }
            Some(Denial::Compact) | None => {}
        }
    }

    /// As [`Proof::no_closer`], and the wildcard has no records of the type in question.
    pub(crate) fn no_data_at_wildcard(
        &mut self,
        zone: &'a Zone,
        wildcard: Node<'a>,
        missing: Missing<'_, 'a>,
    ) {
        match zone.denial() {
            Some(Denial::Nsec3(hashes)) => {
                let encloser = provable(hashes, missing.encloser);
                let record = encloser.and_then(|encloser| hashes.matching(encloser));
                self.add_if(record);
            }
            Some(Denial::Compact) => {
                self.made = Some(Made { zone, name: missing.name, types: types_at(wildcard) });
                return;
            }
            _ => {}
        }
        self.no_closer(zone, missing);
        self.no_data(zone, wildcard);
    }

    fn add_if(&mut self, node: Option<Node<'a>>) {
        node.into_iter().for_each(|node| self.add(node));
    }

    fn add(&mut self, node: Node<'a>) {
        if self.nodes.iter().all(|other| !std::ptr::eq(other.name(), node.name())) {
            let _ = self.nodes.try_push(node); // There is room for all.
        }
    }
}

/// The bit maps of a node's NSEC record, or of one that says that there is nothing.
fn types_at(node: Node<'_>) -> &[u8] {
    let rdata = node.rrset(Rtype::NSEC).and_then(|set| set.records().next());
    let types = rdata.and_then(|rdata| Name::split_from(rdata).ok()).map(|(_, types)| types);
    types.unwrap_or(NO_TYPES)
}

/// The node, or its nearest ancestor that has a record: with opt-out, names that only lead to insecure delegations have none
/// (RFC 5155, 7.1).
fn provable<'a>(hashes: Nsec3<'a>, node: Node<'a>) -> Option<Node<'a>> {
    node.ancestors().find(|node| hashes.matching(*node).is_some())
}

/// The ending of `name` that has one label more than `encloser`, which is above it.
fn next_closer<'n>(name: &'n [u8], labels: &LabelStarts, encloser: Node<'_>) -> Name<'n> {
    let depth = LabelStarts::of(name_of(encloser)).count();
    checked(&name[labels.of_last(depth + 1)..])
}

/// The wildcard that would answer for names below `encloser`; `None` if its name would be too long.
fn wildcard_below(encloser: Node<'_>) -> Option<NameBuf> {
    let mut name = NameBuf::from(name_of(encloser));
    name.prepend(b"*").ok()?;
    Some(name)
}

fn name_of(node: Node<'_>) -> Name<'_> {
    checked(node.name())
}

fn checked(name: &[u8]) -> Name<'_> {
    Name::from_wire(name).expect("names of zones and questions are valid")
}

#[cfg(test)]
mod tests {
    use dns_zone::ZoneBuilder;
    use nsec3::Parameters;

    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    /// A zone with thirty hosts, and `ent.example.`, which only leads to an insecure delegation: opt-out leaves that without a record.
    fn opted_out() -> Zone {
        const SOA: &[u8] = &[0; 22];
        let mut builder = ZoneBuilder::new(name("example.").as_name(), 3);
        let mut add =
            |owner: &str, rtype, rdata: &[u8]| builder.add(name(owner).as_name(), 60, rtype, rdata).unwrap();
        add("example.", Rtype::SOA, SOA);
        add("example.", Rtype::NSEC3PARAM, &[1, 0, 0, 0, 0]);
        add("d.ent.example.", Rtype::NS, b"\x02ns\x05other\0");
        let mut names: Vec<String> = (0..30).map(|number| format!("h{number}.example.")).collect();
        names.iter().for_each(|host| add(host, Rtype::A, &[192, 0, 2, 1]));
        names.push("example.".to_owned());
        for owner in &names {
            let hash = Parameters { iterations: 0, salt: &[] }.hash(name(owner).as_name());
            let label = nsec3::to_base32hex(&hash);
            let owner = format!("{}.example.", std::str::from_utf8(&label).unwrap());
            add(&owner, Rtype::NSEC3, &[&[1, 1, 0, 0, 0, 20][..], &hash].concat());
            add(&owner, Rtype::RRSIG, &[&Rtype::NSEC3.0.to_be_bytes()[..], &[8; 20]].concat());
        }
        builder.finish().unwrap()
    }

    #[test]
    fn below_a_name_that_opt_out_leaves_without_record_the_wildcard_of_the_proven_encloser_is_denied() {
        let zone = opted_out();
        let asked = name("x.ent.example.");
        let (name_asked, labels) = (asked.as_name().as_bytes(), LabelStarts::of(asked.as_name()));
        let encloser = zone.closest_encloser(name_asked, &labels);
        assert_eq!(encloser.name(), name("ent.example.").as_name().as_bytes());
        let mut proof = Proof::default();
        proof.no_name(&zone, Missing { name: name_asked, labels: &labels, encloser });
        let proven: Vec<_> = std::iter::from_fn(|| proof.take()).map(Node::id).collect();
        let Some(Denial::Nsec3(hashes)) = zone.denial() else { panic!("it has NSEC3 records") };
        let covering = |text: &str| hashes.covering(name(text).as_name()).unwrap().id();
        assert!(proven.contains(&hashes.matching(zone.apex()).unwrap().id()), "the encloser");
        assert!(proven.contains(&covering("ent.example.")), "the next closer name");
        assert!(proven.contains(&covering("*.example.")), "the wildcard below the encloser (RFC 5155, 8.4)");
    }
}
