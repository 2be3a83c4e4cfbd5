//! What proves to a validator that something is not there (RFC 4035, 3.1.3; RFC 5155, 7.2).
//!
//! | what is denied | by NSEC | by NSEC3 |
//! | --- | --- | --- |
//! | the name, and a wildcard in its place | records that cover both | encloser matched, next closer name and wildcard covered |
//! | a type at a name | the name matched, or covered if it has no records | the name matched; opt-out: encloser matched, next closer covered |
//! | a name closer than the wildcard that answers | the name covered | the next closer name covered |
//! | a type at the wildcard that answers | the wildcard matched, the name covered | encloser and wildcard matched, next closer covered |

use arrayvec::ArrayVec;
use dns_wire::{LabelStarts, Name, NameBuf};
use dns_zone::{Denial, Node, Nsec3, Zone};

/// Nodes that one answer proves by, at most. Few chains of aliases need more than four.
const NODES_MAX: usize = 64;

/// The nodes whose NSEC or NSEC3 records belong into an answer's authority section, each once.
#[derive(Default)]
pub(crate) struct Proof<'a> {
    nodes: ArrayVec<Node<'a>, NODES_MAX>,
    /// How many of them were taken.
    taken: usize,
}

/// A name that does not exist.
#[derive(Clone, Copy)]
pub(crate) struct Missing<'n, 'a> {
    /// The name, which is below `encloser`.
    pub(crate) name: &'n [u8],
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

    /// Neither the name exists nor a wildcard in its place.
    pub(crate) fn no_name(&mut self, zone: &'a Zone, missing: Missing<'_, 'a>) {
        self.no_closer(zone, missing);
        let Some(wildcard) = wildcard_below(missing.encloser) else { return };
        match zone.denial() {
            Some(Denial::Nsec(names)) => self.add(names.at_or_before(wildcard.as_name())),
            Some(Denial::Nsec3(hashes)) => {
                self.provable_encloser(hashes, missing.encloser);
                self.add(hashes.covering(wildcard.as_name()));
            }
            None => {}
        }
    }

    /// The name of `node` exists, and has no records of the type in question, or none at all.
    pub(crate) fn no_data(&mut self, zone: &'a Zone, node: Node<'a>) {
        match zone.denial() {
            Some(Denial::Nsec(names)) => self.add(names.at_or_before(name_of(node))),
            Some(Denial::Nsec3(hashes)) => match hashes.matching(name_of(node)) {
                Some(own) => self.add(own),
                None => {
                    let below = self.provable_encloser(hashes, node);
                    below.into_iter().for_each(|next_closer| self.add(hashes.covering(name_of(next_closer))));
                }
            },
            None => {}
        }
    }

    /// A wildcard answers for the name: none is closer to it.
    pub(crate) fn no_closer(&mut self, zone: &'a Zone, missing: Missing<'_, 'a>) {
        match zone.denial() {
            Some(Denial::Nsec(names)) => self.add(names.at_or_before(checked(missing.name))),
            Some(Denial::Nsec3(hashes)) => {
                let depth = LabelStarts::of(name_of(missing.encloser)).count();
                let provable =
                    ancestors(missing.encloser).position(|node| hashes.matching(name_of(node)).is_some());
                let depth = depth - provable.unwrap_or(0) as u8; // A name has at most 127 labels.
                let next_closer = &missing.name[missing.labels.of_last(depth + 1)..];
                self.add(hashes.covering(checked(next_closer)));
            }
            None => {}
        }
    }

    /// As [`Proof::no_closer`], and the wildcard has no records of the type in question.
    pub(crate) fn no_data_at_wildcard(
        &mut self,
        zone: &'a Zone,
        wildcard: Node<'a>,
        missing: Missing<'_, 'a>,
    ) {
        if let Some(Denial::Nsec3(hashes)) = zone.denial() {
            self.provable_encloser(hashes, missing.encloser);
        }
        self.no_closer(zone, missing);
        self.no_data(zone, wildcard);
    }

    /// Proves that `node`, or its nearest ancestor of which there is a record, exists: with opt-out, names that only lead to insecure
    /// delegations have none (RFC 5155, 7.1). Returns the ancestor's child on the way to `node`, if the ancestor is not `node` itself.
    fn provable_encloser(&mut self, hashes: Nsec3<'a>, node: Node<'a>) -> Option<Node<'a>> {
        let mut next_closer = None;
        for above in ancestors(node) {
            if let Some(record) = hashes.matching(name_of(above)) {
                self.add(record);
                return next_closer;
            }
            next_closer = Some(above);
        }
        None
    }

    fn add(&mut self, node: Node<'a>) {
        if self.nodes.iter().all(|other| !std::ptr::eq(other.name(), node.name())) {
            let _ = self.nodes.try_push(node); // A proof beyond that is incomplete, and the client asks again for the alias.
        }
    }
}

/// A node, and all above it up to the apex.
fn ancestors(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    std::iter::successors(Some(node), |node| node.parent())
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
