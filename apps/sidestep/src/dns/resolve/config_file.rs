//! What a user writes into the configuration file. Nothing is checked here beyond its shape; `config.rs` does that.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::dns::answer_log::QueryLogOption;
use crate::dns::config_file::{CookiesTable, EncryptedTable, RateTable, TcpTable};

/// The whole file. Every option may be left out; the command line means the same by the same names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ConfigFile {
    /// Addresses to serve, `ADDR` or `ADDR:PORT`.
    #[serde(default)]
    pub(super) listen: Vec<String>,
    /// Interface whose packets are taken over AF_XDP.
    pub(super) device: Option<String>,
    /// Networks whose clients may ask.
    #[serde(default)]
    pub(super) allow: Vec<String>,
    /// File with root servers; a relative path starts at the configuration file's directory.
    pub(super) root_hints: Option<PathBuf>,
    /// Where answers are noted.
    pub(super) query_log: Option<QueryLogOption>,
    /// Unix socket for tools.
    pub(super) control: Option<PathBuf>,
    /// User to become.
    pub(super) user: Option<String>,
    /// `off`, `relaxed` or `strict`.
    pub(super) minimisation: Option<String>,
    /// Whether names are asked for in random case.
    pub(super) mixed_case: Option<bool>,
    /// Whether servers are asked over IPv6.
    pub(super) ipv6: Option<bool>,
    /// Addresses of this host that queries to servers leave from.
    #[serde(default)]
    pub(super) source_addresses: Vec<IpAddr>,
    /// Whether servers at loopback addresses are asked.
    pub(super) query_loopback: Option<bool>,
    /// Whether the zones of RFC 6303 and RFC 6761 are answered here.
    pub(super) local_zones: Option<bool>,
    /// Prefix of a translator, such as `64:ff9b::/96`.
    pub(super) dns64: Option<String>,
    /// Whether addresses of name servers are fetched from their own zone.
    pub(super) fetch_child_addresses: Option<bool>,
    /// Octets, 512 to 4096.
    pub(super) udp_payload_max: Option<u64>,
    /// `[[forward]]` tables.
    #[serde(default, rename = "forward")]
    pub(super) forwards: Vec<DirectedTable>,
    /// `[[stub]]` tables.
    #[serde(default, rename = "stub")]
    pub(super) stubs: Vec<DirectedTable>,
    /// `[cache]`.
    #[serde(default)]
    pub(super) cache: CacheTable,
    /// `[selection]`.
    #[serde(default)]
    pub(super) selection: SelectionTable,
    /// `[stale]`.
    #[serde(default)]
    pub(super) stale: StaleTable,
    /// `[dnssec]`.
    #[serde(default)]
    pub(super) dnssec: DnssecTable,
    /// `[encrypted]`.
    pub(super) encrypted: Option<EncryptedTable>,
    /// `[cookies]`.
    #[serde(default)]
    pub(super) cookies: CookiesTable,
    /// `[rate]`.
    #[serde(default)]
    pub(super) rate: RateTable,
    /// `[client-subnet]`.
    #[serde(default)]
    pub(super) client_subnet: ClientSubnetTable,
    /// Whether servers are sent cookies.
    pub(super) upstream_cookies: Option<bool>,
    /// `[limits]`.
    #[serde(default)]
    pub(super) limits: LimitsTable,
    /// `[tcp]`, as for `dns serve`.
    #[serde(default)]
    pub(super) tcp: TcpTable,
}

/// Who is told where clients are (RFC 7871).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ClientSubnetTable {
    /// Zones, with those below them.
    #[serde(default)]
    pub(super) zones: Vec<String>,
    /// Bits, 1 to 24.
    pub(super) ipv4_prefix: Option<u64>,
    /// Bits, 1 to 56.
    pub(super) ipv6_prefix: Option<u64>,
}

/// A zone whose servers the user names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DirectedTable {
    pub(super) zone: String,
    /// `ADDR` or `ADDR:PORT`.
    pub(super) servers: Vec<String>,
    /// Whether the zone is validated: no, if it is one that the Internet does not know.
    pub(super) dnssec: Option<bool>,
}

/// See `dns_resolver::Dnssec`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DnssecTable {
    pub(super) enabled: Option<bool>,
    /// File with DS or DNSKEY records.
    pub(super) trust_anchors: Option<PathBuf>,
    /// Zones that are not validated for a time.
    #[serde(default)]
    pub(super) negative: Vec<NegativeTable>,
    pub(super) sha1: Option<bool>,
    pub(super) colliding_keys_max: Option<u64>,
    pub(super) signatures_max: Option<u64>,
    pub(super) ds_max: Option<u64>,
    pub(super) signatures_per_question_max: Option<u64>,
    pub(super) nsec3_iterations_max: Option<u64>,
    pub(super) hashes_per_question_max: Option<u64>,
    pub(super) bogus_max: Option<u64>,
}

/// A zone whose signatures are known to be broken (RFC 7646).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NegativeTable {
    pub(super) zone: String,
    pub(super) until: toml::value::Datetime,
}

/// See `dns_resolver::CacheOptions`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CacheTable {
    /// File that keeps it from one run to the next; a relative path starts at the configuration file's directory.
    pub(super) file: Option<PathBuf>,
    /// MiB, 1 to 1048576.
    pub(super) size_mib: Option<u64>,
    pub(super) ttl_max_s: Option<u64>,
    pub(super) negative_ttl_max_s: Option<u64>,
    pub(super) failure_ttl_s: Option<u64>,
    pub(super) failure_ttl_max_s: Option<u64>,
    /// One in so many parts of a TTL; 0 switches it off.
    pub(super) prefetch_part: Option<u64>,
}

/// See `dns_resolver::Selection`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SelectionTable {
    pub(super) band_ms: Option<u64>,
    pub(super) rate_max: Option<u64>,
    pub(super) timeout_floor_ms: Option<u64>,
    pub(super) retry_floor_ms: Option<u64>,
    pub(super) timeout_unknown_ms: Option<u64>,
    pub(super) timeout_max_ms: Option<u64>,
    pub(super) patience_ms: Option<u64>,
    pub(super) penalty_ms: Option<u64>,
    pub(super) penalty_max_ms: Option<u64>,
    pub(super) penalty_half_life_ms: Option<u64>,
    pub(super) probe_interval_ms: Option<u64>,
    pub(super) probe_follow_up_ms: Option<u64>,
    pub(super) probe_silent_max_ms: Option<u64>,
    pub(super) probe_outage_max_ms: Option<u64>,
    pub(super) probe_rate_max: Option<u64>,
    pub(super) race: Option<u64>,
    pub(super) losses_to_hurry: Option<u64>,
    pub(super) expiry_s: Option<u64>,
    pub(super) servers_max: Option<u64>,
}

/// See `dns_resolver::Stale`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StaleTable {
    pub(super) enabled: Option<bool>,
    pub(super) client_timer_ms: Option<u64>,
    pub(super) grace_ms: Option<u64>,
    pub(super) ttl_s: Option<u64>,
    pub(super) keep_s: Option<u64>,
}

/// See `dns_resolver::Limits`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LimitsTable {
    pub(super) queries_max: Option<u64>,
    pub(super) tries_max: Option<u64>,
    pub(super) aliases_max: Option<u64>,
    pub(super) referrals_max: Option<u64>,
    pub(super) address_lookups_max: Option<u64>,
    pub(super) depth_max: Option<u64>,
    pub(super) addresses_max: Option<u64>,
    pub(super) resolution_max_ms: Option<u64>,
    pub(super) tasks_max: Option<u64>,
    pub(super) clients_max: Option<u64>,
    pub(super) clients_per_question_max: Option<u64>,
    pub(super) in_flight_max: Option<u64>,
    pub(super) in_flight_per_server_max: Option<u64>,
    pub(super) in_flight_to_silent_max: Option<u64>,
    pub(super) forgeries_max: Option<u64>,
    pub(super) address_fetch_rate_max: Option<u64>,
}
