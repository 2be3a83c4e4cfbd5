//! Who may connect to the broker: its descendants, those of each `sidestep run` that has joined it, and members of the configured group.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::peer::{Peer, supplementary_groups};
use crate::protocol::Options;
use crate::registry::ClientId;

/// Generations that are followed; deeper ones are strangers.
const GENERATIONS_MAX: usize = 256;
/// How often a line of ancestors is followed of which one ends each time.
const LOOKS_MAX: usize = 16;

/// The processes of this `sidestep run`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// The process that all others descend from.
    pub(super) head: u32,
    /// Members of this group are welcome too.
    pub(super) group: Option<u32>,
}

/// Whose program a process is, and how that is to run.
#[derive(Clone, Debug)]
pub(super) struct Kin {
    /// Who has joined; `None` if it is this `sidestep run` itself.
    pub(super) joined: Option<ClientId>,
    /// The process that it descends from, and that started it.
    pub(super) head: u32,
    pub(super) options: Arc<Options>,
}

/// All processes that may connect.
#[derive(Debug)]
pub(super) struct Families {
    own: Kin,
    group: Option<u32>,
    joined: BTreeMap<ClientId, Kin>,
}

impl Families {
    pub(super) fn new(own: Family, options: Options) -> Families {
        let Family { head, group } = own;
        let own = Kin { joined: None, head, options: Arc::new(options) };
        Families { own, group, joined: BTreeMap::new() }
    }

    /// Those of this `sidestep run` itself.
    #[cfg(test)]
    pub(super) fn own(&self) -> &Kin {
        &self.own
    }

    /// Whose the process at the other end of `socket` is, with these credentials; `None` if it may not connect.
    pub(super) fn of(&self, socket: BorrowedFd<'_>, peer: &Peer) -> Option<&Kin> {
        let is_member = || self.group.is_some_and(|group| is_member(socket, peer, group));
        self.of_descendant(peer.pid).or_else(|| is_member().then_some(&self.own))
    }

    /// Whose this process is by its nearest ancestor that is somebody's head: a `sidestep run` may be a program of another one.
    pub(super) fn of_descendant(&self, process: u32) -> Option<&Kin> {
        let all = || self.joined.values().chain([&self.own]);
        ancestors(process).find_map(|ancestor| all().find(|kin| kin.head == ancestor))
    }

    /// For who comes back to this broker, and was another one's program: its own `sidestep run` may yet join, and say otherwise. Until then it shares
    /// with nobody by an option that it was not started with.
    pub(super) fn unknown(&self) -> Kin {
        let options = Options { share: false, ..Options::clone(&self.own.options) };
        Kin { options: Arc::new(options), ..self.own.clone() }
    }

    /// Another `sidestep run` has joined: the process `head`, with its descendants.
    pub(super) fn join(&mut self, client: ClientId, head: u32, options: Options) {
        self.joined.insert(client, Kin { joined: Some(client), head, options: Arc::new(options) });
    }

    /// It is gone.
    pub(super) fn remove(&mut self, client: ClientId) {
        self.joined.remove(&client);
    }

    /// Whether another `sidestep run` has joined.
    pub(super) fn are_several(&self) -> bool {
        !self.joined.is_empty()
    }

    /// Whether this client is one that has joined.
    pub(super) fn is_head(&self, client: ClientId) -> bool {
        self.joined.contains_key(&client)
    }
}

/// Whether the peer was a member of the group when it connected: by its effective group, or by a supplementary one.
fn is_member(socket: BorrowedFd<'_>, peer: &Peer, group: u32) -> bool {
    // If the kernel does not report supplementary groups, only the primary group counts.
    peer.gid == group || supplementary_groups(socket).is_ok_and(|groups| groups.contains(&group))
}

/// The nearest ancestor of a process that is one of these programs.
pub(super) fn nearest<T>(process: u32, program: impl Fn(u32) -> Option<T>) -> Option<T> {
    ancestors(process).skip(1).find_map(program)
}

/// A process and its ancestors, the nearest first. Who lost its parent has the nearest subreaper for one, as each `sidestep run` is.
fn ancestors(process: u32) -> impl Iterator<Item = u32> {
    ancestors_by(process, stat_of).into_iter()
}

/// The same with this view of the processes. One that ends between two looks has left its children to another one, so all is looked at again. It is gone
/// by then, or, for a moment, has no parent: only process 1 never has one, and who came from another PID namespace.
fn ancestors_by(process: u32, stat_of: impl Fn(u32) -> Option<String>) -> Vec<u32> {
    let parent_of = |process: &u32| parent_in(&stat_of(*process)?);
    let line = || std::iter::successors(Some(process), parent_of).take(GENERATIONS_MAX).collect::<Vec<u32>>();
    let is_whole = |line: &Vec<u32>| line.len() == GENERATIONS_MAX || line.last() == Some(&1);
    (0..LOOKS_MAX).map(|_| line()).find(is_whole).unwrap_or_else(line)
}

/// proc_pid_stat(5) of a process; `None` if it is gone.
fn stat_of(process: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/stat")).ok()
}

/// The parent: the fourth field of proc_pid_stat(5); `None` for those that have none. The second field is in parentheses, and may have any in it.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let parent = behind_name.split_whitespace().nth(1)?.parse().ok()?;
    (parent != 0).then_some(parent)
}

/// Some that are told apart by the name of their profile.
#[cfg(test)]
pub(super) fn options(name: &str) -> Options {
    let profile = crate::protocol::Profile {
        name: name.to_owned(),
        listeners: true,
        outgoing: true,
        udp: true,
        leaves_unsuited: true,
        reason: None,
    };
    Options { spin_us: 0, gather_us: 0, mss_clamp: None, verbose: false, share: true, profile }
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
        let descends_from = |process, ancestor| ancestors(process).any(|it| it == ancestor);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descends_from(own, own) && descends_from(child.id(), own));
        assert!(!descends_from(own, child.id()));
        assert!(!descends_from(1, own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descends_from(child.id(), own), "who is gone has no parents");
    }

    #[test]
    fn a_parent_that_ends_meanwhile_costs_its_child_no_ancestors() {
        let looks = std::cell::Cell::new(0);
        let stat = |process, parent| Some(format!("{process} (program) S {parent} 1 1"));
        let of_double_fork = |process| match process {
            7 => {
                looks.set(looks.get() + 1);
                stat(7, if looks.get() < 4 { 6 } else { 5 })
            }
            6 => stat(6, 0).filter(|_| looks.get() < 3), // It ends, and has ended.
            5 => stat(5, 1),
            1 => stat(1, 0),
            _ => None,
        };
        assert_eq!(ancestors_by(7, of_double_fork), [7, 5, 1]);
        assert_eq!(looks.get(), 4);
        let from_elsewhere = |process| stat(process, if process == 9 { 8 } else { 0 });
        assert_eq!(ancestors_by(9, from_elsewhere), [9, 8], "and it does not look for ever");
    }

    #[test]
    fn a_process_belongs_to_the_nearest_of_those_that_it_descends_from() {
        let own = std::process::id();
        let parent = parent_in(&stat_of(own).unwrap()).unwrap();
        let mut families = Families::new(Family { head: parent, group: None }, options("outer"));
        let name_of = |families: &Families, process| {
            families.of_descendant(process).map(|kin| kin.options.profile.name.clone())
        };
        assert_eq!(name_of(&families, own).as_deref(), Some("outer"));
        assert!(!families.are_several());
        families.join(ClientId(7), own, options("inner"));
        assert!(families.are_several() && families.is_head(ClientId(7)) && !families.is_head(ClientId(8)));
        assert_eq!(name_of(&families, own).as_deref(), Some("inner"));
        assert_eq!(name_of(&families, parent).as_deref(), Some("outer"));
        assert_eq!(name_of(&families, 1), None);
        families.remove(ClientId(7));
        assert!(families.own().options.share && !families.unknown().options.share, "as nobody said so of it");
        assert_eq!(name_of(&families, own).as_deref(), Some("outer"));
    }
}
