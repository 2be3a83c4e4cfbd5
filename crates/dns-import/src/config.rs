//! What every configuration becomes.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};

use crate::Place;

/// The parts of a configuration of `sidestep dns serve` that others have, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Addresses to listen at, with ports; empty says nothing.
    pub listen: Vec<String>,
    /// Who may transfer zones that say nothing else.
    pub allow_transfer: Vec<String>,
    /// Where notices and questions to primaries leave from, one address of each family at most.
    pub source_addresses: Vec<String>,
    /// `transfers-max`.
    pub transfers_max: Option<u64>,
    /// `answers.udp-payload-max`.
    pub udp_payload_max: Option<u64>,
    /// `answers.rotate`.
    pub rotate: bool,
    /// `answers.version`.
    pub version: Option<String>,
    /// `answers.hostname`.
    pub hostname: Option<String>,
    /// `answers.nsid`.
    pub nsid: Option<String>,
    /// `tcp.idle-timeout-s`.
    pub tcp_idle_timeout_s: Option<u64>,
    /// `tcp.connections-max`.
    pub tcp_connections_max: Option<u64>,
    /// Keys of TSIG.
    pub keys: Vec<Key>,
    /// Zones from files.
    pub zones: Vec<Zone>,
    /// Zones from other servers.
    pub secondaries: Vec<Secondary>,
    /// What did not come along, by file and line.
    pub notes: BTreeSet<Note>,
}

/// A key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// `hmac-sha256` and others.
    pub algorithm: String,
    /// In base64.
    pub secret: String,
}

/// A zone from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its name.
    pub origin: String,
    /// Its file.
    pub file: String,
    /// Who may transfer it; `None`: who may transfer all.
    pub allow_transfer: Option<Vec<String>>,
    /// Who may change it.
    pub allow_update: Vec<String>,
    /// Who hears of new versions.
    pub notify: Vec<String>,
    /// Whether it is signed.
    pub dnssec: bool,
    /// Whether what does not exist is denied by NSEC3 then.
    pub nsec3: bool,
    /// Where its keys are.
    pub keys: Option<String>,
}

/// A zone from other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secondary {
    /// Its name.
    pub origin: String,
    /// Its primaries, with or without ports and keys.
    pub primaries: Vec<String>,
    /// The name of the key that signs what those are asked that have none of their own.
    pub key: Option<String>,
    /// Where they are asked from, in place of where all are.
    pub source_addresses: Vec<String>,
    /// Where it is kept.
    pub file: Option<String>,
    /// Whether it is a catalog of others.
    pub is_catalog: bool,
    /// The directory of those zones' files, if it is a catalog that has a file.
    pub members: Option<String>,
    /// Who may transfer it; `None`: who may transfer all.
    pub allow_transfer: Option<Vec<String>>,
    /// Who hears of new versions.
    pub notify: Vec<String>,
}

/// Something that has no counterpart, or another one than a reader may think.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    place: Place,
    what: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: {}", self.place.path, self.place.line, self.what)
    }
}

/// What an option of ours may be.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    option: &'static str,
    least: u64,
    most: u64,
}

pub(crate) const UDP_PAYLOAD: Range = Range { option: "answers.udp-payload-max", least: 512, most: 4096 };
pub(crate) const TCP_IDLE_S: Range = Range { option: "tcp.idle-timeout-s", least: 1, most: 3600 };
pub(crate) const TCP_CONNECTIONS: Range = Range { option: "tcp.connections-max", least: 1, most: 1_000_000 };
pub(crate) const TRANSFERS: Range = Range { option: "transfers-max", least: 1, most: 100_000 };

/// `None` if the octets are not all characters of ASCII that can be printed.
fn text_of_hex(hex: &str) -> Option<String> {
    let digits: Vec<u8> =
        hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let text: String = pairs.iter().map(|[high, low]| char::from(high << 4 | low)).collect();
    let is_plain = |character: char| character.is_ascii_graphic() || character == ' ';
    (rest.is_empty() && text.chars().all(is_plain)).then_some(text)
}

impl Config {
    /// Notes something.
    pub(crate) fn note(&mut self, place: &Place, what: impl Into<String>) {
        self.notes.insert(Note { place: place.clone(), what: what.into() });
    }

    /// Notes which of those that may send NOTIFY for a secondary zone there will be refused here, where only its primaries may.
    pub(crate) fn compare_notifiers(
        &mut self,
        place: &Place,
        list: &str,
        notifiers: &[Notifier],
        primaries: &[Peer],
    ) {
        let others =
            notifiers.iter().filter(|notifier| !primaries.iter().any(|primary| notifier.may_be(primary)));
        let others: Vec<String> = others.map(Notifier::to_text).collect();
        if !others.is_empty() {
            let what = "NOTIFY from there is refused here, where a zone's primaries alone may send it: if such a server has the zone, name it in primaries, too";
            self.note(place, format!("{list}: {}: {what}", others.join(", ")));
        }
    }

    /// Takes an address over that notices or transfers leave from there. Here one of a family is for both.
    pub(crate) fn take_source(&mut self, place: &Place, name: &str, address: &str) {
        match push_source(&mut self.source_addresses, address) {
            Some(held) if held != address => {
                let what = format!(
                    "{name} {address}: source-addresses has {held} already, for notices and transfers of all zones alike; [[secondary]] may have its \
                     own for transfers (docs/dns/secondary.md)"
                );
                self.note(place, what);
            }
            _ => {}
        }
    }

    /// A number as ours has it, which is told where ours may not be as small or as large.
    pub(crate) fn in_range(&mut self, place: &Place, name: &str, value: u64, range: Range) -> u64 {
        let Range { option, least, most } = range;
        let taken = value.clamp(least, most);
        if taken != value {
            let what = format!("{option} is from {least} to {most}, so it is {taken} here");
            self.note(place, format!("{name} {value}: {what}"));
        }
        taken
    }

    /// The same of the text of an option; `None`, which is told, if it is not a number.
    pub(crate) fn number(&mut self, place: &Place, name: &str, text: &str, range: Range) -> Option<u64> {
        let Ok(value) = text.parse() else {
            self.note(place, format!("{name}: {text:?} is not a number, so {} is left out", range.option));
            return None;
        };
        Some(self.in_range(place, name, value, range))
    }

    /// How large answers over UDP may be. One limit is for all here: the smallest of those that are there.
    pub(crate) fn take_udp_payload(&mut self, place: &Place, name: &str, text: &str) {
        let size = self.number(place, name, text, UDP_PAYLOAD);
        self.udp_payload_max = self.udp_payload_max.into_iter().chain(size).min();
    }

    /// Takes a key over, unless its algorithm is none of ours: the server would refuse the whole file then.
    pub(crate) fn take_key(&mut self, place: &Place, name: &str, algorithm: &str, secret: &str) {
        const ALGORITHMS: [&str; 4] = ["hmac-sha1", "hmac-sha256", "hmac-sha384", "hmac-sha512"];
        let lower = algorithm.trim_end_matches('.').to_lowercase();
        let algorithm = if lower.starts_with("hmac-") { lower } else { format!("hmac-{lower}") };
        if !ALGORITHMS.contains(&algorithm.as_str()) {
            let why = if algorithm.contains("md5") { "is broken" } else { "is not known here" };
            let known = ALGORITHMS.join(", ");
            let what =
                format!("key {name:?}: {algorithm} {why}, so it is left out: make another key, for {known}");
            return self.note(place, what);
        }
        self.keys.push(Key { name: name.to_owned(), algorithm, secret: secret.to_owned() });
    }

    /// Takes an identifier in hexadecimal over. Files of Sidestep have text there.
    pub(crate) fn take_hex_nsid(&mut self, place: &Place, hex: &str) {
        match text_of_hex(hex) {
            Some(text) => self.nsid = Some(text),
            None => self.note(place, format!("nsid {hex}: no text in hexadecimal, and answers.nsid is text")),
        }
    }

    /// The configuration file of Sidestep. What did not come along stands in comments at its beginning.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            line(&mut text, format_args!("# Not carried over: {}", one_line(&note.to_string())));
        }
        list(&mut text, "listen", &self.listen);
        list(&mut text, "allow-transfer", &self.allow_transfer);
        list(&mut text, "source-addresses", &self.source_addresses);
        number(&mut text, "transfers-max", self.transfers_max);
        table(&mut text, "answers", |text| {
            number(text, "udp-payload-max", self.udp_payload_max);
            if self.rotate {
                text.push_str("rotate = true\n");
            }
            string(text, "version", self.version.as_deref());
            string(text, "hostname", self.hostname.as_deref());
            string(text, "nsid", self.nsid.as_deref());
        });
        table(&mut text, "tcp", |text| {
            number(text, "idle-timeout-s", self.tcp_idle_timeout_s);
            number(text, "connections-max", self.tcp_connections_max);
        });
        for key in &self.keys {
            text.push_str("\n[[key]]\n");
            string(&mut text, "name", Some(&key.name));
            string(&mut text, "algorithm", Some(&key.algorithm));
            string(&mut text, "secret", Some(&key.secret));
        }
        for zone in &self.zones {
            text.push_str("\n[[zone]]\n");
            string(&mut text, "file", Some(&zone.file));
            string(&mut text, "origin", Some(&zone.origin));
            access(&mut text, "allow-transfer", zone.allow_transfer.as_deref());
            list(&mut text, "allow-update", &zone.allow_update);
            list(&mut text, "notify", &zone.notify);
            if zone.dnssec {
                // A key that is made would not be the one that the parent has a DS record of.
                text.push_str("dnssec = true\nnew-keys = false\n");
                if zone.nsec3 {
                    text.push_str("nsec3 = true\n");
                }
                string(&mut text, "keys", zone.keys.as_deref());
            }
        }
        for zone in &self.secondaries {
            text.push_str("\n[[secondary]]\n");
            string(&mut text, "zone", Some(&zone.origin));
            list(&mut text, "primaries", &zone.primaries);
            string(&mut text, "key", zone.key.as_deref());
            list(&mut text, "source-addresses", &zone.source_addresses);
            string(&mut text, "file", zone.file.as_deref());
            if zone.is_catalog {
                text.push_str("catalog = true\n");
                string(&mut text, "members", zone.members.as_deref().filter(|_| zone.file.is_some()));
            }
            access(&mut text, "allow-transfer", zone.allow_transfer.as_deref());
            list(&mut text, "notify", &zone.notify);
        }
        text
    }
}

/// Adds an address to leave from, unless there is one of its family: then that one.
pub(crate) fn push_source(sources: &mut Vec<String>, address: &str) -> Option<String> {
    let is_ipv6 = |address: &str| address.contains(':');
    let held = sources.iter().find(|held| is_ipv6(held) == is_ipv6(address)).cloned();
    if held.is_none() {
        sources.push(address.to_owned());
    }
    held
}

fn line(text: &mut String, arguments: fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a string takes all");
}

fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A table that is left out if it is empty.
fn table(text: &mut String, name: &str, write: impl FnOnce(&mut String)) {
    let mut options = String::new();
    write(&mut options);
    if !options.is_empty() {
        line(text, format_args!("\n[{name}]"));
        text.push_str(&options);
    }
}

fn number(text: &mut String, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        line(text, format_args!("{name} = {value}"));
    }
}

fn string(text: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        line(text, format_args!("{name} = {}", quoted(value)));
    }
}

/// A list that is left out if it is empty.
fn list(text: &mut String, name: &str, values: &[String]) {
    access(text, name, Some(values).filter(|values| !values.is_empty()));
}

/// A list that is there even if it is empty: nobody is another thing than what holds for all.
fn access(text: &mut String, name: &str, values: Option<&[String]>) {
    if let Some(values) = values {
        let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
        line(text, format_args!("{name} = [{}]", values.join(", ")));
    }
}

/// A basic string (TOML 1.0).
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for char in value.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            char if char.is_control() => {
                write!(text, "\\u{:04X}", u32::from(char)).expect("a string takes all")
            }
            char => text.push(char),
        }
    }
    text.push('"');
    text
}

/// Lists that mean everybody, in the words of access lists.
pub(crate) fn everybody() -> [String; 2] {
    ["0.0.0.0/0".to_owned(), "::/0".to_owned()]
}

/// An address with a port, as `primaries` and `notify` have it. `53` says nothing there.
pub(crate) fn with_port(address: &str, port: Option<&str>) -> String {
    match port.filter(|port| *port != "53") {
        None => address.to_owned(),
        Some(port) => endpoint(address, Some(port)),
    }
}

/// Another server: its address, and the name of the key that it shares with this one.
pub(crate) struct Peer {
    pub(crate) address: String,
    pub(crate) key: Option<String>,
}

impl Peer {
    /// As `primaries` and `notify` have it.
    pub(crate) fn to_text(&self) -> String {
        match &self.key {
            Some(key) => format!("{} key {key}", self.address),
            None => self.address.clone(),
        }
    }
}

/// Who may send NOTIFY, as other servers have it: whoever comes from an address, has a key, or both.
pub(crate) struct Notifier {
    /// An address, or what means several.
    pub(crate) address: Option<String>,
    pub(crate) key: Option<String>,
}

impl Notifier {
    /// Whether what a primary sends is meant, and will count here: one whose key is known has to sign with that, if it signs.
    fn may_be(&self, primary: &Peer) -> bool {
        let same_name = |one: &str, other: &str| {
            one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
        };
        let is_there = |address: &String| {
            let own = ip_of(address);
            own.is_some() && own == ip_of(&primary.address)
        };
        let is_signed_so = |key: &String| primary.key.as_ref().is_none_or(|own| same_name(own, key));
        self.address.as_ref().is_none_or(is_there) && self.key.as_ref().is_none_or(is_signed_so)
    }

    fn to_text(&self) -> String {
        let key = self.key.as_ref().map(|key| format!("key {key}"));
        self.address.iter().cloned().chain(key).collect::<Vec<_>>().join(" ")
    }
}

/// The one address that a text means, with or without a port; `None` if it means more.
fn ip_of(text: &str) -> Option<IpAddr> {
    let alone = |(address, length): (&str, &str)| {
        let address: IpAddr = address.parse().ok()?;
        (length == if address.is_ipv4() { "32" } else { "128" }).then_some(address)
    };
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    text.parse().ok().or_else(with_port).or_else(|| text.split_once('/').and_then(alone))
}

impl Secondary {
    /// Takes primaries. A key that all of them have is that of the zone.
    pub(crate) fn take_primaries(&mut self, peers: &[Peer]) {
        let common = peers.first().and_then(|first| first.key.as_ref());
        let is_common = peers.iter().all(|peer| peer.key.as_ref() == common);
        self.key = common.filter(|_| is_common).cloned();
        let text = |peer: &Peer| if is_common { peer.address.clone() } else { peer.to_text() };
        self.primaries = peers.iter().map(text).collect();
    }
}

/// What becomes of an option that does not come along: where the same is done here, or that it is not.
pub(crate) fn not_here(name: &str) -> String {
    let elsewhere = match name {
        "rate-limit" | "mod-rrl" => "[rate], in other units (docs/dns/defence.md)",
        name if name.starts_with("rrl-") => "[rate], in other units (docs/dns/defence.md)",
        "mod-cookies" | "require-server-cookie" | "cookie-secret" | "answer-cookie" => {
            "[cookies] (docs/dns/defence.md)"
        }
        "tls" | "http" | "listen-tls" | "listen-quic" | "tls-port" | "tls-service-key"
        | "tls-service-pem" => "[encrypted] (docs/dns/encrypted.md)",
        "cert-file" | "key-file" => "certificate and key of [encrypted] (docs/dns/encrypted.md)",
        "tls-auth" => "tls and tls-ca of [[secondary]] (docs/dns/reference.md)",
        "notify-source" | "notify-source-v6" => {
            "source-addresses, for all zones alike (docs/dns/reference.md)"
        }
        "listen-xdp" | "xdp" => "device (docs/dns/reference.md)",
        "user" | "username" => "user (docs/dns/reference.md)",
        "refuse-any" | "deny-any" => "answers to ANY have one record set here, always (RFC 8482)",
        "geoip-directory" => "[geo] (docs/dns/lines.md)",
        "catalog-role" | "catalog-zone" | "catalog-group" => "[catalog] (docs/dns/catalog.md)",
        "https-port" | "quic-port" => "the ports of addresses in [encrypted] (docs/dns/encrypted.md)",
        "http-port" => "HTTP without TLS is not spoken here; with TLS: [encrypted] (docs/dns/encrypted.md)",
        "http-listener-clients" | "tls-max-clients" | "quic-max-clients" => {
            "encrypted.connections-max (docs/dns/encrypted.md)"
        }
        "tcp-initial-timeout" | "tcp-keepalive-timeout" | "tcp-advertised-timeout" | "tcp-io-timeout" => {
            "tcp.idle-timeout-s is the one limit of connections here (docs/dns/reference.md)"
        }
        "tcp-mss" => "mss-clamp (docs/dns/reference.md)",
        "server-count" | "udp-workers" | "tcp-workers" => "cores (docs/dns/reference.md)",
        "verbosity" | "logfile" | "log-only-syslog" => "--log (docs/install.md)",
        "automatic-acl" => "name those who may transfer a zone in its allow-transfer (docs/dns/primary.md)",
        "mod-geoip" => "lines (docs/dns/lines.md)",
        "mod-dnstap" | "dnstap" | "dnstap-output" | "querylog" => "query-log (docs/dns/watching.md)",
        "update-policy" => "allow-update, for the whole zone (docs/dns/updates.md)",
        "allow-query" | "allow-query-on" | "mod-queryacl" => {
            "everybody may ask for every zone here: keep a zone that is not public on a server, or behind a filter, of its own"
        }
        _ => return format!("{name}: no counterpart"),
    };
    format!("{name}: {elsewhere}")
}

/// An address with its port, as `listen` has it: without one, the port there depends on the device.
pub(crate) fn endpoint(address: &str, port: Option<&str>) -> String {
    let port = port.unwrap_or("53");
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// `ADDRESS@PORT`, as NSD and Knot write it.
pub(crate) fn split_port(text: &str) -> (&str, Option<&str>) {
    text.split_once('@').map_or((text, None), |(address, port)| (address, Some(port)))
}
