//! sendfile(2) and splice(2) onto connections, by copying.

use std::io::IoSlice;
use std::os::fd::RawFd;

use super::Role;
use crate::Errno;
use crate::calls::{Send, Verdict};
use crate::errno::fail;
use crate::process::Process;

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
        if !self.is_connection(out) {
            return Verdict::Kernel;
        }
        let at = match &offset {
            Some(offset) => **offset,
            None => match syscall::lseek(file, 0, libc::SEEK_CUR) {
                Ok(at) => at,
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
                    if sent < read {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn send_piece(&self, out: RawFd, piece: &[u8], flags: i32) -> Result<usize, Errno> {
        let buffers = [IoSlice::new(piece)];
        match self.send(out, &Send { buffers: &buffers, name: None, control: None, flags }) {
            Verdict::Done(result) => result,
            Verdict::Kernel => fail(libc::EPIPE),
        }
    }

    /// splice(2): from a pipe onto a connection, or from a connection into a pipe.
    pub(crate) fn splice(&self, from: RawFd, to: RawFd, count: usize, flags: u32) -> Verdict<usize> {
        match (self.is_connection(from), self.is_connection(to)) {
            (false, false) => Verdict::Kernel,
            (true, true) => Verdict::Done(fail(libc::EINVAL)),
            (false, true) => Verdict::Done(self.splice_in(from, to, count)),
            (true, false) => Verdict::Done(self.splice_out(from, to, count, flags)),
        }
    }

    /// What was taken out of the pipe has to be sent, so that no more is taken than finds room.
    fn splice_in(&self, pipe: RawFd, to: RawFd, count: usize) -> Result<usize, Errno> {
        let room = self.send_room(to)?;
        let mut piece = vec![0; count.min(PIECE).min(room)];
        let read = syscall::read(pipe, &mut piece)?;
        let mut sent = 0;
        while sent < read {
            sent += self.send_piece(to, &piece[sent..read], 0)?;
        }
        Ok(sent)
    }

    fn splice_out(&self, from: RawFd, pipe: RawFd, count: usize, flags: u32) -> Result<usize, Errno> {
        use std::io::IoSliceMut;

        use crate::calls::Receive;
        const NONBLOCK: u32 = 2;
        // As much as a pipe takes whole, so that nothing is received that it does not take.
        const WHOLE: usize = 4096;
        let mut piece = vec![0; count.min(WHOLE)];
        let mut poll = [syscall::PollFd { fd: pipe, events: libc::POLLOUT, revents: 0 }];
        let patience = (flags & NONBLOCK != 0).then_some(std::time::Duration::ZERO);
        if syscall::ppoll(&mut poll, patience, None)? == 0 {
            return fail(libc::EAGAIN);
        }
        let mut buffers = [IoSliceMut::new(&mut piece)];
        let flags = if flags & NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
        let mut request = Receive { buffers: &mut buffers, name: None, control: None, flags };
        let received = match self.receive(from, &mut request) {
            Verdict::Done(received) => received?.len,
            Verdict::Kernel => return fail(libc::EINVAL),
        };
        Ok(syscall::write(pipe, &piece[..received])?)
    }

    /// Octets that a connection takes now; waits for some if it may wait.
    fn send_room(&self, fd: RawFd) -> Result<usize, Errno> {
        const LEAST: usize = 4096;
        let mut fds = [crate::calls::PollFd { fd, events: libc::POLLOUT, revents: 0 }];
        let nonblocking = self.is_nonblocking(fd);
        let patience = nonblocking.then_some(std::time::Duration::ZERO);
        match self.poll(&mut fds, patience, None) {
            Verdict::Done(Ok(0)) => fail(libc::EAGAIN),
            Verdict::Done(Err(errno)) => Err(errno),
            // A socket is called writable when a third of its buffer is free, which is more than that.
            _ => Ok(LEAST),
        }
    }

    fn is_nonblocking(&self, fd: RawFd) -> bool {
        let state = self.lock();
        state.socket_of(fd).and_then(|id| state.sockets.get(id)).is_some_and(|socket| socket.nonblocking)
    }

    fn is_connection(&self, fd: RawFd) -> bool {
        let state = self.lock();
        let role = state.socket_of(fd).and_then(|id| state.sockets.get(id)).map(|socket| &socket.role);
        matches!(role, Some(Role::Connection(_) | Role::Departing { .. }))
    }
}
