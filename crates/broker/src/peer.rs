//! The process at the other end of a socket, and its groups: `SO_PEERGROUPS` of socket(7).

use std::os::fd::{AsFd, AsRawFd};

pub(crate) use observe::Peer;
use rustix::io::{Errno, Result};

/// An option that rustix does not have (asm-generic/socket.h).
const SOL_SOCKET: i32 = 1;
const SO_PEERGROUPS: i32 = 59;
/// Groups that are asked for at first, and those that a process can have at most (`NGROUPS_MAX`, limits.h).
const GROUPS_FEW: usize = 64;
const GROUPS_MAX: usize = 65_536;
/// Octets of a group's number.
const GROUP_LEN: usize = 4;

/// The supplementary groups of the process at the other end.
pub(crate) fn supplementary_groups(socket: impl AsFd) -> Result<Vec<u32>> {
    let ask = |count: usize| {
        let mut octets = vec![0; count * GROUP_LEN];
        let len = option(&socket, SO_PEERGROUPS, &mut octets)?;
        let groups = octets[..len].as_chunks::<GROUP_LEN>().0.iter();
        Ok(groups.map(|group| u32::from_ne_bytes(*group)).collect())
    };
    match ask(GROUPS_FEW) {
        Err(Errno::RANGE) => ask(GROUPS_MAX),
        groups => groups,
    }
}

/// getsockopt(2): the length of the value.
fn option(socket: impl AsFd, option: i32, value: &mut [u8]) -> Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    syscall::getsockopt(fd, SOL_SOCKET, option, value)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}
