//! getsockname(2), getpeername(2).

use std::net::SocketAddr;
use std::os::fd::RawFd;

use crate::address::write_name;
use crate::errno::fail;
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;

impl Process {
    /// getsockname(2).
    pub(crate) fn getsockname(&self, fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        state.name_before_route(id);
        match state.endpoints(id) {
            Some((local, _)) => Verdict::Done(Ok(state.write_name_of(id, local, name))),
            None => Verdict::Kernel,
        }
    }

    /// getpeername(2).
    pub(crate) fn getpeername(&self, fd: RawFd, name: &mut [u8]) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        if state.is_connecting(id) || state.is_over(id) {
            return Verdict::Done(fail(libc::ENOTCONN));
        }
        match state.endpoints(id) {
            Some((_, remote)) => Verdict::Done(Ok(state.write_name_of(id, remote, name))),
            None => Verdict::Kernel,
        }
    }
}

impl State {
    fn write_name_of(&self, id: SocketId, address: SocketAddr, name: &mut [u8]) -> usize {
        let domain = self.sockets.get(id).map_or(libc::AF_INET, |socket| socket.domain);
        write_name(address, domain, name)
    }
}
