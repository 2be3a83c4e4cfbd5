//! The state of a process, behind one lock.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clock::{Duration, Instant};
#[cfg(not(test))]
use engine::Clock;
use stack::slab::Slab;

use crate::broker_side::{Attachment, LeftToKernel};
use crate::descriptors::fd_table::{Entry, FdTable};
use crate::descriptors::internal;
use crate::epoll::Epoll;
use crate::ids::{EpollId, OfEpolls, OfSockets, SocketId};
use crate::inside;
use crate::kinship::{Ends, Kinship};
use crate::moved_in_calls::MovedInCalls;
use crate::own_thread::OwnThread;
use crate::queue::Queue;
use crate::socket::Socket;
use crate::socket::usage::Experience;
#[cfg(test)]
use crate::tests::Clock;
use crate::waiter::Spare;

/// Sockets and epoll instances that we know at most.
const PLACES_MAX: u32 = 1 << 24;

/// A process: its descriptors, and what they stand for.
pub(crate) struct Process {
    pub(crate) table: FdTable,
    pub(crate) clock: Clock,
    lock: Mutex<State>,
    /// Turns of the engine, for the watchdog: whether any thread drives it.
    pub(crate) turns: AtomicU32,
    /// Whether the watchdog sleeps until there is one.
    pub(crate) dozes: AtomicBool,
    /// 1: the watchdog is to end.
    pub(crate) dismissed: AtomicU32,
    /// The watchdog is to be started again when the program next uses a socket.
    pub(crate) lacks_watchdog: AtomicBool,
    /// Whether the program ends; then captures get their last packets.
    pub(crate) ending: AtomicBool,
}

/// What the lock protects.
pub(crate) struct State {
    pub(crate) table: FdTable,
    pub(crate) clock: Clock,
    pub(crate) sockets: Slab<Socket, OfSockets>,
    pub(crate) epolls: Slab<Epoll, OfEpolls>,
    pub(crate) attachment: Option<Box<dyn Attachment>>,
    /// The descriptor of the attachment.
    hidden: Option<RawFd>,
    /// Queues were asked for.
    pub(crate) attached: bool,
    pub(crate) queue: Queue,
    /// What the descriptors of accepted connections are copies of: a socket that does nothing.
    placeholder: Option<OwnedFd>,
    /// What sleeping threads are woken by.
    pub(crate) spare: Spare,
    pub(crate) spin: Duration,
    /// The watchdog runs, or cannot.
    pub(crate) watchdog: bool,
    pub(crate) watchdog_thread: Option<OwnThread>,
    pub(crate) kinship: Kinship,
    /// Children that wait for connections which could not move yet.
    pub(crate) asked_by_children: Vec<AskedByChild>,
    /// Connections that have to move, and could not, are tried again from then on.
    pub(crate) tried_again_at: Instant,
    /// When a broker that has never answered is asked again.
    pub(crate) claims_again_at: Instant,
    /// What was closed while a call used it.
    pub(crate) closing: Vec<Closing>,
    /// Connections that have become the kernel's while a call used them.
    pub(crate) moved_in_calls: MovedInCalls,
    pub(crate) heard_at: Instant,
    /// A listener moved: what the broker has for it is heard as soon as the work at hand is done.
    pub(crate) hears_soon: bool,
    /// Connections that have become the kernel's, behind their descriptors.
    pub(crate) moves: u32,
    /// Tools that are attended to.
    pub(crate) observers: usize,
    /// What connections were like that the program made.
    pub(crate) experience_of_made: Experience,
    /// Counts for the status.
    pub(crate) left_to_kernel: LeftToKernel,
    /// Some socket is the kernel's since the last report, and the report says why.
    pub(crate) has_untold: bool,
}

impl Process {
    /// A process without descriptors, with a source of queues.
    pub(crate) fn new(table: FdTable, attachment: Option<Box<dyn Attachment>>) -> Process {
        let clock = Clock::start();
        Process {
            table,
            clock,
            lock: Mutex::new(State::new(table, clock, attachment)),
            turns: AtomicU32::new(0),
            dozes: AtomicBool::new(false),
            dismissed: AtomicU32::new(0),
            lacks_watchdog: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        }
    }

    /// Takes the lock. A thread that panicked left nothing behind that others could not go on with.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        inside::shield();
        state
    }

    /// A thread is about to be cancelled (pthread_cancel(3)), and no thread is to end that has the lock.
    pub(crate) fn before_cancel(&self) {
        inside::expect_cancellation();
        drop(self.lock());
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    #[cold]
    fn wake_watchdog(&self) {
        self.dozes.store(false, Ordering::Relaxed);
        syscall::futex_wake(&self.turns);
    }

    /// A turn was made.
    pub(crate) fn note_turn(&self) {
        // Exact counts do not matter, that it changes does.
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if self.dozes.load(Ordering::Relaxed) {
            self.wake_watchdog();
        }
    }
}

impl State {
    pub(crate) fn new(table: FdTable, clock: Clock, attachment: Option<Box<dyn Attachment>>) -> State {
        let spin = attachment.as_ref().map_or(Duration::ZERO, |attachment| attachment.spin());
        let mut state = State {
            table,
            clock,
            sockets: Slab::new(PLACES_MAX),
            epolls: Slab::new(PLACES_MAX),
            attachment,
            hidden: None,
            attached: false,
            queue: Queue::default(),
            placeholder: None,
            spare: Spare::default(),
            spin,
            watchdog: false,
            watchdog_thread: None,
            kinship: Kinship::new(table),
            asked_by_children: Vec::new(),
            tried_again_at: Instant::ZERO,
            claims_again_at: Instant::ZERO,
            closing: Vec::new(),
            moved_in_calls: MovedInCalls::default(),
            heard_at: Instant::ZERO,
            hears_soon: false,
            moves: 0,
            observers: 0,
            experience_of_made: Experience::default(),
            left_to_kernel: LeftToKernel::default(),
            has_untold: false,
        };
        state.hide_attachment();
        state
    }

    /// The way to the broker is not for the program to close.
    pub(crate) fn hide_attachment(&mut self) {
        if let Some(fd) = self.attachment.as_ref().and_then(|attachment| attachment.descriptor()) {
            self.table.set(fd, Entry::Internal);
            self.hidden = Some(fd);
        }
    }

    /// In a child: it is the parent's, and closed by number.
    pub(crate) fn forget_hidden(&mut self) {
        self.hidden = None;
    }

    /// It is closed, and its number may be used again.
    pub(crate) fn show_attachment(&mut self) {
        if let Some(fd) = self.hidden.take() {
            self.table.set(fd, Entry::None);
        }
    }

    /// The socket behind a descriptor.
    pub(crate) fn socket_of(&self, fd: RawFd) -> Option<SocketId> {
        match self.table.get(fd) {
            Entry::Socket(place) => self.sockets.at(place).map(|(id, _)| id),
            _ => None,
        }
    }

    /// The epoll instance behind a descriptor.
    pub(crate) fn epoll_of(&self, fd: RawFd) -> Option<EpollId> {
        match self.table.get(fd) {
            Entry::Epoll(place) => self.epolls.at(place).map(|(id, _)| id),
            _ => None,
        }
    }

    /// A descriptor for a connection of the stack: the lowest number that is free.
    pub(crate) fn new_descriptor(&mut self, close_on_exec: bool) -> std::io::Result<RawFd> {
        if self.placeholder.is_none() {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            let socket = syscall::socket(libc::AF_INET, kind, 0)?;
            let socket = internal::raise(socket).ok_or(std::io::Error::from_raw_os_error(libc::EMFILE))?;
            self.table.set(socket.as_raw_fd(), Entry::Internal);
            self.placeholder = Some(socket);
        }
        let placeholder = self.placeholder.as_ref().expect("it was just made").as_raw_fd();
        syscall::dup_from(placeholder, 0, close_on_exec)
    }

    /// Whether `fd` is what the descriptors of accepted connections are copies of.
    pub(crate) fn is_placeholder(&self, fd: RawFd) -> bool {
        self.placeholder.as_ref().is_some_and(|placeholder| placeholder.as_raw_fd() == fd)
    }
}

/// A child's question for a connection that it has inherited.
#[derive(Clone, Copy)]
pub(crate) struct AskedByChild {
    /// To be named in the answer.
    pub(crate) token: u64,
    pub(crate) ends: Ends,
    pub(crate) since: Instant,
}

/// Closed, and to be ended when no call uses it any more.
#[derive(Clone, Copy)]
pub(crate) enum Closing {
    Socket(SocketId),
    Epoll(EpollId),
}

impl State {
    /// Whether there is no stack, and no broker that could give us a queue for one.
    pub(crate) fn is_left(&self) -> bool {
        self.queue.runtime.is_none() && self.attachment.is_none()
    }

    /// Enters a socket and its descriptor.
    pub(crate) fn insert(&mut self, socket: Socket) -> Option<SocketId> {
        let fd = socket.fd();
        let id = self.sockets.insert_with(|_| socket)?;
        if !self.table.set(fd, Entry::Socket(id.index())) {
            self.sockets.remove(id);
            return None;
        }
        Some(id)
    }
}
