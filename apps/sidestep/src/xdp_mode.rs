//! Where in the kernel XDP runs, as users say it.

use clap::ValueEnum;
use device_xdp::AttachMode;

/// Where XDP runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum XdpMode {
    /// In the driver.
    Native,
    /// In the network stack, behind it: works with every driver, and leaves a veth's offloads as they are.
    Generic,
}

impl XdpMode {
    pub(crate) fn attach(self) -> AttachMode {
        match self {
            XdpMode::Native => AttachMode::Native,
            XdpMode::Generic => AttachMode::Generic,
        }
    }
}
