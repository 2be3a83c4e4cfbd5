//! The room in which sockets change their place: what [`super::place`] decides is carried out here.
//!
//! Everything that brings a connection to another place is a *move*; what a child has from its parent is *inherited*.
//!
//! | file | what moves |
//! | --- | --- |
//! | `to_stack.rs`, `resting_ports.rs` | a socket that connects: the way, the port, the SYN |
//! | `to_kernel.rs` | a connection of the stack: off it, to the kernel, behind the same descriptors |
//! | `inherited.rs`, `kinship.rs` | a connection of the parent's, and who of the family has it |
//! | `listener.rs` | all that a listener has: accepted, waiting, half open |
//! | `unserved.rs` | what waits at a socket that other processes have too |
//! | `usage.rs` | what the kernel serves better |
//! | `renewal.rs` | back to a socket without a past |

mod inherited;
pub(crate) mod kinship;
mod listener;
mod renewal;
mod resting_ports;
mod to_kernel;
pub(super) mod to_stack;
pub(super) mod unserved;
pub(super) mod usage;

use std::os::fd::RawFd;
use std::sync::MutexGuard;

use clock::Instant;
use stack::tcp::State as TcpState;

use super::place::{self, At, Happening, Place, Step};
use super::{Role, SocketId};
use crate::Errno;
use crate::process::{Process, State};

pub(crate) use listener::Ended;
pub(crate) use resting_ports::RestingPorts;
pub(crate) use to_kernel::IfRefused;
pub(crate) use to_stack::KeptPort;
pub(crate) use unserved::{Stall, Stalls};

impl Process {
    /// Something happened to a socket. Waits where another process has to be asked.
    pub(crate) fn on_happening(
        &self,
        mut state: MutexGuard<'_, State>,
        id: SocketId,
        happening: Happening,
    ) -> Result<(), Errno> {
        let now = self.now();
        if state.sockets.get(id).is_some_and(|socket| socket.connection().is_some()) {
            state.turn(now); // It may be over by now, or connected.
        }
        match state.step(id, happening) {
            Step::AskParent => self.inherit(state, id),
            step => state.carry_out(id, step, now),
        }
    }

    /// `fd` gets out of sight: it becomes the kernel's. What cannot move is lost to who gets it, as if the peer had reset it.
    pub(crate) fn pass_on(&self, fd: RawFd) {
        let state = self.lock();
        if let Some(id) = state.socket_of(fd) {
            let _ = self.on_happening(state, id, Happening::PassedOn);
        }
    }
}

impl State {
    /// What to do about it.
    pub(crate) fn step(&mut self, id: SocketId, happening: Happening) -> Step {
        self.at(id).map_or(Step::Nothing, |at| place::step(at, happening))
    }

    fn at(&mut self, id: SocketId) -> Option<At> {
        let place = match &self.sockets.get(id)?.role {
            Role::Stream(place) => place,
            Role::Listener { .. } | Role::Udp(_) => return Some(At::Shadow),
        };
        Some(match *place {
            Place::Kernel => At::Kernel,
            Place::ToStack { .. } => At::Routing,
            Place::FromParent(_) => At::Parent,
            Place::Lost => At::Lost,
            Place::Stack(connection) => match self.stack().and_then(|stack| stack.state(connection)) {
                None | Some(TcpState::Closed | TcpState::TimeWait) => At::Over,
                Some(TcpState::SynSent) => At::Connecting,
                Some(_) => At::Stack,
            },
        })
    }

    /// Does it, unless others have to be asked and waited for. The error is for the call that caused it.
    pub(crate) fn carry_out(&mut self, id: SocketId, step: Step, now: Instant) -> Result<(), Errno> {
        match step {
            Step::Nothing => {}
            Step::AskParent => debug_assert!(false, "a parent is asked by who may wait"),
            Step::Keep(reason) => self.keep_to_kernel(id, reason, now),
            Step::Share => {
                if let Some(socket) = self.sockets.get_mut(id) {
                    socket.is_common = true;
                }
            }
            Step::ConnectByKernel => self.connect_by_kernel_instead(id, now),
            Step::Move => return self.move_to_kernel(id, IfRefused::Lost, now),
            Step::Offer => return self.move_to_kernel(id, IfRefused::Stays, now),
            Step::Lose => self.lose(id, now),
            Step::Inherit => self.leave_to_parent(id),
            Step::Forget => self.forget_on_stack(id),
        }
        Ok(())
    }

    /// Something happened to all sockets at once, and nobody is to be waited for.
    pub(crate) fn on_happening_to_all(&mut self, happening: Happening, now: Instant) {
        let ids: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        for id in ids {
            let step = self.step(id, happening);
            let _ = self.carry_out(id, step, now); // What is lost says so when it is used.
        }
    }

    /// A connection has no way to its peer any more.
    fn lose(&mut self, id: SocketId, now: Instant) {
        let connection = self.sockets.get(id).and_then(|socket| socket.connection());
        self.fail_socket(id, Errno(libc::ECONNRESET));
        if let (Some(connection), Some(stack)) = (connection, self.stack()) {
            stack.abort(connection, now);
        }
    }

    /// What the stack has of a listener or a UDP socket goes with the stack, or is the parent's.
    fn forget_on_stack(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        socket.claim = None;
        match &mut socket.role {
            Role::Listener { on_stack, .. } => *on_stack = None,
            Role::Udp(udp) => udp.on_stack = None,
            Role::Stream(_) => {}
        }
    }
}
