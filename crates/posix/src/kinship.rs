//! Connections that a process shares with its children.
//!
//! A child has the descriptors; the parent has the stack. On Linux a connection ends when the last process closes it. So if the
//! parent closes a connection that a child may still have, it moves to the kernel instead, and the parent keeps it until no child has
//! it any more. The same happens to a connection that the parent moves to the kernel while a child may have it.
//!
//! Each child has a socket pair with each ancestor that has a stack, its *cord*. Through it the child reports which connections it has
//! closed, or has got from the ancestor. When the child ends or executes another program, the pair is closed. A child that forks makes a
//! cord for its own child, and sends one end of it to the ancestor. So the ancestor knows each process that has a connection. A pipe would
//! not do, because writing into a pipe without a reader raises SIGPIPE.

use std::collections::BTreeSet;
use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use clock::{Duration, Instant};
use syscall::PollFd;

use crate::descriptors::fd_table::{Entry, FdTable};
use crate::descriptors::internal;

/// Both ends of a connection, ours first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// Octets of a note that names a connection: two addresses of IPv6 with ports.
const NOTE_LEN: usize = 36;
/// A note that has an end of a cord beside it: the sender is about to fork.
const A_CHILD: u8 = 1;
/// The first octet of a note from an ancestor that ends: the kernel's socket of the connection that follows is beside it.
const A_CONNECTION: u8 = 2;
/// How often a process that never sleeps looks for notes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Notes of one child that are read at a time: a child that never stops must not keep its ancestors from their work.
const NOTES_MAX: usize = 64;
/// Children that are followed at most, if others tell of them: each costs a descriptor and memory. The program's own forks have no limit.
const CHILDREN_MAX: usize = 256;
/// A fork waits so many times so long for room in a cord, until the ancestor has read what is there.
const WAITS_MAX: usize = 10;
const WAIT: Duration = Duration::from_millis(100);

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
    /// It has said more than was read.
    is_behind: bool,
}

/// The kernel's socket of a connection that a child may hold and was on our stack.
struct Kept {
    ends: Ends,
    kernel: OwnedFd,
}

/// A process' part in connections that others have as well.
pub(crate) struct Kinship {
    table: FdTable,
    children: Vec<Child>,
    kept: Vec<Kept>,
    /// What may be held by a process whose cord did not reach us, so that nobody says when it lets go.
    held_unseen: BTreeSet<Ends>,
    /// About to fork: the cord between us and the child.
    cord: Option<Cord>,
    /// Our ends of the cords to those ancestors whose connections we may hold.
    to_ancestors: Vec<OwnedFd>,
    /// About to fork: the child's ends of its cords to the same ancestors.
    child_to_ancestors: Vec<OwnedFd>,
    /// What ancestors have left to us when they ended.
    left: Vec<Kept>,
    looked_at: Instant,
}

impl Kinship {
    /// Of a process that has not forked yet.
    pub(crate) fn new(table: FdTable) -> Kinship {
        Kinship {
            table,
            children: Vec::new(),
            kept: Vec::new(),
            held_unseen: BTreeSet::new(),
            cord: None,
            to_ancestors: Vec::new(),
            child_to_ancestors: Vec::new(),
            left: Vec::new(),
            looked_at: Instant::ZERO,
        }
    }

    /// About to fork: whether the child will have connections of ours, and whether it may hold some of our ancestors'.
    pub(crate) fn tie_cords(&mut self, has_own: bool, inherits: bool) {
        self.cord = has_own.then(|| self.cord()).flatten();
        let ancestors = if inherits { self.to_ancestors.as_slice() } else { &[] };
        self.child_to_ancestors = ancestors.iter().filter_map(|it| self.cord_to(it)).collect();
        self.read_legacies(); // The child has its own cords, by which nothing comes that was sent before.
    }

    fn cord(&self) -> Option<Cord> {
        let [reader, writer] = notes().ok()?;
        let (reader, writer) = (internal::raise(reader)?, internal::raise(writer)?);
        self.table.set(reader.as_raw_fd(), Entry::Internal);
        self.table.set(writer.as_raw_fd(), Entry::Internal);
        Some(Cord { reader, writer })
    }

    /// The child's end of a cord to an ancestor, who gets the other end by our own cord; `None` if the ancestor has ended.
    fn cord_to(&self, ancestor: &OwnedFd) -> Option<OwnedFd> {
        let Cord { reader, writer } = self.cord()?;
        let sent = send_when_there_is_room(ancestor, reader.as_fd());
        self.dispose(reader);
        if sent.is_err() {
            self.dispose(writer);
            return None;
        }
        Some(writer)
    }

    /// In the parent: notes what the child has; whether there is a child to listen to.
    pub(crate) fn enter_child(&mut self, holds: impl FnOnce() -> BTreeSet<Ends>) -> bool {
        let writers = std::mem::take(&mut self.child_to_ancestors);
        writers.into_iter().for_each(|writer| self.dispose(writer));
        let Some(Cord { reader, writer }) = self.cord.take() else { return false };
        self.dispose(writer);
        self.children.push(Child { notes: reader, holds: holds(), is_behind: false });
        true
    }

    /// The child's end of the cord, for a child that never runs.
    #[cfg(test)]
    pub(crate) fn end_of_child(&self) -> OwnedFd {
        let writer = self.cord.as_ref().expect("there are connections").writer.as_fd();
        writer.try_clone_to_owned().expect("there are numbers")
    }

    /// In the child: its cords to its ancestors stay open. Returns their numbers, which are not to be closed.
    pub(crate) fn become_child(&mut self) -> Vec<RawFd> {
        let before = std::mem::replace(self, Kinship::new(self.table));
        // What the parent keeps for its other children, and its own cords, are closed by number as all internal descriptors.
        std::mem::forget((before.children, before.kept, before.to_ancestors));
        self.to_ancestors = before.child_to_ancestors;
        self.left = before.left;
        if let Some(Cord { reader, writer }) = before.cord {
            std::mem::forget(reader);
            self.to_ancestors.push(writer);
        }
        let left = self.left.iter().map(|left| &left.kernel);
        self.to_ancestors.iter().chain(left).map(AsRawFd::as_raw_fd).collect()
    }

    /// The process ends: children get what it has kept for them.
    pub(crate) fn leave_to_children(&mut self) {
        for kept in &self.kept {
            let note = [&[A_CONNECTION][..], &octets_of(kept.ends.0), &octets_of(kept.ends.1)].concat();
            for child in self.children.iter().filter(|child| child.holds.contains(&kept.ends)) {
                // A child that has ended needs nothing. Where there is no room, it loses the connection.
                let _ = syscall::send_descriptor(child.notes.as_raw_fd(), &note, kept.kernel.as_fd());
            }
        }
    }

    /// The kernel's socket of a connection that an ancestor has left to us.
    pub(crate) fn take_legacy(&mut self, ends: Ends) -> Option<OwnedFd> {
        self.read_legacies();
        let at = self.left.iter().position(|left| left.ends == ends)?;
        let kernel = self.left.swap_remove(at).kernel;
        self.table.set(kernel.as_raw_fd(), Entry::None);
        Some(kernel)
    }

    fn read_legacies(&mut self) {
        for ancestor in &self.to_ancestors {
            let mut room = [0; NOTE_LEN + 1];
            // An ancestor says nothing else.
            while let Ok((len @ 1.., legacy)) = syscall::receive_descriptor(ancestor.as_raw_fd(), &mut room) {
                let Some(kernel) = legacy.and_then(internal::raise) else { continue };
                if len == room.len() && room[0] == A_CONNECTION {
                    self.table.set(kernel.as_raw_fd(), Entry::Internal);
                    self.left.push(Kept { ends: ends_of(&room[1..]), kernel });
                } else {
                    internal::close(kernel);
                }
            }
        }
    }

    /// In a child: a connection of an ancestor's is closed here, or has come from there. The others do not know it.
    pub(crate) fn note_let_go(&mut self, ends: Ends) {
        let note = [octets_of(ends.0), octets_of(ends.1)].concat();
        for ancestor in &self.to_ancestors {
            let message = syscall::Message { buffers: &[IoSlice::new(&note)], ..Default::default() };
            // One that has ended keeps nothing; and where there is no room it hears when we end.
            let _ = syscall::send_message(ancestor.as_raw_fd(), &message, libc::MSG_NOSIGNAL);
        }
    }

    /// Whether a child may still hold a connection.
    pub(crate) fn is_held_by_child(&self, ends: Ends) -> bool {
        self.held_unseen.contains(&ends) || self.children.iter().any(|child| child.holds.contains(&ends))
    }

    /// The kernel has a connection now that a child may hold: `kernel` is for that child.
    pub(crate) fn keep_for_children(&mut self, ends: Ends, kernel: OwnedFd) {
        self.table.set(kernel.as_raw_fd(), Entry::Internal);
        self.kept.push(Kept { ends, kernel });
    }

    /// What a child can get of a connection that is the kernel's by now.
    pub(crate) fn kept_for_children(&self, ends: Ends) -> Option<BorrowedFd<'_>> {
        self.kept.iter().find(|kept| kept.ends == ends).map(|kept| kept.kernel.as_fd())
    }

    /// The only child that holds a connection has got it. Of several, each says itself that it has: until then the last close is late.
    pub(crate) fn release_sole_holder(&mut self, ends: Ends) {
        if self.children.iter().any(|child| child.is_behind) {
            return; // It may have forked, and its child may hold it too.
        }
        let holds = |child: &&mut Child| child.holds.contains(&ends);
        let mut holders = self.children.iter_mut().filter(holds);
        if let (Some(sole), None) = (holders.next(), holders.next()) {
            sole.holds.remove(&ends);
            self.drop_kept();
        }
    }

    fn drop_kept(&mut self) {
        for kept in std::mem::take(&mut self.kept) {
            if self.is_held_by_child(kept.ends) {
                self.kept.push(kept);
            } else {
                self.dispose(kept.kernel);
            }
        }
    }

    /// Descriptors to sleep on: a child's note ends a connection.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.children.iter().map(|child| child.notes.as_raw_fd())
    }

    /// Whether it is time to read what children have closed.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = !self.children.is_empty() && now >= self.looked_at + LOOK_EVERY;
        self.looked_at = if is_due { now } else { self.looked_at };
        is_due
    }

    /// Reads what children have closed or got, and which children they have made; whether there are more to listen to.
    pub(crate) fn read_notes(&mut self) -> bool {
        let mut unread = std::mem::take(&mut self.children);
        let before = unread.len();
        let mut gone = 0;
        while let Some(mut child) = unread.pop() {
            if self.read_notes_of(&mut child, &mut unread) {
                gone += 1;
                self.dispose(child.notes);
            } else {
                self.children.push(child);
            }
        }
        self.drop_kept();
        self.children.len() + gone > before
    }

    /// Reads some notes of one child; its own children are added to `unread`. Returns whether the child holds nothing any more.
    fn read_notes_of(&mut self, child: &mut Child, unread: &mut Vec<Child>) -> bool {
        for _ in 0..NOTES_MAX {
            match take_note(child) {
                Note::Taken => {}
                Note::Child(notes) => {
                    let count = self.children.len() + unread.len() + 1;
                    match notes.and_then(|notes| self.enter_grandchild(child, notes, count)) {
                        Some(grandchild) => unread.push(grandchild),
                        None => self.held_unseen.extend(&child.holds),
                    }
                }
                Note::None => {
                    child.is_behind = false;
                    return child.holds.is_empty();
                }
                Note::End => return true,
            }
        }
        child.is_behind = true;
        false
    }

    /// A child has forked: what it holds, its own child does too. `None` if that one cannot be followed.
    fn enter_grandchild(&self, child: &Child, notes: OwnedFd, count: usize) -> Option<Child> {
        if count >= CHILDREN_MAX || !is_cord(&notes) {
            internal::close(notes);
            return None;
        }
        let notes = internal::raise(notes)?;
        self.table.set(notes.as_raw_fd(), Entry::Internal);
        Some(Child { notes, holds: child.holds.clone(), is_behind: false })
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

/// Whether a descriptor can be an end of a cord. Others may be readable always, or block who reads them.
fn is_cord(fd: &OwnedFd) -> bool {
    let option = |name| {
        let mut value = [0; 4];
        let read = syscall::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, &mut value);
        read.map(|_| i32::from_ne_bytes(value)).unwrap_or(-1)
    };
    option(libc::SO_DOMAIN) == libc::AF_UNIX && option(libc::SO_TYPE) == libc::SOCK_SEQPACKET
}

/// Sends a new child's end of a cord to an ancestor, which may have to read other notes first.
fn send_when_there_is_room(ancestor: &OwnedFd, reader: BorrowedFd<'_>) -> std::io::Result<usize> {
    let to = ancestor.as_raw_fd();
    for _ in 0..WAITS_MAX {
        match syscall::send_descriptor(to, &[A_CHILD], reader) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut room = [PollFd { fd: to, events: libc::POLLOUT, revents: 0 }];
                let _ = syscall::ppoll(&mut room, Some(WAIT.into()), None); // A signal ends it early.
            }
            outcome => return outcome,
        }
    }
    Err(ErrorKind::WouldBlock.into())
}

/// What a child has to say.
enum Note {
    /// It let go of a connection, or said nothing that can be understood.
    Taken,
    /// It is about to fork; this is our end of the new child's cord, unless there was no number for it here.
    Child(Option<OwnedFd>),
    /// Nothing more just now.
    None,
    /// It has ended, or executes another program.
    End,
}

/// Takes the next note of a child.
fn take_note(child: &mut Child) -> Note {
    let mut room = [0; NOTE_LEN];
    match syscall::receive_descriptor(child.notes.as_raw_fd(), &mut room) {
        Ok((0, None)) => Note::End,
        Ok((1, notes)) if room[0] == A_CHILD => Note::Child(notes),
        Ok((NOTE_LEN, None)) => {
            child.holds.remove(&ends_of(&room));
            Note::Taken
        }
        Ok((_, surplus)) => {
            surplus.into_iter().for_each(internal::close);
            Note::Taken
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Note::None,
        Err(_) => Note::End, // A socket without another end, or one that was reset.
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

fn ends_of(octets: &[u8]) -> Ends {
    let (local, remote) = octets.split_at(NOTE_LEN / 2);
    (address_of(local), address_of(remote))
}

fn address_of(octets: &[u8]) -> SocketAddr {
    let ip = octets.first_chunk().copied().map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from);
    let port = octets.last_chunk().copied().map_or(0, u16::from_be_bytes);
    SocketAddr::new(IpAddr::V6(ip).to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        ("192.0.2.1:80".parse().unwrap(), SocketAddr::new("2001:db8::1".parse().unwrap(), port))
    }

    fn kinship() -> Kinship {
        Kinship::new(FdTable::leaked())
    }

    fn child(notes: OwnedFd, holds: &[Ends]) -> Child {
        Child { notes, holds: holds.iter().copied().collect(), is_behind: false }
    }

    #[test]
    fn a_child_holds_what_it_has_not_said_to_have_let_go() {
        let (mut parent, mut in_child) = (kinship(), kinship());
        let [reader, writer] = notes().unwrap();
        in_child.to_ancestors.push(writer);
        parent.children.push(child(reader, &[ends(1), ends(2)]));
        in_child.note_let_go(ends(1));
        parent.read_notes();
        assert!(!parent.is_held_by_child(ends(1)) && parent.is_held_by_child(ends(2)));
        in_child.to_ancestors.clear();
        parent.read_notes();
        assert!(!parent.is_held_by_child(ends(2)), "it has ended");
    }

    #[test]
    fn a_child_outlives_its_parent() {
        const SIGPIPE: u64 = 13;
        let mut child = kinship();
        let [reader, writer] = notes().unwrap();
        child.to_ancestors.push(writer);
        drop(reader);
        // A signal that is blocked is pending, though this process ignores it.
        let before = syscall::set_signal_mask(1 << (SIGPIPE - 1));
        child.note_let_go(ends(1));
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        syscall::set_signal_mask(before);
        assert!(status.contains("\nSigPnd:\t0000000000000000\n"), "{status}");
    }

    #[test]
    fn what_an_ancestor_leaves_when_it_ends_is_for_the_child_and_its_children() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1), ends(2)]);
        let mut child = kinship();
        child.to_ancestors.push(cord);
        for port in 1..4 {
            ancestor.keep_for_children(ends(port), syscall::eventfd().unwrap());
        }
        ancestor.leave_to_children();
        drop(ancestor);
        assert!(child.take_legacy(ends(1)).is_some() && child.take_legacy(ends(1)).is_none());
        assert!(child.take_legacy(ends(3)).is_none(), "it did not hold that");
        child.tie_cords(false, true);
        let kept_open = child.become_child();
        let left = child.take_legacy(ends(2)).expect("a grandchild has it too");
        assert!(kept_open.contains(&left.as_raw_fd()));
    }

    #[test]
    fn a_grandchild_holds_what_its_parent_lets_go_of() {
        let (mut grandparent, mut parent) = (kinship(), kinship());
        let [reader, writer] = notes().unwrap();
        grandparent.children.push(child(reader, &[ends(1), ends(2)]));
        parent.to_ancestors.push(writer);
        parent.note_let_go(ends(2));
        let grandchild = parent.cord_to(&parent.to_ancestors[0]).unwrap();
        parent.note_let_go(ends(1));
        grandparent.read_notes();
        assert!(grandparent.is_held_by_child(ends(1)));
        assert!(!grandparent.is_held_by_child(ends(2)), "it was gone before");
        parent.to_ancestors.clear();
        grandparent.read_notes();
        assert!(grandparent.is_held_by_child(ends(1)), "the grandchild goes on");
        drop(grandchild);
        grandparent.read_notes();
        assert!(!grandparent.is_held_by_child(ends(1)));
    }

    /// An ancestor, and a child's end of the cord to it, where the child holds these.
    fn ancestor_of(holds: &[Ends]) -> (Kinship, OwnedFd) {
        let mut ancestor = kinship();
        let [reader, writer] = notes().unwrap();
        ancestor.children.push(child(reader, holds));
        (ancestor, writer)
    }

    /// Says that a connection was let go of, so often as there is room.
    fn fill(cord: &OwnedFd, ends: Ends) -> usize {
        let note = [octets_of(ends.0), octets_of(ends.1)].concat();
        std::iter::repeat_with(|| syscall::write(cord.as_raw_fd(), &note))
            .take_while(|sent| sent.is_ok())
            .count()
    }

    #[test]
    fn a_child_that_says_much_is_read_in_parts() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1), ends(2)]);
        let said = fill(&cord, ends(1));
        ancestor.read_notes();
        let more = fill(&cord, ends(1));
        assert!(said > NOTES_MAX && (1..=NOTES_MAX).contains(&more), "{more} after {said}");
        assert!(ancestor.children[0].is_behind);
        for _ in 0..said {
            ancestor.read_notes();
        }
        assert!(!ancestor.children[0].is_behind && ancestor.is_held_by_child(ends(2)));
    }

    #[test]
    fn only_cords_are_taken_for_cords_and_what_may_be_held_stays_held() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1)]);
        let null = std::fs::File::open("/dev/null").unwrap();
        let [datagrams, _other] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0).unwrap();
        for other in [null.as_fd(), datagrams.as_fd()] {
            syscall::send_descriptor(cord.as_raw_fd(), &[A_CHILD], other).unwrap();
        }
        ancestor.read_notes();
        assert_eq!(ancestor.children.len(), 1);
        drop(cord);
        ancestor.read_notes();
        assert_eq!(ancestor.descriptors().count(), 0);
        assert!(ancestor.is_held_by_child(ends(1)), "whoever has it cannot say that it lets go");
    }

    #[test]
    fn a_cord_that_has_no_other_end_is_closed() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1)]);
        let alone = syscall::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0).unwrap();
        syscall::send_descriptor(cord.as_raw_fd(), &[A_CHILD], alone.as_fd()).unwrap();
        ancestor.read_notes();
        assert_eq!(ancestor.descriptors().count(), 1);
    }

    #[test]
    fn children_that_others_tell_of_are_bounded() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1)]);
        let mut cords = Vec::new();
        for _ in 0..CHILDREN_MAX + 10 {
            let [reader, writer] = notes().unwrap();
            syscall::send_descriptor(cord.as_raw_fd(), &[A_CHILD], reader.as_fd()).unwrap();
            cords.push(writer);
            ancestor.read_notes();
        }
        assert_eq!(ancestor.children.len(), CHILDREN_MAX);
        drop((cord, cords));
        ancestor.read_notes();
        assert!(ancestor.is_held_by_child(ends(1)), "by those that were too many, perhaps");
    }

    #[test]
    fn a_fork_waits_for_room_to_tell_of_it() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1), ends(2)]);
        let said = fill(&cord, ends(1));
        std::thread::scope(|scope| {
            let forking = scope.spawn(|| kinship().cord_to(&cord));
            std::thread::sleep(std::time::Duration::from_millis(20));
            for _ in 0..said {
                ancestor.read_notes();
            }
            let grandchild = forking.join().unwrap();
            assert!(grandchild.is_some());
            ancestor.read_notes();
            assert_eq!(ancestor.children.len(), 2);
        });
    }

    #[test]
    fn a_fork_does_not_wait_for_ever() {
        let (_ancestor, cord) = ancestor_of(&[ends(1)]);
        fill(&cord, ends(1));
        assert!(kinship().cord_to(&cord).is_none());
    }

    #[test]
    fn what_a_child_holds_whose_cord_found_no_number_stays_held() {
        let (mut ancestor, cord) = ancestor_of(&[ends(1)]);
        // As it arrives where the process has no free descriptor (MSG_CTRUNC).
        syscall::write(cord.as_raw_fd(), &[A_CHILD]).unwrap();
        drop(cord);
        ancestor.read_notes();
        assert_eq!(ancestor.descriptors().count(), 0);
        assert!(ancestor.is_held_by_child(ends(1)));
    }
}
