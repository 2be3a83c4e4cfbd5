//! Connections that move to the kernel.
//!
//! ```text
//!   the kernel has the socket, silent --> packets are passed to the kernel --> the kernel starts to send
//! ```
//!
//! The order matters: the kernel answers a segment that arrives before its socket exists with a reset. The client passes on segments
//! that arrive at its queue until then, and the kernel receives them as if they arrived now. Only the client that had the connection may do
//! that, and only for a moment; otherwise a client could send in the name of other clients' peers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clock::Instant;
use control::sock_diag::{end_time_wait, tcp_connections};
use rustix::fs::Uid;
use rustix::net::sockopt::socket_cookie;
use steering::Transport;
use tcp_repair::{Enqueuing, extra_memory, prepare};
use transit::Established;

use super::accept_queues::{Ends, check_listener, not_taken, place};
use super::aside::PATIENCE_TO_MOVE;
use super::broker::Broker;
use super::helpers::{Passed, Theirs};
use super::kernel_memory::Reservation;
use super::outcome::Outcome;
use super::under_way::{BrokerThread, Said};
use crate::moving::{decide, unpack};
use crate::protocol::{Answer, ENQUEUED_MAX, FromBroker, Moving, Refusal, encode};
use crate::registry::ClientId;
use crate::shares::User;
use crate::transfer::send;

impl Broker {
    /// Makes the kernel's socket of a client's connection: a helper's work, as it copies all octets, and may wait for the kernel to hear
    /// something of the peer's. Its local end must be one that the client has claimed: it cannot speak for others.
    pub(super) fn take_over(
        &mut self,
        (client, id): (ClientId, u64),
        (moving, offered): (Moving, bool),
        file: Option<Theirs>,
        now: Instant,
    ) -> Outcome {
        let ends = (moving.connection.local, moving.connection.remote);
        self.check_move(client, ends)?;
        let sending = moving.unacked_len as usize + moving.unsent_len as usize;
        let octets = extra_memory(sending, moving.received_len as usize);
        let reservation = self.reserve_memory(client, octets, now)?;
        let user = self.user_of(client);
        let to = self.connections.get(&client).and_then(|connection| connection.socket_again().ok());
        let make = move |broker: &BrokerThread<Broker>| {
            let kind = moving.socket;
            let connection = unpack(moving, file.as_ref().map(AsFd::as_fd), 0);
            let prepared = connection.and_then(|connection| prepare(connection, kind, make_way));
            // From here on its client waits, however long this takes.
            let is_ours = !offered || file.as_ref().is_some_and(decide);
            file.into_iter().for_each(Theirs::close);
            let prepared = prepared.map_err(not_taken)?;
            if !is_ours {
                return Err(Refusal::TooLate);
            }
            broker
                .ask(move |broker, now| broker.let_pass(client, ends, now))
                .ok_or(Refusal::NoSuchClaim)??;
            // Its packets go to the kernel by now, which may have sent something.
            let socket = prepared.start().map_err(|error| Refusal::Lost(error.to_string()))?;
            make_owner(user, &socket);
            let cookie = socket_cookie(&socket).ok();
            let is_sent = is_sent_ahead(to, &FromBroker::Ahead { id }, &socket);
            Ok(Made { cookie, unsent: (!is_sent).then_some(socket), reservation })
        };
        let then = move |broker: &mut Broker, made: Result<Made, Refusal>, now: Instant| {
            let Made { cookie, unsent, reservation } = made?;
            if let Some(cookie) = cookie {
                broker.kernel_memory.hold(cookie, ends.0.port(), reservation);
            }
            let unsent = unsent.map(|socket| Theirs::new(socket, user, &broker.helpers).into());
            broker.note_move(client, ends, now);
            Ok(Some((Answer::Moved, unsent)))
        };
        let outcome = self.set_aside((client, id), make, then, now);
        self.under_way.set_deadline(client, now + PATIENCE_TO_MOVE);
        outcome
    }

    /// Connections of the client's wait at a listener of its, and go to the kernel's accept queue: a helper's work.
    pub(super) fn enqueue(
        &mut self,
        (client, id): (ClientId, u64),
        (movings, offered): (Vec<Moving>, bool),
        (listener, file): (Theirs, Option<Theirs>),
        now: Instant,
    ) -> Outcome {
        if movings.len() > ENQUEUED_MAX {
            return Err(Refusal::TooMany);
        }
        let waiting = self.examine_waiting(client, movings);
        let queues = self.accept_queues.clone();
        let make = move |broker: &BrokerThread<Broker>| {
            let from = file.as_ref().map(AsFd::as_fd);
            let waiting = waiting.into_iter().map(|waiting| waiting?.unpack(listener.as_fd(), from));
            let waiting: Vec<Result<Established, Refusal>> = waiting.collect();
            let is_ours = !offered || file.as_ref().is_some_and(decide);
            file.into_iter().for_each(Theirs::close);
            if !is_ours {
                listener.close();
                return Err(Refusal::TooLate);
            }
            let let_pass = |all: Vec<Ends>| {
                let let_pass = move |broker: &mut Broker, now| {
                    all.iter().map(|ends| broker.let_pass(client, *ends, now)).collect()
                };
                broker.ask(let_pass).ok_or(Refusal::NoSuchClaim)
            };
            let placed = place(&queues, listener.as_fd(), &waiting, let_pass);
            listener.close();
            Ok(placed)
        };
        type Placed = Vec<Result<Ends, Refusal>>;
        let then = move |broker: &mut Broker, placed: Result<Placed, Refusal>, now: Instant| {
            let mut refused = Vec::new();
            for (at, placed) in placed?.into_iter().enumerate() {
                match placed {
                    Ok(ends) => broker.note_move(client, ends, now),
                    Err(refusal) => refused.push((at, refusal)),
                }
            }
            Ok(Some((Answer::Enqueued { refused }, None)))
        };
        let outcome = self.set_aside((client, id), make, then, now);
        self.under_way.set_deadline(client, now + PATIENCE_TO_MOVE);
        outcome
    }

    /// Those of these that may wait in an accept queue, before anything is read of them: a client may have filled the file with what it likes.
    fn examine_waiting(&self, client: ClientId, movings: Vec<Moving>) -> Vec<Result<Waiting, Refusal>> {
        let mut next_at = 0;
        let examined = movings.into_iter().map(|moving| {
            let lens = [moving.received_len, moving.unacked_len, moving.unsent_len];
            let at = next_at;
            next_at += lens.into_iter().map(u64::from).sum::<u64>();
            let ends = (moving.connection.local, moving.connection.remote);
            self.check_move(client, ends)?;
            if Enqueuing::is_too_much(moving.received_len as usize) || lens[1..] != [0, 0] {
                return Err(not_taken("it has more than the kernel can be told"));
            }
            Ok(Waiting { moving, at, listeners: self.registry.listeners_at(client, ends.0) })
        });
        examined.collect()
    }

    fn reserve_memory(
        &mut self,
        client: ClientId,
        octets: usize,
        now: Instant,
    ) -> Result<Reservation, Refusal> {
        let user = self.user_of(client);
        let reserved = self.kernel_memory.reserve(user, octets, tcp_connections, now);
        reserved
            .ok_or_else(|| Refusal::NotTaken("this user's connections have too much data there".to_owned()))
    }

    fn check_move(&self, client: ClientId, (local, remote): (SocketAddr, SocketAddr)) -> Result<(), Refusal> {
        if !self.registry.covers(client, Transport::Tcp, local) {
            return Err(Refusal::NoSuchClaim);
        }
        // The address may have moved away; and no peer of this host's came by an interface.
        self.check_is_local(local)?;
        let is_local = local.ip().is_loopback() || self.is_own(remote);
        if is_local { Err(Refusal::Local) } else { Ok(()) }
    }

    /// Packets of the connection reach the kernel, which has its socket; unless somebody else listens there by now.
    fn let_pass(
        &mut self,
        client: ClientId,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<(), Refusal> {
        self.check_move(client, (local, remote))?;
        let marks = self.registry.marks(local.port());
        let noted: Vec<bool> =
            self.ports.iter_mut().map(|port| port.add_kernel_flow(local, remote, marks)).collect();
        if noted.contains(&false) {
            return Err(Refusal::NotTaken("its packets could not be led to the kernel".to_owned()));
        }
        self.registry.note_moved(local, now);
        self.settle_registry(now);
        Ok(())
    }

    /// The kernel has a connection of the client's, whose packets come to it by now.
    fn note_move(&mut self, client: ClientId, ends: (SocketAddr, SocketAddr), now: Instant) {
        self.moves.insert(client, ends, now);
        let strayed = self.strays.on_moved(ends);
        self.settle_strays(strayed, Ok(()), now);
    }

    /// Gives the kernel a segment that came to the client for a connection which it has just moved.
    pub(super) fn deliver_late(
        &mut self,
        client: ClientId,
        (local, remote): (SocketAddr, SocketAddr),
        segment: &[u8],
        now: Instant,
    ) -> Result<(), Refusal> {
        if !self.moves.contains(client, (local, remote), now) {
            return Err(Refusal::NoSuchClaim);
        }
        self.check_is_local(local)?;
        tcp_repair::deliver(local, remote, segment).map_err(not_taken)
    }
}

/// A connection that waits to be accepted.
struct Waiting {
    moving: Moving,
    /// Where its octets begin in the file.
    at: u64,
    /// The cookies of listeners at which it may wait.
    listeners: BTreeSet<u64>,
}

impl Waiting {
    fn unpack(self, listener: BorrowedFd<'_>, file: Option<BorrowedFd<'_>>) -> Result<Established, Refusal> {
        check_listener(listener, &self.listeners)?;
        unpack(self.moving, file, self.at).map_err(not_taken)
    }
}

/// A connection that the kernel has by now.
struct Made {
    cookie: Option<u64>,
    /// Its socket, if its client does not have it.
    unsent: Option<OwnedFd>,
    reservation: Reservation,
}

/// Sends a client a socket ahead of the answer, or the news, that is about it. The caller closes its own copy before that one follows: an epoll instance
/// tells of a file as long as anybody has it, and a connection ends with its last descriptor, so what a program closes is to be closed. False
/// if the client has no room: then the socket goes with the answer.
fn is_sent_ahead(to: Option<Theirs>, message: &FromBroker, socket: impl AsFd) -> bool {
    let octets = encode(message).ok();
    let is_sent =
        to.as_ref().zip(octets).is_some_and(|(to, octets)| send(to, &octets, &[socket.as_fd()]).is_ok());
    to.into_iter().for_each(Theirs::close);
    is_sent
}

impl Broker {
    /// Sends a client a connection's socket, closes it here, and has `then` tell it what that is; with the socket, if it had no room.
    pub(super) fn send_and_close(
        &mut self,
        (to, message): (ClientId, FromBroker),
        socket: Theirs,
        then: impl FnOnce(&mut Broker, Vec<Passed>, Instant) + Send + 'static,
    ) {
        self.sending += 1;
        let line = self.under_way.line_for_nobody();
        let to = self.connections.get(&to).and_then(|connection| connection.socket_again().ok());
        socket.have_done(move |socket| {
            let unsent = match is_sent_ahead(to, &message, &socket) {
                true => {
                    socket.close();
                    Vec::new()
                }
                false => vec![socket.into()],
            };
            line.say(Said::Asks(Box::new(move |broker, now| {
                broker.sending -= 1;
                then(broker, unsent, now);
            })));
        });
    }
}

/// An earlier connection of these ends that the kernel has in TIME-WAIT goes; it says what is wrong to whoever needs that.
fn make_way(local: SocketAddr, remote: SocketAddr) {
    let _ = end_time_wait(local, remote); // Without it the kernel is as it was.
}

/// The socket is the user's own, as one that the program had opened: firewalls and routes look at that, as do we when a listener shares a
/// port with others. Only root's broker can do that; another has no other users' clients.
fn make_owner(user: User, socket: impl AsFd) {
    let _ = rustix::fs::fchown(socket.as_fd(), Some(Uid::from_raw(user)), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_gets_is_the_users() {
        if !rustix::process::geteuid().is_root() {
            return lab::skip("needs root to give a socket away");
        }
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        make_owner(1234, &socket);
        assert_eq!(rustix::fs::fstat(&socket).unwrap().st_uid, 1234);
    }
}
