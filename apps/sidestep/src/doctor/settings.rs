//! Reads and writes one setting.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::Command;

use ::doctor::{FlowMatch, Parameter, Setting, Transport};
use anyhow::{Context, bail};
use control::NetlinkMonitor;
use device_xdp::FlowRule;
use nic::Nic;

use super::interface;
use ::doctor::Known;

/// A setting's value now; `None` if it is not there, with its interface or its file.
pub(super) fn read(setting: &Setting) -> anyhow::Result<Option<String>> {
    if !has_interface(setting)? {
        return Ok(None);
    }
    match setting {
        Setting::File { path, .. } => {
            check(setting, path)?;
            match fs::read_to_string(path) {
                Ok(text) => Ok(Some(text.trim().to_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).context(path.clone()),
            }
        }
        Setting::Parameter { interface, parameter } => {
            let value = Nic::open(interface)?.parameter(parameter_of(*parameter))?;
            Ok(Some(value.current.to_string()))
        }
        Setting::Feature { interface, name } => {
            let features = Nic::open(interface)?.features()?;
            Ok(features.get(name).map(|feature| word(feature.is_on, "on", "off")))
        }
        Setting::FlowRule { interface, packets, queue } => {
            let is_there = places_of(interface, &rule_of(packets, *queue))?.is_some();
            Ok(Some(word(is_there, "present", "absent")))
        }
        Setting::Service { name } => {
            let output = Command::new("systemctl").args(["is-active", name]).output().context("systemctl")?;
            Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
        }
    }
}

/// Gives a setting a value.
pub(super) fn write(setting: &Setting, value: &str) -> anyhow::Result<()> {
    match setting {
        Setting::File { path, .. } => {
            check(setting, path)?;
            let mut file = OpenOptions::new().write(true).open(path)?;
            Ok(file.write_all(value.as_bytes())?)
        }
        Setting::Parameter { interface, parameter } => {
            let number = value.parse().with_context(|| format!("{value:?} is no number"))?;
            Ok(Nic::open(interface)?.set_parameter(parameter_of(*parameter), number)?)
        }
        Setting::Feature { interface, name } => Ok(Nic::open(interface)?.set_feature(name, value == "on")?),
        Setting::FlowRule { interface, packets, queue } => {
            let rule = rule_of(packets, *queue);
            match (places_of(interface, &rule)?, value) {
                (None, "present") => Ok(device_xdp::insert_flow_rule(interface, &rule)?),
                (Some(place), "absent") => Ok(device_xdp::remove_flow_rule(interface, place)?),
                _ => Ok(()),
            }
        }
        Setting::Service { name } => {
            let verb = if value == "active" { "start" } else { "stop" };
            let output = Command::new("systemctl").args([verb, name]).output().context("systemctl")?;
            if !output.status.success() {
                bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
            }
            Ok(())
        }
    }
}

/// The number of a setting's interface, which it keeps with another name; `None` if it has none, or that is gone.
pub(super) fn interface_number(setting: &Setting) -> anyhow::Result<Option<u32>> {
    let Some(name) = setting.interface() else { return Ok(None) };
    Ok(NetlinkMonitor::new()?.mirror().link(name).map(|link| link.index))
}

/// The setting under the name that its interface has now; `None` if there is no interface of this number any more. One that has only the name is
/// another one.
pub(super) fn of_today(setting: &Setting, number: Option<u32>) -> anyhow::Result<Option<Setting>> {
    let Some(number) = number else { return Ok(Some(setting.clone())) };
    let monitor = NetlinkMonitor::new()?;
    Ok(monitor.mirror().link_at(number).map(|link| setting.renamed(&link.name)))
}

fn has_interface(setting: &Setting) -> anyhow::Result<bool> {
    let Some(name) = setting.interface() else { return Ok(true) };
    Ok(NetlinkMonitor::new()?.mirror().link(name).is_some())
}

/// Only settings of the kernel are written, and those of an interface only where /sys shows its network namespace.
fn check(setting: &Setting, path: &str) -> anyhow::Result<()> {
    let is_setting = ["/proc/sys/", "/proc/irq/", "/sys/"].iter().any(|start| path.starts_with(start));
    if !is_setting || path.split('/').any(|part| part == "..") {
        bail!("{path} is no setting of the kernel");
    }
    if let Some(name) = setting.interface().filter(|_| path.starts_with("/sys/"))
        && let Known::Not(because) = interface::directory(name, NetlinkMonitor::new()?.mirror())
    {
        bail!("{because}");
    }
    Ok(())
}

fn parameter_of(parameter: Parameter) -> nic::Parameter {
    match parameter {
        Parameter::RxRing => nic::Parameter::RxRing,
        Parameter::RxQueues => nic::Parameter::RxQueues,
        Parameter::TxQueues => nic::Parameter::TxQueues,
        Parameter::CombinedQueues => nic::Parameter::CombinedQueues,
        Parameter::RxDelay => nic::Parameter::RxDelay,
    }
}

fn rule_of(packets: &FlowMatch, queue: u32) -> FlowRule {
    let FlowMatch { transport, is_v6, port, source, source_mask } = *packets;
    let transport = match transport {
        Transport::Tcp => steering::Transport::Tcp,
        Transport::Udp => steering::Transport::Udp,
    };
    FlowRule { transport, is_v6, port, source, source_mask, queue }
}

fn places_of(interface: &str, rule: &FlowRule) -> io::Result<Option<u32>> {
    let rules = device_xdp::flow_rules(interface)?;
    Ok(rules.into_iter().find(|(_, there)| there == rule).map(|(place, _)| place))
}

fn word(is_so: bool, yes: &str, no: &str) -> String {
    if is_so { yes } else { no }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Setting {
        Setting::File { path: path.to_owned(), interface: None }
    }

    #[test]
    fn only_settings_of_the_kernel_are_written() {
        for path in ["/etc/passwd", "/proc/sys/../../etc/passwd", "/sys/../etc/passwd", "etc"] {
            assert!(write(&file(path), "x").is_err(), "{path}");
            assert!(read(&file(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_not_there_has_no_value() {
        assert_eq!(read(&file("/proc/sys/no/such")).unwrap(), None);
        let gone = Setting::Feature { interface: "no-such-if".to_owned(), name: "rx-gro".to_owned() };
        assert_eq!(read(&gone).unwrap(), None);
    }

    #[test]
    fn a_setting_is_read_as_the_kernel_has_it() {
        assert!(read(&file("/proc/sys/vm/nr_hugepages")).unwrap().unwrap().parse::<u64>().is_ok());
        let loopback = Setting::Feature { interface: "lo".to_owned(), name: "loopback".to_owned() };
        assert_eq!(read(&loopback).unwrap().as_deref(), Some("on"));
    }
}
