//! setsockopt(2) of options that only the kernel supports.

use std::os::fd::AsRawFd;
use std::sync::MutexGuard;

use crate::descriptors::internal::close;
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::kernel_only::Setting;
use crate::socket::{Happening, Place, Role, judge};

impl Process {
    /// setsockopt(2) of an option that only the kernel supports: if the kernel accepts the option, the socket moves to the kernel.
    pub(crate) fn set_kernel_only(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
        setting: Setting<'_>,
        reason: &'static str,
    ) -> Verdict<()> {
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        let set = match (&socket.role, setting.has_pointers()) {
            // The process that has it does not know the option: it is set when the kernel has the connection.
            (Role::Stream(Place::FromParent(_)), _) | (_, true) => Verdict::Kernel,
            (Role::Stream(Place::Stack(_)), _) => match judge_of_connection(socket.domain, setting) {
                Ok(()) => Verdict::Kernel,
                refused => Verdict::Done(refused),
            },
            _ => Verdict::Done(setting.set(socket.fd())),
        };
        if let Verdict::Done(Err(_)) = set {
            return set;
        }
        let given_up = self.on_happening(state, id, Happening::KernelOnly(reason));
        let is_over = self.lock().sockets.get(id).is_some_and(|socket| socket.connection().is_some());
        // What is over has no socket of the kernel's that the option could be set at.
        let set = if is_over { Verdict::Done(Ok(())) } else { set };
        given_up.map_or_else(|errno| Verdict::Done(Err(errno)), |()| set)
    }
}

/// What a connection of the kernel's says to an option; ours stays where it is if that refuses.
fn judge_of_connection(domain: i32, setting: Setting<'_>) -> Result<(), Errno> {
    let judge = judge::connected(domain)?;
    let judged = setting.set(judge.as_raw_fd());
    close(judge);
    judged
}
