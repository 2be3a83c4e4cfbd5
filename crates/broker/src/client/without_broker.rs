//! What a client does when the broker is gone.
//!
//! ```text
//!               the broker was killed                   a broker is there
//!   Connected ─────────────────────────▶ Alone ─────────────────────────▶ Returning ──▶ Connected
//!       │                                  ▲  once a second, by a timer       │   │
//!       └──▶ gone: the broker has ended    └──────────────────────────────────┘   └──▶ gone: we have nothing there
//! ```
//!
//! None of it waits. `Client::fd` is the timer's while nobody is there, so whoever sleeps on it looks again, and no other thread is needed.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::event::Event;
use super::{Client, ClientError};
use crate::peer::Peer;
use crate::protocol::{Answer, News, Refusal, Request, ToBroker, Welcome, encode};
use crate::transfer::{Internal, discard, send};

/// Where the client is.
#[derive(Debug)]
pub(super) enum Line {
    /// The broker is there.
    Connected,
    /// It was killed.
    Alone,
    /// There is another one, which has yet to say what it knows of us.
    Returning {
        /// The request whose answer says so.
        id: u64,
        /// What it has said already.
        welcome: Option<Welcome>,
    },
}

/// How often a new broker is looked for: soon at first, then in this many seconds; after one of another version more seldom.
const LOOK_SECS: i64 = 1;
const LOOK_AFTER_ANOTHER_VERSION_SECS: i64 = 60;
const SOON_NANOS: i64 = 1_000_000;

impl Client {
    /// Whether what the broker has lent goes on without it, after this.
    pub(super) fn note_kept(&mut self, news: &News) {
        match news {
            News::QueueGranted(grant) => self.is_kept &= grant.is_kept,
            News::Closing => self.is_kept = false,
            _ => {}
        }
    }

    /// The connection has ended. If the broker was killed, and what it has lent goes on, all goes on without it.
    pub(super) fn on_end(&mut self) -> Result<(), ClientError> {
        if !self.is_kept {
            return Err(ClientError::Gone);
        }
        let first = if matches!(self.line, Line::Connected) { (0, SOON_NANOS) } else { (LOOK_SECS, 0) };
        self.be_alone(first)
    }

    /// Looks for a broker after that time, and then once a second.
    fn be_alone(&mut self, (secs, nanos): (i64, i64)) -> Result<(), ClientError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let it_interval = Timespec { tv_sec: secs.max(LOOK_SECS), tv_nsec: 0 };
        let times = Itimerspec { it_interval, it_value: Timespec { tv_sec: secs, tv_nsec: nanos } };
        let set = timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times).map(drop);
        let outcome = set.and_then(|()| self.socket.become_copy_of(&timer));
        discard(timer);
        outcome?;
        self.line = Line::Alone;
        self.unawaited.clear();
        self.unsent.clear();
        Ok(())
    }

    pub(super) fn is_left_alone(&self) -> bool {
        !matches!(self.line, Line::Connected)
    }

    /// Looks whether there is a broker by the name of ours, if it is time to, and says what we had of the last one.
    pub(super) fn look_for_broker(&mut self) -> Result<(), ClientError> {
        if rustix::io::read(&self.socket, &mut [0; 8]).is_err() {
            return Ok(()); // It is not time.
        }
        let Ok(socket) = self.reach_broker() else { return Ok(()) };
        let outcome = self.introduce(&socket);
        let outcome = outcome.and_then(|id| self.socket.become_copy_of(&socket).map(|()| id));
        discard(socket);
        // One that ends at once is looked for again.
        self.line = outcome.map_or(Line::Alone, |id| Line::Returning { id, welcome: None });
        Ok(())
    }

    /// A name that is free may be anybody's by now.
    fn reach_broker(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Internal::new(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?);
        connect(&socket, &SocketAddrUnix::new_abstract_name(&self.name)?)?;
        if Peer::of(&socket)?.is_root_or_oneself() { Ok(socket.into_inner()) } else { Err(Errno::PERM) }
    }

    /// Says who we are and what we have; returns the number of the latter request.
    fn introduce(&mut self, socket: &OwnedFd) -> Result<u64, Errno> {
        self.last_id += 1;
        let id = self.last_id;
        let queues = self.served.iter().map(|(link, queues)| (*link, queues.clone())).collect();
        let request = Request::Serve { queues, key: Some(self.key) };
        let message = encode(&ToBroker { id, request }).map_err(|_| Errno::MSGSIZE)?;
        send(socket.as_fd(), &self.hello, &[])?;
        send(socket.as_fd(), &message, &[])?;
        Ok(id)
    }

    /// An answer of a broker to which we return; false if it is to something else.
    pub(super) fn on_returning(&mut self, id: u64, answer: &Answer) -> Result<bool, ClientError> {
        let Line::Returning { id: awaited, welcome } = &mut self.line else { return Ok(false) };
        match answer {
            Answer::Welcome(it) => *welcome = Some(it.clone()),
            Answer::Refused(Refusal::Version(_)) => self.be_alone((LOOK_AFTER_ANOTHER_VERSION_SECS, 0))?,
            Answer::Done if id == *awaited => {
                let Some(mut welcome) = welcome.take() else { return Err(ClientError::OutOfPlace) };
                if self.served.is_empty() {
                    self.key = welcome.key;
                }
                welcome.key = self.key;
                self.line = Line::Connected;
                self.events.push_back(Event::Returned(Box::new(welcome)));
                if self.has_attached {
                    self.say(&Request::Queues { wanted: true }, &[])?;
                }
            }
            _ => return Err(ClientError::Gone),
        }
        Ok(true)
    }
}
