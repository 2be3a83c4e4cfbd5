//! fork(2), execve(2), and the end of the process.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use crate::broker_side::LeftToKernel;
use crate::descriptors::fd_table::Entry;
use crate::descriptors::internal;
use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::{Process, State};
use crate::socket::kernel_only::has_adopted;
use crate::socket::stall::Stall;
use crate::socket::usage::Experience;
use crate::socket::{Happening, Place, Role, Socket};
use crate::waiter::Waiter;

/// Why sockets are the kernel's, for status.
const CONFINED: &str = "the program has forbidden itself system calls (seccomp)";

thread_local! {
    /// Locks that are held while the process forks.
    static HELD: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

impl Process {
    /// Called before fork: no thread is in the middle of an operation.
    pub(crate) fn before_fork(&'static self) {
        let mut state = self.await_inherited();
        if state.has_incident() {
            state.hear(self.now()); // What came with it is the child's no more than the rest.
        }
        let now = self.now();
        state.queue.flush(now);
        state.queue.spare_sockets.clear();
        state.tie_cords();
        hold(Some(state));
    }

    /// Waits for connections that other threads have asked an ancestor for: the ancestor would not know that the child has them, too.
    /// With the lock that is returned no thread can ask for one.
    pub(crate) fn await_inherited(&self) -> MutexGuard<'_, State> {
        let is_asked_for = |socket: &Socket| matches!(&socket.role, Role::Stream(Place::FromParent(it)) if it.request.is_some());
        loop {
            let state = self.lock();
            let asked_for = state.sockets.iter().filter(|(_, socket)| is_asked_for(socket));
            let ids: Vec<SocketId> = asked_for.map(|(id, _)| id).collect();
            if ids.is_empty() {
                return state;
            }
            drop(state);
            self.inherit_all(&ids);
        }
    }

    /// The parent continues.
    pub(crate) fn after_fork_in_parent(&self) {
        if let Some(mut state) = hold(None) {
            state.become_parent();
        }
    }

    /// The child knows its descriptors, and has nothing on the stack.
    pub(crate) fn after_fork_in_child(&'static self) {
        Waiter::forget();
        let Some(mut state) = hold(None) else {
            // Made by a bare system call: a thread that is not here may hold the lock. This child runs on the kernel.
            return self.abandon();
        };
        state.become_child();
        self.dismissed.store(0, Ordering::Relaxed); // Another thread of the parent's may have been about to.
    }

    /// Nothing is ours any more.
    fn abandon(&self) {
        for (fd, entry) in self.table.within(0, u32::MAX).collect::<Vec<_>>() {
            self.table.set(fd, Entry::None);
            if entry == Entry::Internal {
                let _ = syscall::close(fd); // It is open: nothing to fail.
            }
        }
    }

    /// execve(2): what the new program inherits becomes the kernel's.
    pub(crate) fn before_exec(&self) {
        let mut state = self.lock();
        let now = self.now();
        state.turn(now);
        self.move_what_outlives(state);
        let mut state = self.lock();
        let now = self.now();
        state.share_with_next();
        state.finish(now);
        drop(state);
        self.dismiss_observers();
    }

    /// posix_spawn(3): the child is given by number what survives execve(2), past all hooks.
    pub(crate) fn before_spawn(&self) {
        self.move_what_outlives(self.lock());
        self.lock().share_with_next();
    }

    /// What others can accept is left to them.
    pub(crate) fn before_end(&self) {
        let now = self.now();
        self.lock().leave_common_listeners(now);
    }

    /// seccomp(2): from here on the program makes the system calls that it has chosen, and ours are not among them. All becomes the
    /// kernel's, for good. Returns whether nothing is left that we alone know of: nobody need be asked any more.
    pub(crate) fn before_confinement(&self) -> bool {
        let ids: Vec<SocketId> = self.lock().sockets.iter().map(|(id, _)| id).collect();
        for id in ids {
            // One that is lost says so when it is used.
            let _ = self.on_happening(self.lock(), id, Happening::KernelOnly(CONFINED));
        }
        let mut state = self.lock();
        let now = self.now();
        state.end_leaving();
        state.move_all(None, Terms::Must); // Those that the program has closed.
        state.give_queues_back(now);
        state.queue.spare_sockets.end();
        state.leave_broker();
        let is_over = !state.sockets.iter().any(|(_, socket)| outlives_stack(socket));
        drop(state);
        self.dismiss_observers();
        self.dismiss_watchdog();
        if is_over {
            self.leave_to_itself();
        }
        is_over
    }

    /// No call is ours any more. Our own descriptors stay what they are, as threads that sleep do on some of them.
    fn leave_to_itself(&self) {
        let all: Vec<(RawFd, Entry)> = self.table.within(0, u32::MAX).collect();
        for (fd, _) in all.into_iter().filter(|(_, entry)| *entry != Entry::Internal) {
            self.table.set(fd, Entry::None);
        }
    }

    /// What the next program has as well becomes the kernel's.
    fn move_what_outlives(&self, state: MutexGuard<'_, State>) {
        let outlives = |socket: &Socket| !socket.is_shadow() && survives(socket);
        let outliving = state.sockets.iter().filter(|(_, socket)| outlives(socket));
        let (inherited, own): (Vec<_>, Vec<_>) = outliving
            .map(|(id, socket)| (id, socket.fd(), matches!(socket.role, Role::Stream(Place::FromParent(_)))))
            .partition(|(.., is_inherited)| *is_inherited);
        drop(state);
        let inherited: Vec<SocketId> = inherited.into_iter().map(|(id, ..)| id).collect();
        self.inherit_all(&inherited);
        own.into_iter().for_each(|(_, fd, _)| self.pass_on(fd));
    }

    /// The program ends: the kernel delivers what is not delivered.
    pub(crate) fn before_exit(&self) {
        let mut state = self.lock();
        let now = self.now();
        state.turn(now);
        state.finish(now);
        drop(state);
        self.dismiss_observers();
    }
}

/// Keeps the lock, or releases a kept one. A thread at its end, also in exit(3), keeps nothing.
fn hold(state: Option<MutexGuard<'static, State>>) -> Option<MutexGuard<'static, State>> {
    HELD.try_with(|held| held.replace(state)).ok().flatten()
}

/// Whether the program that is executed next has the socket as well. The kernel is asked only where it may be so.
fn survives(socket: &Socket) -> bool {
    socket.may_survive_exec && socket.fds().any(survives_exec)
}

/// The same of a descriptor.
fn survives_exec(fd: RawFd) -> bool {
    syscall::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Whether the program has yet to be told something of it that the kernel does not know.
fn outlives_stack(socket: &Socket) -> bool {
    matches!(socket.role, Role::Stream(Place::Stack(_) | Place::FromParent(_) | Place::Lost))
        || has_adopted(socket)
}

impl State {
    /// The broker is not asked anything any more, nor listened to. The way there stays open: so it counts us among its programs.
    fn leave_broker(&mut self) {
        std::mem::forget(self.attachment.take());
        self.queue.wake_driver(); // It sleeps on what nobody reads any more.
    }

    /// Connections that have something to say yet become the kernel's, which says it; those that nobody has accepted are for others
    /// who have the same listener.
    fn finish(&mut self, now: clock::Instant) {
        // Who has claimed a listener may have been left a connection before it has a queue.
        if self.queue.runtime.is_some() || self.has_claims() {
            let now = self.settle_begun(now);
            self.move_shared_datagrams(now);
            self.end_leaving();
            self.close_listeners(self.clock.now());
            self.hear_if_due(now);
            self.move_all(None, Terms::Must);
            self.read_notes();
            self.kinship.leave_to_children();
            self.queue.flush(now);
        }
    }

    /// The next program has what survives execve(2).
    fn share_with_next(&mut self) {
        for place in 0..self.sockets.places() {
            if let Some((_, socket)) = self.sockets.at_mut(place) {
                socket.is_common = socket.is_common || survives(socket);
            }
        }
    }

    /// In a child: the parent's engine, broker and claims are not ours.
    fn become_child(&mut self) {
        for place in 0..self.sockets.places() {
            let Some((_, socket)) = self.sockets.at_mut(place) else { continue };
            socket.claim = None;
            socket.unclaimable = None;
            socket.waiters.clear();
            socket.callers.clear();
            socket.stall = Stall::default();
            if let Role::Listener { adopted, .. } = &mut socket.role {
                // They were left to the parent.
                std::mem::take(adopted).into_iter().for_each(internal::close);
            }
        }
        let now = self.clock.now();
        self.on_happening_to_all(Happening::Forked, now);
        for place in 0..self.epolls.places() {
            let Some((_, epoll)) = self.epolls.at_mut(place) else { continue };
            epoll.waiters.clear();
            epoll.onlookers.clear();
            epoll.callers.clear();
            (epoll.has_news, epoll.is_unused_since_fork) = (true, true);
            self.forget_bell(place);
        }
        self.forget_leaving();
        // All of it is the parent's. The packet memory is not even here, so that dropping it would be wrong.
        std::mem::forget(std::mem::take(&mut self.queue));
        self.asked_by_children.clear();
        self.left_to_kernel = LeftToKernel::default();
        self.experience_of_made = Experience::default();
        self.observers = 0; // Their threads are not here.
        self.forget_closing();
        self.moved_in_calls.forget();
        self.spare.clear();
        let to_ancestors = self.kinship.become_child();
        self.close_internal(&to_ancestors);
        self.attached = false;
        self.watchdog = false;
        std::mem::forget(self.watchdog_thread.take()); // It is not here.
        self.forget_hidden();
        let attachment = self.attachment.take();
        self.attachment = attachment.and_then(|attachment| attachment.in_child());
        self.hide_attachment();
    }

    /// Descriptors of our own that belong to the parent; the placeholder is of use to the child as well.
    fn close_internal(&mut self, to_ancestors: &[i32]) {
        let own: Vec<(i32, Entry)> = self.table.within(0, u32::MAX).collect();
        for (fd, entry) in own {
            if entry == Entry::Internal && !self.is_placeholder(fd) && !to_ancestors.contains(&fd) {
                self.table.set(fd, Entry::None);
                let _ = syscall::close(fd); // It is open: nothing to fail.
            }
        }
    }
}
