//! The search of RFC 1034, 4.3.2, as clarified since: from a question to the records of an answer.
//!
//! | rule | source |
//! | --- | --- |
//! | wildcards, empty non-terminals, the closest encloser | RFC 4592, 3.3 |
//! | CNAME chains, also from zone to zone; the code is that of the last name | RFC 1034, 3.6.2; RFC 6604, 2 and 3 |
//! | DNAME, with a synthesised CNAME of the same TTL | RFC 6672, 3.1 |
//! | delegations; glue is complete, or TC says that it is not | RFC 1034, 4.3.2 (3b); RFC 9471, 3 |
//! | a name with names below it exists | RFC 8020, 2 |
//! | negative answers carry the SOA with the negative TTL | RFC 2308, 3 and 5 |
//! | service bindings bring the addresses and bindings of their targets | RFC 9460, 4.1 |
//! | ANY is answered with one of the record sets | RFC 8482, 4.1 |
//! | DS belongs to the parent's side of a cut | RFC 4035, 3.1.4.1 |
//! | compact denial: names that do not exist are denied as such without records, and wildcards make names that exist | RFC 9824, 3 and 5.1 |

use std::cell::OnceCell;

use arrayvec::ArrayVec;
use dns_wire::fold::{self, Folded};
use dns_wire::header::Counts;
use dns_wire::{LabelStarts, Name, NameBuf, Rcode, Rtype};
use dns_zone::builder::{is_service_binding, target_offset};
use dns_zone::{Denial, Node, Rrset, Zone, next_name};

use crate::catalog::{Catalog, ServedZone, Unavailable};
use crate::extended_error::ExtendedError;
use crate::lines::Asker;
use crate::online::{Online, OnlineSet, Unsigned, ZoneSigner};
use crate::proof::{Made, Missing, Proof};
use crate::writer::{Full, Mark, Owner, Question, Writer, name_len};

/// Names that one answer follows at most, the question's included.
pub const HOPS_MAX: usize = 16;
/// Records of an answer whose targets are looked up for the additional section, at most.
const TARGETS_MAX: usize = 64;

/// Where zones are looked up.
#[derive(Clone, Copy)]
pub enum Zones<'a> {
    /// Among all that are served, as this client sees them. The number is the place of the question's zone.
    Catalog(&'a Catalog, Option<u32>, &'a Asker),
    /// In this one alone: when its answers are compiled.
    Only(&'a Zone),
}

/// Names that an answer needs and no zone holds: the question's, and those that DNAMEs make.
#[derive(Default)]
pub struct Scratch {
    qname: NameBuf,
    labels: LabelStarts,
    synthesised: [OnceCell<NameBuf>; HOPS_MAX],
}

impl Scratch {
    /// Forgets the last answer and takes a copy of the next question's name, whose labels are `labels`.
    pub fn begin(&mut self, qname: Name<'_>, labels: &LabelStarts) {
        self.qname.set(qname);
        self.labels = *labels;
        let used = self.synthesised.iter_mut().map(OnceCell::take);
        used.take_while(Option::is_some).for_each(drop);
    }

    /// Holds `name` until the next question. Cells are taken in order, so that [`Scratch::begin`] finds all of them.
    fn keep(&self, name: NameBuf) -> &[u8] {
        let cell = self.synthesised.iter().find(|cell| cell.get().is_none());
        cell.expect("each hop makes one name at most").get_or_init(|| name).as_name().as_bytes()
    }
}

/// What was found, besides the records that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The response code.
    pub rcode: Rcode,
    /// The AA bit: authority for the first owner in the answer (RFC 1035, 4.1.1).
    pub authoritative: bool,
    /// The TC bit: something that belongs to the answer had no room.
    pub truncated: bool,
    /// Records per section; one question.
    pub counts: Counts,
    /// Offset behind the last record.
    pub end: usize,
    /// Names that were followed.
    pub hops: usize,
    /// The answer ends with a name of no zone that has data here.
    pub left_zones: bool,
    /// Why the question gets an error, if that is to be said.
    pub error: Option<ExtendedError>,
    /// Why the answer, which is truncated then, lacks a signature that it needs.
    pub unsigned: Option<Unsigned>,
    /// The answer depends on the line of the client.
    pub varies: bool,
    /// The answer has, or could have, some of several addresses by weight and health.
    pub chosen: bool,
}

/// What an answer is asked for besides the name.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The type, in class IN.
    pub qtype: Rtype,
    /// Signatures and proofs, too: the DO bit (RFC 4035, 3.1).
    pub dnssec: bool,
    /// NXDOMAIN where compact denial says otherwise: the CO bit (RFC 9824, 5.1).
    pub compact_ok: bool,
    /// The answer's RRsets begin with this record, modulo their count.
    pub rotation: u16,
}

/// Answers the question `scratch` was begun with, behind `start` in `message`, within `limit` octets.
pub fn resolve<'a>(
    zones: Zones<'a>,
    scratch: &'a Scratch,
    online: &mut Online,
    wanted: Wanted,
    message: &mut [u8],
    (start, limit): (usize, usize),
) -> Resolution {
    let qname = scratch.qname.as_name().as_bytes();
    let question = Question { name: qname, labels: &scratch.labels };
    let mut writer = Writer::new(message, start, limit, question);
    let resolution = Resolution {
        rcode: Rcode::NoError,
        authoritative: false,
        truncated: false,
        counts: Counts { question: 1, ..Counts::default() },
        end: start,
        hops: 0,
        left_zones: false,
        error: None,
        unsigned: None,
        varies: false,
        chosen: false,
    };
    online.begin();
    let empty = writer.mark();
    let (visited, dnames) = (ArrayVec::new(), ArrayVec::new());
    let (writer, proof) = (&mut writer, Proof::default());
    let served = None;
    let mut walk =
        Walk { zones, scratch, writer, online, wanted, resolution, visited, dnames, proof, served };
    if walk.run(qname).and_then(|()| walk.write_proof()).is_err() {
        walk.truncate(empty);
    }
    Resolution { end: walk.writer.position(), ..walk.resolution }
}

struct Walk<'w, 'm, 'a> {
    zones: Zones<'a>,
    scratch: &'a Scratch,
    writer: &'w mut Writer<'m, 'a>,
    online: &'w mut Online,
    wanted: Wanted,
    resolution: Resolution,
    /// Names followed so far, to end loops.
    visited: ArrayVec<&'a [u8], HOPS_MAX>,
    /// Owners of the DNAMEs that redirected it. A chain may come by the same one again.
    dnames: ArrayVec<&'a [u8], HOPS_MAX>,
    /// What denies, to be written behind the answer section.
    proof: Proof<'a>,
    /// The zone that the walk has come to, with its signer.
    served: Option<&'a ServedZone>,
}

/// What a zone has to say about one name.
enum Step<'a> {
    /// The answer is complete.
    Done(Rcode),
    /// The answer goes on with this name.
    Follow(&'a [u8]),
}

impl<'a> Walk<'_, '_, 'a> {
    fn run(&mut self, qname: &'a [u8]) -> Result<(), Full> {
        let (mut name, mut labels) = (qname, self.scratch.labels);
        for hop in 0..HOPS_MAX {
            self.visited.push(name);
            let zone = match self.find_zone(hop, name, &labels) {
                Some(Ok((zone, served))) => {
                    self.served = served;
                    zone
                }
                missing => {
                    self.leave_zones(hop, missing.and_then(Result::err));
                    return Ok(());
                }
            };
            self.resolution.hops = hop + 1;
            match self.step(zone, name, &labels)? {
                Step::Done(rcode) => {
                    self.resolution.rcode = rcode;
                    return Ok(());
                }
                // A loop ends where it closes: all its records are in the answer already.
                Step::Follow(next) if self.visited.iter().any(|seen| fold::equal(seen, next)) => {
                    return Ok(());
                }
                Step::Follow(next) => {
                    labels.scan(next).expect("zones hold valid names");
                    name = next;
                }
            }
        }
        Ok(())
    }

    /// Ends the answer at a name of no zone, or of one that is unavailable for `reason`. Records that led there remain, and the
    /// client asks for that name by itself.
    fn leave_zones(&mut self, hop: usize, reason: Option<Unavailable>) {
        self.resolution.left_zones = true;
        if hop == 0 {
            self.resolution.rcode = if reason.is_some() { Rcode::ServFail } else { Rcode::Refused };
            self.resolution.error = reason.map(ExtendedError::Unavailable);
        }
    }

    /// The zone to ask about `name`, the one that hop number `hop` leads to: longest match, but the parent's for DS at a cut.
    fn find_zone(
        &self,
        hop: usize,
        name: &'a [u8],
        labels: &LabelStarts,
    ) -> Option<Result<(&'a Zone, Option<&'a ServedZone>), Unavailable>> {
        let (catalog, number, asker) = match self.zones {
            Zones::Catalog(catalog, number, asker) if hop == 0 => (catalog, number?, asker),
            Zones::Catalog(catalog, _, asker) => {
                (catalog, catalog.find_number(&Folded::of(name), labels)?, asker)
            }
            Zones::Only(zone) => return is_below(name, zone.origin().as_bytes()).then_some(Ok((zone, None))),
        };
        let served = catalog.zone(number);
        let own = || catalog.tree_for(number, asker).map(|zone| (zone, Some(&**served)));
        let depth = labels.count();
        if self.wanted.qtype != Rtype::DS || depth == 0 || usize::from(depth) != served.origin().label_count()
        {
            return Some(own());
        }
        let above = Name::from_wire(&name[labels.of_last(depth - 1)..]).expect("an ending of a name is one");
        // Below another boundary the cut is not the parent's to speak of, and the child is all that there is.
        let delegates = |node: Node<'_>| node.is_cut() && !node.is_occluded();
        match catalog.find(above).map(|served| (served.tree(), served)) {
            Some((Ok(parent), served)) if parent.find(name).is_some_and(delegates) => {
                Some(Ok((parent, Some(served))))
            }
            Some((Err(reason), _)) => Some(Err(reason)), // It may delegate: nobody can tell.
            _ => Some(own()),
        }
    }

    fn step(&mut self, zone: &'a Zone, name: &'a [u8], labels: &LabelStarts) -> Result<Step<'a>, Full> {
        let encloser = zone.closest_encloser(name, labels);
        let exact = encloser.name().len() == name.len();
        if let Some(boundary) = encloser.topmost_boundary() {
            let at_boundary = exact && boundary.id() == encloser.id();
            if boundary.is_cut() && !(at_boundary && self.wanted.qtype == Rtype::DS) {
                return self.referral(zone, boundary);
            }
            if !boundary.is_cut() && !at_boundary {
                return self.redirect(boundary, name);
            }
        }
        self.resolution.authoritative |= self.resolution.counts.answer == 0;
        if exact {
            return self.answer_from(zone, encloser, name, None);
        }
        let missing = Missing { name, labels, encloser };
        if let Some(wildcard) = encloser.wildcard() {
            return self.answer_from(zone, wildcard, name, Some(missing));
        }
        if self.wanted.dnssec {
            self.proof.no_name(zone, missing);
        }
        let says_so = !self.is_compact(zone) || self.wanted.compact_ok;
        self.negative(zone, if says_so { Rcode::NxDomain } else { Rcode::NoError })
    }

    /// Whether the answer is to be one of compact denial, if it has come to that.
    fn is_compact(&self, zone: &Zone) -> bool {
        self.wanted.dnssec && matches!(zone.denial(), Some(Denial::Compact))
    }

    /// The data of `node`, which is that of `name` or, if `name` is `missing`, the wildcard above it.
    fn answer_from(
        &mut self,
        zone: &'a Zone,
        node: Node<'a>,
        name: &'a [u8],
        missing: Option<Missing<'_, 'a>>,
    ) -> Result<Step<'a>, Full> {
        let qtype = self.wanted.qtype;
        self.note_marks(node);
        // RFC 9824, 3.3: with compact denial the name exists, so signatures and NSEC record of the wildcard are not its.
        let is_made = missing.is_some() && self.is_compact(zone);
        let is_own = |rtype: Rtype| !is_made || !rtype.is_made_by_signing();
        let is_asked = |rtype: Rtype| (qtype == Rtype::ANY || rtype == qtype) && is_own(rtype);
        let mut rrsets = node.rrsets().filter(|rrset| is_asked(rrset.rtype()));
        let cname = || (node.has_cname() && is_own(qtype)).then(|| node.rrset(Rtype::CNAME)).flatten();
        let Some(rrset) = rrsets.next().or_else(cname) else {
            self.prove_no_data(zone, node, missing);
            return self.negative(zone, Rcode::NoError);
        };
        match is_made {
            true => self.answer_as_own(name, rrset)?,
            false => self.answer(name, node, rrset)?,
        }
        if let Some(missing) = missing.filter(|_| self.wanted.dnssec) {
            self.proof.no_closer(zone, missing);
        }
        if rrset.rtype() == Rtype::CNAME && !matches!(qtype, Rtype::CNAME | Rtype::ANY) {
            return Ok(Step::Follow(first_record(rrset)));
        }
        if qtype == Rtype::RRSIG {
            rrsets.try_for_each(|rrset| self.answer(name, node, rrset))?; // One set for each type covered.
        }
        self.write_proof()?;
        self.add_targets(zone, (name, node), rrset);
        Ok(Step::Done(Rcode::NoError))
    }

    /// Notes what the answer depends on because of a name.
    fn note_marks(&mut self, node: Node<'_>) {
        let marks = node.marks();
        self.resolution.varies |= marks.varied;
        self.resolution.chosen |= marks.chosen;
    }

    fn prove_no_data(&mut self, zone: &'a Zone, node: Node<'a>, missing: Option<Missing<'_, 'a>>) {
        match missing {
            _ if !self.wanted.dnssec => {}
            Some(missing) => self.proof.no_data_at_wildcard(zone, node, missing),
            None => self.proof.no_data(zone, node),
        }
    }

    /// RFC 6672, 3.2: the DNAME, a CNAME made from it, and on with the new name.
    fn redirect(&mut self, boundary: Node<'a>, name: &'a [u8]) -> Result<Step<'a>, Full> {
        let dname = boundary.rrset(Rtype::DNAME).expect("the node's flag says so");
        self.resolution.authoritative |= self.resolution.counts.answer == 0;
        if !self.dnames.iter().any(|owner| *owner == boundary.name()) {
            self.answer(boundary.name(), boundary, dname)?;
        }
        self.dnames.push(boundary.name());
        let Some(target) = substitute(name, boundary.name(), first_record(dname)) else {
            return Ok(Step::Done(Rcode::YxDomain));
        };
        let target = self.scratch.keep(target);
        let mark = self.writer.mark();
        let owner = self.owner(name);
        self.writer
            .record(owner, Rtype::CNAME, dname.ttl(), target)
            .inspect_err(|_| self.writer.rewind(mark))?;
        self.resolution.counts.answer += 1;
        if matches!(self.wanted.qtype, Rtype::CNAME | Rtype::ANY) {
            return Ok(Step::Done(Rcode::NoError)); // The question was for the CNAME itself, or for anything.
        }
        Ok(Step::Follow(target))
    }

    fn referral(&mut self, zone: &'a Zone, cut: Node<'a>) -> Result<Step<'a>, Full> {
        let servers = cut.rrset(Rtype::NS).expect("the node's flag says so");
        let owner = Owner::Name(cut.name());
        self.resolution.counts.authority += self.writer.rrset(owner, servers, servers.ttl(), 0)?;
        if self.wanted.dnssec {
            self.prove_delegation(zone, cut)?;
        }
        let targets = || servers.records().filter_map(|name| Some((name, zone_node(zone, name)?)));
        for (name, node) in targets().filter(|(name, _)| is_below(name, cut.name())) {
            if self.add_addresses(name, node).is_err() {
                self.resolution.truncated = true; // RFC 9471, 3.1.
                return Ok(Step::Done(Rcode::NoError));
            }
        }
        for (name, node) in targets().filter(|(name, _)| !is_below(name, cut.name())) {
            if self.add_addresses(name, node).is_err() {
                break; // RFC 9471, 3.2: sibling glue may be left out.
            }
        }
        Ok(Step::Done(Rcode::NoError))
    }

    fn negative(&mut self, zone: &'a Zone, rcode: Rcode) -> Result<Step<'a>, Full> {
        if self.wanted.qtype == Rtype::NSEC
            && let Some(made) = self.proof.take_made()
        {
            // The record that would deny is what the question is for.
            self.writer.forget_question();
            self.resolution.counts.answer += self.write_made(made)?;
            return Ok(Step::Done(Rcode::NoError));
        }
        let owner = Owner::Name(zone.origin().as_bytes());
        self.resolution.rcode = rcode; // Even if the SOA has no room.
        let (soa, ttl) = zone.soa_of_denials();
        self.resolution.counts.authority += self.writer.rrset(owner, soa, ttl, 0)?;
        if let Some(signatures) = self.signatures(zone.apex(), soa) {
            self.resolution.counts.authority += self.writer.rrset(owner, signatures, ttl, 0)?;
        }
        self.write_proof()?;
        Ok(Step::Done(rcode))
    }

    /// RFC 4035, 3.1.4: the keys of the zone below, or that it has none.
    fn prove_delegation(&mut self, zone: &'a Zone, cut: Node<'a>) -> Result<(), Full> {
        match cut.rrset(Rtype::DS) {
            Some(keys) if cut.signatures_of(keys).is_some() => self.add_authority(cut, keys)?,
            Some(_) => {} // The zone is not signed, so they lead nobody anywhere.
            None => self.proof.no_data(zone, cut),
        }
        self.write_proof()
    }

    /// Writes the records that deny, of which RFC 5155, 7.2 and RFC 4035, 3.1.3 let none be left out.
    fn write_proof(&mut self) -> Result<(), Full> {
        while let Some(node) = self.proof.take() {
            self.add_authority(node, node.denying().expect("a node of the chain has a record"))?;
        }
        if let Some(made) = self.proof.take_made() {
            self.resolution.counts.authority += self.write_made(made)?;
        }
        Ok(())
    }

    /// Writes an NSEC record that is made for this answer (RFC 9824, 3), with its signatures; how many records that are.
    #[inline(never)]
    fn write_made(&mut self, Made { zone, name, types }: Made<'a>) -> Result<u16, Full> {
        let owner = Name::from_wire(name).expect("questions and zones have valid names");
        let next = next_name(owner, zone.origin(), false);
        let rdata = [next.as_name().as_bytes(), types].concat();
        let ttl = zone.negative_ttl();
        self.writer.made(self.owner(name), Rtype::NSEC, ttl, &rdata)?;
        let signatures = self.write_signatures(name, Rtype::NSEC, ttl, &[&rdata])?;
        Ok(1 + signatures)
    }

    /// Signs a set of `name` for this answer, and writes the signatures; how many that are.
    #[inline(never)]
    fn write_signatures(
        &mut self,
        name: &'a [u8],
        rtype: Rtype,
        ttl: u32,
        records: &[&[u8]],
    ) -> Result<u16, Full> {
        let owner = Name::from_wire(name).expect("questions and zones have valid names");
        let set = OnlineSet { owner, rtype, ttl, records };
        let signatures = self.online.sign(self.served.and_then(signer_of), &set).map_err(|unsigned| {
            self.resolution.unsigned = Some(unsigned);
            Full // The answer ends as one that has no room: it has no part that is worth something.
        })?;
        let owner = self.owner(name);
        let mut written = signatures.iter().map(|rdata| self.writer.made(owner, Rtype::RRSIG, ttl, rdata));
        written.try_for_each(|written| written)?;
        Ok(signatures.len() as u16) // One for each of a zone's few keys.
    }

    /// Adds a set of a node to the authority section, with its signatures.
    fn add_authority(&mut self, node: Node<'a>, rrset: Rrset<'a>) -> Result<(), Full> {
        let owner = Owner::Name(node.name());
        self.resolution.counts.authority += self.writer.rrset(owner, rrset, rrset.ttl(), 0)?;
        if let Some(signatures) = self.signatures(node, rrset) {
            self.resolution.counts.authority += self.writer.rrset(owner, signatures, signatures.ttl(), 0)?;
        }
        Ok(())
    }

    /// The signatures of a node's record set, if the question wants them.
    fn signatures(&self, node: Node<'a>, rrset: Rrset<'a>) -> Option<Rrset<'a>> {
        if self.wanted.dnssec { node.signatures_of(rrset) } else { None }
    }

    /// Adds a set of `node` to the answer, as one of `name`, with its signatures.
    fn answer(&mut self, name: &'a [u8], node: Node<'a>, rrset: Rrset<'a>) -> Result<(), Full> {
        self.writer.forget_question();
        let owner = self.owner(name);
        self.resolution.counts.answer +=
            self.writer.rrset(owner, rrset, rrset.ttl(), self.wanted.rotation)?;
        if let Some(signatures) = self.signatures(node, rrset) {
            self.resolution.counts.answer += self.writer.rrset(owner, signatures, signatures.ttl(), 0)?;
        }
        Ok(())
    }

    /// Adds a set of a wildcard to the answer, as one that `name` has itself (RFC 9824, 3.3).
    #[inline(never)]
    fn answer_as_own(&mut self, name: &'a [u8], rrset: Rrset<'a>) -> Result<(), Full> {
        self.writer.forget_question();
        let (owner, ttl) = (self.owner(name), rrset.ttl());
        self.resolution.counts.answer += self.writer.rrset(owner, rrset, ttl, self.wanted.rotation)?;
        let records: Vec<&[u8]> = rrset.records().collect();
        self.resolution.counts.answer += self.write_signatures(name, rrset.rtype(), ttl, &records)?;
        Ok(())
    }

    fn owner(&self, name: &'a [u8]) -> Owner<'a> {
        let qname = self.scratch.qname.as_name().as_bytes();
        if std::ptr::eq(name, qname) { Owner::Question } else { Owner::Name(name) }
    }

    /// RFC 1034, 4.3.2, step 6, and RFC 9460, 4.1: what there is about the hosts that the answer of `owner` names, as far as it fits.
    fn add_targets(&mut self, zone: &'a Zone, owner: (&'a [u8], Node<'a>), rrset: Rrset<'a>) {
        let (rtype, (name, node)) = (rrset.rtype(), owner);
        let records = || rrset.records().take(TARGETS_MAX);
        let targets = || records().filter_map(|rdata| target(rtype, rdata, name));
        for (number, target) in targets().enumerate() {
            let again = targets().take(number).any(|earlier| fold::equal(earlier, target));
            let own = is_service_binding(rtype) && fold::equal(target, name);
            let host = if own { Some(node) } else { zone_node(zone, target) };
            let Some(host) = host.filter(|_| !again) else { continue };
            // The owner's own bindings are the answer; behind a cut only addresses are glue.
            let binds = is_service_binding(rtype) && !own && !host.is_cut() && !host.is_occluded();
            let added = self.add_addresses(target, host);
            if added.and_then(|()| if binds { self.add_rrset(target, host, rtype) } else { Ok(()) }).is_err()
            {
                return;
            }
        }
    }

    fn add_addresses(&mut self, name: &'a [u8], node: Node<'a>) -> Result<(), Full> {
        self.note_marks(node);
        [Rtype::A, Rtype::AAAA].into_iter().try_for_each(|rtype| self.add_rrset(name, node, rtype))
    }

    fn add_rrset(&mut self, name: &'a [u8], node: Node<'a>, rtype: Rtype) -> Result<(), Full> {
        if let Some(rrset) = node.rrset(rtype) {
            let owner = self.owner(name);
            self.resolution.counts.additional += self.writer.rrset(owner, rrset, rrset.ttl(), 0)?;
            if let Some(signatures) = self.signatures(node, rrset) {
                // RFC 4035, 3.1.1: without room they are left out, and the answer is whole.
                let written = self.writer.rrset(owner, signatures, signatures.ttl(), 0);
                self.resolution.counts.additional += written.unwrap_or(0);
            }
        }
        Ok(())
    }

    /// RFC 2181, 9: what did not fit makes the whole answer worthless; an empty one sends the client to TCP soonest.
    fn truncate(&mut self, empty: Mark) {
        self.writer.rewind(empty);
        self.resolution.truncated = true;
        self.resolution.counts = Counts { question: 1, ..Counts::default() };
    }
}

/// Who signs for one answer of a zone. Where clients of several lines have several sets, each is signed anew.
fn signer_of(served: &ServedZone) -> Option<ZoneSigner<'_>> {
    let is_same_for_all = served.lines().is_none();
    served.signer().map(|signer| ZoneSigner { signer, is_same_for_all })
}

/// The node of a host that may lie in this zone, its own or below a cut. What a DNAME hides does not exist.
fn zone_node<'a>(zone: &'a Zone, name: &[u8]) -> Option<Node<'a>> {
    let node = if is_below(name, zone.origin().as_bytes()) { zone.find(name)? } else { return None };
    let hidden = node.is_occluded() && node.topmost_boundary().is_some_and(|boundary| !boundary.is_cut());
    (!hidden).then_some(node)
}

/// Whether `name` is `ancestor` or below it. Both are valid names.
fn is_below(name: &[u8], ancestor: &[u8]) -> bool {
    let mut suffix = name;
    while suffix.len() > ancestor.len() {
        suffix = &suffix[1 + usize::from(suffix[0])..];
    }
    fold::equal(suffix, ancestor)
}

/// `name` with its ending `owner` replaced by `target`; `None` if that is too long for a name (RFC 6672, 2.2).
fn substitute(name: &[u8], owner: &[u8], target: &[u8]) -> Option<NameBuf> {
    let kept = &name[..name.len() - owner.len()];
    let mut octets = [0; 255];
    let len = kept.len() + target.len();
    octets.get_mut(..kept.len())?.copy_from_slice(kept);
    octets.get_mut(kept.len()..len)?.copy_from_slice(target);
    let mut made = NameBuf::root();
    made.set(Name::from_wire(&octets[..len]).ok()?);
    Some(made)
}

/// The host about which a record of `owner` says that more is to be known, if it is of a type that does.
fn target<'a>(rtype: Rtype, rdata: &'a [u8], owner: &'a [u8]) -> Option<&'a [u8]> {
    match rtype {
        Rtype::NS | Rtype::MX | Rtype::SRV => Some(&rdata[target_offset(rtype)?..]),
        rtype if is_service_binding(rtype) => {
            let (priority, name) = rdata.split_at(2);
            match &name[..name_len(name)] {
                // RFC 9460, 2.5: without a name there is no service in AliasMode, and in ServiceMode it is the owner's own.
                [0] => (priority != [0, 0]).then_some(owner),
                name => Some(name),
            }
        }
        _ => None,
    }
}

fn first_record(rrset: Rrset<'_>) -> &[u8] {
    rrset.records().next().expect("a record set has a record")
}
