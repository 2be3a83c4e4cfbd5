//! sendfile(2) and splice(2) onto connections, by copying.

use std::io::IoSlice;
use std::os::fd::RawFd;

use syscall::Message;

use crate::errno::{Errno, fail};
use crate::inside;
use crate::process::Process;
use crate::request::{Send, Verdict};
use crate::socket::{Place, Role};

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
        match self.is_connection(out) {
            Ok(true) => {}
            Ok(false) => return Verdict::Kernel,
            Err(errno) => return Verdict::Done(Err(errno)),
        }
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
        let result = self.send_file_from(out, file, at, count);
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

    fn send_file_from(&self, out: RawFd, file: RawFd, at: i64, count: usize) -> Result<usize, Errno> {
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
            match self.send_piece(out, &piece[..read], more) {
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
            self.expect_no_more(out); // It was to be followed by what is not there.
        }
        Ok(done)
    }

    fn send_piece(&self, out: RawFd, piece: &[u8], flags: i32) -> Result<usize, Errno> {
        let buffers = [IoSlice::new(piece)];
        match self.send(out, &Send { buffers: &buffers, name: None, control: None, flags }) {
            Verdict::Done(result) => result,
            // It has become the kernel's: this piece goes there, as what follows will.
            Verdict::Kernel => {
                let message = Message { buffers: &buffers, ..Message::default() };
                let flags = flags & !libc::MSG_MORE; // What follows may be nothing, and nobody would say so.
                inside::outside(|| syscall::send_message(out, &message, flags))
                    .map_or(fail(libc::EINTR), |sent| Ok(sent?))
            }
        }
    }

    /// splice(2): from a pipe onto a connection, or from a connection into a pipe.
    pub(crate) fn splice(&self, from: RawFd, to: RawFd, count: usize, flags: u32) -> Verdict<usize> {
        let (from_connection, to_connection) = match (self.is_connection(from), self.is_connection(to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(errno), _) | (_, Err(errno)) => return Verdict::Done(Err(errno)),
        };
        match (from_connection, to_connection) {
            (false, false) => Verdict::Kernel,
            _ if count == 0 || !is_open(from) || !is_open(to) => Verdict::Kernel,
            (true, false) if is_pipe(to) => Verdict::Done(self.splice_out(from, to, count, flags)),
            (false, true) if is_pipe(from) => Verdict::Done(self.splice_in(from, to, count, flags)),
            _ => Verdict::Done(fail(libc::EINVAL)),
        }
    }

    /// What was taken out of the pipe has to be sent, so that no more is taken than finds room.
    fn splice_in(&self, pipe: RawFd, to: RawFd, count: usize, flags: u32) -> Result<usize, Errno> {
        const MORE: u32 = 4;
        let room = self.send_room(to)?;
        wait_for_pipe(pipe, libc::POLLIN, flags)?;
        let mut piece = vec![0; count.min(PIECE).min(room)];
        let read = syscall::read(pipe, &mut piece)?;
        let more = if flags & MORE != 0 { libc::MSG_MORE } else { 0 };
        let mut sent = 0;
        while sent < read {
            match self.send_piece(to, &piece[sent..read], more) {
                Ok(count) => sent += count,
                // Another thread has used the room, or there is no memory: what was taken is nowhere else.
                Err(Errno(libc::EAGAIN | libc::EINTR)) => self.wait_for_room(to),
                Err(_) if sent > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }

    /// Waits until a connection takes more, or has failed, whether it may wait or not.
    fn wait_for_room(&self, fd: RawFd) {
        let mut fds = [crate::request::PollFd { fd, events: libc::POLLOUT, revents: 0 }];
        // A signal does not matter here: the caller looks again.
        let _ = self.poll(&mut fds, None, None);
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

    /// Octets that a connection takes now; waits for some if it may wait.
    fn send_room(&self, fd: RawFd) -> Result<usize, Errno> {
        let mut fds = [crate::request::PollFd { fd, events: libc::POLLOUT, revents: 0 }];
        let nonblocking = self.is_nonblocking(fd);
        let patience = nonblocking.then_some(std::time::Duration::ZERO);
        match self.poll(&mut fds, patience, None) {
            Verdict::Done(Ok(0)) => fail(libc::EAGAIN),
            Verdict::Done(Err(errno)) => Err(errno),
            _ => Ok(()),
        }?;
        let mut state = self.lock();
        let connection = state.socket_of(fd).and_then(|id| state.sockets.get(id)?.connection());
        let room =
            connection.zip(state.queue.stack()).map_or(0, |(connection, stack)| stack.send_room(connection));
        // Without room it has ended, or another thread was faster: sending finds out which.
        Ok(room.max(1))
    }

    fn is_nonblocking(&self, fd: RawFd) -> bool {
        let state = self.lock();
        state.socket_of(fd).and_then(|id| state.sockets.get(id)).is_some_and(|socket| socket.nonblocking)
    }

    /// Whether it is a connection of ours; one that was inherited is the kernel's after that.
    fn is_connection(&self, fd: RawFd) -> Result<bool, Errno> {
        let state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Ok(false) };
        match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::Stack(_) | Place::ToStack { .. } | Place::Lost)) => Ok(true),
            Some(Role::Stream(Place::FromParent(_))) => self.inherit(state, id).map(|()| false),
            Some(Role::Stream(Place::Kernel) | Role::Listener { .. } | Role::Udp(_)) | None => Ok(false),
        }
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
