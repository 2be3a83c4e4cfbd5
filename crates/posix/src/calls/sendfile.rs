//! sendfile(2) and splice(2) onto connections, by copying.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;

use syscall::Message;

use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::inside;
use crate::process::Process;
use crate::request::{Send, Verdict};
use crate::socket::{Place, Role};
use crate::wait::On;
use crate::waiter::Waiter;

/// Octets that are read of a file at once.
const PIECE: usize = 64 << 10;

impl Process {
    /// sendfile(2).
    pub(crate) fn sendfile(
        &self,
        out: RawFd,
        file: RawFd,
        offset: Option<&mut i64>,
        count: usize,
    ) -> Verdict<usize> {
        let out = match self.take_connection(out) {
            Ok(Some(out)) => out,
            Ok(None) => return Verdict::Kernel,
            Err(errno) => return Verdict::Done(Err(errno)),
        };
        let at = match &offset {
            Some(offset) => **offset,
            None => match syscall::lseek(file, 0, libc::SEEK_CUR) {
                Ok(at) => at,
                // What has no position cannot be read at one: the kernel calls that an invalid argument here.
                Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => {
                    return Verdict::Done(fail(libc::EINVAL));
                }
                Err(error) => return Verdict::Done(Err(error.into())),
            },
        };
        let result = out.send_file(file, at, count);
        if let Ok(done) = result {
            let end = at + done as i64;
            match offset {
                Some(offset) => *offset = end,
                // The position was read: it can be set.
                None => {
                    let _ = syscall::lseek(file, end, libc::SEEK_SET);
                }
            }
        }
        Verdict::Done(result)
    }

    /// splice(2): from a pipe onto a connection, or from a connection into a pipe.
    pub(crate) fn splice(&self, from: RawFd, to: RawFd, count: usize, flags: u32) -> Verdict<usize> {
        let (source, sink) = match (self.take_connection(from), self.take_connection(to)) {
            (Ok(source), Ok(sink)) => (source, sink),
            (Err(errno), _) | (_, Err(errno)) => return Verdict::Done(Err(errno)),
        };
        match (source, sink) {
            (None, None) => Verdict::Kernel,
            _ if count == 0 || !is_open(from) || !is_open(to) => Verdict::Kernel,
            (Some(_), None) if is_pipe(to) => Verdict::Done(self.splice_out(from, to, count, flags)),
            (None, Some(sink)) if is_pipe(from) => Verdict::Done(sink.splice_in(from, count, flags)),
            _ => Verdict::Done(fail(libc::EINVAL)),
        }
    }

    /// `SPLICE_F_NONBLOCK` is about the pipe; whether the connection is waited for, it says itself.
    fn splice_out(&self, from: RawFd, pipe: RawFd, count: usize, flags: u32) -> Result<usize, Errno> {
        use std::io::IoSliceMut;

        use crate::request::Receive;
        // As much as a pipe takes whole, so that nothing is received that it does not take.
        const WHOLE: usize = 4096;
        let mut piece = vec![0; count.min(WHOLE)];
        wait_for_pipe(pipe, libc::POLLOUT, flags)?;
        let mut buffers = [IoSliceMut::new(&mut piece)];
        let mut request = Receive { buffers: &mut buffers, name: None, control: None, flags: 0 };
        let received = match self.receive(from, &mut request) {
            Verdict::Done(received) => received?.len,
            // It has become the kernel's.
            Verdict::Kernel => {
                let spliced = inside::outside(|| syscall::splice(from, pipe, count, flags));
                return spliced.map_or(fail(libc::EINTR), |spliced| Ok(spliced?));
            }
        };
        Ok(syscall::write(pipe, &piece[..received])?)
    }

    /// A connection of ours, to be used until the end of the call; one that was inherited is the kernel's after that.
    fn take_connection(&self, fd: RawFd) -> Result<Option<Taken<'_>>, Errno> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Ok(None) };
        match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::Stack(_) | Place::ToStack { .. } | Place::Lost)) => {
                let caller = state.begin_call(On::Socket(id, None));
                Ok(Some(Taken { process: self, id, fd, caller }))
            }
            Some(Role::Stream(Place::FromParent(_))) => self.inherit(state, id).map(|()| None),
            Some(Role::Stream(Place::Kernel) | Role::Listener { .. } | Role::Udp(_)) | None => Ok(None),
        }
    }
}

/// A connection that a call sends several pieces on. They all go there, also if the program closes it meanwhile and its number becomes another
/// file's.
struct Taken<'p> {
    process: &'p Process,
    id: SocketId,
    /// Its number when the call began.
    fd: RawFd,
    caller: Option<Arc<Waiter>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let now = self.process.now();
        self.process.lock().end_call(On::Socket(self.id, None), self.caller.as_ref(), now);
    }
}

impl Taken<'_> {
    fn send_file(&self, file: RawFd, at: i64, count: usize) -> Result<usize, Errno> {
        let mut piece = vec![0; PIECE.min(count)];
        let mut done = 0;
        let mut is_held_back = false;
        while done < count {
            let most = piece.len().min(count - done);
            let read = match syscall::pread(file, &mut piece[..most], at + done as i64) {
                Ok(0) => break,
                Ok(read) => read,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            };
            let more = if done + read < count && read == most { libc::MSG_MORE } else { 0 };
            match self.send(&piece[..read], more) {
                Ok(sent) => {
                    done += sent;
                    // With less room than that the program comes back for the rest.
                    is_held_back = more != 0 && sent == read;
                    if sent < read {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        if is_held_back {
            self.process.expect_no_more(self.id); // It was to be followed by what is not there.
        }
        Ok(done)
    }

    fn send(&self, piece: &[u8], flags: i32) -> Result<usize, Errno> {
        let buffers = [IoSlice::new(piece)];
        let request = Send { buffers: &buffers, name: None, control: None, flags };
        let process = self.process;
        match process.send_by(process.lock(), self.id, &request) {
            Verdict::Done(result) => result,
            // It has become the kernel's: this piece goes there, as what follows will.
            Verdict::Kernel => {
                let kernel = process.lock().moved_in_calls.hold(self.id);
                let message = Message { buffers: &buffers, ..Message::default() };
                let flags = flags & !libc::MSG_MORE; // What follows may be nothing, and nobody would say so.
                let send = || syscall::send_message(kernel.unwrap_or(self.fd), &message, flags);
                let sent = inside::outside(send).map_or(fail(libc::EINTR), |sent| Ok(sent?));
                if kernel.is_some() {
                    process.lock().moved_in_calls.end_call(self.id, Waiter::is_own);
                }
                sent
            }
        }
    }

    /// What was taken out of the pipe has to be sent, so that no more is taken than finds room.
    fn splice_in(&self, pipe: RawFd, count: usize, flags: u32) -> Result<usize, Errno> {
        const MORE: u32 = 4;
        let room = self.room()?;
        wait_for_pipe(pipe, libc::POLLIN, flags)?;
        let mut piece = vec![0; count.min(PIECE).min(room)];
        let read = syscall::read(pipe, &mut piece)?;
        let more = if flags & MORE != 0 { libc::MSG_MORE } else { 0 };
        let mut sent = 0;
        while sent < read {
            match self.send(&piece[sent..read], more) {
                Ok(count) => sent += count,
                // Another thread has used the room, or there is no memory: what was taken is nowhere else.
                Err(Errno(libc::EAGAIN | libc::EINTR)) => self.wait_for_room(),
                Err(_) if sent > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }

    /// Waits until the connection takes more, or has failed, whether it may wait or not.
    fn wait_for_room(&self) {
        let mut fds = [crate::request::PollFd { fd: self.fd, events: libc::POLLOUT, revents: 0 }];
        // A signal does not matter here: the caller looks again.
        let _ = self.process.poll(&mut fds, None, None);
    }

    /// Octets that the connection takes now; waits for some if it may wait.
    fn room(&self) -> Result<usize, Errno> {
        let is_nonblocking =
            |it: &crate::process::State| it.sockets.get(self.id).is_some_and(|it| it.nonblocking);
        let patience = is_nonblocking(&self.process.lock()).then_some(std::time::Duration::ZERO);
        let mut fds = [crate::request::PollFd { fd: self.fd, events: libc::POLLOUT, revents: 0 }];
        match self.process.poll(&mut fds, patience, None) {
            Verdict::Done(Ok(0)) => fail(libc::EAGAIN),
            Verdict::Done(Err(errno)) => Err(errno),
            _ => Ok(()),
        }?;
        let mut state = self.process.lock();
        let connection = state.sockets.get(self.id).and_then(|socket| socket.connection());
        let room =
            connection.zip(state.queue.stack()).map_or(0, |(connection, stack)| stack.send_room(connection));
        // Without room it has ended, or another thread was faster: sending finds out which.
        Ok(room.max(1))
    }
}

/// Whether splice(2) may have it as the other end.
fn is_pipe(fd: RawFd) -> bool {
    syscall::fcntl(fd, libc::F_GETPIPE_SZ, 0).is_ok()
}

fn is_open(fd: RawFd) -> bool {
    syscall::fcntl(fd, libc::F_GETFD, 0).is_ok()
}

/// Waits until a pipe has something to read, or room, unless it is not to be waited for.
fn wait_for_pipe(fd: RawFd, events: i16, flags: u32) -> Result<(), Errno> {
    const NONBLOCK: u32 = 2;
    let status = syscall::fcntl(fd, libc::F_GETFL, 0)?;
    let may_wait = flags & NONBLOCK == 0 && status & libc::O_NONBLOCK == 0;
    let patience = (!may_wait).then_some(std::time::Duration::ZERO);
    loop {
        let mut fds = [syscall::PollFd { fd, events, revents: 0 }];
        match inside::sleep(patience, |time| syscall::ppoll_within(&mut fds, time, None)) {
            Some(Ok(0)) if !may_wait => return fail(libc::EAGAIN),
            Some(Ok(1..)) => return Ok(()),
            Some(Err(error)) if error.raw_os_error() != Some(libc::EINTR) => return Err(error.into()),
            Some(_) | None if inside::interrupted() => return fail(libc::EINTR),
            Some(_) | None => {}
        }
    }
}
