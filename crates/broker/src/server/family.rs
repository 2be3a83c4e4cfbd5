//! Who may talk to the broker: what descends from it, and a group if one is configured.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::UCred;

/// Options of socket(7) that rustix does not have (asm-generic/socket.h).
const SOL_SOCKET: i32 = 1;
const SO_PEERGROUPS: i32 = 59;
/// Groups that are asked for at first, and those that a process can have at most (`NGROUPS_MAX`, limits.h).
const GROUPS_FEW: usize = 64;
const GROUPS_MAX: usize = 65_536;
/// Octets of a group's number.
const GROUP_LEN: usize = 4;

/// Generations that are followed; deeper ones are strangers.
const GENERATIONS_MAX: usize = 256;

/// Those who may connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// The process that all others descend from.
    pub(super) head: u32,
    /// Members of this group are welcome too.
    pub(super) group: Option<u32>,
}

impl Family {
    /// Whether the process at the other end of `socket`, with these credentials, belongs to it.
    pub(super) fn includes(self, socket: BorrowedFd<'_>, peer: &UCred) -> bool {
        let pid = peer.pid.as_raw_pid() as u32; // Positive, as all process numbers.
        self.group.is_some_and(|group| is_member(socket, peer, group)) || descends_from(pid, self.head)
    }
}

/// Whether the peer was a member of the group when it connected: by its effective group, or by a supplementary one.
fn is_member(socket: BorrowedFd<'_>, peer: &UCred, group: u32) -> bool {
    // Where the kernel does not tell, who is a member by a supplementary group only is a stranger.
    peer.gid.as_raw() == group || supplementary_groups(socket).is_ok_and(|groups| groups.contains(&group))
}

/// The supplementary groups of who connected: SO_PEERGROUPS of socket(7).
fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let ask = |count: usize| {
        let mut octets = vec![0; count * GROUP_LEN];
        let len = syscall::getsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_PEERGROUPS, &mut octets)?;
        let groups = octets[..len].as_chunks::<GROUP_LEN>().0.iter();
        Ok(groups.map(|group| u32::from_ne_bytes(*group)).collect())
    };
    match ask(GROUPS_FEW) {
        Err(error) if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::RANGE) => {
            ask(GROUPS_MAX)
        }
        groups => groups,
    }
}

/// Whether `process` is `ancestor` or one of its descendants. Who lost its parent has the nearest subreaper for one, which is
/// the broker or descends from it.
fn descends_from(process: u32, ancestor: u32) -> bool {
    let line = std::iter::successors(Some(process), |process| parent_of(*process));
    line.take(GENERATIONS_MAX).any(|process| process == ancestor)
}

/// The parent of a process; `None` for those that have none, and those that are gone.
fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parent_in(&stat)
}

/// The fourth field of proc_pid_stat(5). The second is in parentheses, and may have any in it.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let parent = behind_name.split_whitespace().nth(1)?.parse().ok()?;
    (parent != 0).then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_look_like_fields() {
        assert_eq!(parent_in("7 (a) S 1 (b) R 3 4 5"), Some(3));
        assert_eq!(parent_in("1 (init) S 0 1 1"), None);
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn children_descend_from_their_parents_and_not_the_other_way_round() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descends_from(own, own) && descends_from(child.id(), own));
        assert!(!descends_from(own, child.id()));
        assert!(!descends_from(1, own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descends_from(child.id(), own), "who is gone has no parents");
    }
}
