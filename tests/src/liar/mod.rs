//! A resolver that lies, with a switch for each lie: without a fault it does what a good one does. It resolves in simulated time: the authority of
//! the audit zone is a function that it calls. It does not validate: it reads in a name's label what a validator would find.

mod cache;
mod servers;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dns_audit::authority::{Asked, Behaviour, Log, Signature, Spec, Subnet, Via, Zone};
use dns_audit::edns;
use dns_audit::plan::Question;
use dns_audit::transcript::Reply;
use dns_message::{Record, add_to_count, push_record, question_message};
use dns_wire::header::flag;
use dns_wire::{Class, Name, NameBuf, Query, Rcode, Rtype};

use cache::Entry;
use servers::Servers;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Expired data first; then it looks.
    ServesExpired,
    /// Expired data, and it never looks again.
    NeverRefreshes,
    /// Expired data unless the authority answers within half a second.
    Impatient,
    /// Expired data keeps the TTL that it once had.
    LongStaleTtl,
    /// A name that is NXDOMAIN now keeps its old data.
    KeepsRemoved,
    /// A zone that has failed once has failed for ever.
    NeverRecovers,
    /// TTLs do not count down.
    FrozenTtl,
    /// TTLs are 60 s at least.
    MinimumTtl,
    /// TTL 0 is cached.
    KeepsZero,
    /// Negative answers last for a minute at least.
    LongNegative,
    /// The same for answers without data alone.
    LongNoData,
    /// The same, and names that do not exist come once more when that has expired.
    LongNoDataAndExpired,
    /// Names without data do not exist.
    DeniesEmpty,
    /// 127.0.0.1/32 is everybody's client subnet.
    LoopbackSubnet,
    /// A client's subnet is passed on, and the answer given to all.
    IgnoresScope,
    /// A client's subnet is passed on; answers for IPv6 are given to all.
    IgnoresScopeOfSix,
    /// A client's subnet is passed on; no answer for a network is used again.
    NeverReuses,
    /// A client's subnet is passed on; answers for all networks are kept for one.
    KeepsApart,
    /// A client's subnet is passed on, and answers are kept as they should be: no fault but for the first.
    PassesSubnet,
    /// Clients' networks are told, of those that do not want it, too.
    IgnoresOptOut,
    /// Clients' whole addresses are told.
    TellsWhole,
    /// Another server stands in front of it, which answers for names that say what a server is.
    Fronted,
    /// It asks the authority as clients ask resolvers.
    DesiresRecursion,
    /// A cache in front of its own has another bound of TTLs.
    TwoCaches,
    /// A cache in front of its own writes answers by itself, and has no cookies.
    TwoWriters,
    /// It has two caches side by side.
    SideBySide,
    /// Questions leave from another country.
    Abroad,
    /// The slowest server is asked.
    WorstServer,
    /// A dead server is asked again and again.
    NeverLeaves,
    /// Names that do not exist have an address.
    RewritesMissing,
    /// Names that do not exist have an address if people may have typed them.
    RewritesTyped,
    /// All names have one address.
    ChangesAddress,
    /// All addresses have another one behind them.
    AppendsAddress,
    /// All addresses have another one before them.
    PrependsAddress,
    /// Signatures are not looked at.
    NeverValidates,
    /// A zone of an unknown algorithm is bogus.
    FailsUnknown,
    /// One source port for all.
    FixedPort,
    /// IDs count up.
    CountedIds,
    /// The question comes back in lower case.
    Lowercases,
    /// Answers over UDP have any size.
    LongDatagrams,
    /// Nobody listens at TCP.
    NoTcp,
    /// One name in four gets no answer.
    Deaf,
    /// All names have one address of type A, which lies where those of the audit zone lie.
    ChangesToNear,
    /// Long answers are cut over TCP as they are over UDP.
    CutsTcp,
    /// A query that is lost is not asked again.
    TriesOnce,
    /// A server that was silent once is never asked again.
    NeverReturns,
    /// Clients get no answer while the authority gives none.
    SilentWhenDown,
    /// Expired data has no mark.
    Unmarked,
    /// TTLs have no cap.
    NoMaximum,
    /// Negative TTLs have no cap.
    NoNegativeCap,
    /// Private addresses are left out.
    FiltersPrivate,
    /// There are no cookies.
    NoCookies,
    /// It says its version to everybody.
    TellsVersion,
    /// It says that it is another server.
    PosesAsAnother,
    /// Authorities see whole names.
    WholeNames,
    /// It is far away.
    Far,
    /// Questions leave from two countries in turn.
    ManyNetworks,
    /// A name of the world outside has another address.
    Hijacks,
    /// Nobody listens at TLS, HTTPS and QUIC.
    Unencrypted,
    /// It resolves for strangers: no fault unless this host is one.
    Open,
    /// It answers nothing.
    Silent,
    /// It refuses everything.
    Refuses,
    /// It resolves nothing.
    FailsAll,
    /// A name of the world outside does not exist.
    HidesName,
    /// No name exists.
    DeniesAll,
    /// One name in four does not exist.
    DeniesSome,
    /// 203.0.113.0/24 is everybody's client subnet.
    FixedSubnet,
    /// A client's subnet is passed on, but for some of its bits: no fault but for the first.
    ShortensSubnet,
}

/// Those that pass a client's subnet on.
const PASSES_SUBNET: [Fault; 6] = [
    Fault::IgnoresScope,
    Fault::IgnoresScopeOfSix,
    Fault::NeverReuses,
    Fault::KeepsApart,
    Fault::PassesSubnet,
    Fault::ShortensSubnet,
];

/// A name outside of the audit zone, and its address.
pub const WORLD: (&str, Ipv4Addr) = ("www.example.", Ipv4Addr::new(198, 51, 100, 80));

/// Where its questions come from, and where those of one abroad do.
pub const EGRESS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), IpAddr::V4(Ipv4Addr::new(198, 51, 100, 53))];
/// A network that none of its clients is in.
const FIXED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Where its clients are.
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 77, 0);
/// The address that it lies with.
const LIE: [u8; 4] = [203, 0, 113, 9];
const NEAR_LIE: [u8; 4] = [77, 0, 0, 1];
/// It answers within so long from its cache.
const OWN_MS: u64 = 1;
const FAR_MS: u64 = 150;
/// What it adds to a client's part of a cookie.
const COOKIE: &[u8] = b"of liars";
const CHAOS: Class = Class(3);
const RA: u16 = 0x0080;
const AD: u16 = 0x0020;
const WEEK_S: u32 = 604_800;
const NEGATIVE_MAX_S: u32 = 3600;
const STALE_TTL_S: u32 = 30;
const UDP_MAX: usize = 1232;

/// The resolver.
pub struct Liar {
    fault: Option<Fault>,
    cache: BTreeMap<Key, Entry>,
    servers: Servers,
    /// Names that have failed.
    failed: bool,
    seed: u64,
    next_id: u16,
}

/// Name, type, for whom (a network, and when it asked if that matters), and in which of its caches.
type Key = (Vec<u8>, u16, Option<(IpAddr, u64)>, u64);

/// The authority of the audit zone, and its log.
pub struct Upstream {
    /// The zone.
    pub zone: Zone,
    /// Who asked.
    pub log: Log,
    /// It answers nothing any more.
    pub is_dead: bool,
    /// By how many milliseconds its clock is ahead.
    pub ahead_ms: i64,
}

impl Upstream {
    /// From now on nothing arrives.
    pub fn die(&mut self) {
        self.is_dead = true;
    }

    /// From now on its clock is ahead by so many milliseconds, or behind.
    pub fn set_clock(&mut self, ahead_ms: i64) {
        self.ahead_ms = ahead_ms;
    }

    fn answer(&mut self, asked: &Asked<'_>, now_ms: u64) -> dns_audit::authority::Answer {
        match self.is_dead {
            true => dns_audit::authority::Answer::default(),
            false => self.zone.answer(asked, &mut self.log, now_ms.saturating_add_signed(self.ahead_ms)),
        }
    }
}

/// What is fetched: the answer, and how long it took.
struct Fetched {
    reply: Option<Reply>,
    took_ms: u64,
}

impl Liar {
    /// One with this fault, that knows so many servers of the audit zone.
    pub fn new(fault: Option<Fault>, servers: usize) -> Liar {
        Liar {
            fault,
            cache: BTreeMap::new(),
            servers: Servers::new(servers, fault),
            failed: false,
            seed: 0x9e37_79b9_7f4a_7c15,
            next_id: 1000,
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Answers a client's message that comes at `now_ms`: the answer, and how long it takes. `None` is silence.
    pub fn ask(
        &mut self,
        message: &[u8],
        via: Via,
        upstream: &mut Upstream,
        now_ms: u64,
    ) -> Option<(Vec<u8>, u64)> {
        let query = Query::parse(message).ok()?;
        let name = NameBuf::from(query.qname(message));
        if self.is_deaf(name.as_name(), via) {
            return None;
        }
        let own_ms = if self.has(Fault::Far) { FAR_MS } else { OWN_MS };
        if let Some(answer) = self.own_answer(&query, name.as_name()) {
            return Some((self.write(message, &query, via, answer), own_ms));
        }
        let mut answer = Answer::default();
        let took_ms = self.resolve(message, &query, name.as_name(), upstream, now_ms, &mut answer);
        let answer = Some(answer).filter(|answer| !answer.is_silent)?;
        Some((self.write(message, &query, via, answer), own_ms + took_ms))
    }

    fn is_deaf(&self, name: Name<'_>, via: Via) -> bool {
        let number = number_of(name);
        match self.fault {
            Some(Fault::Silent) => true,
            Some(Fault::Unencrypted) => via > Via::Tcp,
            Some(Fault::NoTcp) => via == Via::Tcp,
            Some(Fault::Deaf) => number % 4 == 3,
            _ => false,
        }
    }

    /// What it answers without asking anybody.
    fn own_answer(&self, query: &Query, name: Name<'_>) -> Option<Answer> {
        let answers = |rtype, rdata: &[u8]| {
            let (owner, rdata) = (NameBuf::from(name), rdata.to_vec());
            Answer {
                answers: vec![Record { owner, rtype, class: Class::IN, ttl: 60, rdata }],
                ..Answer::default()
            }
        };
        let fails = |rcode: Rcode| Answer { rcode: rcode as u16, ..Answer::default() };
        let says = |text: &str| answers(Rtype::TXT, &[&[text.len() as u8], text.as_bytes()].concat());
        let (is_version, is_world) = (name.to_string().starts_with("version."), name.to_string() == WORLD.0);
        match self.fault {
            Some(Fault::TellsVersion) if is_version => Some(says("Liar 1.2.3")),
            Some(Fault::PosesAsAnother) if is_version => Some(says("unbound")),
            Some(Fault::Fronted) if query.qclass == CHAOS => Some(fails(Rcode::NotImp)),
            _ if query.qclass != Class::IN || [Rtype::AXFR, Rtype(254)].contains(&query.qtype) => {
                Some(fails(Rcode::ServFail))
            }
            Some(Fault::Refuses) => Some(fails(Rcode::Refused)),
            Some(Fault::FailsAll) => Some(fails(Rcode::ServFail)),
            Some(Fault::DeniesAll) => Some(fails(Rcode::NxDomain)),
            Some(Fault::DeniesSome) if number_of(name) % 4 == 3 => Some(fails(Rcode::NxDomain)),
            Some(Fault::HidesName) if is_world => Some(fails(Rcode::NxDomain)),
            _ if is_world && query.qtype != Rtype::A => Some(Answer::default()),
            Some(Fault::Hijacks) if is_world => Some(answers(Rtype::A, &LIE)),
            _ if is_world => Some(answers(Rtype::A, &WORLD.1.octets())),
            _ => None,
        }
    }

    /// Fills the answer from the cache or the authority; returns how long that took.
    fn resolve(
        &mut self,
        message: &[u8],
        query: &Query,
        name: Name<'_>,
        upstream: &mut Upstream,
        now_ms: u64,
        answer: &mut Answer,
    ) -> u64 {
        let subnet = query.option(message, edns::CLIENT_SUBNET).and_then(Subnet::parse);
        let side = if self.has(Fault::SideBySide) { self.random() % 2 } else { 0 };
        let subnet = subnet.filter(|_| PASSES_SUBNET.iter().any(|fault| self.has(*fault)));
        let key = (
            name.as_bytes().to_ascii_lowercase(),
            query.qtype.0,
            self.network(subnet.as_ref(), name, now_ms),
            side,
        );
        let spec = name.labels().find_map(Spec::parse);
        let known = self.cache.get(&key).cloned();
        if let Some(entry) = known.as_ref().filter(|entry| now_ms < entry.expires_ms) {
            answer.take(entry, self.remaining(entry, now_ms));
            answer.is_kept = true;
            self.judge(spec.as_ref(), name, answer);
            return 0;
        }
        if let Some(entry) = known.as_ref().filter(|entry| self.serves_at_once(entry, spec.as_ref(), now_ms))
        {
            answer.take_stale(entry, self.stale_ttl(entry));
            if self.has(Fault::ServesExpired) || self.has(Fault::LongNoDataAndExpired) {
                let fetched = self.fetch(query, name, subnet, spec.as_ref(), upstream, now_ms);
                self.keep(key, fetched.reply, now_ms + fetched.took_ms);
            }
            return 0;
        }
        let fetched = self.fetch(query, name, subnet, spec.as_ref(), upstream, now_ms);
        let came_ms = now_ms + fetched.took_ms;
        let is_removed = fetched.reply.as_ref().is_some_and(|reply| reply.is(Rcode::NxDomain));
        let is_good = fetched.reply.as_ref().is_some_and(|reply| !reply.is(Rcode::ServFail));
        self.failed |= !is_good;
        answer.is_silent = !is_good && self.has(Fault::SilentWhenDown);
        let is_kept =
            is_removed && self.has(Fault::KeepsRemoved) || self.failed && self.has(Fault::NeverRecovers);
        match known {
            Some(entry) if !is_good || is_kept => answer.take_stale(&entry, self.stale_ttl(&entry)),
            _ if is_good => {
                let entry = self.keep(key, fetched.reply, came_ms).expect("it is good");
                answer.take(&entry, self.remaining(&entry, came_ms));
                self.judge(spec.as_ref(), name, answer);
            }
            _ => answer.rcode = Rcode::ServFail as u16,
        }
        fetched.took_ms
    }

    /// For whom an answer is kept: for a network, or for all. It reads the scope of answers in their names.
    fn network(&self, subnet: Option<&Subnet>, name: Name<'_>, now_ms: u64) -> Option<(IpAddr, u64)> {
        let scope = name.labels().find_map(Spec::parse).and_then(|spec| spec.scope).unwrap_or(0);
        let address = subnet?.address;
        let is_for_all = scope == 0 && !self.has(Fault::KeepsApart)
            || self.has(Fault::IgnoresScope)
            || self.has(Fault::IgnoresScopeOfSix) && address.is_ipv6();
        let when = if self.has(Fault::NeverReuses) { now_ms } else { 0 };
        (!is_for_all).then_some((address, when))
    }

    /// Whether expired data goes out before anybody is asked.
    fn serves_at_once(&self, entry: &Entry, spec: Option<&Spec>, now_ms: u64) -> bool {
        let is_missing = entry.rcode == Rcode::NxDomain as u16;
        let is_slow = spec.is_some_and(|spec| matches!(spec.behaviour(now_ms), Some(Behaviour::Slow(500..))));
        self.has(Fault::ServesExpired)
            || self.has(Fault::NeverRefreshes)
            || self.has(Fault::Impatient) && is_slow
            || self.has(Fault::LongNoDataAndExpired) && is_missing
    }

    fn keeps_no_data(&self) -> bool {
        self.has(Fault::LongNoData) || self.has(Fault::LongNoDataAndExpired)
    }

    fn stale_ttl(&self, entry: &Entry) -> u32 {
        if self.has(Fault::LongStaleTtl) { entry.ttl.max(3600) } else { STALE_TTL_S }
    }

    fn remaining(&self, entry: &Entry, now_ms: u64) -> u32 {
        let elapsed = (now_ms.saturating_sub(entry.stored_ms) / 1000) as u32;
        let remaining = entry.ttl.saturating_sub(elapsed);
        match self.fault {
            Some(Fault::FrozenTtl) => entry.ttl,
            Some(Fault::TwoCaches) if now_ms > entry.stored_ms => remaining + 60,
            _ => remaining,
        }
    }

    /// Stores what came.
    fn keep(&mut self, key: Key, reply: Option<Reply>, now_ms: u64) -> Option<Entry> {
        let reply = reply?;
        let is_negative = reply.answers.is_empty();
        let ttl = reply.answers.iter().chain(&reply.authority).map(|record| record.ttl).min().unwrap_or(0);
        let ttl = match is_negative {
            true if self.has(Fault::LongNegative) || self.keeps_no_data() && reply.is(Rcode::NoError) => {
                ttl.clamp(60, NEGATIVE_MAX_S)
            }
            true if self.has(Fault::NoNegativeCap) => ttl,
            false if self.has(Fault::NoMaximum) => ttl,
            true => ttl.min(NEGATIVE_MAX_S),
            false if self.has(Fault::MinimumTtl) => ttl.clamp(60, WEEK_S),
            false => ttl.min(WEEK_S),
        };
        let kept_s = if ttl == 0 && self.has(Fault::KeepsZero) { 60 } else { ttl };
        let expires_ms = now_ms + u64::from(kept_s) * 1000;
        let entry = Entry {
            rcode: reply.rcode,
            answers: reply.answers,
            authority: reply.authority,
            ttl,
            stored_ms: now_ms,
            expires_ms,
        };
        self.cache.insert(key, entry.clone());
        Some(entry)
    }

    /// Asks the servers one after the other.
    fn fetch(
        &mut self,
        query: &Query,
        name: Name<'_>,
        subnet: Option<Subnet>,
        spec: Option<&Spec>,
        upstream: &mut Upstream,
        now_ms: u64,
    ) -> Fetched {
        // As much of the name as there may be a zone at (RFC 9156).
        let shorter = (name.labels().next().and_then(Spec::parse).is_none() && !self.has(Fault::WholeNames))
            .then(|| name.parent())
            .flatten();
        if let (Some(shorter), Some(_)) = (shorter, spec) {
            let message = self.query(query, shorter, None);
            let source = SocketAddr::new(EGRESS[0], 1024 + (self.random() % 60_000) as u16);
            let server = self.servers.choose(0, now_ms);
            let asked = Asked { message: &message, source, server, via: Via::Udp };
            let _ = upstream.answer(&asked, now_ms); // It says nothing that is not known.
        }
        let mut took_ms = 0;
        for attempt in 0..if self.has(Fault::TriesOnce) { 1 } else { 3 } {
            let server = self.servers.choose(attempt, now_ms + took_ms);
            let message = self.query(query, name, subnet.clone());
            let port = if self.has(Fault::FixedPort) { 5353 } else { 1024 + (self.random() % 60_000) as u16 };
            let is_abroad =
                self.has(Fault::Abroad) || self.has(Fault::ManyNetworks) && self.random().is_multiple_of(2);
            let egress = EGRESS[usize::from(is_abroad)];
            let source = SocketAddr::new(egress, port);
            // A name without behaviour is not asked for over UDP only: long answers come over TCP.
            let via = if spec.is_some_and(|spec| spec.size > 0) { Via::Tcp } else { Via::Udp };
            let asked = Asked { message: &message, source, server, via };
            let answer = upstream.answer(&asked, now_ms + took_ms);
            match answer.message.and_then(|octets| Reply::read(&octets).ok()) {
                Some(reply) => {
                    let delay = u64::from(answer.delay_ms);
                    self.servers.on_answer(server, delay);
                    return Fetched { reply: Some(reply), took_ms: took_ms + delay };
                }
                None => took_ms += self.servers.on_silence(server, now_ms + took_ms),
            }
        }
        Fetched { reply: None, took_ms }
    }

    /// The message that asks the authority.
    fn query(&mut self, query: &Query, name: Name<'_>, subnet: Option<Subnet>) -> Vec<u8> {
        let loopback = Subnet { address: Ipv4Addr::LOCALHOST.into(), source: 32, scope: 0 };
        let client = |source| Subnet { address: CLIENT.into(), source, scope: 0 };
        let subnet = match self.fault {
            Some(Fault::LoopbackSubnet) => Some(loopback),
            Some(Fault::FixedSubnet) => Some(Subnet { address: FIXED.into(), source: 24, scope: 0 }),
            Some(Fault::ShortensSubnet) => subnet.map(shortened),
            Some(Fault::IgnoresOptOut) => Some(client(24)),
            Some(Fault::TellsWhole) => Some(client(32)),
            _ => subnet,
        };
        let mut question = Question::new(NameBuf::from(name), query.qtype);
        question.flags = if self.has(Fault::DesiresRecursion) { flag::RD } else { 0 };
        if let Some(subnet) = subnet {
            question = question.with_option(edns::CLIENT_SUBNET, subnet.to_data());
        }
        self.next_id = self.next_id.wrapping_add(1);
        let id = if self.has(Fault::CountedIds) { self.next_id } else { self.random() as u16 };
        question.message(id)
    }

    /// What a validator, or a liar, makes of an answer.
    fn judge(&self, spec: Option<&Spec>, name: Name<'_>, answer: &mut Answer) {
        if self.has(Fault::DeniesEmpty) && answer.rcode == 0 && answer.answers.is_empty() {
            answer.rcode = Rcode::NxDomain as u16;
        }
        let is_missing = answer.rcode == Rcode::NxDomain as u16;
        let lie = || Record {
            owner: NameBuf::from(name),
            rtype: Rtype::A,
            class: Class::IN,
            ttl: 60,
            rdata: if self.has(Fault::ChangesToNear) { NEAR_LIE } else { LIE }.to_vec(),
        };
        let has_address = answer.answers.first().is_some_and(|record| record.rtype == Rtype::A);
        let changes = self.has(Fault::ChangesAddress) || self.has(Fault::ChangesToNear) && has_address;
        let is_typed = name.labels().next() == Some(b"www");
        let rewrites = self.has(Fault::RewritesMissing) || self.has(Fault::RewritesTyped) && is_typed;
        if is_missing && rewrites || !is_missing && changes {
            *answer = Answer { answers: vec![lie()], ..Answer::default() };
            return;
        }
        if has_address && self.has(Fault::AppendsAddress) {
            answer.answers.push(lie());
        }
        if has_address && self.has(Fault::PrependsAddress) {
            answer.answers.insert(0, lie());
        }
        if self.has(Fault::FiltersPrivate) && spec.is_some_and(|spec| spec.is_private) {
            answer.answers.clear();
        }
        let is_number = |octets: &[u8]| !octets.is_empty() && octets.iter().all(u8::is_ascii_digit);
        let is_unknown = name.labels().any(|label| label.strip_prefix(b"u").is_some_and(is_number));
        let is_bad = spec.is_some_and(|spec| spec.signature != Signature::Good)
            || is_unknown && self.has(Fault::FailsUnknown);
        answer.is_authentic = !self.has(Fault::NeverValidates) && !is_unknown;
        if is_bad && !self.has(Fault::NeverValidates) {
            *answer = Answer { rcode: Rcode::ServFail as u16, ..Answer::default() };
        }
    }

    fn write(&self, message: &[u8], query: &Query, via: Via, answer: Answer) -> Vec<u8> {
        let id = u16::from_be_bytes([message[0], message[1]]);
        let ad = if answer.is_authentic && query.edns.is_some_and(|edns| edns.dnssec_ok) { AD } else { 0 };
        let flags = flag::QR | RA | ad | query.flags & (flag::RD | flag::CD) | answer.rcode & 0xf;
        let mut name = NameBuf::from(query.qname(message));
        if self.has(Fault::Lowercases) {
            name.make_lowercase();
        }
        let mut reply = question_message(id, flags, name.as_name(), query.qtype);
        let class = reply.len() - 2;
        reply[class..].copy_from_slice(&query.qclass.0.to_be_bytes());
        let end = reply.len();
        for (section, records) in [(0, &answer.answers), (1, &answer.authority)] {
            for record in records {
                push_record(
                    &mut reply,
                    record.owner.as_name(),
                    record.rtype,
                    Class::IN,
                    record.ttl,
                    &record.rdata,
                );
                add_to_count(&mut reply, section, 1);
            }
        }
        let payload = query.edns.map_or(512, |edns| usize::from(edns.payload_size.max(512)));
        let is_datagram = via == Via::Udp || via == Via::Tcp && self.has(Fault::CutsTcp);
        if is_datagram && reply.len() + 40 > payload.min(UDP_MAX) && !self.has(Fault::LongDatagrams) {
            reply.truncate(end);
            reply[6..12].fill(0);
            reply[2] |= (flag::TC >> 8) as u8;
        }
        if query.edns.is_some() {
            let mark = answer.extended_error.filter(|_| !self.has(Fault::Unmarked));
            let has_cookies = !(self.has(Fault::NoCookies) || self.has(Fault::TwoWriters) && answer.is_kept);
            let cookie = query.option(message, edns::COOKIE).filter(|_| has_cookies);
            let options = [
                mark.map(|code| edns_option(edns::EXTENDED_ERROR, &code.to_be_bytes())),
                cookie.map(|client| edns_option(edns::COOKIE, &[client, COOKIE].concat())),
            ];
            let data = options.into_iter().flatten().flatten().collect::<Vec<u8>>();
            push_record(&mut reply, Name::ROOT, Rtype::OPT, Class(UDP_MAX as u16), 0, &data);
            add_to_count(&mut reply, 2, 1);
        }
        reply
    }
}

/// The number of a probe's name.
fn number_of(name: Name<'_>) -> u32 {
    name.labels().find_map(Spec::parse).map_or(0, |spec| spec.number)
}

/// A client subnet of 16 or 32 bits.
fn shortened(subnet: Subnet) -> Subnet {
    match subnet.address {
        IpAddr::V4(own) => {
            let address = Ipv4Addr::from_bits(own.to_bits() >> 16 << 16);
            Subnet { address: address.into(), source: subnet.source.min(16), ..subnet }
        }
        IpAddr::V6(own) => {
            let address = Ipv6Addr::from_bits(own.to_bits() >> 96 << 96);
            Subnet { address: address.into(), source: subnet.source.min(32), ..subnet }
        }
    }
}

fn edns_option(code: u16, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

/// An answer to a client.
#[derive(Clone, Debug, Default)]
struct Answer {
    rcode: u16,
    answers: Vec<Record>,
    authority: Vec<Record>,
    is_authentic: bool,
    /// There is none.
    is_silent: bool,
    /// It comes from the cache.
    is_kept: bool,
    extended_error: Option<u16>,
}

impl Answer {
    fn take(&mut self, entry: &Entry, ttl: u32) {
        let with_ttl =
            |records: &[Record]| records.iter().map(|record| Record { ttl, ..record.clone() }).collect();
        (self.rcode, self.answers, self.authority) =
            (entry.rcode, with_ttl(&entry.answers), with_ttl(&entry.authority));
    }

    /// RFC 8767, 4; RFC 8914, 4.4.
    fn take_stale(&mut self, entry: &Entry, ttl: u32) {
        self.take(entry, ttl);
        self.extended_error = Some(3);
    }
}
