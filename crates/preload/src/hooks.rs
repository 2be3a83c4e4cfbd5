//! The table of all hooked functions, in the order of the manual's chapters: names with their aliases, arguments, and actions.
//!
//! * `if C => Q`: if condition `C` holds, `posix` is asked `Q`; without an answer the C library's own function is called.
//!   `point(C)` is `C`, for a function that is a cancellation point.
//! * `then F`: after the C library's function, `posix` learns its result.
//! * `when C => W`: if `C` holds, `W` replaces the C library's function.
//!
//! Not hooked, because the C library's functions do the right thing: `fork` (see `calls::fork`); `pread`, `pwrite`, `preadv`, `pwritev` (a
//! socket answers `ESPIPE`, and our descriptors are sockets for the kernel, too); `socketpair`, `vmsplice`, `tee`,
//! `copy_file_range` (never ours); `isfdtype`, `__fdelt_chk` (make no system call that matters); `exit`, `quick_exit` (see `start`).
//! Variadic functions are in `trampolines`, except those whose variadic arguments follow from the fixed ones, or can always be passed on
//! (`fcntl`, `ioctl`, `clone`, `prctl`, `syscall`): on x86-64 and aarch64 variadic numbers and pointers are passed like fixed ones, and
//! may be read (without meaning) even if the caller left them out.
//! Names of version `GLIBC_PRIVATE` are for the C library's own parts, not for programs.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    FILE, aiocb, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t, pid_t, pollfd,
    posix_spawn_file_actions_t, posix_spawnattr_t, pthread_t, sigevent, sighandler_t, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, timeval,
};

use crate::answer::{active, ask, ours, tell, waits_here};
use crate::asked as told;
use crate::calls::cancel::point;
use crate::calls::exec::{self, Strings};
use crate::calls::receive::OWN_POSITION;
use crate::calls::select::Sets;
use crate::calls::{
    aio, cancel, confine, descriptor, epoll, fork, option, poll as polling, receive, rights,
    select as selecting, send as sending, signal as signals, socket as sockets, stdio, system_call,
};

/// A row's result is one token.
type Stream = *mut FILE;

#[rustfmt::skip]
#[allow(non_snake_case, reason = "the C library's names")]
mod table {
use super::*;
hooks! {
    // Connections come about.
    [socket](domain: c_int, kind: c_int, protocol: c_int) -> c_int
        { if active() => sockets::socket(domain, kind, protocol), then |fd| if fd >= 0 { told::on_socket(fd, domain, kind, protocol) } }
    [bind](fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int
        { if ours(fd) && !address.is_null() => sockets::may_bind(fd, address, len), then |result| if result == 0 && ours(fd) { told::on_bind(fd) } }
    [bindresvport](fd: c_int, address: *mut sockaddr) -> c_int
        { then |result| if result == 0 && ours(fd) { told::on_bind(fd) } }
    [listen](fd: c_int, backlog: c_int) -> c_int
        { if ours(fd) => sockets::may_listen(fd), then |result| if result == 0 && ours(fd) { told::on_listen(fd, backlog) } }
    [accept](fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int
        { if point(ours(fd)) => sockets::accept(fd, address, len, 0), then |accepted| if accepted >= 0 && ours(fd) { told::on_accept(fd) } }
    [accept4](fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int
        { if point(ours(fd)) => sockets::accept(fd, address, len, flags), then |accepted| if accepted >= 0 && ours(fd) { told::on_accept(fd) } }
    [connect __connect](fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int
        { if point(ours(fd)) => sockets::connect(fd, address, len) }
    [shutdown](fd: c_int, how: c_int) -> c_int
        { if ours(fd) => sockets::shutdown(fd, how) }
    [getsockname](fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int
        { if ours(fd) => sockets::getsockname(fd, address, len) }
    [getpeername](fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int
        { if ours(fd) => sockets::getpeername(fd, address, len) }
    [getsockopt](fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int
        { if ours(fd) => option::getsockopt(fd, level, name, value, len) }
    [setsockopt](fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int
        { if ours(fd) => option::setsockopt(fd, level, name, value, len) }
    [sockatmark](fd: c_int) -> c_int
        { if ours(fd) => descriptor::sockatmark(fd) }

    // Data comes.
    [read __read](fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t
        { if point(ours(fd)) => receive::read(fd, buffer, count) }
    [__read_chk](fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t
        { if point(ours(fd) && count <= room) => receive::read(fd, buffer, count) }
    [readv](fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t
        { if point(ours(fd)) => receive::readv(fd, vectors, count, 0) }
    [preadv2 preadv64v2](fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        { if point(ours(fd) && offset == OWN_POSITION) => receive::readv(fd, vectors, count, flags) }
    [recv](fd: c_int, buffer: *mut c_void, count: size_t, flags: c_int) -> ssize_t
        { if point(ours(fd)) => receive::recv(fd, buffer, count, flags) }
    [__recv_chk](fd: c_int, buffer: *mut c_void, count: size_t, room: size_t, flags: c_int) -> ssize_t
        { if point(ours(fd) && count <= room) => receive::recv(fd, buffer, count, flags) }
    [recvfrom](fd: c_int, buffer: *mut c_void, count: size_t, flags: c_int, address: *mut sockaddr, len: *mut socklen_t) -> ssize_t
        { if point(ours(fd)) => receive::recvfrom(fd, buffer, count, flags, address, len) }
    [__recvfrom_chk](fd: c_int, buffer: *mut c_void, count: size_t, room: size_t, flags: c_int, address: *mut sockaddr, len: *mut socklen_t) -> ssize_t
        { if point(ours(fd) && count <= room) => receive::recvfrom(fd, buffer, count, flags, address, len) }
    [recvmsg](fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t
        { if point(ours(fd)) => receive::recvmsg(fd, message, flags), then |result| rights::received(result, message) }
    [recvmmsg](fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int
        { if point(ours(fd)) => receive::recvmmsg(fd, messages, count, flags, timeout), then |result| rights::all_received(result, messages) }

    // Data goes.
    [write __write](fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t
        { if point(ours(fd)) => sending::send(fd, buffer, count, 0) }
    [writev](fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t
        { if point(ours(fd)) => sending::writev(fd, vectors, count, 0) }
    [pwritev2 pwritev64v2](fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
        { if point(ours(fd) && offset == OWN_POSITION) => sending::writev(fd, vectors, count, flags) }
    [send __send](fd: c_int, buffer: *const c_void, count: size_t, flags: c_int) -> ssize_t
        { if point(ours(fd)) => sending::send(fd, buffer, count, flags) }
    [sendto](fd: c_int, buffer: *const c_void, count: size_t, flags: c_int, address: *const sockaddr, len: socklen_t) -> ssize_t
        { if point(ours(fd)) => sending::sendto(fd, buffer, count, flags, address, len) }
    [sendmsg](fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t
        { if point(ours(fd) || rights::may_pass(message)) => sending::sendmsg(fd, message, flags) }
    [sendmmsg](fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
        { if point(active()) => sending::sendmmsg(fd, messages, count, flags) }
    [sendfile sendfile64](out: c_int, file: c_int, offset: *mut off64_t, count: size_t) -> ssize_t
        { if ours(out) => sending::sendfile(out, file, offset, count) }
    [aio_read aio_read64](block: *mut aiocb) -> c_int
        { when active() => { aio::before(&block.cast_const(), 1); next::aio_read(block) } }
    [aio_write aio_write64](block: *mut aiocb) -> c_int
        { when active() => { aio::before(&block.cast_const(), 1); next::aio_write(block) } }
    [lio_listio lio_listio64](mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int
        { when active() => { aio::before(list.cast(), count); next::lio_listio(mode, list, count, event) } }
    [splice](from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t
        { if point(ours(from) || ours(to)) => sending::splice(from, from_offset, to, to_offset, count, flags) }

    // Waiting.
    [epoll_create](size: c_int) -> c_int
        { then |fd| if fd >= 0 { told::on_epoll_create(fd) } }
    [epoll_create1](flags: c_int) -> c_int
        { then |fd| if fd >= 0 { told::on_epoll_create(fd) } }
    [epoll_ctl](epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int
        { if ours(epfd) || ours(fd) => epoll::epoll_ctl(epfd, op, fd, event) }
    [epoll_wait](epfd: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int
        { if point(waits_here(epfd)) => epoll::epoll_pwait(epfd, events, room, timeout, std::ptr::null()) }
    [epoll_pwait](epfd: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int
        { if point(waits_here(epfd)) => epoll::epoll_pwait(epfd, events, room, timeout, mask) }
    [epoll_pwait2](epfd: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int
        { if point(waits_here(epfd)) => epoll::epoll_pwait2(epfd, events, room, timeout, mask) }
    [poll __poll](fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int
        { if point(polling::any_ours(fds, count)) => polling::poll(fds, count, timeout) }
    [__poll_chk](fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int
        { if point(polling::fits(count, room) && polling::any_ours(fds, count)) => polling::poll(fds, count, timeout) }
    [ppoll](fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        { if point(polling::any_ours(fds, count)) => polling::ppoll(fds, count, timeout, mask) }
    [__ppoll_chk](fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int
        { if point(polling::fits(count, room) && polling::any_ours(fds, count)) => polling::ppoll(fds, count, timeout, mask) }
    [select __select](count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int
        { if point(Sets::new(count, read, write, except).any_ours()) => selecting::select(Sets::new(count, read, write, except), timeout) }
    [pselect](count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int
        { if point(Sets::new(count, read, write, except).any_ours()) => selecting::pselect(Sets::new(count, read, write, except), timeout, mask) }

    // Descriptors as numbers.
    [close __close](fd: c_int) -> c_int
        { if point(ours(fd)) => descriptor::close(fd) }
    [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int
        { if active() => descriptor::close_range(first, last, flags) }
    [closefrom](first: c_int) -> ()
        { if active() => descriptor::closefrom(first) }
    [dup](fd: c_int) -> c_int
        { if ours(fd) => descriptor::dup(fd) }
    [dup2 __dup2](from: c_int, to: c_int) -> c_int
        { if from != to && (ours(from) || ours(to)) => descriptor::dup3(from, to, 0) }
    [dup3](from: c_int, to: c_int, flags: c_int) -> c_int
        { if from != to && (ours(from) || ours(to)) => descriptor::dup3(from, to, flags) }
    [fcntl __fcntl fcntl64](fd: c_int, command: c_int, argument: c_long) -> c_int
        { if ours(fd) => descriptor::fcntl(fd, command, argument) }
    [ioctl](fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int
        { if ours(fd) => descriptor::ioctl(fd, request, argument) }
    [fstat fstat64](fd: c_int, status: *mut c_void) -> c_int
        { if ours(fd) => descriptor::fstat(fd) }
    [__fxstat __fxstat64](version: c_int, fd: c_int, status: *mut c_void) -> c_int
        { if ours(fd) => descriptor::fstat(fd) }
    [fstatat fstatat64](fd: c_int, path: *const c_char, status: *mut c_void, flags: c_int) -> c_int
        { if descriptor::is_itself(fd, path, flags) => descriptor::fstat(fd) }
    [statx](fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut c_void) -> c_int
        { if descriptor::is_itself(fd, path, flags) => descriptor::fstat(fd) }

    // Streams, which read and write past all hooks.
    [fdopen _IO_fdopen](fd: c_int, mode: *const c_char) -> Stream
        { if ours(fd) => stdio::move_to_kernel(fd) }
    [fclose _IO_fclose](stream: *mut FILE) -> c_int
        { if stdio::is_ours(stream) => stdio::move_stream(stream) }
    [freopen freopen64](path: *const c_char, mode: *const c_char, stream: *mut FILE) -> Stream
        { if stdio::is_ours(stream) => stdio::move_stream(stream) }
    [vdprintf](fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int
        { if ours(fd) => stdio::move_to_kernel(fd) }
    [__vdprintf_chk](fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int
        { if ours(fd) => stdio::move_to_kernel(fd) }

    // Processes.
    [_Fork]() -> pid_t
        { when active() => fork::plain_fork() }
    [execve](path: *const c_char, arguments: Strings, environment: Strings) -> c_int
        { when active() => exec::execve(path, arguments, environment) }
    [execv](path: *const c_char, arguments: Strings) -> c_int
        { when active() => exec::execv(path, arguments) }
    [execvp](file: *const c_char, arguments: Strings) -> c_int
        { when active() => exec::execvp(file, arguments) }
    [execvpe](file: *const c_char, arguments: Strings, environment: Strings) -> c_int
        { when active() => exec::execvpe(file, arguments, environment) }
    [fexecve](fd: c_int, arguments: Strings, environment: Strings) -> c_int
        { when active() => exec::fexecve(fd, arguments, environment) }
    [execveat](folder: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) -> c_int
        { when active() => exec::execveat(folder, path, arguments, environment, flags) }
    [posix_spawn](pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings) -> c_int
        { when active() => exec::spawn(environment, |environment| next::posix_spawn(pid, path, actions, attributes, arguments, environment)) }
    [posix_spawnp](pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings) -> c_int
        { when active() => exec::spawn(environment, |environment| next::posix_spawnp(pid, file, actions, attributes, arguments, environment)) }
    [posix_spawn_file_actions_adddup2](actions: *mut posix_spawn_file_actions_t, from: c_int, to: c_int) -> c_int
        { if ours(from) => exec::move_for_child(from) }
    [system](command: *const c_char) -> c_int
        { if active() => exec::before_spawn() }
    [popen _IO_popen](command: *const c_char, kind: *const c_char) -> Stream
        { if active() => exec::before_spawn() }
    [clone __clone](function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent: *mut c_void, tls: *mut c_void, child: *mut c_void) -> c_int
        { when active() => fork::clone(function, stack, flags, argument, parent, tls, child) }
    [prctl](option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int
        { when active() => confine::prctl(option, a, b, c, d) }
    [unshare](flags: c_int) -> c_int
        { if active() => confine::unshare(flags) }
    [setns](fd: c_int, kind: c_int) -> c_int
        { if active() => confine::setns(kind) }
    [_exit _Exit](status: c_int) -> !
        { when active() => exit(status) }

    // Signals.
    [sigaction __sigaction](signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
        { when active() => signals::set_action(signal, new, old) }
    [signal bsd_signal ssignal](signal: c_int, handler: sighandler_t) -> sighandler_t
        { when active() => signals::set_handler(signal, handler, || next::signal(signal, handler)) }
    [sysv_signal __sysv_signal](signal: c_int, handler: sighandler_t) -> sighandler_t
        { when active() => signals::set_handler(signal, handler, || next::sysv_signal(signal, handler)) }
    [sigset](signal: c_int, handler: sighandler_t) -> sighandler_t
        { when active() => signals::set_handler(signal, handler, || next::sigset(signal, handler)) }
    [siginterrupt](signal: c_int, interrupts: c_int) -> c_int
        { when active() => signals::siginterrupt(signal, interrupts) }

    // Threads.
    [pthread_cancel](thread: pthread_t) -> c_int
        { when active() => cancel::cancel(thread) }
    [pthread_setcanceltype](kind: c_int, old: *mut c_int) -> c_int
        { when active() => cancel::set_type(kind, old) }
    [pthread_exit](result: *mut c_void) -> !
        { when active() => end_thread(|| next::pthread_exit(result)) }
    [thrd_exit](result: c_int) -> !
        { when active() => end_thread(|| next::thrd_exit(result)) }

    // Most of the above by their numbers: `calls::system_call` has the list.
    [syscall](number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long
        { when active() => system_call::system_call(number, [a, b, c, d, e, f]) }
}
}

pub(crate) use table::*;

/// Ends a thread; after the main one, no thread of ours may be left that keeps the process from ending with the program's last.
unsafe fn end_thread(end: impl FnOnce()) -> ! {
    // SAFETY: no memory is involved.
    if unsafe { libc::gettid() == libc::getpid() } {
        tell(told::before_main_thread_ends);
    }
    end();
    unreachable!("the thread has ended")
}

/// Ends the process after what it sent is safe.
unsafe fn exit(status: c_int) -> ! {
    tell(told::before_exit);
    // SAFETY: no memory is involved.
    unsafe { next::_exit(status) }
}
