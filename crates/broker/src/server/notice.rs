//! What happened, for people.

use std::fmt;

use log::Level;

use crate::protocol::VERSION;

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Packets can be had from an interface.
    Attached {
        /// Its name.
        interface: String,
        /// How.
        mode: String,
    },
    /// A killed broker's program on an interface is this one's.
    TakenOver {
        /// Its name.
        interface: String,
        /// How many queues programs have.
        queues: usize,
    },
    /// The interface went, or must be opened anew.
    Detached {
        /// Its name.
        interface: String,
    },
    /// The interface takes packets that need larger frames: its queues are lent anew.
    Outgrown {
        /// Its name.
        interface: String,
    },
    /// An interface cannot be used, or not wholly; what concerns it runs on the kernel.
    Failed {
        /// Its name.
        interface: String,
        /// Why.
        error: String,
    },
    /// Answers came by other queues than the interface says.
    Doubted {
        /// Its name.
        interface: String,
    },
    /// Another `sidestep run` has joined this one.
    Joined {
        /// Its process.
        pid: u32,
    },
    /// A client was disconnected.
    Disconnected {
        /// Its process.
        pid: u32,
        /// Why.
        fault: String,
    },
    /// A client speaks another version of the protocol, and was refused.
    OtherVersion {
        /// Its process.
        pid: u32,
        /// What it speaks.
        version: u32,
    },
    /// A client was not told of something.
    NotTold {
        /// Its process.
        pid: u32,
        /// Why.
        error: String,
    },
    /// A program has no control socket, so tools cannot find it: it has no control socket.
    Hidden {
        /// Its process.
        pid: u32,
        /// Why.
        error: String,
    },
}

impl Notice {
    /// How much it matters in a log.
    pub(super) fn level(&self) -> Level {
        match self {
            Notice::Attached { .. }
            | Notice::TakenOver { .. }
            | Notice::Joined { .. }
            | Notice::Detached { .. }
            | Notice::Outgrown { .. } => Level::Info,
            Notice::Failed { .. }
            | Notice::Doubted { .. }
            | Notice::Disconnected { .. }
            | Notice::NotTold { .. }
            | Notice::OtherVersion { .. }
            | Notice::Hidden { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Attached { interface, mode } => write!(f, "{interface}: {mode}"),
            Notice::TakenOver { interface, queues } => {
                write!(
                    f,
                    "{interface}: taken over from a broker that was killed; its programs have {queues} queues"
                )
            }
            Notice::Detached { interface } => {
                write!(f, "{interface}: closed; it is opened again if it comes back")
            }
            Notice::Outgrown { interface } => {
                write!(f, "{interface}: its MTU exceeds the frames; opening it with larger frames")
            }
            Notice::Failed { interface, error } => write!(f, "{interface}: {error}"),
            Notice::Doubted { interface } => write!(
                f,
                "{interface}: answers came by other queues than its RSS key and indirection table say; programs that have some of its queues \
                 connect by the kernel from now on"
            ),
            Notice::Joined { pid } => write!(f, "the `sidestep run` of process {pid} has joined this one"),
            Notice::Disconnected { pid, fault } => write!(f, "process {pid} was disconnected: {fault}"),
            Notice::OtherVersion { pid, version } => write!(
                f,
                "process {pid} runs on the kernel: its library speaks version {version} of the protocol, and the broker \
                 version {VERSION}; start it again"
            ),
            Notice::NotTold { pid, error } => {
                write!(f, "process {pid} was not told of a change of the network configuration: {error}")
            }
            Notice::Hidden { pid, error } => {
                write!(f, "process {pid} has no control socket, so tools cannot find it: {error}")
            }
        }
    }
}
