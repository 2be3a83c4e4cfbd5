//! Tools that observe programs. A program that serves a queue has a control socket. The broker owns that socket, because the program
//! may by now have another user, root directory or parent; it passes each connection to the program.

use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use clock::Instant;
use observe::{ControlListener, refusal};
use rustix::event::epoll::{self, EventFlags};
use rustix::net::{SendFlags, send};

use super::broker::{Broker, watch};
use super::names::name_of;
use super::notice::Notice;
use super::token;
use crate::peer::Peer;
use crate::protocol::News;
use crate::registry::ClientId;

/// Tools that are accepted in one turn.
const ACCEPTS_MAX: usize = 16;
/// Reported once for each connection: a tool that cannot be accepted, because there is no descriptor, waits for the next one.
const FLAGS: EventFlags = EventFlags::IN.union(EventFlags::ET);

impl Broker {
    /// A client has an engine from now on: tools may look at it.
    pub(super) fn show(&mut self, client: ClientId) {
        let Some(directory) = &self.observed_in else { return };
        let Some(connection) = self.connections.get(&client) else { return };
        if connection.control.is_some() {
            return;
        }
        let pid = connection.pid;
        // Who executed another program may still be there as who it was before, if a child has its connection.
        let same = self.connections.values_mut().filter(|other| other.pid == pid);
        same.for_each(|other| other.control = None);
        let control = ControlListener::of_process(directory, pid).and_then(|control| {
            watch(&self.epoll, &control, token::control(client), FLAGS)?;
            Ok(control)
        });
        match (control, self.connections.get_mut(&client)) {
            (Ok(control), Some(connection)) => connection.control = Some(control),
            (Err(error), _) => self.notices.push(Notice::Hidden { pid, error: error.to_string() }),
            (Ok(_), None) => {}
        }
    }

    /// Passes the connections of tools to the client.
    pub(super) fn introduce(&mut self, client: ClientId, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            let Some(connection) = self.connections.get(&client) else { return };
            let accepted = connection.control.as_ref().map(ControlListener::accept);
            let Some(Ok(Some(tool))) = accepted else { return };
            let pid = connection.pid;
            if check_peer(&tool).is_err() {
                continue;
            }
            if !connection.is_patient() {
                turn_away(&tool, "the program does not read its messages");
            } else if connection.filters.are_more_now(pid) {
                turn_away(&tool, "the program has a seccomp filter, which may end it for what looking takes");
            } else {
                let program = name_of(pid, connection.program.as_deref().unwrap_or_default());
                self.tell(client, News::Observer { pid, program }, vec![OwnedFd::from(tool).into()], now);
            }
        }
        if let Some(control) = self.connections.get(&client).and_then(|it| it.control.as_ref()) {
            let data = epoll::EventData::new_u64(token::control(client));
            let _ = epoll::modify(&self.epoll, control, data, FLAGS); // Tells again of those who wait; takes no memory.
        }
    }
}

/// The socket's permissions admit only root and the same user; so do we.
fn check_peer(tool: &UnixStream) -> Result<()> {
    let is_welcome = Peer::of(tool)?.is_root_or_oneself();
    if is_welcome { Ok(()) } else { Err(Error::from(std::io::ErrorKind::PermissionDenied)) }
}

/// Tells a tool why it sees nothing: fits the socket's buffer, or the tool has gone.
fn turn_away(tool: &UnixStream, reason: &str) {
    let _ = send(tool, &refusal(reason), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
