//! What the hooked functions of the C library do. Each function takes the arguments of its system call as safe types.
//!
//! [`Verdict::Kernel`] means that the call is not ours: make the system call as without Sidestep.

mod accept;
mod close;
mod connect;
mod control;
mod datagrams;
mod duplicate;
mod epoll_control;
mod epoll_kernel;
mod epoll_wait;
mod error_queue;
mod identity;
mod interrupted;
mod kernel_only;
mod lifecycle;
mod listen;
mod names;
mod open;
mod option_answers;
mod option_value;
mod options;
mod poll;
mod receive;
mod send;
mod send_times;
mod sendfile;
mod stream_messages;
mod udp_errors;

use std::os::fd::RawFd;
use std::time::Duration;

use crate::broker_side::brokered::Brokered;
use crate::descriptors::fd_table::FdTable;
use crate::global;
use crate::own_thread;
use crate::process::Process;
pub use datagrams::Datagrams;

pub use crate::request::{EpollEvent, PollFd, Receive, Received, Send, SignalMask, Verdict};

/// The program starts, not yet in `main`, and the environment names `broker`. Without a broker there (false) nothing else is ever asked; nor of a
/// program that waits for its sockets where it cannot be told of what is on the stack.
pub fn start(broker: &str) -> bool {
    if std::fs::File::open("/proc/self/exe").is_ok_and(|program| own_calls::waits_by_itself(&program)) {
        return false;
    }
    own_thread::note_start();
    let Some(attachment) = Brokered::connect(broker) else { return false };
    let is_first = global::set(Process::new(FdTable::global(), Some(Box::new(attachment))));
    with(Process::find_inherited);
    is_first
}

/// Whether calls on `fd` may be ours. All functions below say [`Verdict::Kernel`] where this is false; asking first is cheap: one load.
#[inline]
pub fn is_ours(fd: RawFd) -> bool {
    FdTable::global().is_ours(fd)
}

/// Whether `fd` is an epoll instance to which nothing of ours was ever added: a process of one thread can be left alone with it.
#[inline]
pub fn is_idle_epoll(fd: RawFd) -> bool {
    FdTable::global().is_idle_epoll(fd)
}

/// `fd` came from another process by SCM_RIGHTS: it may be a listener, and whatever the table knows of that number is of old.
pub fn on_received(fd: RawFd) {
    with(|process| process.on_received(fd));
}

/// socket(2).
pub fn socket(domain: i32, kind: i32, protocol: i32) -> Verdict<RawFd> {
    global::process().map_or(Verdict::Kernel, |process| process.socket(domain, kind, protocol))
}

/// After [`Verdict::Kernel`]: socket(2) returned `fd`.
pub fn on_socket(fd: RawFd, domain: i32, kind: i32, protocol: i32) {
    with(|process| process.on_socket(fd, domain, kind, protocol));
}

/// Before bind(2) to `name`, and before listen(2), which has none: whether they may be.
pub fn may_bind(fd: RawFd, name: &[u8]) -> Verdict<()> {
    verdict(fd, |process| process.may_bind(fd, name))
}

/// listen(2) succeeded on `fd`.
pub fn on_listen(fd: RawFd, backlog: i32) {
    with_ours(fd, |process| process.on_listen(fd, backlog));
}

/// bind(2) succeeded on `fd`.
pub fn on_bind(fd: RawFd) {
    with_ours(fd, |process| process.on_bind(fd));
}

/// accept4(2). The peer's address, as a `sockaddr`, goes to `name`; the result is the descriptor, and the length that the address has.
pub fn accept(fd: RawFd, name: Option<&mut [u8]>, flags: i32) -> Verdict<(RawFd, usize)> {
    let verdict = verdict(fd, |process| process.accept(fd, name, flags));
    interrupted::unless_interrupted(verdict, fd, libc::POLLIN, 0)
}

/// After [`Verdict::Kernel`]: accept4(2) on the listener `fd` returned a connection.
pub fn on_accept(fd: RawFd) {
    with_ours(fd, Process::on_accept);
}

/// connect(2).
pub fn connect(fd: RawFd, name: &[u8]) -> Verdict<()> {
    verdict(fd, |process| process.connect(fd, name))
}

/// shutdown(2).
pub fn shutdown(fd: RawFd, how: i32) -> Verdict<()> {
    verdict(fd, |process| process.shutdown(fd, how))
}

/// close(2). On [`Verdict::Kernel`] the table has let go of `fd` already.
pub fn close(fd: RawFd) -> Verdict<()> {
    verdict(fd, |process| process.close(fd))
}

/// close_range(2), and closefrom(3) with an end of `u32::MAX`.
pub fn close_range(first: u32, last: u32, flags: u32) -> Verdict<()> {
    global::process().map_or(Verdict::Kernel, |process| process.close_range(first, last, flags))
}

/// recvmsg(2) and all that are special cases of it.
pub fn receive(fd: RawFd, request: &mut Receive<'_, '_>) -> Verdict<Received> {
    let flags = request.flags;
    let verdict = verdict(fd, |process| process.receive(fd, request));
    interrupted::unless_interrupted(verdict, fd, libc::POLLIN, flags)
}

/// sendmsg(2) and all that are special cases of it. Whether `SIGPIPE` is due is told by `EPIPE` without `MSG_NOSIGNAL`; the
/// caller raises it.
pub fn send(fd: RawFd, request: &Send<'_, '_>) -> Verdict<usize> {
    let verdict = verdict(fd, |process| process.send(fd, request));
    interrupted::unless_interrupted(verdict, fd, libc::POLLOUT, request.flags)
}

/// sendmmsg(2) on a UDP socket, datagram by datagram; `None` if each is to be sent by [`send()`]. No other function may be called until it is
/// dropped.
pub fn datagrams(fd: RawFd) -> Option<Datagrams<'static>> {
    if is_ours(fd) { global::process()?.datagrams(fd) } else { None }
}

/// sendfile(2) to `out`. Without `offset` the file's own position moves.
pub fn sendfile(out: RawFd, file: RawFd, offset: Option<&mut i64>, count: usize) -> Verdict<usize> {
    verdict(out, |process| process.sendfile(out, file, offset, count))
}

/// splice(2).
pub fn splice(from: RawFd, to: RawFd, count: usize, flags: u32) -> Verdict<usize> {
    either(from, to, |process| process.splice(from, to, count, flags))
}

/// epoll_create1(2) returned `fd`.
pub fn on_epoll_create(fd: RawFd) {
    with(|process| process.on_epoll_create(fd));
}

/// epoll_ctl(2).
pub fn epoll_ctl(epfd: RawFd, op: i32, fd: RawFd, event: Option<EpollEvent>) -> Verdict<()> {
    verdict(epfd, |process| process.epoll_ctl(epfd, op, fd, event))
}

/// epoll_pwait2(2); `None` waits for ever.
pub fn epoll_wait(
    epfd: RawFd,
    events: &mut [EpollEvent],
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Verdict<usize> {
    let verdict = verdict(epfd, |process| process.epoll_wait(epfd, events, timeout, mask));
    interrupted::unless_handled(verdict, timeout, mask)
}

/// ppoll(2); `None` waits for ever.
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<SignalMask>) -> Verdict<usize> {
    let verdict = global::process().map_or(Verdict::Kernel, |process| process.poll(fds, timeout, mask));
    interrupted::unless_handled(verdict, timeout, mask)
}

/// getsockname(2); returns the length that the address has.
pub fn getsockname(fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
    verdict(fd, |process| process.getsockname(fd, name))
}

/// getpeername(2); returns the length that the address has.
pub fn getpeername(fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
    verdict(fd, |process| process.getpeername(fd, name))
}

/// getsockopt(2); returns the length that was written.
pub fn getsockopt(fd: RawFd, level: i32, option: i32, value: &mut [u8]) -> Verdict<usize> {
    verdict(fd, |process| process.getsockopt(fd, level, option, value))
}

/// setsockopt(2).
pub fn setsockopt(fd: RawFd, level: i32, option: i32, value: &[u8]) -> Verdict<()> {
    verdict(fd, |process| process.setsockopt(fd, level, option, value))
}

/// fcntl(2) with a number as argument. Duplicating is asked here too.
pub fn fcntl(fd: RawFd, command: i32, argument: i64) -> Verdict<i32> {
    verdict(fd, |process| process.fcntl(fd, command, argument))
}

/// ioctl(2) with a pointer to an int: `FIONREAD`, `FIONBIO`, `SIOCATMARK`, `SIOCOUTQ` and the like.
pub fn ioctl(fd: RawFd, request: u64, argument: &mut i32) -> Verdict<i32> {
    verdict(fd, |process| process.ioctl(fd, request, argument))
}

/// dup(2), dup2(2), dup3(2): `to` becomes the same as `from`, in the kernel as here. `None`: the lowest number that is free.
pub fn dup(from: RawFd, to: Option<RawFd>, flags: i32) -> Verdict<RawFd> {
    either(from, to.unwrap_or(-1), |process| process.dup(from, to, flags))
}

/// `fd` is about to get out of sight, by SCM_RIGHTS or to a program that knows nothing of us: it becomes the kernel's,
/// and [`is_ours`] says no from then on.
pub fn move_to_kernel(fd: RawFd) {
    with_ours(fd, |process| process.pass_on(fd));
}

/// The program is about to ask the kernel which socket `fd` is, by fstat(2), and may tell others. What is on the stack has no socket of the kernel's of its
/// own, or one that it loses when it moves: it moves now.
pub fn before_identity(fd: RawFd) {
    with_ours(fd, |process| process.identify(fd));
}

/// The program is likely to be killed by the next signal, while it ends by itself: what waits at its listeners is for others that have them. If it waits there
/// again, all is as before.
pub fn before_end() {
    with(Process::before_end);
}

/// The program is about to choose what system calls it may make (seccomp(2)): ours are not made any more. Returns whether nothing else need
/// ever be asked.
pub fn before_confinement() -> bool {
    global::process().is_none_or(Process::before_confinement)
}

/// About to call unshare(2) or setns(2): part of what they do the kernel refuses to a process with several threads, and one of ours is not to be
/// why.
pub fn before_unshare() {
    with(Process::dismiss_watchdog);
}

/// About to call unshare(2) or setns(2) so that this thread may be in another network namespace: what sockets are kept belong to this one.
pub fn before_other_network() {
    with(Process::end_spare_sockets);
}

/// The main thread is about to end, and others go on: the process ends with the last of them.
pub fn before_main_thread_ends() {
    with(Process::end_watchdog);
}

/// About to fork(2). All locks are held until [`after_fork_in_parent`] or [`after_fork_in_child`].
pub fn before_fork() {
    with(Process::before_fork);
}

/// fork(2) returned in the parent.
pub fn after_fork_in_parent() {
    with(Process::after_fork_in_parent);
}

/// fork(2) returned in the child: it starts without an engine. A child that was made by a bare system call is told of here too, later and
/// without [`before_fork`]: locks may be held by threads that it does not have, so state is to be replaced, not unlocked.
pub fn after_fork_in_child() {
    with(Process::after_fork_in_child);
}

/// About to call execve(2): what lives on beyond it becomes the kernel's.
pub fn before_exec() {
    with(Process::before_exec);
}

/// Called before another program starts beside this one (posix_spawn(3) and its users): what that program inherits moves to the kernel.
pub fn before_spawn() {
    with(Process::before_spawn);
}

/// A thread is about to be cancelled by pthread_cancel(3), or asks for the asynchronous cancellation type.
pub fn before_cancel() {
    with(Process::before_cancel);
}

/// The program ends: what it sent is still delivered.
pub fn before_exit() {
    with(Process::before_exit);
}

/// Tells the process, if there is a broker for it.
fn with(tell: impl FnOnce(&'static Process)) {
    if let Some(process) = global::process() {
        tell(process);
    }
}

/// The same about a descriptor that is ours.
fn with_ours(fd: RawFd, tell: impl FnOnce(&'static Process)) {
    if is_ours(fd) {
        with(|process| {
            process.recall_watchdog();
            tell(process);
        });
    }
}

/// Asks the process about a descriptor that is ours.
#[inline]
fn verdict<T>(fd: RawFd, ask: impl FnOnce(&'static Process) -> Verdict<T>) -> Verdict<T> {
    let Some(process) = global::process().filter(|_| is_ours(fd)) else { return Verdict::Kernel };
    process.recall_watchdog();
    ask(process)
}

/// The same about two descriptors of which one is ours.
fn either<T>(one: RawFd, other: RawFd, ask: impl FnOnce(&'static Process) -> Verdict<T>) -> Verdict<T> {
    verdict(if is_ours(one) { one } else { other }, ask)
}
