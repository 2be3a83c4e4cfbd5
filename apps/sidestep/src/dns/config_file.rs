//! What a user writes into the configuration file. Nothing is checked here beyond its shape; `config.rs` does that.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::answer_log::QueryLogOption;

use super::options::BusyPoll;
use crate::xdp_mode::XdpMode;

/// The whole file. Every option may be left out; the command line means the same by the same names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ConfigFile {
    /// Addresses to serve, `ADDR` or `ADDR:PORT`.
    #[serde(default)]
    pub(crate) listen: Vec<String>,
    /// Interface name, `dpdk:` and a port, or `kernel`.
    pub(crate) device: Option<String>,
    /// List of cores, `0-3,6`.
    pub(crate) cores: Option<String>,
    /// Engines that serve the queues for all, 0 to 1024.
    pub(crate) dispatchers: Option<u64>,
    /// Percentage of UDP flows that they answer themselves, 0 to 99.
    pub(crate) dispatcher_share: Option<u64>,
    /// Microseconds.
    pub(crate) spin_us: Option<u64>,
    /// `off`, `on` or `always`.
    pub(crate) busy_poll: Option<BusyPoll>,
    /// `native` or `generic`.
    pub(crate) xdp_mode: Option<XdpMode>,
    /// Octets of the largest TCP segment.
    pub(crate) mss_clamp: Option<u64>,
    /// Unix socket for statistics.
    pub(crate) control: Option<PathBuf>,
    /// User to become.
    pub(crate) user: Option<String>,
    /// Who may transfer zones: addresses, prefixes, names of keys.
    #[serde(default)]
    pub(crate) allow_transfer: Vec<String>,
    /// Who hears of new versions of zones: addresses with or without ports, each with or without a key.
    #[serde(default)]
    pub(crate) notify: Vec<String>,
    /// Addresses that notices and questions to primaries leave from, one of each family at most.
    #[serde(default)]
    pub(crate) source_addresses: Vec<String>,
    /// Outgoing transfers at once, 1 to 100000.
    pub(crate) transfers_max: Option<usize>,
    /// Zones with metrics of their own, 0 to 10000.
    pub(crate) zone_metrics_max: Option<u64>,
    /// `[[key]]` tables.
    #[serde(default, rename = "key")]
    pub(crate) keys: Vec<KeyTable>,
    /// `[[zone]]` tables.
    #[serde(default, rename = "zone")]
    pub(crate) zones: Vec<ZoneTable>,
    /// `[[secondary]]` tables.
    #[serde(default, rename = "secondary")]
    pub(crate) secondaries: Vec<SecondaryTable>,
    /// `[catalog]`.
    pub(crate) catalog: Option<CatalogTable>,
    /// `[etcd]`.
    pub(crate) etcd: Option<EtcdTable>,
    /// `[[line]]` tables.
    #[serde(default, rename = "line")]
    pub(crate) lines: Vec<LineTable>,
    /// `[[pool]]` tables.
    #[serde(default, rename = "pool")]
    pub(crate) pools: Vec<PoolTable>,
    /// `[geo]`.
    #[serde(default)]
    pub(crate) geo: GeoTable,
    /// `[answers]`.
    #[serde(default)]
    pub(crate) answers: AnswersTable,
    /// `[tcp]`.
    #[serde(default)]
    pub(crate) tcp: TcpTable,
    /// `[cookies]`.
    #[serde(default)]
    pub(crate) cookies: CookiesTable,
    /// `[rate]`.
    #[serde(default)]
    pub(crate) rate: RateTable,
    /// Where answers are noted.
    pub(crate) query_log: Option<QueryLogOption>,
    /// `[encrypted]`.
    pub(crate) encrypted: Option<EncryptedTable>,
    /// `[dpdk]`.
    #[serde(default)]
    pub(crate) dpdk: DpdkTable,
}

/// A port of DPDK.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct DpdkTable {
    /// Name of its TAP interface.
    pub(crate) tap: Option<String>,
    /// Further arguments for EAL.
    #[serde(default)]
    pub(crate) eal_args: Vec<String>,
}

/// A key for signatures (TSIG).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct KeyTable {
    /// Its name, which both sides have to know it by.
    pub(crate) name: String,
    /// `hmac-sha256` and others.
    pub(crate) algorithm: Option<String>,
    /// In base64.
    pub(crate) secret: Option<String>,
    /// A file with the secret in base64.
    pub(crate) secret_file: Option<PathBuf>,
}

/// A class of clients, which may have records of its own in zones.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct LineTable {
    /// Its name, which zones know it by.
    pub(crate) name: String,
    /// Prefixes of its clients' addresses.
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
    /// A file with such prefixes, one a line.
    pub(crate) prefixes_file: Option<PathBuf>,
    /// Codes of countries, `DE`.
    #[serde(default)]
    pub(crate) countries: Vec<String>,
    /// Codes of regions, `US-CA`.
    #[serde(default)]
    pub(crate) regions: Vec<String>,
    /// Numbers of autonomous systems.
    #[serde(default)]
    pub(crate) asns: Vec<u32>,
    /// The line whose records its clients get where it has none.
    pub(crate) fallback: Option<String>,
}

/// Names whose addresses are given by weight and health.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PoolTable {
    /// Its name.
    pub(crate) name: String,
    /// The names whose addresses it is about.
    pub(crate) names: Vec<String>,
    /// Addresses of an answer at most, 1 to 255.
    pub(crate) answers: Option<u64>,
    /// How often addresses are given, in proportion to others, 0 to 1000000.
    #[serde(default)]
    pub(crate) weights: BTreeMap<String, u64>,
    /// How addresses are checked.
    pub(crate) check: Option<CheckTable>,
}

/// A check of hosts, by one of `tcp`, `http` and `ping`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CheckTable {
    /// A port that takes connections.
    pub(crate) tcp: Option<u64>,
    /// A path.
    pub(crate) http: Option<String>,
    pub(crate) ping: Option<bool>,
    /// Of HTTP: port, name of the host, and codes of good answers.
    pub(crate) port: Option<u64>,
    pub(crate) host: Option<String>,
    pub(crate) status: Option<Vec<u64>>,
    /// Milliseconds, 100 to 3600000.
    pub(crate) interval_ms: Option<u64>,
    /// Milliseconds, 10 to the interval.
    pub(crate) timeout_ms: Option<u64>,
    /// Checks in a row, 1 to 100.
    pub(crate) rise: Option<u64>,
    pub(crate) fall: Option<u64>,
}

/// Files of databases (MMDB).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct GeoTable {
    /// Countries by address.
    pub(crate) country: Option<PathBuf>,
    /// Countries and regions by address.
    pub(crate) city: Option<PathBuf>,
    /// Autonomous systems by address.
    pub(crate) asn: Option<PathBuf>,
}

/// One zone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ZoneTable {
    /// Its file; a relative path starts at the configuration file's directory.
    pub(crate) file: PathBuf,
    /// Its origin, if that is not the owner of the SOA.
    pub(crate) origin: Option<String>,
    /// Who may transfer it, in place of those who may transfer all.
    pub(crate) allow_transfer: Option<Vec<String>>,
    /// Who may change it: addresses, prefixes, names of keys.
    #[serde(default)]
    pub(crate) allow_update: Vec<String>,
    /// Whether to sign it.
    #[serde(default)]
    pub(crate) dnssec: bool,
    /// The directory of its keys.
    pub(crate) keys: Option<PathBuf>,
    /// Whether a key is made if there is none.
    pub(crate) new_keys: Option<bool>,
    /// The key in a token that signs it.
    pub(crate) key_uri: Option<String>,
    /// The algorithm that its keys have, or are brought to.
    pub(crate) algorithm: Option<String>,
    /// Whether the parent is to copy its name servers.
    #[serde(default)]
    pub(crate) csync: bool,
    /// Servers of the parent, which are asked for its DS records.
    #[serde(default)]
    pub(crate) parent: Vec<String>,
    /// Whether it is denied by NSEC3 records then.
    pub(crate) nsec3: Option<bool>,
    /// How it is denied then: `nsec`, `nsec3` or `compact`.
    pub(crate) denial: Option<String>,
    /// For each line that has records of its own, their file.
    #[serde(default)]
    pub(crate) lines: BTreeMap<String, PathBuf>,
    /// Who gets a NOTIFY when it has changed, in place of those who hear of all.
    pub(crate) notify: Option<Vec<String>>,
}

/// One zone that is transferred from others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SecondaryTable {
    /// Its name.
    pub(crate) zone: String,
    /// Addresses, with or without ports and keys, in the order in which they are asked.
    pub(crate) primaries: Vec<String>,
    /// The key of primaries that have none of their own.
    pub(crate) key: Option<String>,
    /// Addresses that they are asked from, in place of those for all.
    #[serde(default)]
    pub(crate) source_addresses: Vec<String>,
    /// The name in the primaries' certificates, if they are asked by TLS.
    pub(crate) tls: Option<String>,
    /// A file with the certificates to trust, in place of the system's.
    pub(crate) tls_ca: Option<PathBuf>,
    /// Whether it names other zones, to be had from the same primaries.
    #[serde(default)]
    pub(crate) catalog: bool,
    /// The directory of those zones' files.
    pub(crate) members: Option<PathBuf>,
    /// Where the zone is kept over a restart.
    pub(crate) file: Option<PathBuf>,
    /// Who hears of new versions, in place of those who hear of all.
    pub(crate) notify: Option<Vec<String>>,
    /// Who may transfer it, in place of those who may transfer all.
    pub(crate) allow_transfer: Option<Vec<String>>,
}

/// A catalog of the zones that are served from files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CatalogTable {
    /// Its name.
    pub(crate) zone: String,
    /// Who may transfer it, in place of those who may transfer all.
    pub(crate) allow_transfer: Option<Vec<String>>,
    /// Who hears of new versions, in place of those who hear of all.
    pub(crate) notify: Option<Vec<String>>,
}

/// Zones from etcd.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct EtcdTable {
    /// Members of the cluster: addresses or names, with or without ports, `http://` and `https://`.
    pub(crate) endpoints: Vec<String>,
    /// What all keys begin with.
    pub(crate) prefix: Option<String>,
    /// The directory in which zones are kept over a restart.
    pub(crate) directory: Option<PathBuf>,
    /// A user of etcd, and a file with the password.
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    /// PEM files: whom to trust, and who we are.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// The name in the members' certificates, in place of that in the endpoint.
    pub(crate) server_name: Option<String>,
    /// The directory of the keys of zones that are signed.
    pub(crate) keys: Option<PathBuf>,
    /// Whether a key is made if there is none.
    #[serde(default)]
    pub(crate) new_keys: bool,
    /// Who may transfer these zones, in place of those who may transfer all.
    pub(crate) allow_transfer: Option<Vec<String>>,
    /// Who hears of new versions, in place of those who hear of all.
    pub(crate) notify: Option<Vec<String>>,
}

/// What answers look like.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AnswersTable {
    /// Octets, 512 to 4096.
    pub(crate) udp_payload_max: Option<u16>,
    /// Whether the records of an answer change places.
    pub(crate) rotate: Option<bool>,
    /// Text for `version.bind`; empty refuses.
    pub(crate) version: Option<String>,
    /// Text for `hostname.bind`; empty refuses.
    pub(crate) hostname: Option<String>,
    /// Name server identifier; empty sends none.
    pub(crate) nsid: Option<String>,
    /// Percent of a thread's time, 1 to 50.
    pub(crate) online_signing_percent: Option<u8>,
}

/// DNS over TCP.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TcpTable {
    /// Seconds, 1 to 3600.
    pub(crate) idle_timeout_s: Option<u64>,
    /// Connections at a time, 1 to 1000000.
    pub(crate) connections_max: Option<usize>,
    /// Connections of one client at a time, 1 to 1000000.
    pub(crate) connections_per_client_max: Option<usize>,
    /// Seconds, 0 to 60.
    pub(crate) linger_s: Option<u64>,
}

/// See `dns_front::Options`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct EncryptedTable {
    /// PEM files.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Addresses of DNS over TLS, HTTPS and QUIC.
    #[serde(default)]
    pub(crate) tls: Vec<String>,
    #[serde(default)]
    pub(crate) https: Vec<String>,
    #[serde(default)]
    pub(crate) quic: Vec<String>,
    pub(crate) path: Option<String>,
    pub(crate) streams_max: Option<u64>,
    pub(crate) connections_max: Option<u64>,
    pub(crate) connections_per_client_max: Option<u64>,
    pub(crate) idle_timeout_s: Option<u64>,
}

/// DNS cookies for clients (RFC 7873).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CookiesTable {
    pub(crate) enabled: Option<bool>,
    /// File with secrets in hexadecimal, one a line.
    pub(crate) secrets_file: Option<PathBuf>,
    pub(crate) require: Option<bool>,
}

/// See `dns_guard::RateOptions`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RateTable {
    /// Questions a second; 0 is no limit.
    pub(crate) per_address: Option<u64>,
    pub(crate) per_prefix: Option<u64>,
    pub(crate) burst_ms: Option<u64>,
    pub(crate) ipv4_prefix: Option<u64>,
    pub(crate) ipv6_prefix: Option<u64>,
    /// `slip`, `refuse` or `drop`.
    pub(crate) beyond: Option<String>,
    pub(crate) slip: Option<u64>,
    /// Networks without limits, in place of this host.
    pub(crate) exempt: Option<Vec<String>>,
    pub(crate) buckets: Option<u64>,
}
