//! The error queue of connections (`MSG_ERRQUEUE`).

use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::State;
use crate::request::{Receive, Received};
use crate::socket::control_messages::ControlWriter;
use crate::socket::error_queue::{ErrorOrigin, ExtendedError};

impl State {
    /// A call with `MSG_ZEROCOPY` has sent something.
    pub(crate) fn note_zero_copy(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if !socket.settings.is_on(libc::SO_ZEROCOPY) {
            return;
        }
        let sends = &mut socket.rare().zero_copy;
        sends.next = sends.next.wrapping_add(1);
        self.raise(id, libc::EPOLLERR as u32);
    }

    /// recvmsg(2) with `MSG_ERRQUEUE` on a connection.
    pub(crate) fn receive_completion(
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
