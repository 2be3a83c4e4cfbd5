//! What comes without being asked for, and its descriptors.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::ClientError;
use crate::protocol::{ClaimId, Grant, News, Refusal, Welcome};
use crate::transfer::discard;

/// What came without being asked for.
#[derive(Debug)]
pub enum Event {
    /// Queues are ours, in addition to those that we have.
    QueueGranted(Granted),
    /// A connection to be accepted at a listener of ours.
    Adopt {
        /// The listener's claim.
        claim: ClaimId,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The kernel's socket.
        socket: OwnedFd,
    },
    /// A tool that observes this process.
    Observer {
        /// What the process is called there.
        pid: u32,
        /// What the program is.
        program: String,
        /// The connection, for [`observe::attend`].
        stream: OwnedFd,
    },
    /// Another broker has taken the place of one that was killed, and knows our queues. Claims are to be made again, by
    /// [`Client::claim_again`](super::Client::claim_again).
    Returned(Box<Welcome>),
    /// Any other, which has no descriptors.
    News(News),
}

/// Queues, and what makes a device of them.
#[derive(Debug)]
pub struct Granted {
    /// Which queues.
    pub grant: Grant,
    /// The packet memory.
    pub memory: OwnedFd,
    /// One socket for each queue, in the order of [`Grant::queues`].
    pub sockets: Vec<OwnedFd>,
}

/// What [`Client::attach`](super::Client::attach) gave.
#[derive(Debug)]
pub struct Attached {
    /// Queues that are ours from now on.
    pub granted: Vec<Granted>,
    /// Interfaces, by link, of which no queue is, and why. It may come later as an [`Event::QueueGranted`].
    pub without: Vec<(u16, Refusal)>,
}

/// News with the descriptors that belong to them. What came when this process had no free descriptor came in vain: a connection is
/// lost, queues stay silent, tools may connect again.
pub(super) fn event(news: News, mut fds: Vec<OwnedFd>) -> Result<Option<Event>, ClientError> {
    match news {
        News::QueueGranted(grant) if fds.len() == grant.layout.sockets() + 1 => {
            let sockets = fds.split_off(1);
            let memory = fds.pop().expect("there is one more than sockets");
            Ok(Some(Event::QueueGranted(Granted { grant, memory, sockets })))
        }
        News::Adopt { claim, local, remote } if fds.len() == 1 => {
            let socket = fds.pop().expect("there is one");
            Ok(Some(Event::Adopt { claim, local, remote, socket }))
        }
        News::Observer { pid, program } if fds.len() == 1 => {
            Ok(fds.pop().map(|stream| Event::Observer { pid, program, stream }))
        }
        News::QueueGranted(_) | News::Adopt { .. } | News::Observer { .. } if fds.is_empty() => Ok(None),
        News::QueueGranted(_) | News::Adopt { .. } | News::Observer { .. } => Err(ClientError::OutOfPlace),
        news => {
            fds.into_iter().for_each(discard);
            Ok(Some(Event::News(news)))
        }
    }
}

/// All of them at numbers of `floor` or higher, as far as there is room.
pub(super) fn raise_all(fds: impl Iterator<Item = OwnedFd>, floor: RawFd) -> Vec<OwnedFd> {
    let (raised, failed): (Vec<_>, Vec<_>) = fds.map(|fd| raise(fd, floor)).partition(Result::is_ok);
    let mut raised: Vec<OwnedFd> = raised.into_iter().flatten().collect();
    if !failed.is_empty() {
        raised.drain(..).for_each(discard);
    }
    raised
}

/// The same file at a number of `floor` or higher; below it if the program has lowered its limit since (`setrlimit(2)`).
pub(super) fn raise(fd: OwnedFd, mut floor: RawFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() >= floor {
        return Ok(fd);
    }
    let mut raised = fcntl_dupfd_cloexec(&fd, floor);
    while matches!(raised, Err(Errno::INVAL)) && floor > 1 {
        floor = floor / 4 * 3;
        raised = fcntl_dupfd_cloexec(&fd, floor);
    }
    if matches!(raised, Err(Errno::MFILE)) {
        return Ok(fd); // All from there on are taken. It is better in the program's way than nowhere.
    }
    discard(fd);
    raised
}
