//! What a client does when the broker is gone.
//!
//! ```text
//!               the broker was killed                   a broker is there
//!   Connected ─────────────────────────▶ Alone ─────────────────────────▶ Returning ──▶ Connected
//!       │                                  ▲  once a second, by a timer       │   │
//!       └──▶ gone: the broker has ended    └──────────────────────────────────┘   └──▶ gone: we have nothing there
//! ```
//!
//! None of it waits. `Client::fd` is the timer's while nobody is there, so whoever sleeps on it looks again, and no other thread is needed. A
//! program that has no descriptor left for a timer looks when it comes by.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::event::{Event, event};
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
    Alone {
        /// When another one is looked for, if there is no timer that says so.
        looks_at: Option<Instant>,
        /// How often one was looked for in short intervals: who has joined the last one may be about to take its place.
        early: u32,
    },
    /// There is another one, which has yet to say what it knows of us.
    Returning {
        /// The request whose answer says so.
        id: u64,
        /// What it has said already.
        welcome: Option<Welcome>,
        /// How often one was looked for in short intervals before this one was found.
        early: u32,
    },
}

/// How often a new broker is looked for: soon, then often for a second, and then once a second; after one of another version more seldom.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const AFTER_ANOTHER_VERSION: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(1);
const EARLY_EVERY: Duration = Duration::from_millis(50);
const EARLY_MAX: u32 = 20;

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
        let early = match self.line {
            Line::Connected => 0,
            // The one that was killed may have been found once more, as not all that it had is closed at the same time.
            Line::Returning { early, .. } | Line::Alone { early, .. } => early + 1,
        };
        self.be_alone(if early == 0 { SOON } else { pause(early) }, early);
        Ok(())
    }

    /// Looks for a broker after that time, and then again and again; one was looked for so often already in short intervals.
    fn be_alone(&mut self, first: Duration, early: u32) {
        let timed = timer(first, pause(early).max(first)).and_then(|timer| {
            let outcome = self.socket.become_copy_of(&timer);
            discard(timer);
            outcome
        });
        self.line = Line::Alone { looks_at: timed.is_err().then(|| Instant::now() + first), early };
        self.lost_to = self.last_id;
        // Nobody says any more that they are ours alone, and they are.
        let given = std::mem::take(&mut self.ahead_of_news).into_iter();
        self.events.extend(given.filter_map(|(news, fds)| event(news, fds).ok().flatten()));
        self.unawaited.clear();
        self.unsent.clear();
    }

    /// Whether no answer to a request will come.
    pub(super) fn is_lost(&self, id: u64) -> bool {
        self.is_left_alone() || id <= self.lost_to
    }

    /// Whether the broker was killed, and no other one is there yet.
    pub fn is_left_alone(&self) -> bool {
        !matches!(self.line, Line::Connected)
    }

    /// Whether the broker was killed a moment ago, and who had joined it may be about to take its place.
    pub(crate) fn may_be_followed(&self) -> bool {
        match self.line {
            Line::Connected => false,
            Line::Alone { early, .. } => early < EARLY_MAX,
            Line::Returning { .. } => true,
        }
    }

    /// Looks whether there is a broker by the name of ours, if it is time to, and says what we had of the last one.
    pub(super) fn look_for_broker(&mut self) -> Result<(), ClientError> {
        let is_time = match self.line {
            Line::Alone { looks_at: Some(at), .. } => Instant::now() >= at,
            _ => rustix::io::read(&self.socket, &mut [0; 8]).is_ok(),
        };
        if !is_time {
            return Ok(());
        }
        let returning = self.reach_broker().and_then(|socket| {
            let outcome = self.introduce(&socket);
            let outcome = outcome.and_then(|id| self.socket.become_copy_of(&socket).map(|()| id));
            discard(socket);
            outcome
        });
        match (returning, &mut self.line) {
            (Ok(id), Line::Alone { early, .. } | Line::Returning { early, .. }) => {
                self.line = Line::Returning { id, welcome: None, early: *early };
            }
            (Ok(id), Line::Connected) => self.line = Line::Returning { id, welcome: None, early: 0 },
            // There may be a descriptor for a timer by now.
            (Err(_), Line::Alone { looks_at: Some(_), .. }) => self.be_alone(LOOK_EVERY, EARLY_MAX),
            (Err(_), Line::Alone { early, .. }) if *early < EARLY_MAX => {
                *early += 1;
                if *early == EARLY_MAX {
                    self.be_alone(LOOK_EVERY, EARLY_MAX);
                }
            }
            (Err(_), _) => {} // One that ends at once is looked for again.
        }
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
        let Line::Returning { id: awaited, welcome, .. } = &mut self.line else { return Ok(false) };
        match answer {
            Answer::Welcome(it) => *welcome = Some(it.clone()),
            Answer::Refused(Refusal::Version(_)) => self.be_alone(AFTER_ANOTHER_VERSION, EARLY_MAX),
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

/// How long it is until a broker is looked for again, after so many times in short intervals.
fn pause(early: u32) -> Duration {
    if early < EARLY_MAX { EARLY_EVERY } else { LOOK_EVERY }
}

/// A timer that becomes readable after the first time, and again and again after the second.
fn timer(first: Duration, interval: Duration) -> Result<OwnedFd, Errno> {
    #[cfg(test)]
    if LACKS_DESCRIPTORS.get() {
        return Err(Errno::MFILE);
    }
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let [it_interval, it_value] = [interval, first].map(|time| Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let times = Itimerspec { it_interval, it_value };
    match timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times) {
        Ok(_) => Ok(timer),
        Err(error) => {
            discard(timer);
            Err(error)
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Whether this thread's process is as at its limit of descriptors.
    pub(crate) static LACKS_DESCRIPTORS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
