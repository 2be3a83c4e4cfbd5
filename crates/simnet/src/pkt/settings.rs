//! What a script is played with: the options of the command line and of the script itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::Duration;

use super::ast::ScriptOption;

/// The IP version of sockets and packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4 in both.
    V4,
    /// IPv4 packets and IPv6 sockets.
    V4Mapped,
    /// IPv6 in both.
    V6,
}

/// Everything that can be set; all is resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The IP version.
    pub ip_version: IpVersion,
    /// The address of the stack.
    pub local_ip: IpAddr,
    /// The address of the peer that the script plays.
    pub remote_ip: IpAddr,
    /// The port that sockets are bound to where the script says `...`.
    pub bind_port: u16,
    /// The port that sockets connect to where the script says `...`.
    pub connect_port: u16,
    /// The link's MTU.
    pub mtu: u16,
    /// Octets of payload of the segments that the peer's larger ones stand for; `None`: they arrive as they are.
    pub mss: Option<u16>,
    /// How far from its time an event may happen.
    pub tolerance: Duration,
    /// The same as a share of the time since the previous event, in percent; the larger of the two counts.
    pub tolerance_percent: f64,
    /// Length of a tick of the stack's timestamps. Zero: values of timestamps are not compared.
    pub timestamp_tick: Duration,
    /// Whether a packet of the script stands for exactly one, never for several in a row that carry the same data.
    pub strict_segments: bool,
    /// Whether packets that differ are only told.
    pub packets_may_differ: bool,
    /// Whether system calls that differ are only told.
    pub calls_may_differ: bool,
    /// Whether the PSH flag is compared.
    pub check_push: bool,
    /// Whether unexpected packets fail a script at its end, too.
    pub check_rest: bool,
    /// Whether scripts are only read.
    pub dry_run: bool,
    /// Whether to report every packet and call.
    pub verbose: bool,
}

/// Why an option was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("there is no option --{0}")]
    Unknown(String),
    /// packetdrill has this option, this player does not.
    #[error("option --{0} is not supported")]
    Unsupported(String),
    /// The value is not of the option's kind or out of range.
    #[error("--{name}={value}: {wanted} expected")]
    Value {
        /// The option.
        name: String,
        /// What it was given.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
}

/// packetdrill's options that mean nothing to a simulated network.
const WITHOUT_EFFECT: &[&str] = &[
    "gateway_ip",
    "netmask_ip",
    "speed",
    "init_scripts",
    "code_command",
    "code_format",
    "code_sockopt",
    "tcp_ts_ecr_scaled",
    "send_omit_free",
    "debug",
    "define",
    "D",
    "is_anyip",
    "local_linux_bridge",
];
/// packetdrill's options for two machines or another stack.
const UNSUPPORTED: &[&str] = &[
    "wire_client",
    "wire_server",
    "wire_server_ip",
    "wire_server_at",
    "wire_server_port",
    "wire_client_dev",
    "wire_server_dev",
    "so_filename",
    "so_flags",
];

impl Settings {
    /// The settings of these options, of which later ones win.
    pub fn new<'a>(options: impl IntoIterator<Item = &'a ScriptOption>) -> Result<Settings, OptionError> {
        let options: Vec<&ScriptOption> = options.into_iter().collect();
        let version = options.iter().rev().find(|option| option.name == "ip_version");
        let mut settings =
            Settings::of_version(version.map_or(Ok(IpVersion::V4), |option| ip_version(option))?);
        for option in options {
            settings.apply(option)?;
        }
        settings.check_addresses()?;
        Ok(settings)
    }

    fn of_version(ip_version: IpVersion) -> Settings {
        let (local_ip, remote_ip) = match ip_version {
            IpVersion::V4 | IpVersion::V4Mapped => {
                (IpAddr::from(Ipv4Addr::new(192, 168, 0, 1)), IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)))
            }
            IpVersion::V6 => (
                IpAddr::from(Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1)),
                IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            ),
        };
        Settings {
            ip_version,
            local_ip,
            remote_ip,
            bind_port: 8080,
            connect_port: 8080,
            mtu: 1500,
            mss: None,
            tolerance: Duration::from_micros(4000),
            tolerance_percent: 12.5,
            timestamp_tick: Duration::ZERO,
            strict_segments: false,
            packets_may_differ: false,
            calls_may_differ: false,
            check_push: true,
            check_rest: false,
            dry_run: false,
            verbose: false,
        }
    }

    fn apply(&mut self, option: &ScriptOption) -> Result<(), OptionError> {
        match option.name.as_str() {
            "ip_version" => {}
            "local_ip" => self.local_ip = value(option, "an IP address")?,
            "remote_ip" => self.remote_ip = value(option, "an IP address")?,
            "bind_port" => self.bind_port = value(option, "a port")?,
            "connect_port" => self.connect_port = value(option, "a port")?,
            "mtu" => self.mtu = value(option, "a number of octets up to 65535")?,
            "mss" => self.mss = Some(value(option, "a number of octets up to 65535")?),
            "tolerance_usecs" => self.tolerance = Duration::from_micros(value(option, "microseconds")?),
            "tolerance_percent" => self.tolerance_percent = value(option, "a percentage")?,
            "tcp_ts_tick_usecs" => {
                self.timestamp_tick = Duration::from_micros(value(option, "microseconds")?)
            }
            "strict_segments" => self.strict_segments = true,
            "non_fatal" => self.tell_only(option),
            "any_push" => self.check_push = false,
            "check_rest" => self.check_rest = true,
            "dry_run" => self.dry_run = true,
            "verbose" | "v" => self.verbose = true,
            name if WITHOUT_EFFECT.contains(&name) => {}
            name if UNSUPPORTED.contains(&name) => return Err(OptionError::Unsupported(name.to_owned())),
            name => return Err(OptionError::Unknown(name.to_owned())),
        }
        Ok(())
    }

    fn tell_only(&mut self, option: &ScriptOption) {
        let kinds = option.value.as_deref().unwrap_or_default();
        self.packets_may_differ |= kinds.split([',', ' ']).any(|kind| kind == "packet");
        self.calls_may_differ |= kinds.split([',', ' ']).any(|kind| kind == "syscall");
    }

    fn check_addresses(&self) -> Result<(), OptionError> {
        let v6 = self.ip_version == IpVersion::V6;
        for (name, address) in [("local_ip", self.local_ip), ("remote_ip", self.remote_ip)] {
            if address.is_ipv6() != v6 {
                let wanted = "an address of --ip_version";
                return Err(OptionError::Value { name: name.to_owned(), value: address.to_string(), wanted });
            }
        }
        Ok(())
    }
}

fn ip_version(option: &ScriptOption) -> Result<IpVersion, OptionError> {
    match option.value.as_deref() {
        Some("ipv4") => Ok(IpVersion::V4),
        Some("ipv4-mapped-ipv6") => Ok(IpVersion::V4Mapped),
        Some("ipv6") => Ok(IpVersion::V6),
        _ => Err(wrong(option, "ipv4, ipv4-mapped-ipv6 or ipv6")),
    }
}

/// The option's value; what stands behind a `/`, a prefix length, is left out.
fn value<T: std::str::FromStr>(option: &ScriptOption, wanted: &'static str) -> Result<T, OptionError> {
    let text = option.value.as_deref().unwrap_or_default();
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    text.parse().map_err(|_| wrong(option, wanted))
}

fn wrong(option: &ScriptOption, wanted: &'static str) -> OptionError {
    let value = option.value.clone().unwrap_or_default();
    OptionError::Value { name: option.name.clone(), value, wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pkt::ast::Position;

    fn option(text: &str) -> ScriptOption {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let at = Position { line: 1, column: 1 };
        ScriptOption { name: name.to_owned(), value: value.map(str::to_owned), at }
    }

    fn settings(options: &[&str]) -> Result<Settings, OptionError> {
        Settings::new(&options.iter().map(|text| option(text)).collect::<Vec<_>>())
    }

    #[test]
    fn later_options_win() {
        let settings = settings(&["tolerance_usecs=1", "tolerance_usecs=10000"]).unwrap();
        assert_eq!(settings.tolerance, Duration::from_millis(10));
    }

    #[test]
    fn addresses_follow_the_ip_version_and_may_carry_a_prefix() {
        let settings = settings(&["remote_ip=2001:db8::5/64", "ip_version=ipv6"]).unwrap();
        assert_eq!(settings.remote_ip, "2001:db8::5".parse::<IpAddr>().unwrap());
        assert!(settings.local_ip.is_ipv6());
    }

    #[test]
    fn errors_name_the_option_the_value_and_what_is_wanted() {
        let told = |options: &[&str]| settings(options).unwrap_err().to_string();
        assert_eq!(told(&["mtu=huge"]), "--mtu=huge: a number of octets up to 65535 expected");
        assert_eq!(told(&["nonsense"]), "there is no option --nonsense");
        assert_eq!(told(&["wire_client"]), "option --wire_client is not supported");
        assert_eq!(told(&["local_ip=::1"]), "--local_ip=::1: an address of --ip_version expected");
    }
}
