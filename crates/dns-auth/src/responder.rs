//! The responder: one message in, at most one message out, in place.

use std::net::IpAddr;
use std::sync::Arc;

use clock::Instant;
use dns_lines::{Found, Lines};
use dns_wire::fold::Folded;
use dns_wire::header::{Counts, HEADER_LEN, flag as header_flag, write_header};
use dns_wire::{Class, Edns, LabelStarts, Query, QueryError, Rcode, Rtype};
use dns_zone::Denial;

use crate::catalog::Catalog;
use crate::counters::{Counters, Dropped, Transport};
use crate::extended_error::ExtendedError;
use crate::lines::Asker;
use crate::online::{Online, Tally, Unsigned};
use crate::resolve::{Resolution, Scratch, Wanted, Zones, resolve};
use crate::settings::Settings;
use crate::subnet::{Echo, Located};
use crate::table::{Entry, Search, flag};

/// Answers queries. One per core; the same for every transport.
///
/// A batch goes through three steps, each for the whole batch before the next, so that what a large zone leaves outside
/// of the cache is fetched for all queries side by side: [`Responder::prepare`], [`Responder::fetch`],
/// [`Responder::complete`]. A single query may go from the first to the last at once.
pub struct Responder {
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    scratch: Scratch,
    /// Counts answers when they rotate.
    turn: u16,
    /// Counts draws.
    draws: u64,
    /// What the answer says about the network of the client (RFC 7871), if the query does.
    echo: Echo,
    /// Signatures for one answer.
    online: Online,
    /// Octets of the OPT record at the end of the last answer.
    last_opt_len: usize,
}

/// A query that was read and located, before it is answered. Meant to be used again for the next one.
#[derive(Clone, Copy)]
pub struct Prepared {
    query: Result<Query, QueryError>,
    /// After a format error, what of the message its answer repeats.
    malformed: Option<Query>,
    /// After a format error, the OPT record of a query without a question.
    unasked: Option<Edns>,
    /// Place of the zone in the catalog.
    zone: Option<u32>,
    search: Search,
    /// The question's name.
    name: Folded,
    /// Its labels.
    labels: LabelStarts,
    /// In a zone with lines, that of the client.
    line: Found,
    /// There, and if the query names the client's network: what it says.
    located: Option<Located>,
}

impl Default for Prepared {
    fn default() -> Prepared {
        Prepared {
            query: Err(QueryError::Short),
            malformed: None,
            unasked: None,
            zone: None,
            search: Search::default(),
            name: Folded::default(),
            labels: LabelStarts::default(),
            line: Found::NOTHING,
            located: None,
        }
    }
}

impl Prepared {
    /// Whether the message is more than a question that any responder can answer: it asks for a transfer, is signed, or has another opcode.
    #[inline(always)]
    pub fn is_special(&self) -> bool {
        match &self.query {
            Ok(query) if query.edns.is_some_and(|edns| edns.version != 0) => false, // It gets BADVERS (RFC 6891, 6.1.3).
            Ok(query) => query.is_signed || matches!(query.qtype, Rtype::AXFR | Rtype::IXFR),
            Err(error) => *error == QueryError::Opcode,
        }
    }

    /// The place in the catalog of the zone that the question's name is in, if there is one.
    pub fn zone(&self) -> Option<u32> {
        self.zone
    }

    /// The query, if it is one.
    #[inline(always)]
    pub fn query(&self) -> Option<&Query> {
        self.query.as_ref().ok()
    }

    /// Whether it is a query without a question, but with an OPT record: an error, unless it asks for a cookie (RFC 7873, 5.4).
    pub fn is_unasked(&self) -> bool {
        self.query.is_err() && self.unasked.is_some()
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The buffer holds an answer of this many octets.
    Reply(usize),
    /// There is no answer.
    Drop(Dropped),
}

/// Octets of an OPT record without options.
const OPT_LEN: usize = 11;
/// Largest UDP message for a client without EDNS (RFC 1035, 2.3.4).
const PLAIN_UDP_MAX: usize = 512;

impl Responder {
    /// A responder that answers by `settings` and counts in `counters`, which no other responder may share.
    pub fn new(settings: Arc<Settings>, counters: Arc<Counters>) -> Responder {
        let (scratch, echo) = Default::default();
        let online = Online::new(settings.online_signing_percent);
        Responder { settings, counters, scratch, turn: 0, draws: 0, echo, online, last_opt_len: 0 }
    }

    /// What time it is, for the budget of signatures: once a batch is often enough, and not needed where nothing [may be signed](Responder::may_sign).
    #[inline(always)]
    pub fn set_time(&mut self, now: Instant) {
        self.online.set_time(now);
    }

    /// Whether the answer may need a signature of its own.
    pub fn may_sign(&self, catalog: &Catalog, prepared: &Prepared) -> bool {
        prepared.zone.is_some_and(|number| catalog.may_sign(number))
    }

    /// Replaces the settings, between batches.
    pub fn set_settings(&mut self, settings: Arc<Settings>) {
        self.online.set_percent(settings.online_signing_percent);
        self.settings = settings;
    }

    /// Step 1: reads the message that is the first `len` octets of `buffer`, and finds its zone.
    #[inline(always)]
    pub fn prepare(&self, catalog: &Catalog, buffer: &[u8], len: usize, prepared: &mut Prepared) {
        prepared.query = Query::parse_noting(&buffer[..len], &mut prepared.labels);
        prepared.zone = None;
        let Ok(query) = &prepared.query else {
            prepared.malformed = Query::parse_malformed(&buffer[..len]);
            prepared.unasked = Query::parse_unasked(&buffer[..len]);
            return;
        };
        prepared.name.set(&buffer[HEADER_LEN..], query.qname_len);
        prepared.zone = catalog.find_number(&prepared.name, &prepared.labels);
        if let Some(number) = prepared.zone {
            let table = catalog.zone(number).tables().of(wants_dnssec(query));
            prepared.search = table.search(&prepared.name, query.qtype.0);
        }
    }

    /// Step 2: has the precompiled answer fetched, and in a zone with lines looks up that of the client. `client` says who sent `message`.
    #[inline(always)]
    pub fn fetch(
        &self,
        catalog: &Catalog,
        prepared: &mut Prepared,
        message: &[u8],
        client: impl Fn() -> IpAddr,
    ) {
        if let (Some(number), Ok(query)) = (prepared.zone, &prepared.query) {
            let served = catalog.zone(number);
            served.tables().of(wants_dnssec(query)).fetch(&mut prepared.search);
            if served.lines().is_some() {
                // A large table of prefixes lies outside of the caches, too.
                prepared.located = read_network(query, message);
                let named = prepared.located.as_ref().and_then(|located| located.address);
                let find = |lines: &Arc<Lines>| lines.find(named.unwrap_or_else(client));
                prepared.line = catalog.lines().map_or(Found::NOTHING, find);
            }
        }
    }

    /// Step 3: writes the answer over the query in `buffer`, which may be longer than the query and bounds the answer. `client` says who asks,
    /// as in the step before; it is called if the answer depends on that.
    #[inline(always)]
    pub fn complete(
        &mut self,
        catalog: &Catalog,
        prepared: &Prepared,
        buffer: &mut [u8],
        transport: Transport,
        client: impl Fn() -> IpAddr,
    ) -> Outcome {
        self.counters.on_query(transport);
        let query = match &prepared.query {
            Ok(query) => query,
            Err(error) => return self.refuse_message(*error, prepared, buffer, transport),
        };
        self.counters.on_type(query.qtype);
        let limit = self.limit(query, transport).min(buffer.len());
        if query.edns.is_some_and(|edns| edns.subnet | edns.compact_ok) {
            let query = &with_compact_ok(catalog, query, prepared);
            return self.complete_by_options(catalog, query, prepared, buffer, (limit, transport, client()));
        }
        self.complete_for(catalog, query, prepared, buffer, (limit, transport, client))
    }

    #[inline(always)]
    fn complete_for(
        &mut self,
        catalog: &Catalog,
        query: &Query,
        prepared: &Prepared,
        buffer: &mut [u8],
        (limit, transport, client): (usize, Transport, impl Fn() -> IpAddr),
    ) -> Outcome {
        let plain = query.qclass == Class::IN && query.edns.is_none_or(|edns| edns.version == 0);
        if plain && let Some(number) = prepared.zone {
            let (served, counter) = catalog.counted_zone(number);
            self.counters.on_zone(counter);
            let tables = served.tables();
            let table = tables.of(wants_dnssec(query));
            let zone_is = || (catalog.has_zone_below(number), tables.is_changed);
            let found = table.find(&prepared.search, prepared.name.name(), query.qtype.0).and_then(|entry| {
                if entry.flags & (flag::VARIES | flag::CHOSEN) != 0 {
                    return self.entry_for(catalog, (query, prepared), (number, entry));
                }
                (entry.flags == 0 || self.is_usable(entry.flags, zone_is())).then_some(entry)
            });
            if let Some(entry) = found
                && let Some(len) = self.copy_answer(query, &entry, buffer, limit)
            {
                return Outcome::Reply(len);
            }
        }
        let client = catalog.lines().map(|_| client());
        self.complete_slowly(catalog, query, prepared, buffer, (limit, transport, client))
    }

    /// The entry for the line of a client, where the plain one varies; `None` if the tree answers.
    #[inline(always)]
    fn entry_for<'c>(
        &mut self,
        catalog: &'c Catalog,
        (query, prepared): (&Query, &Prepared),
        (number, plain): (u32, Entry<'c>),
    ) -> Option<Entry<'c>> {
        let served = catalog.zone(number);
        let found = prepared.line;
        self.echo.set_scope(if plain.flags & flag::VARIES != 0 { found.length } else { 0 });
        let (below, is_changed) = (catalog.has_zone_below(number), served.tables().is_changed);
        let view = served.lines().and_then(|lines| lines.view(catalog.view(number, found.line)));
        let Some(view) = view else {
            return self.is_usable(plain.flags, (below, is_changed)).then_some(plain);
        };
        let is_chosen = plain.flags & flag::CHOSEN != 0;
        let tables = if is_chosen { &view.choice(self.draw(catalog)).tables } else { &view.tables };
        let table = tables.of(wants_dnssec(query));
        match table.find_anew(&prepared.search, prepared.name.name(), query.qtype.0) {
            Some(own) => self.is_usable(own.flags, (below, tables.is_changed)).then_some(own),
            // Its line may have other records at the names that the answer leads to.
            None if is_chosen || plain.flags & flag::DEPENDENT != 0 => None,
            None => self.is_usable(plain.flags, (below, is_changed)).then_some(plain),
        }
    }

    /// A number that looks like chance's, for a choice among addresses ("SplitMix64", 2014).
    fn draw(&mut self, catalog: &Catalog) -> u32 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.draws.wrapping_add(catalog.seed());
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 32) as u32
    }

    /// A query that says where its client is (RFC 7871, 7.2.1), or what it takes of compact denial.
    #[inline(never)]
    fn complete_by_options(
        &mut self,
        catalog: &Catalog,
        query: &Query,
        prepared: &Prepared,
        buffer: &mut [u8],
        (limit, transport, sender): (usize, Transport, IpAddr),
    ) -> Outcome {
        if query.edns.is_none_or(|edns| !edns.subnet) {
            return self.complete_for(catalog, query, prepared, buffer, (limit, transport, || sender));
        }
        let without = || Query { edns: query.edns.map(|edns| Edns { subnet: false, ..edns }), ..*query };
        if catalog.lines().is_none() {
            return self.complete_for(catalog, &without(), prepared, buffer, (limit, transport, || sender));
        }
        let has_lines = prepared.zone.is_some_and(|number| catalog.zone(number).lines().is_some());
        let located = if has_lines { prepared.located } else { read_network(query, buffer) };
        let Some(located) = located else {
            return self.finish_empty(&without(), Rcode::FormErr, buffer, limit);
        };
        self.echo = located.echo;
        let client = located.address.unwrap_or(sender);
        let query = &self.that_fits(query, limit);
        self.complete_for(catalog, query, prepared, buffer, (limit, transport, || client))
    }

    /// All steps for one query of `len` octets that `client` sent.
    pub fn respond(
        &mut self,
        catalog: &Catalog,
        buffer: &mut [u8],
        len: usize,
        transport: Transport,
        client: IpAddr,
    ) -> Outcome {
        let mut prepared = Prepared::default();
        self.prepare(catalog, buffer, len, &mut prepared);
        self.fetch(catalog, &mut prepared, &buffer[..len], || client);
        self.complete(catalog, &prepared, buffer, transport, || client)
    }

    /// Answers a query that was prepared without a look at its zone: with the code, no record, and TC where `truncated`. So is a message with
    /// another opcode, such as an UPDATE, and one without a question (`Prepared::is_unasked`). Malformed messages get no answer.
    pub fn answer_nothing(
        &mut self,
        prepared: &Prepared,
        (rcode, truncated): (Rcode, bool),
        buffer: &mut [u8],
        transport: Transport,
    ) -> Outcome {
        self.counters.on_query(transport);
        let query = match (&prepared.query, &prepared.malformed) {
            (Ok(query), _) => {
                self.counters.on_type(query.qtype);
                query
            }
            (Err(QueryError::Opcode), Some(question)) => question,
            _ if prepared.is_unasked() => return self.finish_unasked(prepared, rcode, buffer, transport),
            _ => return self.drop_message(Dropped::Rate),
        };
        let limit = self.limit(query, transport).min(buffer.len());
        let plain = |edns| Edns { subnet: false, compact_ok: false, ..edns };
        let query = &Query { edns: query.edns.map(plain), ..*query };
        let query = self.that_fits(query, limit);
        let found = Resolution { truncated, ..empty_resolution(rcode, query.question_end()) };
        self.finish(&query, &found, buffer, limit)
    }

    /// Counts a query that gets no answer.
    pub fn drop_for_rate(&mut self, transport: Transport) {
        self.counters.on_query(transport);
        self.counters.on_dropped(Dropped::Rate);
    }

    /// Adds whole `options` to the OPT record of the last answer, which has `len` octets in `buffer`, if it has such a record, and room; returns
    /// the answer's new length.
    pub fn add_options(&self, buffer: &mut [u8], len: usize, options: &[u8]) -> usize {
        let end = len + options.len();
        if self.last_opt_len == 0 || end > buffer.len() {
            return len;
        }
        let start = len - self.last_opt_len;
        buffer[start + 9..start + OPT_LEN].copy_from_slice(&((end - start - OPT_LEN) as u16).to_be_bytes());
        buffer[len..end].copy_from_slice(options);
        end
    }

    /// Octets that the answer to a prepared query may have.
    pub fn room(&self, prepared: &Prepared, transport: Transport) -> usize {
        prepared.query.as_ref().map_or(PLAIN_UDP_MAX, |query| self.limit(query, transport))
    }

    /// Whether an entry with these flags answers under these settings, in a zone that has another one below it or not, and whose table has
    /// changed or not.
    fn is_usable(&self, flags: u8, (zone_below, is_changed): (bool, bool)) -> bool {
        let absent = flags & flag::ABSENT != 0;
        let chained = flags & flag::CHAINED != 0 && zone_below;
        let ordered = flags & flag::ORDERED != 0 && self.settings.rotate;
        let dependent = flags & flag::DEPENDENT != 0 && is_changed;
        !absent && !chained && !ordered && !dependent
    }

    /// Copies a precompiled answer behind the question; `None`, and nothing changed that matters, if it does not fit.
    #[inline(always)]
    fn copy_answer(
        &mut self,
        query: &Query,
        entry: &Entry<'_>,
        buffer: &mut [u8],
        limit: usize,
    ) -> Option<usize> {
        let start = query.question_end();
        let end = start + entry.body.len();
        let opt_len = self.opt_len(query.edns.as_ref());
        if end + opt_len > limit {
            return None;
        }
        copy_body(&mut buffer[start..end], entry.body);
        if self.settings.rotate && entry.flags & flag::ROTATABLE != 0 {
            self.rotate(&mut buffer[start..end], entry.counts[0]);
        }
        let [answer, authority, additional] = entry.counts;
        let additional = additional + u16::from(opt_len != 0);
        let flags = response_flags(query.flags, Rcode::NoError) | header_flag::AA;
        write_header(buffer, flags, Counts { question: 1, answer, authority, additional });
        if opt_len != 0 {
            self.write_opt(&query.edns, Rcode::NoError, &mut buffer[end..end + opt_len]);
        }
        self.last_opt_len = opt_len;
        self.counters.on_table_hit();
        self.counters.on_response(Rcode::NoError);
        Some(end + opt_len)
    }

    /// Everything that no precompiled answer covers.
    #[inline(never)]
    fn complete_slowly(
        &mut self,
        catalog: &Catalog,
        query: &Query,
        prepared: &Prepared,
        buffer: &mut [u8],
        (limit, transport, client): (usize, Transport, Option<IpAddr>),
    ) -> Outcome {
        let query = &self.that_fits(query, limit);
        if query.edns.is_some_and(|edns| edns.version != 0) {
            return self.finish_empty(query, Rcode::BadVers, buffer, limit);
        }
        match (query.qclass, query.qtype) {
            (Class::CH, _) => return self.chaos(query, buffer, limit),
            (Class::IN, Rtype::MAILA | Rtype::MAILB) => {
                return self.finish_empty(query, Rcode::NotImp, buffer, limit);
            }
            // Zone transfers are not served; neither is a record type that only ever stands in the additional section.
            (Class::IN, Rtype::AXFR | Rtype::IXFR) => {
                return self.finish_empty(query, Rcode::Refused, buffer, limit);
            }
            (Class::IN, Rtype::OPT | Rtype::TSIG | Rtype::TKEY) => {
                return self.finish_empty(query, Rcode::FormErr, buffer, limit);
            }
            (Class::IN, Rtype::NXNAME) => {
                let error = Some(ExtendedError::InvalidQueryType); // RFC 9824, 3.5.
                let found = Resolution { error, ..empty_resolution(Rcode::FormErr, query.question_end()) };
                return self.finish(query, &found, buffer, limit);
            }
            (Class::IN, _) => {}
            _ => return self.finish_empty(query, Rcode::Refused, buffer, limit),
        }
        self.scratch.begin(query.qname(buffer), &prepared.labels);
        let compact_ok = query.edns.is_some_and(|edns| edns.compact_ok);
        let (dnssec, rotation) = (wants_dnssec(query), self.next_rotation());
        let wanted = Wanted { qtype: query.qtype, dnssec, compact_ok, rotation };
        let start = query.question_end();
        let bounds = (start, limit.saturating_sub(self.opt_len(query.edns.as_ref())));
        let asker = Asker::new(client, self.draw(catalog));
        let zones = Zones::Catalog(catalog, prepared.zone, &asker);
        self.online.set_connection(transport != Transport::Udp);
        let found = resolve(zones, &self.scratch, &mut self.online, wanted, buffer, bounds);
        self.echo.set_scope(if found.varies { asker.find(catalog).length } else { 0 });
        if self.online.tally() != Tally::default() {
            self.counters.on_online(self.online.tally());
        }
        if let Some(unsigned) = found.unsigned {
            let found = unsigned_resolution(unsigned, transport, start);
            return self.finish(query, &found, buffer, limit);
        }
        self.finish(query, &found, buffer, limit)
    }

    /// Options must not keep out the answer: behind the longest names there is no room for all of them in 512 octets.
    fn that_fits(&self, query: &Query, limit: usize) -> Query {
        let fits = |edns: &Edns| query.question_end() + self.opt_len(Some(edns)) <= limit;
        let edns = query.edns.map(|edns| {
            let less = [edns, Edns { nsid: false, ..edns }, Edns { nsid: false, subnet: false, ..edns }];
            less.into_iter().find(fits).unwrap_or(less[2])
        });
        Query { edns, ..*query }
    }

    /// RFC 4892 and common practice: the server's version and names, in class CHAOS.
    fn chaos(&mut self, query: &Query, buffer: &mut [u8], limit: usize) -> Outcome {
        let text = chaos_text(&self.settings, query.qname(buffer).as_bytes())
            .filter(|_| matches!(query.qtype, Rtype::TXT | Rtype::ANY));
        let start = query.question_end();
        let Some(text) = text else { return self.finish_empty(query, Rcode::Refused, buffer, limit) };
        let end = start + 12 + 1 + text.len();
        if end + self.opt_len(query.edns.as_ref()) > limit {
            let found = Resolution { truncated: true, ..empty_resolution(Rcode::NoError, start) };
            return self.finish(query, &found, buffer, limit);
        }
        let rdlen = 1 + text.len() as u16;
        buffer[start..start + 10].copy_from_slice(&[0xc0, 0x0c, 0, 16, 0, 3, 0, 0, 0, 0]);
        buffer[start + 10..start + 12].copy_from_slice(&rdlen.to_be_bytes());
        buffer[start + 12] = text.len() as u8;
        buffer[start + 13..end].copy_from_slice(text.as_bytes());
        let counts = Counts { question: 1, answer: 1, ..Counts::default() };
        let found =
            Resolution { authoritative: true, counts, end, ..empty_resolution(Rcode::NoError, start) };
        self.finish(query, &found, buffer, limit)
    }

    fn finish_empty(&mut self, query: &Query, rcode: Rcode, buffer: &mut [u8], limit: usize) -> Outcome {
        self.finish(query, &empty_resolution(rcode, query.question_end()), buffer, limit)
    }

    /// Writes the header and the OPT record around what was found.
    fn finish(&mut self, query: &Query, found: &Resolution, buffer: &mut [u8], limit: usize) -> Outcome {
        let opt_len = self.opt_len(query.edns.as_ref());
        let mut end = found.end + opt_len;
        if end > limit {
            return self.drop_message(Dropped::NoRoom);
        }
        if let Some(error) = found.error.filter(|error| opt_len != 0 && end + error.len() <= limit) {
            error.write(&mut buffer[end..end + error.len()]);
            end += error.len();
        }
        let mut flags = response_flags(query.flags, found.rcode);
        flags |= if found.authoritative { header_flag::AA } else { 0 };
        flags |= if found.truncated { header_flag::TC } else { 0 };
        let mut counts = found.counts;
        if opt_len != 0 {
            counts.additional += 1;
            self.write_opt(&query.edns, found.rcode, &mut buffer[found.end..end]);
        }
        write_header(buffer, flags, counts);
        self.last_opt_len = if opt_len == 0 { 0 } else { end - found.end };
        self.counters.on_response(found.rcode);
        if found.truncated {
            self.counters.on_truncated();
        }
        Outcome::Reply(end)
    }

    /// A message that holds no query: an error, or silence. The error repeats what could be read of the question, and else nothing but
    /// the header.
    #[inline(never)]
    fn refuse_message(
        &mut self,
        error: QueryError,
        prepared: &Prepared,
        buffer: &mut [u8],
        transport: Transport,
    ) -> Outcome {
        let rcode = match error {
            QueryError::Short => return self.drop_message(Dropped::Short),
            QueryError::Response => return self.drop_message(Dropped::Response),
            QueryError::Opcode => Rcode::NotImp,
            QueryError::Format => Rcode::FormErr,
        };
        if prepared.is_unasked() {
            return self.finish_unasked(prepared, rcode, buffer, transport);
        }
        if let Some(query) = prepared.malformed.as_ref().filter(|_| error == QueryError::Format) {
            let limit = self.limit(query, transport).min(buffer.len());
            return self.finish_empty(query, rcode, buffer, limit);
        }
        let flags = u16::from_be_bytes([buffer[2], buffer[3]]);
        write_header(buffer, response_flags(flags, rcode), Counts::default());
        self.last_opt_len = 0;
        self.counters.on_response(rcode);
        Outcome::Reply(HEADER_LEN)
    }

    /// Answers a query without a question: header and OPT record alone.
    fn finish_unasked(
        &mut self,
        prepared: &Prepared,
        rcode: Rcode,
        buffer: &mut [u8],
        transport: Transport,
    ) -> Outcome {
        let edns = prepared.unasked.map(|edns| Edns { subnet: false, compact_ok: false, ..edns });
        let rcode = if edns.is_some_and(|edns| edns.version != 0) { Rcode::BadVers } else { rcode };
        let flags = u16::from_be_bytes([buffer[2], buffer[3]]);
        let (qtype, qclass) = (Rtype(0), Class::IN);
        let query = Query { qname_len: 0, qtype, qclass, flags, edns, is_signed: false };
        let limit = self.limit(&query, transport).min(buffer.len());
        let found = Resolution { counts: Counts::default(), ..empty_resolution(rcode, HEADER_LEN) };
        self.finish(&query, &found, buffer, limit)
    }

    fn drop_message(&mut self, reason: Dropped) -> Outcome {
        self.counters.on_dropped(reason);
        Outcome::Drop(reason)
    }

    /// Octets that the answer may have (RFC 6891, 6.2.3 to 6.2.5).
    #[inline(always)]
    fn limit(&self, query: &Query, transport: Transport) -> usize {
        match (transport, &query.edns) {
            (Transport::Udp, None) => PLAIN_UDP_MAX,
            (Transport::Udp, Some(edns)) => {
                let most = usize::from(self.settings.udp_payload_max);
                usize::from(edns.payload_size).clamp(PLAIN_UDP_MAX, most.max(PLAIN_UDP_MAX))
            }
            _ => 65_535,
        }
    }

    /// Octets of the OPT record that the answer carries.
    #[inline(always)]
    fn opt_len(&self, edns: Option<&Edns>) -> usize {
        match edns {
            None => 0,
            Some(edns) => {
                let network = if edns.subnet { self.echo.option().len() } else { 0 };
                OPT_LEN + self.nsid(edns).map_or(0, |nsid| 4 + nsid.len()) + network
            }
        }
    }

    #[inline(always)]
    fn nsid(&self, edns: &Edns) -> Option<&[u8]> {
        if edns.nsid { self.settings.nsid.as_deref() } else { None }
    }

    /// Fills `opt` with an OPT record (RFC 6891, 6.1.2). Options that stand behind the `opt_len` octets of ours are there already.
    #[inline(always)]
    fn write_opt(&self, edns: &Option<Edns>, rcode: Rcode, opt: &mut [u8]) {
        let Some(edns) = edns else { return };
        let [size_high, size_low] = self.settings.udp_payload_max.to_be_bytes();
        let flags = (if edns.dnssec_ok { 0x80 } else { 0 }) | if edns.compact_ok { 0x40 } else { 0 };
        let (fixed, options) = opt.split_first_chunk_mut::<OPT_LEN>().expect("`opt_len` is at least that");
        let rdlen = (options.len() as u16).to_be_bytes();
        *fixed = [0, 0, 41, size_high, size_low, rcode.high(), 0, flags, 0, rdlen[0], rdlen[1]];
        let mut options = options;
        if let Some(nsid) = self.nsid(edns) {
            let (own, rest) = options.split_at_mut(4 + nsid.len());
            own[..2].copy_from_slice(&Edns::NSID.to_be_bytes());
            own[2..4].copy_from_slice(&(nsid.len() as u16).to_be_bytes());
            own[4..].copy_from_slice(nsid);
            options = rest;
        }
        if edns.subnet {
            let network = self.echo.option();
            options[..network.len()].copy_from_slice(network);
        }
    }

    fn next_rotation(&mut self) -> u16 {
        if self.settings.rotate {
            self.turn = self.turn.wrapping_add(1);
        }
        self.turn
    }

    /// Moves the first few of the `count` records of `body` to its end. Their owners are all pointers of two octets.
    fn rotate(&mut self, body: &mut [u8], count: u16) {
        let mut at = 0;
        for _ in 0..self.next_rotation() % count {
            at += 12 + usize::from(u16::from_be_bytes([body[at + 10], body[at + 11]]));
        }
        body.rotate_left(at);
    }
}

/// What a query says of its client's network; `None` if it says nothing, or nonsense.
#[inline(always)]
fn read_network(query: &Query, message: &[u8]) -> Option<Located> {
    query.edns.filter(|edns| edns.subnet)?;
    Located::read(query.option(message, Edns::CLIENT_SUBNET)?)
}

/// Whether the client wants signatures and proofs (RFC 3225).
#[inline(always)]
fn wants_dnssec(query: &Query) -> bool {
    query.edns.is_some_and(|edns| edns.dnssec_ok)
}

/// The flags of a response to a query with `flags`: QR, the query's opcode, RD and CD, and the code.
#[inline(always)]
fn response_flags(flags: u16, rcode: Rcode) -> u16 {
    header_flag::QR | flags & (header_flag::OPCODE | header_flag::RD | header_flag::CD) | rcode.low()
}

/// Copies an answer. One address record is what most are, and a copy of fixed length needs no call.
#[inline(always)]
fn copy_body(to: &mut [u8], body: &[u8]) {
    const ONE_ADDRESS: usize = 16;
    match (to.as_chunks_mut::<ONE_ADDRESS>(), body.as_chunks::<ONE_ADDRESS>()) {
        (([to], []), ([body], [])) => *to = *body,
        _ => to.copy_from_slice(body),
    }
}

/// The query with the CO bit only where it says something: the answer has it, too, then (RFC 9824, 5.1).
#[inline(never)]
fn with_compact_ok(catalog: &Catalog, query: &Query, prepared: &Prepared) -> Query {
    let is_compact = || {
        let zone = prepared.zone.and_then(|number| catalog.zone(number).tree().ok());
        zone.is_some_and(|zone| matches!(zone.denial(), Some(Denial::Compact)))
    };
    let narrow = |edns: Edns| Edns { compact_ok: edns.compact_ok && edns.dnssec_ok && is_compact(), ..edns };
    Query { edns: query.edns.map(narrow), ..*query }
}

/// What becomes of an answer that lacks a signature. Beyond the budget over UDP it is an empty one that is truncated: who has not forged its address asks
/// again by a connection, and those have a budget of their own.
#[cold]
fn unsigned_resolution(unsigned: Unsigned, transport: Transport, start: usize) -> Resolution {
    match (unsigned, transport) {
        (Unsigned::OverBudget, Transport::Udp) => {
            Resolution { truncated: true, ..empty_resolution(Rcode::NoError, start) }
        }
        _ => {
            let error = Some(ExtendedError::Unsigned(unsigned));
            Resolution { error, ..empty_resolution(Rcode::ServFail, start) }
        }
    }
}

fn empty_resolution(rcode: Rcode, end: usize) -> Resolution {
    Resolution {
        rcode,
        authoritative: false,
        truncated: false,
        counts: Counts { question: 1, ..Counts::default() },
        end,
        hops: 0,
        left_zones: false,
        error: None,
        unsigned: None,
        varies: false,
        chosen: false,
    }
}

fn chaos_text<'s>(settings: &'s Settings, qname: &[u8]) -> Option<&'s str> {
    let is = |names: [&[u8]; 2]| names.iter().any(|name| qname.eq_ignore_ascii_case(name));
    if is([b"\x07version\x04bind\x00", b"\x07version\x06server\x00"]) {
        settings.version.as_deref()
    } else if is([b"\x08hostname\x04bind\x00", b"\x02id\x06server\x00"]) {
        settings.hostname.as_deref()
    } else {
        None
    }
}
