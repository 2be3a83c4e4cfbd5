//! A responder's counters. One core writes them, and any thread may read them at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use dns_wire::{Rcode, Rtype};

use crate::latency::Latency;
use crate::online::Tally;

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By UDP; answers may be truncated.
    Udp,
    /// By TCP; answers may have 65535 octets, as on all that follow.
    Tcp,
    /// Over TLS.
    Tls,
    /// Over HTTPS.
    Https,
    /// Over QUIC.
    Quic,
}

impl Transport {
    const ALL: [(Transport, &str); 5] = [
        (Transport::Udp, "udp"),
        (Transport::Tcp, "tcp"),
        (Transport::Tls, "tls"),
        (Transport::Https, "https"),
        (Transport::Quic, "quic"),
    ];
}

/// Why a message got no answer at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Shorter than a header.
    Short,
    /// A response, not a query.
    Response,
    /// No room for even the shortest answer; never on a transport of ours.
    NoRoom,
    /// Beyond a limit of rate.
    Rate,
}

impl Dropped {
    /// Every reason, in the order of the counters.
    pub const ALL: [Dropped; 4] = [Dropped::Short, Dropped::Response, Dropped::NoRoom, Dropped::Rate];

    /// The name by which `sidestep dns stats` shows the reason.
    pub const fn name(self) -> &'static str {
        match self {
            Dropped::Short => "short_message",
            Dropped::Response => "not_a_query",
            Dropped::NoRoom => "no_room",
            Dropped::Rate => "rate",
        }
    }
}

/// Counters of types: all up to CAA (257) have their own, and the others share the last.
const TYPES: usize = 259;

/// Numbers under which zones are counted: 0 for all that are not counted alone.
pub const ZONE_COUNTERS: usize = 1 << 14;

/// What becomes of sets that are signed for one answer.
const ONLINE: [&str; 4] = [
    "online_signatures",
    "online_signatures_reused",
    "online_signatures_over_budget",
    "online_signatures_failed",
];

/// Counts of one responder.
#[derive(Debug)]
pub struct Counters {
    by_zone: Box<[AtomicU64; ZONE_COUNTERS]>,
    by_transport: [AtomicU64; Transport::ALL.len()],
    by_type: [AtomicU64; TYPES],
    by_rcode: [AtomicU64; 24],
    dropped: [AtomicU64; Dropped::ALL.len()],
    truncated: AtomicU64,
    from_table: AtomicU64,
    /// In the order of [`ONLINE`].
    online: [AtomicU64; ONLINE.len()],
    latency: [Latency; Transport::ALL.len()],
}

impl Default for Counters {
    fn default() -> Counters {
        let zero = || AtomicU64::new(0);
        let by_zone: Box<[AtomicU64]> = std::iter::repeat_with(zero).take(ZONE_COUNTERS).collect();
        Counters {
            by_zone: by_zone.try_into().expect("it has as many"),
            by_transport: std::array::from_fn(|_| zero()),
            by_type: std::array::from_fn(|_| zero()),
            by_rcode: std::array::from_fn(|_| zero()),
            dropped: std::array::from_fn(|_| zero()),
            truncated: zero(),
            from_table: zero(),
            online: std::array::from_fn(|_| zero()),
            latency: std::array::from_fn(|_| Latency::default()),
        }
    }
}

impl Counters {
    /// A query came by `transport`.
    #[inline(always)]
    pub fn on_query(&self, transport: Transport) {
        bump(&self.by_transport[transport as usize]);
    }

    /// It asked for `qtype`.
    #[inline(always)]
    pub fn on_type(&self, qtype: Rtype) {
        bump(&self.by_type[usize::from(qtype.0).min(TYPES - 1)]);
    }

    /// It is for a zone that is counted under this number.
    #[inline(always)]
    pub fn on_zone(&self, number: u16) {
        bump(&self.by_zone[usize::from(number) % ZONE_COUNTERS]);
    }

    /// Queries for zones that are counted under this number.
    pub fn of_zone(&self, number: u16) -> u64 {
        read(&self.by_zone[usize::from(number) % ZONE_COUNTERS])
    }

    /// It was answered.
    #[inline(always)]
    pub fn on_response(&self, rcode: Rcode) {
        bump(&self.by_rcode[rcode as usize]);
    }

    /// An answer by `transport` took so many nanoseconds. Few answers are looked at.
    pub fn on_sample(&self, transport: Transport, nanos: u64) {
        self.latency[transport as usize].note(nanos);
    }

    pub(crate) fn on_truncated(&self) {
        bump(&self.truncated);
    }

    #[inline(always)]
    pub(crate) fn on_table_hit(&self) {
        bump(&self.from_table);
    }

    /// An answer had sets to be signed.
    pub(crate) fn on_online(&self, tally: Tally) {
        let counts = [tally.signed, tally.reused, tally.over_budget, tally.failed];
        for (counter, count) in self.online.iter().zip(counts) {
            (0..count).for_each(|_| bump(counter));
        }
    }

    pub(crate) fn on_dropped(&self, reason: Dropped) {
        bump(&self.dropped[reason as usize]);
    }

    /// Name and value of every count that is not zero, and of UDP and TCP in any case, in a stable order.
    pub fn named(&self) -> Vec<(String, u64)> {
        let transports =
            Transport::ALL.map(|(transport, name)| (name, read(&self.by_transport[transport as usize])));
        let is_told = |(number, (_, value)): &(usize, (&str, u64))| *number < 2 || *value != 0;
        let transports = transports.into_iter().enumerate().filter(is_told);
        let mut named: Vec<_> =
            transports.map(|(_, (name, value))| (format!("queries_{name}"), value)).collect();
        let types = (0..TYPES).map(|number| (type_name(number), read(&self.by_type[number])));
        let rcodes = Rcode::ALL
            .map(|rcode| (format!("responses_{}", rcode.name()), read(&self.by_rcode[rcode as usize])));
        let dropped = Dropped::ALL
            .map(|reason| (format!("dropped_{}", reason.name()), read(&self.dropped[reason as usize])));
        let rest = [
            ("responses_truncated".to_owned(), read(&self.truncated)),
            ("responses_precompiled".to_owned(), read(&self.from_table)),
        ];
        let online = ONLINE.iter().zip(&self.online).map(|(name, count)| ((*name).to_owned(), read(count)));
        named.extend(
            types.chain(rcodes).chain(dropped).chain(rest).chain(online).filter(|(_, value)| *value != 0),
        );
        for (transport, name) in Transport::ALL {
            let labels = format!("transport=\"{name}\"");
            named.extend(self.latency[transport as usize].named("latency_ns", &labels));
        }
        named
    }
}

fn type_name(number: usize) -> String {
    if number == TYPES - 1 {
        return "queries_type_other".to_owned();
    }
    format!("queries_type_{}", Rtype(number as u16))
}

/// One writer, so no read-modify-write instruction is needed: a plain load and store, never torn.
#[inline(always)]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
