//! listen(2).

use std::collections::VecDeque;
use std::os::fd::RawFd;

use crate::process::Process;
use crate::socket::queueing::Queueing;
use crate::socket::usage::Experience;
use crate::socket::{Place, Role};

impl Process {
    /// listen(2) succeeded on `fd`.
    pub(crate) fn on_listen(&self, fd: RawFd, backlog: i32) {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return };
        let backlog = backlog_of(backlog);
        let Some(socket) = state.sockets.get_mut(id) else { return };
        socket.touched.note_named();
        match &mut socket.role {
            Role::Stream(Place::Kernel) => {
                socket.role = Role::Listener {
                    on_stack: None,
                    backlog,
                    adopted: VecDeque::new(),
                    queueing: Queueing::default(),
                    experience: Experience::default(),
                };
                state.note_news(id);
            }
            Role::Listener { on_stack, backlog: before, .. } => {
                *before = backlog;
                let on_stack = *on_stack;
                if let (Some(listener), Some(stack)) = (on_stack, state.queue.stack()) {
                    stack.set_backlog(listener, backlog);
                }
            }
            _ => {}
        }
    }
}

/// A negative backlog is a large one, and none exceeds `somaxconn`, which is 4096 by default.
fn backlog_of(backlog: i32) -> u32 {
    (backlog as u32).min(4096)
}
