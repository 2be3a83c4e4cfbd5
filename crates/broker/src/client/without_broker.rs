//! What a client does when the broker is gone.

use std::time::Instant;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::exchange::wait_for;
use super::{Client, ClientError, PATIENCE};
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

    /// Whether a broker answers by the name of ours. One that is being killed may accept connections until the kernel closes its socket.
    fn has_broker(&self) -> bool {
        let asked = || -> Result<bool, Errno> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = Internal::new(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?);
            match connect(&socket, &SocketAddrUnix::new_abstract_name(&self.name)?) {
                Err(Errno::CONNREFUSED) => return Ok(false),
                outcome => outcome?,
            }
            send(&socket, &self.hello, &[])?;
            let answers = wait_for(&socket, PollFlags::IN, Instant::now() + PATIENCE)?;
            let arrival = Inbox::new()
                .receive(&socket, Internal::new)
                .map(|arrival| matches!(arrival, Arrival::Message(_)));
            Ok(answers && arrival?)
        };
        !matches!(asked(), Ok(false) | Err(Errno::PIPE | Errno::CONNRESET))
    }
}
