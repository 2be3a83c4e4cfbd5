//! Connections that a process shares with its children.
//!
//! A child has the descriptors; the parent has the stack. On Linux a connection ends when the last process closes it. So if the
//! parent closes a connection that a child may still have, it moves to the kernel instead, and the parent keeps it until the child asks
//! for it, reports that it has closed it, or ends.
//!
//! A child reports what it has closed through a socket pair, because writing into a pipe without a reader would end it by SIGPIPE. When
//! the child ends or executes another program, the pair is closed.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use clock::{Duration, Instant};

use crate::fd_table::Entry;
use crate::internal;
use crate::process::State;
use crate::socket::SocketId;

/// Both ends of a connection, ours first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// Octets of a note: two addresses of IPv6 with ports.
const NOTE_LEN: usize = 36;
/// How often a process that never sleeps looks for notes.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A pair of sockets for a child that is about to be made.
pub(crate) struct Cord {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// A child that has connections of ours.
struct Child {
    notes: OwnedFd,
    /// What it may still hold.
    holds: BTreeSet<Ends>,
}

/// A connection that we have closed and a child has not.
struct Bequest {
    ends: Ends,
    kernel: OwnedFd,
}

/// An ancestor whose connections we may hold.
struct Elder {
    writer: OwnedFd,
    /// Our children, or connections on their way to a child, may hold what we close; the end of all of them closes this.
    is_silent: bool,
}

/// A process' part in connections that others have as well.
#[derive(Default)]
pub(crate) struct Kinship {
    children: Vec<Child>,
    bequests: Vec<Bequest>,
    cord: Option<Cord>,
    /// In a child: to those of its ancestors that have stacks.
    elders: Vec<Elder>,
    looked_at: Instant,
}

impl State {
    /// About to fork: the child will have what connections there are.
    pub(crate) fn tie_cord(&mut self) {
        for place in 0..self.sockets.places() {
            if let Some((_, socket)) = self.sockets.at_mut(place) {
                socket.is_common = true;
            }
        }
        let has_any = self.sockets.iter().any(|(_, socket)| socket.connection().is_some());
        self.kinship.cord = has_any.then(|| self.cord()).flatten();
    }

    fn cord(&self) -> Option<Cord> {
        let [reader, writer] = notes().ok()?;
        let (reader, writer) = (internal::raise(reader)?, internal::raise(writer)?);
        self.table.set(reader.as_raw_fd(), Entry::Internal);
        self.table.set(writer.as_raw_fd(), Entry::Internal);
        Some(Cord { reader, writer })
    }

    /// In the parent: notes what the child has.
    pub(crate) fn become_parent(&mut self) {
        self.kinship.elders.iter_mut().for_each(|elder| elder.is_silent = true);
        let Some(Cord { reader, writer }) = self.kinship.cord.take() else { return };
        self.dispose(writer);
        let ids: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, socket)| socket.connection().is_some())
            .map(|(id, _)| id)
            .collect();
        let holds = ids.into_iter().filter_map(|id| self.endpoints(id)).collect();
        self.kinship.children.push(Child { notes: reader, holds });
        self.wake_driver();
    }

    /// A child that never runs; it ends when the returned value is dropped.
    #[cfg(test)]
    pub(crate) fn bear(&mut self) -> OwnedFd {
        self.tie_cord();
        let writer = self.kinship.cord.as_ref().expect("there are connections").writer.as_fd();
        let childs = writer.try_clone_to_owned().expect("there are numbers");
        self.become_parent();
        childs
    }

    /// In the child: the ways to its elders stay open. Returns their numbers, which are not to be closed.
    pub(crate) fn become_kin(&mut self) -> Vec<RawFd> {
        let before = std::mem::take(&mut self.kinship);
        // What the parent keeps for its other children, and its own cords, are closed by number as all internal descriptors.
        std::mem::forget((before.children, before.bequests));
        self.kinship.elders = before.elders;
        self.kinship.elders.iter_mut().for_each(|elder| elder.is_silent = true);
        if let Some(Cord { reader, writer }) = before.cord {
            std::mem::forget(reader);
            self.kinship.elders.push(Elder { writer, is_silent: false });
        }
        self.kinship.elders.iter().map(|elder| elder.writer.as_raw_fd()).collect()
    }

    /// In a child: a connection of an elder's is closed here. The others do not know it.
    pub(crate) fn note_closed(&mut self, ends: Ends) {
        let note = [octets_of(ends.0), octets_of(ends.1)].concat();
        for elder in self.kinship.elders.iter().filter(|elder| !elder.is_silent) {
            let message = syscall::Message { buffers: &[IoSlice::new(&note)], ..Default::default() };
            // One that has ended keeps nothing; and where there is no room it hears when we end.
            let _ = syscall::send_message(elder.writer.as_raw_fd(), &message, libc::MSG_NOSIGNAL);
        }
    }

    /// Whether a child may still hold a connection.
    pub(crate) fn is_held_by_child(&self, ends: Ends) -> bool {
        self.kinship.children.iter().any(|child| child.holds.contains(&ends))
    }

    /// We have closed a connection that a child may hold: it is the kernel's from now on.
    pub(crate) fn bequeath(&mut self, ends: Ends, kernel: OwnedFd) {
        self.table.set(kernel.as_raw_fd(), Entry::Internal);
        self.kinship.bequests.push(Bequest { ends, kernel });
    }

    /// A child asks for a connection that we have closed; false if there is none.
    pub(crate) fn hand_bequest(&mut self, token: u64, ends: Ends) -> bool {
        let Some(at) = self.kinship.bequests.iter().position(|bequest| bequest.ends == ends) else {
            return false;
        };
        let Some(attachment) = &mut self.attachment else { return false };
        attachment.surrender(token, self.kinship.bequests[at].kernel.as_fd());
        self.note_released(ends);
        true
    }

    /// One child holds a connection of ours no longer, or has the kernel's socket of it.
    pub(crate) fn note_released(&mut self, ends: Ends) {
        if let Some(child) = self.kinship.children.iter_mut().find(|child| child.holds.contains(&ends)) {
            child.holds.remove(&ends);
        }
        self.drop_bequests();
    }

    fn drop_bequests(&mut self) {
        for bequest in std::mem::take(&mut self.kinship.bequests) {
            if self.is_held_by_child(bequest.ends) {
                self.kinship.bequests.push(bequest);
            } else {
                self.dispose(bequest.kernel);
            }
        }
    }

    /// Descriptors to sleep on: a child's note ends a connection.
    pub(crate) fn kin_descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.kinship.children.iter().map(|child| child.notes.as_raw_fd())
    }

    /// Reads what children have closed, from time to time.
    pub(crate) fn look_after_children(&mut self, now: Instant) {
        if !self.kinship.children.is_empty() && now >= self.kinship.looked_at + LOOK_EVERY {
            self.kinship.looked_at = now;
            self.read_notes();
        }
    }

    /// Reads what children have closed.
    pub(crate) fn read_notes(&mut self) {
        for mut child in std::mem::take(&mut self.kinship.children) {
            if take_notes(&mut child) {
                self.kinship.children.push(child);
            } else {
                self.dispose(child.notes);
            }
        }
        self.drop_bequests();
    }

    fn dispose(&self, fd: OwnedFd) {
        self.table.set(fd.as_raw_fd(), Entry::None);
        internal::close(fd);
    }
}

/// Non-blocking and closed on exec: where notes are read, and where they are written, each whole.
fn notes() -> std::io::Result<[OwnedFd; 2]> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    syscall::socketpair(libc::AF_UNIX, kind, 0)
}

/// Takes notes of one child; false when it has ended, or holds nothing more.
fn take_notes(child: &mut Child) -> bool {
    let mut room = [0; NOTE_LEN];
    loop {
        match syscall::read(child.notes.as_raw_fd(), &mut room) {
            Ok(0) => return false,
            Ok(_) => {
                let (local, remote) = room.split_at(NOTE_LEN / 2);
                child.holds.remove(&(address_of(local), address_of(remote)));
            }
            Err(_) => return !child.holds.is_empty(),
        }
    }
}

fn octets_of(address: SocketAddr) -> [u8; NOTE_LEN / 2] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut octets = [0; NOTE_LEN / 2];
    octets[..16].copy_from_slice(&ip.octets());
    octets[16..].copy_from_slice(&address.port().to_be_bytes());
    octets
}

fn address_of(octets: &[u8]) -> SocketAddr {
    let ip = octets.first_chunk().copied().map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from);
    let port = octets.last_chunk().copied().map_or(0, u16::from_be_bytes);
    SocketAddr::new(IpAddr::V6(ip).to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_table::FdTable;
    use crate::tests::Clock;

    fn ends(port: u16) -> Ends {
        ("192.0.2.1:80".parse().unwrap(), SocketAddr::new("2001:db8::1".parse().unwrap(), port))
    }

    #[test]
    fn a_child_holds_what_it_has_not_said_to_have_closed() {
        let [reader, writer] = notes().unwrap();
        let mut child = Child { notes: reader, holds: BTreeSet::from([ends(1), ends(2)]) };
        assert!(take_notes(&mut child));
        let note = [octets_of(ends(1).0), octets_of(ends(1).1)].concat();
        syscall::write(writer.as_raw_fd(), &note).unwrap();
        assert!(take_notes(&mut child));
        assert_eq!(child.holds, BTreeSet::from([ends(2)]));
        drop(writer);
        assert!(!take_notes(&mut child), "it has ended");
    }

    #[test]
    fn a_child_outlives_its_parent() {
        const SIGPIPE: u64 = 13;
        let mut state = State::new(FdTable::leaked(), Clock::start(), None);
        let [reader, writer] = notes().unwrap();
        state.kinship.elders.push(Elder { writer, is_silent: false });
        drop(reader);
        // A signal that is blocked is pending, though this process ignores it.
        let before = syscall::set_signal_mask(1 << (SIGPIPE - 1));
        state.note_closed(ends(1));
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        syscall::set_signal_mask(before);
        assert!(status.contains("\nSigPnd:\t0000000000000000\n"), "{status}");
    }

    #[test]
    fn a_grandchild_holds_what_its_parent_closes_and_its_grandparent_has() {
        let mut state = State::new(FdTable::leaked(), Clock::start(), None);
        let [of_grandparent, to_grandparent] = notes().unwrap();
        let [of_parent, to_parent] = notes().unwrap();
        state.kinship.elders.push(Elder { writer: to_grandparent, is_silent: false });
        let reader = of_parent.try_clone().unwrap();
        state.kinship.cord = Some(Cord { reader, writer: to_parent });
        assert_eq!(state.become_kin().len(), 2, "both ways stay open");
        let mut parents = Child { notes: of_parent, holds: BTreeSet::from([ends(1)]) };
        let mut grandparents = Child { notes: of_grandparent, holds: BTreeSet::from([ends(1)]) };
        state.note_closed(ends(1));
        assert!(take_notes(&mut grandparents), "the parent may hold it");
        assert!(!take_notes(&mut parents));
    }
}
