//! The process at the other end of a socket: `SO_PEERCRED` of socket(7), and what it may say of processes.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// rustix has this with a process number that is never zero (asm-generic/socket.h).
const SOL_SOCKET: i32 = 1;
const SO_PEERCRED: i32 = 17;

/// A process, as it was when it connected, or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Zero for a process that this PID namespace does not show, pid_namespaces(7).
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Peer {
    /// Of a connected Unix socket.
    pub fn of(socket: impl AsFd) -> Result<Peer> {
        let mut octets = [0; 12];
        let fd = socket.as_fd().as_raw_fd();
        let len = syscall::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &mut octets)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
        if len == octets.len() { Ok(Peer::in_octets(octets)) } else { Err(Errno::INVAL) }
    }

    /// `struct ucred` of unix(7): three numbers in the host's byte order.
    fn in_octets(octets: [u8; 12]) -> Peer {
        let [pid, uid, gid] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(std::array::from_fn(|index| octets[at + index])));
        Peer { pid, uid, gid }
    }

    /// Whether it may do what this process does: as root, or as the same user.
    pub fn is_root_or_oneself(&self) -> bool {
        is_root_or_oneself(self.uid)
    }

    /// The process that answers at a socket which is named after the process `named`: the named one if this peer may speak of it, otherwise
    /// the peer itself.
    pub fn behind(&self, named: u32) -> u32 {
        if self.may_speak_of(named) { named } else { self.pid }
    }

    /// Whether what it says of a process is believed: another user than root and oneself speaks of processes of its own.
    pub fn may_speak_of(&self, process: u32) -> bool {
        self.is_root_or_oneself() || user_of(process) == Some(self.uid)
    }
}

/// Whether a user is root, or the one whose rights this process has.
pub(crate) fn is_root_or_oneself(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// The user whose rights a process has; `None` if there is no such process. Not the owner of its files in /proc, which is root if the
/// process has changed its user.
fn user_of(process: u32) -> Option<u32> {
    effective_user(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// The second number of the line `Uid:` of /proc/PID/status (proc(5)). The name comes before it, with its control characters escaped.
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
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

    #[test]
    fn another_user_speaks_of_processes_of_its_own() {
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(user_of(std::process::id()), Some(user));
        assert_eq!(effective_user("Name:\tUid: 7\nUid:\t1\t2\t3\t4\n"), Some(2));
        let stranger = Peer { pid: 7, uid: user + 1, gid: 0 };
        assert!(!stranger.may_speak_of(std::process::id()) && !stranger.may_speak_of(u32::MAX));
        assert!(Peer { uid: user, ..stranger }.may_speak_of(u32::MAX));
        assert_eq!(stranger.behind(std::process::id()), 7, "the kernel's word");
        assert_eq!(Peer { uid: user, ..stranger }.behind(8), 8, "a broker listens for a program");
    }
}
