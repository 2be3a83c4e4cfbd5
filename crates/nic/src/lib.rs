//! Settings of a NIC, by the generic netlink families `ethtool` and `netdev`: what ethtool(8) shows and changes.
//!
//! - [`Nic`]: one interface of the calling thread's network namespace. Start there.
//! - `genl.rs`: the socket, requests and answers of generic netlink.
//! - `attributes.rs`: attributes, which messages are made of.
//! - `ethtool.rs`: parameters with numbers, features (offloads), receive-side scaling.
//! - `netdev.rs`: what the driver says that it can do of XDP.
#![forbid(unsafe_code)]

mod attributes;
mod ethtool;
mod genl;
mod netdev;

use std::io;

pub use ethtool::{Feature, Parameter, Spread, Value};
pub use netdev::XdpFeatures;

use genl::{Family, Socket};

/// Reading or changing a setting failed.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The kernel has no such family of messages: `ethtool` came with Linux 5.6, `netdev` with 6.3.
    #[error("the kernel has no generic netlink family {0}")]
    NoFamily(&'static str),
    /// The driver or the kernel refused. The text is the kernel's.
    #[error("{error}{}", .reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default())]
    Refused {
        /// The error number.
        error: io::Error,
        /// The kernel's explanation, if it gave one.
        reason: Option<String>,
    },
    /// The driver has no such setting.
    #[error("the driver has no such setting")]
    Absent,
    /// The driver took the request and changed nothing.
    #[error("the driver took the request, and the setting stays as it was")]
    Ignored,
    /// The netlink socket failed.
    #[error("netlink: {0}")]
    Socket(#[from] io::Error),
}

/// One interface, by its name.
pub struct Nic {
    interface: String,
    socket: Socket,
    ethtool: Result<Family, NicError>,
    netdev: Result<Family, NicError>,
}

impl Nic {
    /// Opens the socket. Whether there is such an interface shows with the first question.
    pub fn open(interface: &str) -> Result<Nic, NicError> {
        let mut socket = Socket::open()?;
        let ethtool = socket.family("ethtool");
        let netdev = socket.family("netdev");
        Ok(Nic { interface: interface.to_owned(), socket, ethtool, netdev })
    }
}
