//! Connections that move to the kernel, and connections that have moved.

use std::os::fd::{AsRawFd, OwnedFd};

use clock::{Duration, Instant};
use stack::Stack;
use stack::tcp::Detached;

use transit::SocketKind;

use crate::broker_side::NotMoved;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Closing, State};
use crate::queue::AcceptedAs;
use crate::socket::settings::Settings;
use crate::socket::{Place, Role};

/// What becomes of a connection that the kernel does not take, or not at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// It cannot stay where it is: it waits for as long as it takes, with the process's lock, and is lost if it is refused.
    Must,
    /// The same, but it goes on where it is if nobody takes it at once: [`NOT_YET`], and it is to be tried again.
    Tried,
    /// It goes on where it is.
    Offered,
}

/// A connection that waited to be accepted, and may stay, was not taken.
pub(crate) struct WaitsAgain;

/// A connection has not become the kernel's yet, and goes on.
pub(crate) const NOT_YET: Errno = Errno(libc::EAGAIN);

/// How long the process is held up by a connection that goes on if nobody takes it. A broker that is not stopped takes it in less than a
/// millisecond.
pub(crate) const TRIED_FOR: Duration = Duration::from_millis(100);
/// How long none is tried again then: each time the connection is taken off the stack, and acknowledges what it has received.
pub(crate) const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The same as [`TRIED_FOR`] if it is not tried again.
const OFFERED_FOR: Duration = Duration::from_millis(300);
/// What an octet adds to that: the broker copies all of them first.
const FOR_EACH_OCTET: Duration = Duration::from_nanos(20);

impl Terms {
    /// How long a connection with so many octets is offered, if it may go on.
    pub(crate) fn offered_for(self, octets: usize) -> Option<Duration> {
        let time = match self {
            Terms::Must => return None,
            Terms::Tried => TRIED_FOR,
            Terms::Offered => OFFERED_FOR,
        };
        Some(time + Duration::from_nanos(FOR_EACH_OCTET.as_nanos() * octets as u64))
    }
}

impl State {
    /// Takes a connection off the stack and has the kernel go on with it, behind the same descriptors. One that is not established yet
    /// cannot move, and stays.
    pub(crate) fn move_to_kernel(&mut self, id: SocketId, terms: Terms, now: Instant) -> Result<(), Errno> {
        let ends = self.endpoints(id);
        let kernel = self.take_off_stack(id, terms, now)?;
        if let Some(ends) = ends {
            self.share_with_children(id, ends, &kernel);
        }
        self.replace_by(id, kernel);
        Ok(())
    }

    /// Takes a connection off the stack. Returns the kernel's socket of it, with all options and flags that the program has set.
    pub(crate) fn take_off_stack(
        &mut self,
        id: SocketId,
        terms: Terms,
        now: Instant,
    ) -> Result<OwnedFd, Errno> {
        if terms == Terms::Tried && now < self.tried_again_at {
            return Err(NOT_YET);
        }
        // What has come until now goes with it. The kernel does not know that it is not acknowledged yet.
        self.take_in(now);
        self.queue.send_the_rest(now);
        let socket = self.sockets.get(id).ok_or(Errno(libc::ENOTCONN))?;
        let (connection, kind) = (socket.connection().ok_or(Errno(libc::ENOTCONN))?, socket.kind_to_move());
        let settings = socket.settings.clone();
        let stack = self.queue.stack().ok_or(Errno(libc::ENOTCONN))?;
        let Ok(detached) = stack.detach(connection, now) else { return fail(libc::ENOTCONN) };
        match (self.ask_kernel(&detached, kind, terms, &settings), terms) {
            (Ok(kernel), _) => {
                self.set_flags_at_kernel(id, &kernel);
                self.follow_moved();
                return Ok(kernel);
            }
            (Err(NotMoved::NotYet), _) => {
                self.put_back(id, &detached);
                self.try_again_later();
                return Err(NOT_YET);
            }
            (Err(NotMoved::Refused), Terms::Offered) => self.put_back(id, &detached),
            (Err(_), _) => {
                self.reset_lost(&detached);
                self.fail_socket(id, Errno(libc::ECONNRESET));
            }
        }
        fail(libc::ECONNRESET)
    }

    pub(crate) fn try_again_later(&mut self) {
        self.tried_again_at = self.clock.now() + TRIED_AGAIN_AFTER;
    }

    /// When connections are tried again that could not move.
    pub(crate) fn moves_due_at(&self) -> Option<Instant> {
        let is_closed = |closing: &Closing| matches!(closing, Closing::Socket(_));
        let are_there = !self.asked_by_children.is_empty() || self.closing.iter().any(is_closed);
        are_there.then_some(self.tried_again_at)
    }

    /// A connection that was to leave stays on the stack. Calls that wait for it find it by its socket.
    fn put_back(&mut self, id: SocketId, detached: &Detached) {
        let now = self.clock.now();
        let back = self.queue.stack().and_then(|stack| stack.attach(detached, detached.hop, now).ok());
        let (Some(back), Some(socket)) = (back, self.sockets.get_mut(id)) else {
            return self.fail_socket(id, Errno(libc::ECONNRESET));
        };
        socket.role = Role::Stream(Place::Stack(back));
        if let Some(stack) = self.queue.stack() {
            stack.set_token(back, id.to_bits());
        }
    }

    /// The kernel's socket of a connection that is off the stack. One that the kernel does not take is lost, and the peer told so; unless it may stay,
    /// and nobody has taken it yet.
    pub(crate) fn move_detached(
        &mut self,
        detached: &Detached,
        (kind, settings): &AcceptedAs,
        terms: Terms,
    ) -> Result<Option<OwnedFd>, WaitsAgain> {
        match self.ask_kernel(detached, *kind, terms, settings) {
            Ok(kernel) => Ok(Some(kernel)),
            Err(NotMoved::NotYet) => Err(WaitsAgain),
            Err(_) => {
                self.reset_lost(detached);
                Ok(None)
            }
        }
    }

    /// The kernel's socket of a connection that is off the stack, with its options. What becomes of one that it does not take is left to
    /// the caller.
    fn ask_kernel(
        &mut self,
        detached: &Detached,
        kind: SocketKind,
        terms: Terms,
        settings: &Settings,
    ) -> Result<OwnedFd, NotMoved> {
        let attachment = self.attachment().ok_or(NotMoved::Refused)?;
        let connection = &detached.connection;
        let octets = connection.received.len() + connection.unacked.len() + connection.unsent.len();
        let kernel = attachment.move_to_kernel(connection, kind, terms.offered_for(octets))?;
        settle_kernel_socket(&kernel, detached, settings);
        self.left_to_kernel.moved += 1;
        Ok(kernel)
    }

    /// Resets a connection that is off the stack already.
    pub(crate) fn reset_lost(&mut self, detached: &Detached) {
        let now = self.clock.now();
        let Some(stack) = self.queue.stack() else { return };
        if let Ok(back) = stack.attach(detached, detached.hop, now) {
            stack.set_token(back, u64::MAX); // What happens to it is nobody's business.
            stack.abort(back, now);
        }
    }

    /// Connections have become the kernel's: what came for them while they did follows them. The peer would notice after 200 ms that
    /// it has to be sent again.
    pub(crate) fn follow_moved(&mut self) {
        let now = self.clock.now();
        self.take_in(now);
        self.pass_on_late();
    }

    /// Gives the kernel what was taken in for connections that it has by now. A packet that the steering program had in hand when it
    /// was told of the move may come some turns later.
    pub(crate) fn pass_on_late(&mut self) {
        while let Some(segment) = self.queue.stack().and_then(Stack::next_late_segment) {
            if let Some(attachment) = self.attachment() {
                attachment.deliver_late(&segment);
            }
        }
    }
}

/// What repairing does not bring: options, and what else was set of the socket.
fn settle_kernel_socket(kernel: &OwnedFd, from: &Detached, settings: &Settings) {
    crate::socket::option_table::set_at_kernel(kernel.as_raw_fd(), &from.options);
    settings.set_at_kernel(kernel.as_raw_fd());
}
