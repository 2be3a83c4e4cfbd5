//! The error queue of connections (`MSG_ERRQUEUE`): completed sends with `MSG_ZEROCOPY`, and times.

use std::net::{IpAddr, SocketAddr};

use super::SocketId;
use super::address::encode;
use super::control_messages::ControlWriter;
use crate::Errno;
use crate::calls::{Receive, Received};
use crate::errno::fail;
use crate::process::State;

/// The source of an error: `ee_origin` of `struct sock_extended_err`.
#[derive(Clone, Copy)]
pub(crate) enum ErrorOrigin {
    Icmp = 2,
    Icmp6 = 3,
    Timestamping = 4,
    ZeroCopy = 5,
}

/// `struct sock_extended_err`.
pub(crate) struct ExtendedError {
    pub(crate) errno: i32,
    pub(crate) origin: ErrorOrigin,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) info: u32,
    pub(crate) data: u32,
}

impl ExtendedError {
    /// As a control message for a socket of `domain`, with the address that reported it.
    pub(crate) fn put(&self, out: &mut ControlWriter<'_>, domain: i32, offender: Option<IpAddr>) {
        let head = [self.origin as u8, self.kind, self.code, 0];
        let words = [self.errno.to_ne_bytes(), head, self.info.to_ne_bytes(), self.data.to_ne_bytes()];
        let (name, len) = match offender {
            Some(ip) => encode(SocketAddr::new(ip, 0), domain),
            None => ([0; _], if domain == libc::AF_INET { 16 } else { 28 }),
        };
        let value = [&words.concat(), &name[..len]].concat();
        match domain {
            libc::AF_INET => out.put(libc::SOL_IP, libc::IP_RECVERR, &value),
            _ => out.put(libc::SOL_IPV6, libc::IPV6_RECVERR, &value),
        }
    }
}

/// Sends with `MSG_ZEROCOPY`. The octets are copied at once, so that each is done when the call returns; what is to be told of them
/// is one range, as none can be overtaken.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopySends {
    /// The number that the next one has.
    next: u32,
    /// The first that was not told of.
    untold: u32,
}

impl ZeroCopySends {
    /// Whether there are some to be told of.
    pub(crate) fn is_due(&self) -> bool {
        self.next != self.untold
    }

    /// The first and the last of those that were not told of.
    fn take(&mut self) -> Option<(u32, u32)> {
        let range = self.is_due().then(|| (self.untold, self.next.wrapping_sub(1)));
        self.untold = self.next;
        range
    }
}

impl State {
    /// A call with `MSG_ZEROCOPY` has sent something.
    pub(super) fn note_zero_copy(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if !socket.settings.is_on(libc::SO_ZEROCOPY) {
            return;
        }
        let sends = &mut socket.rare().zero_copy;
        sends.next = sends.next.wrapping_add(1);
        self.raise(id, libc::EPOLLERR as u32);
    }

    /// recvmsg(2) with `MSG_ERRQUEUE` on a connection.
    pub(super) fn receive_completion(
        &mut self,
        id: SocketId,
        request: &mut Receive<'_, '_>,
    ) -> Result<Received, Errno> {
        /// `SO_EE_CODE_ZEROCOPY_COPIED`.
        const COPIED: u8 = 1;
        let mut control = ControlWriter::new(request.control.as_deref_mut());
        if self.tell_send_time(id, &mut control) {
            return Ok(told(control));
        }
        let socket = self.sockets.get_mut(id).ok_or(Errno(libc::EBADF))?;
        let Some((first, last)) = socket.rare.as_mut().and_then(|rare| rare.zero_copy.take()) else {
            return fail(libc::EAGAIN);
        };
        let origin = ErrorOrigin::ZeroCopy;
        let error = ExtendedError { errno: 0, origin, kind: 0, code: COPIED, info: first, data: last };
        error.put(&mut control, socket.domain, None);
        Ok(told(control))
    }
}

/// An entry of the error queue that has no octets.
fn told(control: ControlWriter<'_>) -> Received {
    let (control_len, cut) = control.finish();
    Received { control_len, flags: libc::MSG_ERRQUEUE | cut, ..Received::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_are_told_once_in_one_range() {
        let mut sends = ZeroCopySends { next: u32::MAX, untold: u32::MAX };
        assert_eq!(sends.take(), None);
        sends.next = sends.next.wrapping_add(1);
        assert_eq!(sends.take(), Some((u32::MAX, u32::MAX)), "numbers come round");
        sends.next += 3;
        assert_eq!((sends.is_due(), sends.take(), sends.take()), (true, Some((0, 2)), None));
    }
}
