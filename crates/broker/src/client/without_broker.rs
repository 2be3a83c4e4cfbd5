//! What a client does when the broker is gone.

use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::exchange::wait_for;
use super::{Client, ClientError, PATIENCE};
use crate::peer::Peer;
use crate::protocol::News;
use crate::transfer::{Arrival, Inbox, Internal, discard, send};

/// What of the queues goes on if the broker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// There are none.
    Nothing,
    /// All.
    All,
    /// Not all, or the broker has ended all.
    NotAll,
}

/// What is known of a broker.
enum Presence {
    Known(bool),
    /// It has accepted the connection, and does not answer.
    Silent,
}

/// Between two questions whether it is there.
const PAUSE: Duration = Duration::from_millis(20);

impl Keeps {
    pub(super) fn after(self, news: &News) -> Keeps {
        match news {
            News::QueueGranted(grant) if grant.is_kept && self != Keeps::NotAll => Keeps::All,
            News::QueueGranted(_) | News::Closing => Keeps::NotAll,
            _ => self,
        }
    }
}

impl Client {
    /// The connection has ended. If the broker was killed, and what it has lent goes on, all goes on without it.
    pub(super) fn on_end(&mut self) -> Result<(), ClientError> {
        if self.keeps != Keeps::All || self.has_broker() {
            return Err(ClientError::Gone);
        }
        let silent = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let outcome = self.socket.become_copy_of(&silent);
        discard(silent);
        outcome?;
        self.is_left_alone = true;
        self.unawaited.clear();
        self.unsent.clear();
        Ok(())
    }

    /// Whether there is a broker by the name of ours. Only a refused connection shows that there is none: one that is being killed may accept
    /// connections until the kernel closes its socket, and one that lives may be too busy to answer, or not admit us. A name that is free may
    /// be anybody's by now.
    fn has_broker(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.ask_for_broker(until) {
                Ok(Presence::Known(is_there)) => return is_there,
                Ok(Presence::Silent) | Err(Errno::PIPE | Errno::CONNRESET) if Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                _ => return true,
            }
        }
    }

    fn ask_for_broker(&self, until: Instant) -> Result<Presence, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Internal::new(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?);
        match connect(&socket, &SocketAddrUnix::new_abstract_name(&self.name)?) {
            Err(Errno::CONNREFUSED) => return Ok(Presence::Known(false)),
            outcome => outcome?,
        }
        if !Peer::of(&socket)?.is_root_or_oneself() {
            return Ok(Presence::Known(false));
        }
        send(&socket, &self.hello, &[])?;
        let answers = wait_for(&socket, PollFlags::IN, until)?;
        let mut inbox = Inbox::new();
        let answers = answers && matches!(inbox.receive(&socket, Internal::new)?, Arrival::Message(_));
        Ok(if answers { Presence::Known(true) } else { Presence::Silent })
    }
}
