//! Ports of DPDK, as commands take them.

use anyhow::{Context, bail};
use clap::Args;
use device::DataPath;
use device_dpdk::DpdkOptions;
use ipnet::IpNet;

/// What a port of DPDK is called where interfaces have names.
const PREFIX: &str = "dpdk:";

/// What a port of DPDK needs besides its name.
#[derive(Args, Clone, Debug)]
pub(crate) struct PortOptions {
    /// With a port of DPDK: the name of its interface in the kernel, which may be there and have addresses already [default: dpdk0].
    #[arg(long, value_name = "IF", requires = "device")]
    tap: Option<String>,

    /// With a port of DPDK: have its interface up and give it this address, such as 192.0.2.2/24. May be given several times.
    #[arg(long = "address", value_name = "PREFIX", requires = "device")]
    addresses: Vec<IpNet>,

    /// With a port of DPDK: further arguments for its environment (EAL), such as `--eal-args='-m 512 --no-huge'`.
    #[arg(
        long,
        value_name = "ARGUMENTS",
        value_delimiter = ' ',
        allow_hyphen_values = true,
        requires = "device"
    )]
    eal_args: Vec<String>,
}

/// A port that is open, and has an interface in the kernel.
pub(crate) struct OpenPort {
    pub(crate) interface: String,
    pub(crate) path: Box<dyn DataPath>,
    pub(crate) queues: u16,
}

/// The name of the port, if `device` is one.
pub(crate) fn port_name(device: &str) -> Option<&str> {
    device.strip_prefix(PREFIX)
}

impl PortOptions {
    /// Opens the port; its interface has the addresses that were given.
    pub(crate) fn open(&self, name: &str) -> anyhow::Result<OpenPort> {
        let defaults = DpdkOptions::default();
        let options = DpdkOptions {
            tap: self.tap.clone().unwrap_or(defaults.tap),
            eal_arguments: self.eal_args.clone(),
            ..defaults
        };
        let path = device_dpdk::open(&name.parse().context("--device")?, &options)?;
        for address in &self.addresses {
            control::bring_up(&options.tap, address.addr(), address.prefix_len())
                .with_context(|| format!("giving {} the address {address}", options.tap))?;
        }
        Ok(OpenPort { interface: options.tap, path, queues: options.queues })
    }

    /// An error if any of them was given, as there is no port.
    pub(crate) fn refuse(&self, device: &str) -> anyhow::Result<()> {
        let given = [
            ("--tap", self.tap.is_some()),
            ("--address", !self.addresses.is_empty()),
            ("--eal-args", !self.eal_args.is_empty()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => bail!("{option} is for a port of DPDK: --device {device} is none"),
            None => Ok(()),
        }
    }
}
