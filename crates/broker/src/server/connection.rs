//! One client's connection, and its queue of messages to send.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clock::Instant;
use observe::ControlListener;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::confinement::Filters;
use super::family::Kin;
use super::helpers::{Passed, Theirs};
use super::strangers::set_rights;
use crate::protocol::{Answer, FromBroker, Key, News, Options, ProgramReport, ProtocolError, encode};
use crate::registry::ClientId;
use crate::shares::User;
use crate::transfer::send;

/// Messages and octets that may wait for a client that does not read, beside what the kernel keeps.
const WAITING_MAX: usize = 1024;
const WAITING_OCTETS_MAX: usize = 1 << 20;
/// Descriptors that may wait with them.
const WAITING_FDS_MAX: usize = 256;

/// Why a client is disconnected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// It closed its end, or its process ended.
    #[error("it is gone")]
    Gone,
    /// It does not read its messages.
    #[error("it does not read its messages")]
    DoesNotRead,
    /// It sent something that is no message.
    #[error("{0}")]
    NoMessage(String),
    /// It asked for what it may not ask, or not then, or sent descriptors where none belong.
    #[error("it sent what it may not, or not then")]
    OutOfOrder,
    /// It has not said in time what is its own of what a killed broker has lent.
    #[error("it did not prove in time that it is a program of ours")]
    Stranger,
    /// What it sent is locked, or cannot be closed: see the page of `helpers`.
    #[error("looking at its sockets takes too long")]
    HoldsUp,
}

/// Why a client was not told of something.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untold {
    /// It fits no message. The client is not at fault, and stays connected.
    #[error(transparent)]
    TooLong(#[from] ProtocolError),
    /// The client is to be disconnected.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A process that is connected.
pub(super) struct Connection {
    socket: Theirs,
    /// Ends with the process, also if a child of it holds the socket.
    pub(super) pidfd: Option<OwnedFd>,
    /// Its process has ended, and so many messages are read yet that it may have sent before.
    pub(super) unread: Option<u32>,
    pub(super) pid: u32,
    pub(super) user: User,
    pub(super) filters: Filters,
    /// The other `sidestep run` whose program it is, if it is.
    pub(super) joined: Option<ClientId>,
    /// How it is to run.
    pub(super) options: Arc<Options>,
    /// It is no program that we know, since then: it may join, if it has the privileges of the broker, or come back with what a killed one has lent it.
    pub(super) stranger_since: Option<Instant>,
    /// The process that it claims to be, once it has said so.
    pub(super) program: Option<String>,
    pub(super) key: Key,
    /// What it said of itself last, and when.
    pub(super) report: Option<(ProgramReport, Instant)>,
    /// A report is on its way.
    pub(super) is_asked: bool,
    /// Its connections, which nobody else knows.
    pub(super) book: Option<Theirs>,
    /// Where tools find it.
    pub(super) control: Option<ControlListener>,
    waiting: VecDeque<(Vec<u8>, Vec<Passed>)>,
    waiting_octets: usize,
    waiting_fds: usize,
    /// Ways have changed, and it has not been told: once is enough, however often they do while it does not read.
    ways_changed: bool,
}

impl Connection {
    pub(super) fn new(
        socket: Theirs,
        pidfd: Option<OwnedFd>,
        (pid, user): (u32, User),
        key: Key,
        kin: &Kin,
    ) -> Connection {
        Connection {
            socket,
            pidfd,
            unread: None,
            pid,
            user,
            filters: Filters::at_start(pid, kin.head),
            joined: kin.joined,
            options: Arc::clone(&kin.options),
            stranger_since: None,
            program: None,
            key,
            report: None,
            is_asked: false,
            book: None,
            control: None,
            waiting: VecDeque::new(),
            waiting_octets: 0,
            waiting_fds: 0,
            ways_changed: false,
        }
    }

    /// It turns out to be this one's program.
    pub(super) fn note_kin(&mut self, kin: &Kin) {
        (self.joined, self.options) = (kin.joined, Arc::clone(&kin.options));
    }

    /// Whether it has said which program it is, and is one of ours.
    pub(super) fn is_program(&self) -> bool {
        self.program.is_some() && !self.is_stranger()
    }

    /// Whether it is no program that we know.
    pub(super) fn is_stranger(&self) -> bool {
        self.stranger_since.is_some()
    }

    /// It has proven whose it is. Now it may send descriptors, too.
    pub(super) fn admit(&mut self) {
        if self.stranger_since.take().is_some() {
            set_rights(&self.socket, true);
        }
    }

    /// The client was a killed broker's. If it has proven that by its queues, it keeps the key that it had.
    pub(super) fn note_return(&mut self, key: Key, is_proven: bool) {
        self.filters = Filters::at_return(self.pid);
        if is_proven {
            self.key = key;
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// One more descriptor of the way to the client, for a helper.
    pub(super) fn socket_again(&self) -> std::io::Result<Theirs> {
        self.socket.try_clone()
    }

    pub(super) fn answer(&mut self, id: u64, answer: Answer, fds: Vec<Passed>) -> Result<(), Fault> {
        // Whatever has no bound of its own is cut before: addresses, texts.
        let octets = encode(&FromBroker::Answer { id, answer });
        self.push(octets.map_err(|error| Fault::NoMessage(error.to_string()))?, fds)
    }

    pub(super) fn tell(&mut self, news: News, fds: Vec<Passed>) -> Result<(), Untold> {
        let octets = encode(&FromBroker::News(news))?;
        Ok(self.push(octets, fds)?)
    }

    /// Tells of ways that have changed, when what waits before that is read.
    pub(super) fn tell_ways_changed(&mut self) -> Result<(), Fault> {
        self.ways_changed = true;
        self.flush()
    }

    fn push(&mut self, octets: Vec<u8>, fds: Vec<Passed>) -> Result<(), Fault> {
        self.waiting_octets += octets.len();
        self.waiting_fds += fds.len();
        self.waiting.push_back((octets, fds));
        self.flush()?;
        let too_much = self.waiting.len() > WAITING_MAX
            || self.waiting_octets > WAITING_OCTETS_MAX
            || self.waiting_fds > WAITING_FDS_MAX;
        if too_much { Err(Fault::DoesNotRead) } else { Ok(()) }
    }

    /// Sends what can be sent now.
    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        self.flush_waiting()?;
        if self.waiting.is_empty() && std::mem::take(&mut self.ways_changed) {
            let octets = encode(&FromBroker::News(News::WaysChanged)).expect("it is a few octets");
            self.push(octets, Vec::new())?;
        }
        Ok(())
    }

    fn flush_waiting(&mut self) -> Result<(), Fault> {
        while let Some((octets, fds)) = self.waiting.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match send(&self.socket, octets, &borrowed) {
                Ok(()) => {
                    self.waiting_octets -= octets.len();
                    self.waiting_fds -= fds.len();
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN) => return Ok(()),
                // ETOOMANYREFS: descriptors in flight count as the sender's, until they are received.
                Err(Errno::TOOMANYREFS) => return Err(Fault::DoesNotRead),
                // It has closed its end. Its last requests may be unread, and behind these is the end.
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.waiting.clear();
                    (self.waiting_octets, self.waiting_fds) = (0, 0);
                }
                Err(_) => return Err(Fault::Gone),
            }
        }
        Ok(())
    }

    /// Whether something waits for the client to read.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether others may have things told to it: what they cause must never be what it is disconnected for.
    pub(super) fn is_patient(&self) -> bool {
        self.waiting.len() < WAITING_MAX / 4
            && self.waiting_octets < WAITING_OCTETS_MAX / 4
            && self.waiting_fds < WAITING_FDS_MAX / 4
    }
}

impl Drop for Connection {
    /// The client sees the end at once, not only when a helper closes the socket.
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both); // It may be gone.
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::family::{Families, Family, options};
    use super::*;
    use crate::protocol::decode;
    use crate::transfer::{Arrival, Inbox};

    /// A client's connection, and its own end.
    fn connection() -> (Connection, OwnedFd) {
        let (ours, its) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let ours = Theirs::new(ours, 0, &Arc::default());
        let families = Families::new(Family { head: 1, group: None }, options("usual"));
        (Connection::new(ours, None, (1, 0), Key([0; 2]), families.own()), its)
    }

    fn read_all(socket: &OwnedFd) -> usize {
        let mut inbox = Inbox::new();
        std::iter::from_fn(|| match inbox.receive(socket, |fd| fd).unwrap() {
            Arrival::Message(parcel) => Some(decode::<FromBroker>(parcel.octets).unwrap()),
            Arrival::Nothing | Arrival::End => None,
        })
        .inspect(|message| assert_eq!(*message, FromBroker::News(News::WaysChanged)))
        .count()
    }

    #[test]
    fn who_does_not_read_for_long_is_told_once_that_ways_have_changed() {
        let (mut connection, its) = connection();
        for _ in 0..100_000 {
            connection.tell_ways_changed().unwrap();
        }
        assert!(connection.is_patient(), "what the kernel cannot take waits in one place");
        assert!(read_all(&its) > 0);
        connection.flush().unwrap();
        assert!((1..=2).contains(&read_all(&its)), "what waited, and what changed behind it");
        connection.flush().unwrap();
        assert_eq!(read_all(&its), 0);
    }

    #[test]
    fn who_does_not_read_what_is_its_own_is_at_fault() {
        let (mut connection, _its) = connection();
        let told = (0..100_000).try_for_each(|_| connection.tell(News::WaysChanged, Vec::new()));
        assert!(matches!(told, Err(Untold::Fault(Fault::DoesNotRead))), "{told:?}");
    }

    #[test]
    fn news_that_fit_no_message_are_left_out_and_others_arrive() {
        let (mut connection, its) = connection();
        let clamps = vec![("2001:db8::".parse().unwrap(), 64, 1400); 10_000];
        let told = connection.tell(News::SegmentsClamped { clamps }, Vec::new());
        assert!(matches!(told, Err(Untold::TooLong(_))), "{told:?}");
        connection.tell(News::WaysChanged, Vec::new()).unwrap();
        assert_eq!(read_all(&its), 1);
    }
}
