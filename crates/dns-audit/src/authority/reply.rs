//! The message that answers, set by set.

use dns_message::{add_to_count, push_record, question_message};
use dns_wire::header::flag;
use dns_wire::{Class, Name, Query, Rcode, Rtype};

use super::signing::Pen;
use super::spec::Signature;
use super::{Asked, Via, asked_subnet};
use crate::edns;

/// The largest answer over UDP, whatever a query allows.
const UDP_PAYLOAD_MAX: u16 = 1232;
/// Without EDNS (RFC 1035, 4.2.1).
const PLAIN_MAX: usize = 512;
/// An answer over UDP has at most so many times the octets of its query: who forges addresses gains no more.
const AMPLIFICATION_MAX: usize = 10;

/// A record set.
pub(super) struct Set<'n> {
    pub(super) owner: Name<'n>,
    pub(super) rtype: Rtype,
    pub(super) ttl: u32,
    pub(super) rdatas: Vec<Vec<u8>>,
}

/// Sections by their numbers in [`add_to_count`].
#[derive(Clone, Copy)]
pub(super) enum Section {
    Answer = 0,
    Authority = 1,
}

/// An answer that is being written.
pub(super) struct Reply<'q> {
    message: Vec<u8>,
    asked: &'q Asked<'q>,
    query: Query,
    /// What sets are signed with, if the client wants signatures and the zone has a key.
    pub(super) pen: Option<Pen<'q>>,
    /// The label of the zone of unknown algorithm that it is of.
    pub(super) unsigned: Option<&'static str>,
    /// Scope of the client subnet.
    pub(super) scope: Option<u8>,
}

impl<'q> Reply<'q> {
    pub(super) fn new(asked: &'q Asked<'q>, query: Query, pen: Option<Pen<'q>>) -> Reply<'q> {
        let id = u16::from_be_bytes([asked.message[0], asked.message[1]]); // The query was parsed.
        let flags = flag::QR | flag::AA | query.flags & (flag::RD | flag::CD);
        let mut message = question_message(id, flags, query.qname(asked.message), query.qtype);
        let class = message.len() - 2;
        message[class..].copy_from_slice(&query.qclass.0.to_be_bytes());
        let pen = pen.filter(|_| query.edns.is_some_and(|edns| edns.dnssec_ok));
        Reply { message, asked, query, pen, unsigned: None, scope: None }
    }

    /// What follows is of a zone of unknown algorithm, which has no signatures.
    pub(super) fn leave_signed_zone(&mut self, label: &'static str) {
        (self.pen, self.unsigned) = (None, Some(label));
    }

    pub(super) fn set_rcode(&mut self, rcode: Rcode) {
        self.message[3] |= rcode.low() as u8; // Four bits.
        if rcode == Rcode::Refused {
            self.message[2] &= !((flag::AA >> 8) as u8);
        }
    }

    /// Appends a set, and its signature, which is as `signature` says.
    pub(super) fn push(&mut self, section: Section, set: &Set<'_>, signature: Signature) {
        for rdata in &set.rdatas {
            push_record(&mut self.message, set.owner, set.rtype, Class::IN, set.ttl, rdata);
        }
        let mut count = set.rdatas.len() as i32;
        let signed = self.pen.and_then(|pen| pen.sign(set.owner, set.rtype, set.ttl, &set.rdatas, signature));
        if let Some(rrsig) = signed {
            push_record(&mut self.message, set.owner, Rtype::RRSIG, Class::IN, set.ttl, &rrsig);
            count += 1;
        }
        add_to_count(&mut self.message, section as usize, count);
    }

    /// Leaves all records out, and says so.
    pub(super) fn cut(&mut self) {
        self.message.truncate(self.query.question_end());
        self.message[6..12].fill(0);
        self.message[2] |= (flag::TC >> 8) as u8;
    }

    /// The whole message: with an OPT record if the query had one, and cut if it is too long.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let opt = self.query.edns.map(|edns| {
            let subnet = asked_subnet(&self.query, self.asked.message).zip(self.scope);
            let data = subnet.map(|(mut subnet, scope)| {
                // A client that tells no network gets an answer for all of them (RFC 7871, 7.1.2).
                subnet.scope = if subnet.source == 0 { 0 } else { scope };
                edns::option(edns::CLIENT_SUBNET, &subnet.to_data())
            });
            let ttl = if edns.dnssec_ok { edns::DO } else { 0 };
            let mut record = Vec::new();
            let data = data.unwrap_or_default();
            push_record(&mut record, Name::ROOT, Rtype::OPT, Class(UDP_PAYLOAD_MAX), ttl, &data);
            record
        });
        let bound = self.asked.message.len() * AMPLIFICATION_MAX;
        let room = match (self.asked.via, self.query.edns) {
            (Via::Udp, None) => PLAIN_MAX.min(bound),
            (Via::Udp, Some(edns)) => usize::from(edns.payload_size.clamp(512, UDP_PAYLOAD_MAX)).min(bound),
            _ => usize::from(u16::MAX),
        };
        let opt = opt.unwrap_or_default();
        if self.message.len() + opt.len() > room {
            self.cut();
        }
        if !opt.is_empty() {
            self.message.extend(opt);
            add_to_count(&mut self.message, 2, 1);
        }
        self.message
    }
}
