//! The configuration at the start of a scenario.

use std::net::{IpAddr, SocketAddr};

use clock::Duration;
use dns_resolver::{Directed, DirectedKind, Dns64, Hints, Minimisation, Options, Zones};
use dns_wire::NameBuf;

use super::message::name;

/// Options and zones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) options: Options,
    pub(crate) zones: Zones,
    hints: Vec<(NameBuf, Vec<IpAddr>)>,
}

impl Config {
    /// What a scenario starts from: IPv4 only, names whole and nothing in the background, unless it says otherwise.
    pub(crate) fn new() -> Config {
        let mut config = Config::default();
        config.options.minimisation = Minimisation::Off;
        config.options.fetch_child_addresses = false;
        config.options.ipv6 = false;
        config
    }

    /// Takes a line.
    pub(crate) fn line(&mut self, line: &str) {
        let Some((key, value)) = line.trim().split_once(':') else { panic!("no option: {line}") };
        let value = value.trim().trim_matches('"');
        let is_yes = value == "yes";
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{line}: not a number"));
        let options = &mut self.options;
        match key {
            "server" => {}
            "stub-zone" => self.directed(DirectedKind::Stub),
            "forward-zone" => self.directed(DirectedKind::Forward),
            "name" => self.last().zone = name(value),
            "stub-addr" | "forward-addr" => self.last().servers.push(address(value)),
            "root-hint" => self.hint(value),
            "qname-minimisation" if is_yes => options.minimisation = Minimisation::Relaxed,
            "qname-minimisation" => options.minimisation = Minimisation::Off,
            "qname-minimisation-strict" if is_yes => options.minimisation = Minimisation::Strict,
            "use-caps-for-id" => options.mixed_case = is_yes,
            "do-ip6" => options.ipv6 = is_yes,
            "serve-expired" => options.stale.enabled = is_yes,
            "serve-expired-client-timeout" => options.stale.client_timer = Duration::from_millis(number()),
            "serve-expired-ttl" => options.stale.keep = Duration::from_secs(number()),
            "cache-max-ttl" => options.cache.ttl_max = Duration::from_secs(number()),
            "cache-max-negative-ttl" => options.cache.negative_ttl_max = Duration::from_secs(number()),
            "prefetch" if !is_yes => options.cache.prefetch_part = 0,
            "prefetch" => options.cache.prefetch_part = 10,
            "fetch-child-addresses" => options.fetch_child_addresses = is_yes,
            "local-zones" => options.local_zones = is_yes,
            "dns64-prefix" => {
                let (prefix, bits) = value.split_once('/').expect("a prefix has a length");
                options.dns64 =
                    Dns64::new(prefix.parse().expect("an address"), bits.parse().expect("a length"));
            }
            "query-loopback" => options.query_loopback = is_yes,
            "queries-max" => options.limits.queries_max = number() as u16,
            "clients-max" => options.limits.clients_max = number() as usize,
            "race" => options.selection.race = number() as u8,
            _ => panic!("no option: {line}"),
        }
    }

    /// The zones, once all lines are there.
    pub(crate) fn zones(&self) -> Zones {
        let mut zones = self.zones.clone();
        if !self.hints.is_empty() {
            zones.hints = Hints::new(self.hints.clone());
        }
        zones
    }

    fn directed(&mut self, kind: DirectedKind) {
        self.zones.directed.push(Directed { zone: NameBuf::root(), kind, servers: Vec::new() });
    }

    fn last(&mut self) -> &mut Directed {
        self.zones.directed.last_mut().expect("a stub or forward zone comes first")
    }

    /// A name and its addresses.
    fn hint(&mut self, value: &str) {
        let mut words = value.split_whitespace();
        let server = name(words.next().expect("a name"));
        self.hints.push((server, words.map(|word| word.parse().expect("an address")).collect()));
    }
}

pub(crate) fn address(text: &str) -> SocketAddr {
    SocketAddr::new(text.parse().unwrap_or_else(|_| panic!("{text}: not an address")), 53)
}
