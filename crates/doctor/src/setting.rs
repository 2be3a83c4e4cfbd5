//! Settings that can be changed and restored, and the commands that do the same.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::shell::word;

/// One setting of the machine or of an interface. Its value is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Setting {
    /// A file below /proc or /sys.
    File {
        /// Its path.
        path: String,
        /// The interface that it belongs to, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
    },
    /// A number that the driver of an interface keeps.
    Parameter {
        /// The interface.
        interface: String,
        /// Which one.
        parameter: Parameter,
    },
    /// An offload: `on` or `off`.
    Feature {
        /// The interface.
        interface: String,
        /// Its name in ethtool(8).
        name: String,
    },
    /// A rule of the NIC that steers packets to a queue: `present` or `absent`.
    FlowRule {
        /// The interface.
        interface: String,
        /// Which packets.
        packets: FlowMatch,
        /// The queue.
        queue: u32,
    },
    /// A service of systemd: `active` or `inactive`.
    Service {
        /// The unit's name.
        name: String,
    },
}

/// A number that a driver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parameter {
    /// Descriptors of a receive queue.
    RxRing,
    /// Queues that only receive.
    RxQueues,
    /// Queues that only transmit.
    TxQueues,
    /// Queues that do both.
    CombinedQueues,
    /// Microseconds before an interrupt.
    RxDelay,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The packets of a flow rule: to one port, from source ports that end in some bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowMatch {
    /// TCP or UDP.
    pub transport: Transport,
    /// IPv6 instead of IPv4.
    pub is_v6: bool,
    /// The destination port.
    pub port: u16,
    /// The low bits of the source port.
    pub source: u16,
    /// Which bits of the source port count.
    pub source_mask: u16,
}

/// One change: a setting, its value now, and the value that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What is changed.
    pub setting: Setting,
    /// Its value before.
    pub from: String,
    /// Its value after.
    pub to: String,
}

impl Step {
    pub(crate) fn new(setting: Setting, from: impl ToString, to: impl ToString) -> Step {
        Step { setting, from: from.to_string(), to: to.to_string() }
    }
}

impl Setting {
    pub(crate) fn machine_file(path: impl Into<String>) -> Setting {
        Setting::File { path: path.into(), interface: None }
    }

    pub(crate) fn interface_file(interface: &str, name: &str) -> Setting {
        let path = format!("{INTERFACES}/{interface}/{name}");
        Setting::File { path, interface: Some(interface.to_owned()) }
    }

    pub(crate) fn parameter(interface: &str, parameter: Parameter) -> Setting {
        Setting::Parameter { interface: interface.to_owned(), parameter }
    }

    pub(crate) fn feature(interface: &str, name: &str) -> Setting {
        Setting::Feature { interface: interface.to_owned(), name: name.to_owned() }
    }

    /// The interface that it belongs to.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Setting::File { interface, .. } => interface.as_deref(),
            Setting::Parameter { interface, .. }
            | Setting::Feature { interface, .. }
            | Setting::FlowRule { interface, .. } => Some(interface),
            Setting::Service { .. } => None,
        }
    }

    /// The same setting of the same interface under another name.
    pub fn renamed(&self, name: &str) -> Setting {
        let mut renamed = self.clone();
        let own = match &mut renamed {
            Setting::File { path, interface: Some(own) } => {
                if let Some(rest) = path.strip_prefix(&format!("{INTERFACES}/{own}/")) {
                    *path = format!("{INTERFACES}/{name}/{rest}");
                }
                own
            }
            Setting::Parameter { interface, .. }
            | Setting::Feature { interface, .. }
            | Setting::FlowRule { interface, .. } => interface,
            Setting::File { interface: None, .. } | Setting::Service { .. } => return renamed,
        };
        name.clone_into(own);
        renamed
    }

    /// Whether the driver makes new interrupts when it changes.
    pub fn makes_interrupts(&self) -> bool {
        match self {
            Setting::Parameter { parameter, .. } => parameter.words().0 == CHANNELS,
            Setting::File { .. }
            | Setting::Feature { .. }
            | Setting::FlowRule { .. }
            | Setting::Service { .. } => false,
        }
    }

    /// Whether it belongs to one interrupt.
    pub fn is_of_interrupt(&self) -> bool {
        matches!(self, Setting::File { path, .. } if path.starts_with("/proc/irq/"))
    }

    /// The command that gives it `value`.
    pub fn command(&self, value: &str) -> String {
        match self {
            Setting::File { path, .. } => match path.strip_prefix("/proc/sys/") {
                Some(name) => format!("sysctl -w {}={value}", name.replace('/', ".")),
                None => format!("echo {value} > {}", word(path)),
            },
            Setting::Parameter { interface, parameter } => {
                let (option, name) = parameter.words();
                format!("ethtool {option} {} {name} {value}", word(interface))
            }
            Setting::Feature { interface, name } => format!("ethtool -K {} {name} {value}", word(interface)),
            Setting::FlowRule { interface, packets, queue } if value == PRESENT => {
                format!("ethtool -N {} {packets} action {queue}", word(interface))
            }
            Setting::FlowRule { interface, .. } => {
                let interface = word(interface);
                format!("ethtool -N {interface} delete NUMBER # as `ethtool -n {interface}` lists it")
            }
            Setting::Service { name } => {
                format!("systemctl {} {name}", if value == ACTIVE { "start" } else { "stop" })
            }
        }
    }
}

/// Where files of interfaces are, by their names.
const INTERFACES: &str = "/sys/class/net";
/// The option of ethtool(8) for the number of queues.
const CHANNELS: &str = "-L";
/// The value of a flow rule that is there.
pub(crate) const PRESENT: &str = "present";
/// The value of a flow rule that is not there.
pub(crate) const ABSENT: &str = "absent";
/// The value of a service that runs.
pub(crate) const ACTIVE: &str = "active";
/// The value of a service that does not run.
pub(crate) const INACTIVE: &str = "inactive";

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::File { path, .. } => f.write_str(path),
            Setting::Parameter { interface, parameter } => write!(f, "{} of {interface}", parameter.name()),
            Setting::Feature { interface, name } => write!(f, "{name} of {interface}"),
            Setting::FlowRule { interface, packets, queue } => {
                write!(f, "the rule of {interface} for {packets} to queue {queue}")
            }
            Setting::Service { name } => write!(f, "the service {name}"),
        }
    }
}

impl Parameter {
    /// The option of ethtool(8), and the word after the interface.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Parameter::RxRing => ("-G", "rx"),
            Parameter::RxQueues => (CHANNELS, "rx"),
            Parameter::TxQueues => (CHANNELS, "tx"),
            Parameter::CombinedQueues => (CHANNELS, "combined"),
            Parameter::RxDelay => ("-C", "rx-usecs"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Parameter::RxRing => "receive ring",
            Parameter::RxQueues => "receive queues",
            Parameter::TxQueues => "transmit queues",
            Parameter::CombinedQueues => "queues",
            Parameter::RxDelay => "rx-usecs",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport, String> {
        match text {
            "tcp" => Ok(Transport::Tcp),
            "udp" => Ok(Transport::Udp),
            _ => Err(format!("{text:?} is neither tcp nor udp")),
        }
    }
}

/// In the words of `ethtool -N`, whose masks have the bits that do not count.
impl fmt::Display for FlowMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.is_v6 { 6 } else { 4 };
        write!(f, "flow-type {}{version} dst-port {}", self.transport, self.port)?;
        match self.source_mask {
            0 => Ok(()),
            mask => write!(f, " src-port {} m {:#x}", self.source, !mask),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_what_one_types() {
        let command = |setting: Setting, value| setting.command(value);
        let jit = Setting::machine_file("/proc/sys/net/core/bpf_jit_enable");
        assert_eq!(command(jit, "1"), "sysctl -w net.core.bpf_jit_enable=1");
        let defer = Setting::interface_file("eth0", "napi_defer_hard_irqs");
        assert_eq!(command(defer, "2"), "echo 2 > /sys/class/net/eth0/napi_defer_hard_irqs");
        let ring = Setting::parameter("eth0", Parameter::RxRing);
        assert_eq!(command(ring, "2048"), "ethtool -G eth0 rx 2048");
        assert_eq!(command(Setting::feature("eth0", "rx-lro"), "off"), "ethtool -K eth0 rx-lro off");
        let service = Setting::Service { name: "irqbalance".to_owned() };
        assert_eq!(command(service, INACTIVE), "systemctl stop irqbalance");
    }

    #[test]
    fn a_setting_follows_its_interface_to_another_name() {
        let defer = Setting::interface_file("eth0", "napi_defer_hard_irqs");
        assert_eq!(defer.renamed("lan0"), Setting::interface_file("lan0", "napi_defer_hard_irqs"));
        let affinity = |interface: &str| Setting::File {
            path: "/proc/irq/40/smp_affinity_list".to_owned(),
            interface: Some(interface.to_owned()),
        };
        assert_eq!(affinity("eth0").renamed("lan0"), affinity("lan0"));
        assert_eq!(Setting::feature("eth0", "rx-lro").renamed("lan0"), Setting::feature("lan0", "rx-lro"));
        let jit = Setting::machine_file("/proc/sys/net/core/bpf_jit_enable");
        assert_eq!(jit.renamed("lan0"), jit);
    }

    #[test]
    fn a_rule_is_written_in_the_words_of_ethtool() {
        let packets =
            FlowMatch { transport: Transport::Udp, is_v6: false, port: 53, source: 1, source_mask: 1 };
        let rule = Setting::FlowRule { interface: "eth0".to_owned(), packets, queue: 3 };
        let expected = "ethtool -N eth0 flow-type udp4 dst-port 53 src-port 1 m 0xfffe action 3";
        assert_eq!(rule.command(PRESENT), expected);
    }
}
