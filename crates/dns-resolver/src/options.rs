//! Every constant of the resolver, with the reason for its value. What the user wrote is checked before it comes here.

use clock::Duration;

use crate::dns64::Dns64;

/// How much of a name the servers above its zone are told (RFC 9156).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minimisation {
    /// Every server sees the whole name.
    Off,
    /// NXDOMAIN for a part of the name leads to one question for the whole name: some servers deny names that have names below.
    Relaxed,
    /// NXDOMAIN for a part of the name is the answer (RFC 8020). It saves a query for names that do not exist.
    Strict,
}

/// What a resolver is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How it chooses servers.
    pub selection: Selection,
    /// When expired data is served.
    pub stale: Stale,
    /// What the cache holds, and for how long.
    pub cache: CacheOptions,
    /// What one question may cost.
    pub limits: Limits,
    /// See [`Minimisation`].
    pub minimisation: Minimisation,
    /// Random case in the names of queries, which an answer has to repeat (0x20). It makes forgery harder where the port is not random
    /// enough. A few servers answer in lower case and are then asked over TCP, so it is off by default.
    pub mixed_case: bool,
    /// Whether servers are asked at IPv6 addresses. Off saves queries on a host without IPv6.
    pub ipv6: bool,
    /// Whether servers at loopback addresses may be asked. Only for laboratories: a zone could otherwise make us talk to our own host.
    pub query_loopback: bool,
    /// The port that authoritative servers listen on. Only laboratories change it.
    pub server_port: u16,
    /// Payload that we offer to servers, and take from clients at most, in octets. 1232 fits every path without fragments.
    pub udp_payload_max: u16,
    /// Whether the addresses of name servers are fetched from their own zone and then preferred to glue. It costs two queries a
    /// name server, in the background, and finds servers that have moved or are closer.
    pub fetch_child_addresses: bool,
    /// Whether servers are sent cookies (RFC 7873), and those that have sent theirs are only believed with it. It costs 12 to 44 octets a query,
    /// and ends what who cannot see our queries might forge.
    pub cookies: bool,
    /// What validation may cost, where there is a trust anchor.
    pub dnssec: Dnssec,
    /// Whether the local zones of RFC 6303 and RFC 6761 are answered here. Without them such questions leak to the root.
    pub local_zones: bool,
    /// The prefix by which a translator (NAT64) reaches IPv4, for clients that have IPv6 alone. See [`Dns64`].
    pub dns64: Option<Dns64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            selection: Selection::default(),
            stale: Stale::default(),
            cache: CacheOptions::default(),
            limits: Limits::default(),
            minimisation: Minimisation::Relaxed,
            mixed_case: false,
            ipv6: true,
            query_loopback: false,
            server_port: 53,
            udp_payload_max: 1232,
            fetch_child_addresses: true,
            cookies: true,
            dnssec: Dnssec::default(),
            local_zones: true,
            dns64: None,
        }
    }
}

/// How servers are chosen; [`crate::servers`] says the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Servers this much slower than the best may share its load. More spreads further and costs clients time.
    pub band: Duration,
    /// Queries a second to one address beyond which others in the band take over. Operators limit what one client may ask.
    pub rate_max: u32,
    /// The shortest wait for an answer before the next server is asked. Below it the jitter of a busy host looks like loss.
    pub timeout_floor: Duration,
    /// The shortest wait for a server that is asked the same again. A lost packet is repaired by the next server; a server that is asked
    /// again has probably more to overcome.
    pub retry_floor: Duration,
    /// The wait for a server that was never measured. Most of the Internet answers within it.
    pub timeout_unknown: Duration,
    /// The longest wait, however often a server was silent.
    pub timeout_max: Duration,
    /// How long an answer is still taken after its query was sent.
    pub patience: Duration,
    /// What the first loss adds to a server's time; it doubles with each further one. A server that loses a packet now and then stays the
    /// best if the next one is much slower. One that is dead is left because it is silent, whatever its penalty.
    pub penalty: Duration,
    /// The largest penalty.
    pub penalty_max: Duration,
    /// Time in which a penalty halves.
    pub penalty_half_life: Duration,
    /// How old the measurement of a server in use may become before a query of our own measures it again. With `probe_follow_up` it
    /// is how fast a server that became better is noticed.
    pub probe_interval: Duration,
    /// After a measurement that differs much from those before, the next one follows after this.
    pub probe_follow_up: Duration,
    /// The longest pause between probes of a silent server while others of its zones answer. It doubles from `probe_follow_up`.
    pub probe_silent_max: Duration,
    /// The same while no server of the zone answers: each probe may end an outage.
    pub probe_outage_max: Duration,
    /// Queries of our own a second, over all servers. It bounds what measuring costs everybody else.
    pub probe_rate_max: u32,
    /// Servers asked at once by the first query of a zone of which none is measured. 1 asks one by one.
    pub race: u8,
    /// After so many waits in vain for one question, servers not asked yet are asked two by two: it is more than a lost packet.
    pub losses_to_hurry: u32,
    /// After so long without an answer a server's state is forgotten, so that no outage is remembered for longer.
    pub expiry: Duration,
    /// Servers that are remembered; beyond it the oldest are forgotten. Each takes about 200 octets.
    pub servers_max: usize,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            band: Duration::from_millis(20),
            rate_max: 200,
            timeout_floor: Duration::from_millis(20),
            retry_floor: Duration::from_millis(200),
            timeout_unknown: Duration::from_millis(350),
            timeout_max: Duration::from_secs(2),
            patience: Duration::from_secs(3),
            penalty: Duration::from_millis(50),
            penalty_max: Duration::from_secs(4),
            penalty_half_life: Duration::from_secs(2),
            probe_interval: Duration::from_secs(2),
            probe_follow_up: Duration::from_millis(250),
            probe_silent_max: Duration::from_secs(4),
            probe_outage_max: Duration::from_millis(500),
            probe_rate_max: 50,
            race: 2,
            losses_to_hurry: 2,
            expiry: Duration::from_secs(15 * 60),
            servers_max: 100_000,
        }
    }
}

/// When expired data is served (RFC 8767); [`crate::stale`] says the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Off: expired data is never served.
    pub enabled: bool,
    /// How long a client waits for a fresh answer, at least, before an expired one is considered.
    pub client_timer: Duration,
    /// How long a server, once asked, keeps a client from expired data, however short its usual time is: it may have become slower.
    /// Longer than the time to most servers, and shorter than the client timer.
    pub grace: Duration,
    /// The TTL of expired data in answers, in seconds (RFC 8767, 4).
    pub ttl: u32,
    /// How long after its expiry data may be served. RFC 8767 suggests one to three days.
    pub keep: Duration,
}

impl Default for Stale {
    fn default() -> Stale {
        Stale {
            enabled: true,
            client_timer: Duration::from_millis(400),
            grace: Duration::from_millis(350),
            ttl: 30,
            keep: Duration::from_secs(24 * 3600),
        }
    }
}

/// What the cache holds, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Octets of all entries together.
    pub octets_max: usize,
    /// Longest TTL of positive answers. A day bounds how long a mistake in a zone is repeated.
    pub ttl_max: Duration,
    /// Longest TTL of negative answers (RFC 2308, 5: one to three hours work well).
    pub negative_ttl_max: Duration,
    /// How long a first failure is remembered (RFC 9520, 3.2: at least one second). It doubles while the failure goes on. A server
    /// that comes back ends it early.
    pub failure_ttl: Duration,
    /// How long a failure is remembered at most. RFC 8767, 5 advises to ask again every 30 seconds.
    pub failure_ttl_max: Duration,
    /// A question that comes in the last part of a TTL, one in so many, renews the entry in the background. 0 switches it off.
    pub prefetch_part: u32,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            octets_max: 256 << 20,
            ttl_max: Duration::from_secs(86_400),
            negative_ttl_max: Duration::from_secs(3600),
            failure_ttl: Duration::from_secs(5),
            failure_ttl_max: Duration::from_secs(30),
            prefetch_part: 10,
        }
    }
}

/// What validation accepts, and what it may cost (the KeyTrap attack; NSEC3 exhaustion).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dnssec {
    /// Whether RSA with SHA-1 and digests by SHA-1 count. RFC 9905, 2 has resolvers take them for unsupported: what is signed by nothing
    /// else is insecure.
    pub sha1: bool,
    /// Keys with the same tag and algorithm that are tried for one signature, and keys that one DS set may vouch for. Tags of honest
    /// zones hardly ever collide; four leave room for a roll-over.
    pub colliding_keys_max: u8,
    /// Signatures of one set that are tried. Zones in a roll-over of their algorithm have two to four.
    pub signatures_max: u8,
    /// DS records of one zone that are looked at. Three digests of two keys are the most that makes sense.
    pub ds_max: u8,
    /// Signatures that are checked for one question, with its look-ups; one that fails counts as four. A chain of five zones takes about fifteen with an empty cache; each
    /// costs up to a tenth of a millisecond.
    pub signatures_per_question_max: u16,
    /// Iterations of NSEC3 beyond which a denial is taken for insecure (RFC 9276, 3.2). Zones are to have none; 50 is what BIND and Knot
    /// Resolver accept, and nearly no zone has more.
    pub nsec3_iterations_max: u16,
    /// Names that are hashed for NSEC3 for one question. A denial takes as many as the name has labels below its zone, and one; a name
    /// of an IPv6 address has 32.
    pub hashes_per_question_max: u16,
    /// Servers whose bogus answers one question takes before it fails. A second opinion helps against one broken server, more do not.
    pub bogus_max: u8,
}

impl Default for Dnssec {
    fn default() -> Dnssec {
        Dnssec {
            sha1: false,
            colliding_keys_max: 4,
            signatures_max: 8,
            ds_max: 8,
            signatures_per_question_max: 64,
            nsec3_iterations_max: 50,
            hashes_per_question_max: 150,
            bogus_max: 3,
        }
    }
}

/// What one question may cost. Together they bound what a hostile client or zone can make us do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Upstream queries for one question, with those for the addresses of name servers.
    pub queries_max: u16,
    /// Queries of one step: the same name and type to the servers of one zone.
    pub tries_max: u8,
    /// Aliases (CNAME, DNAME) that are followed.
    pub aliases_max: u8,
    /// Delegations that are followed for one name.
    pub referrals_max: u8,
    /// Name servers whose addresses are looked up for one question, where the delegation has no glue (the NXNS attack).
    pub address_lookups_max: u8,
    /// Such look-ups within look-ups.
    pub depth_max: u8,
    /// Addresses of one zone that are considered.
    pub addresses_max: usize,
    /// Time for one question.
    pub resolution_max: Duration,
    /// Questions that are being resolved at a time. Beyond it clients get SERVFAIL.
    pub tasks_max: usize,
    /// Clients that wait at a time.
    pub clients_max: usize,
    /// Clients that wait for the same question.
    pub clients_per_question_max: usize,
    /// Upstream queries at a time; each has a socket.
    pub in_flight_max: usize,
    /// Upstream queries at a time to one server that answers. It keeps one popular server from taking all places, and is more than a busy
    /// resolver has under way to the servers of one zone.
    pub in_flight_per_server_max: usize,
    /// The same to a server that did not answer its last query, or none yet. Fewer tell as well whether it lives.
    pub in_flight_to_silent_max: usize,
    /// Answers with the wrong ID, name or address to one query, after which it is asked over TCP: somebody is guessing.
    pub forgeries_max: u8,
    /// Background look-ups of name servers' addresses a second.
    pub address_fetch_rate_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            queries_max: 64,
            tries_max: 8,
            aliases_max: 12,
            referrals_max: 30,
            address_lookups_max: 6,
            depth_max: 4,
            addresses_max: 32,
            resolution_max: Duration::from_secs(5),
            tasks_max: 4_000,
            clients_max: 20_000,
            clients_per_question_max: 1_000,
            in_flight_max: 4_000,
            in_flight_per_server_max: 1_000,
            in_flight_to_silent_max: 50,
            forgeries_max: 3,
            address_fetch_rate_max: 20,
        }
    }
}
