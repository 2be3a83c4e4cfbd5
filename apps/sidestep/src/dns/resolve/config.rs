//! What the resolver runs on: checked, resolved, nothing left to decide.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clock::Duration;
use dns_resolver::{Directed, DirectedKind, Dns64, Hints, Minimisation, Options, Zones};
use dns_server::TcpLimits;
use dns_wire::NameBuf;

use super::config_file::{ConfigFile, DirectedTable};
use super::front::FrontConfig;
use super::front_config::front;
use super::options::Resolve;
use super::trust::trust;
use super::{constants, hints_file};
use crate::dns::answer_log::QueryLogSpec;
use crate::dns::config::{ConfigError, in_range, parse_domain, parse_listen, tcp_limits, this_host};
use crate::dns::encrypted::encrypted;
use crate::dns::privileges::explain_denial;

/// Everything, resolved.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) listen: Vec<SocketAddr>,
    /// Interface that brings the queries over UDP. Without one, kernel sockets do.
    pub(super) device: Option<String>,
    pub(super) front: FrontConfig,
    pub(super) encrypted: Option<dns_front::Options>,
    pub(super) options: Options,
    /// Addresses of this host that queries to servers leave from.
    pub(super) source_addresses: Vec<IpAddr>,
    /// What keeps the cache from one run to the next.
    pub(super) cache_file: Option<PathBuf>,
    /// What gets a line for each answer.
    pub(super) query_log: Option<QueryLogSpec>,
    pub(super) zones: Zones,
    pub(super) control: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) tcp: TcpLimits,
    /// How long a stop waits for answers that clients wait for.
    pub(super) linger: Duration,
}

/// One that anybody may bind.
const PORT: u16 = 5300;
/// Of an interface, and of the servers that are asked.
const SERVER_PORT: u16 = 53;

impl Config {
    /// Reads the configuration file, if there is one, lets the command line override it, and checks everything.
    pub(super) fn resolve(options: &Resolve) -> anyhow::Result<Config> {
        let (file, directory) = read_file(options.config.as_deref())?;
        let listen = if options.listen.is_empty() { &file.listen } else { &options.listen };
        let device = options.device.clone().or(file.device.clone());
        let allow = if options.allow.is_empty() { &file.allow } else { &options.allow };
        let hints = options.root_hints.clone().or(file.root_hints.as_ref().map(|path| directory.join(path)));
        let tcp = tcp_limits(&file.tcp)?;
        let encrypted = file.encrypted.as_ref().map(|table| encrypted(table, &directory)).transpose()?;
        let idle = encrypted.as_ref().map_or(tcp.idle_timeout, |options| options.limits.idle_timeout);
        let linger = in_range("tcp.linger-s", file.tcp.linger_s.unwrap_or(3), 0, 60)?;
        Ok(Config {
            listen: addresses(listen, device.is_some())?,
            device,
            front: front(allow, &file, &directory, [tcp.idle_timeout, idle])?,
            encrypted,
            zones: Zones {
                hints: root_hints(hints.as_deref())?,
                directed: directed(&file)?,
                trust: trust(&file, &directory)?,
                by_network: by_network(&file)?,
            },
            options: resolver_options(&file)?,
            source_addresses: file.source_addresses.clone(),
            cache_file: file.cache.file.as_ref().map(|path| directory.join(path)),
            query_log: file.query_log.as_ref().map(|option| option.resolve(&directory)).transpose()?,
            control: options.control.clone().or(file.control),
            user: options.user.clone().or(file.user),
            tcp,
            linger: Duration::from_secs(linger),
        })
    }
}

fn read_file(path: Option<&Path>) -> anyhow::Result<(ConfigFile, PathBuf)> {
    let Some(path) = path else { return Ok((ConfigFile::default(), PathBuf::new())) };
    let text = std::fs::read_to_string(path).map_err(explain_denial);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let file = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    Ok((file, path.parent().unwrap_or(Path::new("")).to_owned()))
}

/// What is served: by default all addresses of the interface, if there is one, else this host alone.
fn addresses(listen: &[String], has_device: bool) -> Result<Vec<SocketAddr>, ConfigError> {
    let port = if has_device { SERVER_PORT } else { PORT };
    if listen.is_empty() && has_device {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(any.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    if listen.is_empty() {
        return Ok(this_host(port));
    }
    listen.iter().map(|text| parse_listen(text, port)).collect()
}

fn root_hints(path: Option<&Path>) -> anyhow::Result<Hints> {
    let Some(path) = path else { return Ok(Hints::default()) };
    let text = std::fs::read_to_string(path).map_err(explain_denial);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    hints_file::parse(&text).map_err(|problem| anyhow!("in {}: {problem}", path.display()))
}

fn directed(file: &ConfigFile) -> Result<Vec<Directed>, ConfigError> {
    let one = |table: &DirectedTable, kind, option| {
        let servers = table.servers.iter().map(|text| {
            parse_listen(text, SERVER_PORT).map_err(|_| ConfigError::Form {
                option,
                value: text.clone(),
                expected: "an address with or without a port",
            })
        });
        let servers: Vec<SocketAddr> = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            let expected = "with a server: name one with servers = [\"192.0.2.1\"]";
            return Err(ConfigError::Form { option, value: table.zone.clone(), expected });
        }
        Ok(Directed { zone: parse_domain(option, &table.zone)?, kind, servers })
    };
    let forwards = file.forwards.iter().map(|table| one(table, DirectedKind::Forward, "forward"));
    let stubs = file.stubs.iter().map(|table| one(table, DirectedKind::Stub, "stub"));
    forwards.chain(stubs).collect()
}

/// The zones whose servers are told where clients are.
fn by_network(file: &ConfigFile) -> Result<Vec<NameBuf>, ConfigError> {
    file.client_subnet.zones.iter().map(|zone| parse_domain("client-subnet.zones", zone)).collect()
}

fn resolver_options(file: &ConfigFile) -> Result<Options, ConfigError> {
    let default = Options::default();
    let payload = file.udp_payload_max.unwrap_or(default.udp_payload_max.into());
    let minimisation = match file.minimisation.as_deref() {
        None => default.minimisation,
        Some("off") => Minimisation::Off,
        Some("relaxed") => Minimisation::Relaxed,
        Some("strict") => Minimisation::Strict,
        Some(other) => {
            let (option, value) = ("minimisation", other.to_owned());
            return Err(ConfigError::Form { option, value, expected: "off, relaxed or strict" });
        }
    };
    Ok(Options {
        selection: constants::selection(&file.selection)?,
        stale: constants::stale(&file.stale)?,
        cache: constants::cache(&file.cache)?,
        limits: constants::limits(&file.limits)?,
        dnssec: constants::dnssec(&file.dnssec)?,
        minimisation,
        mixed_case: file.mixed_case.unwrap_or(default.mixed_case),
        ipv6: file.ipv6.unwrap_or(default.ipv6),
        query_loopback: file.query_loopback.unwrap_or(default.query_loopback),
        server_port: default.server_port,
        udp_payload_max: in_range("udp-payload-max", payload, 512, 4096)? as u16,
        fetch_child_addresses: file.fetch_child_addresses.unwrap_or(default.fetch_child_addresses),
        cookies: file.upstream_cookies.unwrap_or(default.cookies),
        local_zones: file.local_zones.unwrap_or(default.local_zones),
        dns64: file.dns64.as_deref().map(dns64).transpose()?,
    })
}

fn dns64(text: &str) -> Result<Dns64, ConfigError> {
    let read = || {
        let (prefix, bits) = text.split_once('/')?;
        Dns64::new(prefix.parse().ok()?, bits.parse().ok()?)
    };
    read().ok_or_else(|| ConfigError::Form {
        option: "dns64",
        value: text.to_owned(),
        expected: "an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, such as 64:ff9b::/96",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Options, String> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
        resolver_options(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let options = from_text("").unwrap();
        let default = Options::default();
        assert_eq!((options.selection, options.stale), (default.selection, default.stale));
        assert_eq!((options.cache, options.limits), (default.cache, default.limits));
    }

    #[test]
    fn constants_are_set_by_their_names_and_have_ranges() {
        let options = from_text("[selection]\nrate-max = 50\n[stale]\nclient-timer-ms = 800\n").unwrap();
        assert_eq!((options.selection.rate_max, options.stale.client_timer.as_millis()), (50, 800));
        assert_eq!(
            from_text("[stale]\nkeep-s = 1000000\n").unwrap_err(),
            "stale.keep-s: 1000000 is out of range, expected 0 to 259200"
        );
        assert!(from_text("dns64 = \"64:ff9b::/96\"\n").unwrap().dns64.is_some());
        assert!(
            from_text("dns64 = \"64:ff9b::/97\"\n").unwrap_err().contains("96 bits, such as 64:ff9b::/96")
        );
        assert!(from_text("[selection]\nrate = 1\n").unwrap_err().contains("rate"));
        assert!(from_text("minimisation = \"some\"\n").unwrap_err().contains("off, relaxed or strict"));
    }

    #[test]
    fn forward_and_stub_zones_need_a_name_and_servers() {
        let read = |text: &str| {
            let file: ConfigFile = toml::from_str(text).unwrap();
            directed(&file).map_err(|error| error.to_string())
        };
        let zones = read("[[forward]]\nzone = \"corp.\"\nservers = [\"192.0.2.1\", \"[2001:db8::1]:54\"]\n");
        let servers = ["192.0.2.1:53", "[2001:db8::1]:54"].map(|text| text.parse().unwrap());
        assert_eq!(zones.unwrap()[0].servers, servers);
        assert!(
            read("[[stub]]\nzone = \"a..b\"\nservers = [\"192.0.2.1\"]\n").unwrap_err().starts_with("stub")
        );
        assert!(read("[[stub]]\nzone = \"a.\"\nservers = []\n").unwrap_err().contains("servers"));
        assert!(read("[[stub]]\nzone = \"a.\"\nservers = [\"ns.a.\"]\n").unwrap_err().contains("ns.a."));
    }

    #[test]
    fn without_a_port_it_is_5300_and_53_for_an_interface() {
        assert_eq!(addresses(&[], false).unwrap()[0], "127.0.0.1:5300".parse().unwrap());
        assert_eq!(addresses(&["192.0.2.1".to_owned()], false).unwrap(), ["192.0.2.1:5300".parse().unwrap()]);
        assert_eq!(addresses(&["[::]:53".to_owned()], false).unwrap(), ["[::]:53".parse().unwrap()]);
        assert_eq!(addresses(&[], true).unwrap()[0], "0.0.0.0:53".parse().unwrap());
        assert_eq!(addresses(&["192.0.2.1".to_owned()], true).unwrap(), ["192.0.2.1:53".parse().unwrap()]);
    }
}
