//! Data of records, and entries of the log, made of a query.

use dns_wire::Query;

use super::{Asked, Condition, Entry, Log, Nonce, Spec, asked_subnet};
use crate::edns;

/// The longest string in the data of a TXT record.
const STRING_MAX: usize = 255;
/// Octets of one page of the log.
const PAGE_MAX: usize = 32 << 10;
/// The longest filling of a TXT record.
const SIZE_MAX: u16 = 8192;
/// SHA-256 (RFC 4509): a digest that validators know, so that the algorithm alone is what they do not.
const DIGEST: u8 = 2;

/// A DS record of an algorithm that validators do not support; there is no such key.
pub(super) fn unknown_ds(algorithm: u8) -> Vec<u8> {
    [&[0, 77, algorithm, DIGEST][..], &[77; 32]].concat()
}

pub(super) fn entry(asked: &Asked<'_>, query: &Query, number: u32, now_ms: u64) -> Entry {
    let has = |bit| query.flags & bit != 0;
    Entry {
        at_ms: now_ms,
        number,
        server: asked.server,
        source: asked.source,
        via: asked.via,
        id: u16::from_be_bytes([asked.message[0], asked.message[1]]), // The query was parsed.
        qname: query.qname(asked.message).to_string(),
        qtype: query.qtype.0,
        rd: has(dns_wire::header::flag::RD),
        cd: has(dns_wire::header::flag::CD),
        edns_size: query.edns.map(|edns| edns.payload_size),
        dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
        has_cookie: query.option(asked.message, edns::COOKIE).is_some(),
        subnet: asked_subnet(query, asked.message),
    }
}

/// Data of a TXT record: who asked whom, when, and a filling.
pub(super) fn text(asked: &Asked<'_>, query: &Query, spec: &Spec, made_ms: u64) -> Vec<u8> {
    let subnet =
        asked_subnet(query, asked.message).map_or_else(|| "-".to_owned(), |subnet| subnet.to_string());
    let words = [
        format!("at={made_ms}"),
        format!("server={}", asked.server),
        format!("from={}", asked.source.ip()),
        format!("ecs={subnet}"),
    ];
    let mut rdata = Vec::new();
    words.iter().for_each(|word| push_string(&mut rdata, word.as_bytes()));
    let size = usize::from(spec.size.min(SIZE_MAX));
    while rdata.len() + 1 < size {
        let len = (size - rdata.len() - 1).min(STRING_MAX);
        push_string(&mut rdata, &vec![b'.'; len]);
    }
    rdata
}

fn push_string(rdata: &mut Vec<u8>, octets: &[u8]) {
    for piece in octets.chunks(STRING_MAX) {
        rdata.push(piece.len() as u8);
        rdata.extend(piece);
    }
}

/// A record for each server: its number, counted from 1, and its condition.
pub(super) fn conditions_texts(conditions: &[Condition]) -> Vec<Vec<u8>> {
    let record = |(number, condition): (usize, &Condition)| {
        let mut rdata = Vec::new();
        push_string(&mut rdata, format!("{number},{condition}").as_bytes());
        rdata
    };
    (1..).zip(conditions).map(record).collect()
}

/// A record for each entry of a run from a number on, as many as fit; one empty string if there is none.
pub(super) fn page(log: &Log, nonce: Nonce, from: usize) -> Vec<Vec<u8>> {
    let mut room = PAGE_MAX;
    let record = |entry: &Entry| {
        let mut rdata = Vec::new();
        push_string(&mut rdata, serde_json::to_string(entry).unwrap_or_default().as_bytes());
        rdata
    };
    let fits = |rdata: &Vec<u8>| {
        let has_room = room >= rdata.len();
        room = room.saturating_sub(rdata.len());
        has_room
    };
    let records: Vec<Vec<u8>> = log.of(nonce, from).map(record).take_while(fits).collect();
    if records.is_empty() { vec![vec![0]] } else { records }
}
