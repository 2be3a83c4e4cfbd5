//! Who may connect to the broker: its descendants, and members of the configured group.

use std::os::fd::BorrowedFd;

use crate::peer::{Peer, supplementary_groups};

/// Generations that are followed; deeper ones are strangers.
const GENERATIONS_MAX: usize = 256;

/// The processes that may connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// The process that all others descend from.
    pub(super) head: u32,
    /// Members of this group are welcome too.
    pub(super) group: Option<u32>,
}

impl Family {
    /// Whether the process at the other end of `socket`, with these credentials, belongs to it.
    pub(super) fn includes(self, socket: BorrowedFd<'_>, peer: &Peer) -> bool {
        self.group.is_some_and(|group| is_member(socket, peer, group)) || descends_from(peer.pid, self.head)
    }
}

/// Whether the peer was a member of the group when it connected: by its effective group, or by a supplementary one.
fn is_member(socket: BorrowedFd<'_>, peer: &Peer, group: u32) -> bool {
    // If the kernel does not report supplementary groups, only the primary group counts.
    peer.gid == group || supplementary_groups(socket).is_ok_and(|groups| groups.contains(&group))
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
