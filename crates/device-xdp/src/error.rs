//! Errors of AF_XDP, and what the user can do about them.

use std::error::Error;
use std::io;

use aya::maps::MapError;

/// Opening, attaching or steering failed. Packets keep going to the kernel.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is no interface of that name in this network namespace. Create it, or correct the name.
    #[error("there is no interface {interface}")]
    NoSuchInterface {
        /// Name as given.
        interface: String,
    },
    /// The kernel wants more privileges. Run as root, or grant CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON and CAP_NET_RAW; a container
    /// needs them in the network namespace of the interface.
    #[error(
        "{operation} is not permitted: run as root or with CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON and CAP_NET_RAW ({source})"
    )]
    NotPermitted {
        /// What was tried.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another XDP program sits on the interface and is left alone. Stop the program that owns it, or detach it with
    /// `ip link set dev INTERFACE xdp off` if nobody does.
    #[error("{interface} already runs the XDP program \"{program}\" (id {id}): {}", way_out(program))]
    ProgramPresent {
        /// The interface.
        interface: String,
        /// The program's name, empty if it has none or the kernel does not tell.
        program: String,
        /// The program's id, as `bpftool prog show` lists it; 0 if the kernel does not tell.
        id: u32,
    },
    /// Neither the driver nor generic mode took the program. `native` and `generic` say why; an MTU above some 3500
    /// octets, LRO, different queue counts on both ends of a veth pair, or a program at the bridge or bond above the interface
    /// are usual reasons.
    #[error("{interface} takes no XDP program: driver mode: {native}; generic mode: {generic}")]
    Attach {
        /// The interface.
        interface: String,
        /// The driver's answer.
        native: io::Error,
        /// Generic mode's answer.
        generic: io::Error,
    },
    /// The kernel refused the program or its maps. Linux 5.13 or later with BPF is needed; on a recent kernel this is a
    /// bug worth reporting, with the text.
    #[error("the kernel does not load the steering program: {0}")]
    Load(String),
    /// A map could not be written. `claims` holds 65536 entries; a queue number is below 1024.
    #[error("the steering map {map} was not written: {reason}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// The kernel's answer.
        reason: String,
    },
    /// Another socket has the queue. Stop the other program (`ss --xdp -e` shows it), or use other queues.
    #[error("queue {queue} of {interface} is in use by another AF_XDP socket")]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u16,
    },
    /// Processes have the queue and share it with no more: all places are taken, or the NIC writes the memory, or another process lent it that
    /// has ended since. Wait until they end.
    #[error("queue {queue} of {interface} is not shared with more programs")]
    NotShared {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u16,
    },
    /// The queue cannot be bound: it does not exist, or the driver refuses AF_XDP.
    #[error("queue {queue} of {interface} cannot be bound: {source}")]
    Bind {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u16,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Packet memory could not be had or locked. Use fewer frames, or raise the limit (`ulimit -l`, LimitMEMLOCK=).
    #[error("{octets} octets of packet memory are not available: {source} (see ulimit -l)")]
    Memory {
        /// How much was asked for.
        octets: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Packets of the interface's MTU do not fit into a frame of the size asked for. Use frames of 4096 octets, or leave it open.
    #[error("{interface} has MTU {mtu}; frames here hold packets of up to {limit} octets")]
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU in octets.
        mtu: u32,
        /// What fits, in octets.
        limit: u32,
    },
    /// What another process lent is no device. The two are of different versions, or one of them is wrong: start both anew.
    #[error("the lent device cannot be used: {0}")]
    Lent(&'static str),
    /// An option has a value outside its range.
    #[error("{option} is {value}; it must be {allowed}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The value.
        value: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A system call failed in a way that has no better name here.
    #[error("{operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What to do about a program that is in the way.
fn way_out(program: &str) -> &'static str {
    if program.starts_with(crate::loading::STEERING) {
        "another `sidestep` has the interface; end that, or start both as `sidestep run`"
    } else {
        "detach it first"
    }
}

impl XdpError {
    /// Wraps the error of a system call that is not expected to fail.
    pub(crate) fn system(operation: &'static str) -> impl Fn(io::Error) -> XdpError {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XdpError::NotPermitted { operation, source },
            _ => XdpError::System { operation, source },
        }
    }
}

/// Wraps the kernel's answer about a map of the steering program.
pub(crate) fn map_error(map: &'static str) -> impl Fn(MapError) -> XdpError {
    move |error| XdpError::Map { map, reason: chain(&error) }
}

/// Makes nothing of the kernel's answer that there was nothing to remove.
pub(crate) fn absent_is_fine(removed: Result<(), MapError>) -> Result<(), MapError> {
    match removed {
        Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        removed => removed,
    }
}

/// An error, what it was made of, and so on.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The texts of an error's causes.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
