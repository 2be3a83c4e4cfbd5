//! The process at the other end of a socket: `SO_PEERCRED` and `SO_PEERGROUPS` of socket(7).

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// Options that rustix does not have, or has with a process number that is never zero (asm-generic/socket.h).
const SOL_SOCKET: i32 = 1;
const SO_PEERCRED: i32 = 17;
const SO_PEERGROUPS: i32 = 59;
/// Groups that are asked for at first, and those that a process can have at most (`NGROUPS_MAX`, limits.h).
const GROUPS_FEW: usize = 64;
const GROUPS_MAX: usize = 65_536;
/// Octets of a group's number.
const GROUP_LEN: usize = 4;

/// A process, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Zero for a process that this PID namespace does not show, pid_namespaces(7).
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Peer {
    pub(crate) fn of(socket: impl AsFd) -> Result<Peer> {
        let mut octets = [0; 12];
        let len = option(socket, SO_PEERCRED, &mut octets)?;
        if len == octets.len() { Ok(Peer::in_octets(octets)) } else { Err(Errno::INVAL) }
    }

    /// `struct ucred` of unix(7): three numbers in the host's byte order.
    fn in_octets(octets: [u8; 12]) -> Peer {
        let [pid, uid, gid] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(std::array::from_fn(|index| octets[at + index])));
        Peer { pid, uid, gid }
    }

    /// Whether it may do what this process does: as root, or as the same user.
    pub(crate) fn is_root_or_oneself(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_who_made_the_socket() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(&socket).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        assert!(peer.is_root_or_oneself());
        assert!(Peer::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn a_process_of_another_pid_namespace_has_the_number_zero() {
        let octets = [0_u32, 7, 8].map(u32::to_ne_bytes).concat();
        let peer = Peer::in_octets(octets.try_into().unwrap());
        assert_eq!(peer, Peer { pid: 0, uid: 7, gid: 8 });
    }
}
