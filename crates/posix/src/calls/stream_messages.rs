//! Control messages of connections, for receiving and sending; urgent data.

use clock::Instant;
use stack::ConnectionId;
use stack::tcp::UrgentError;

use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::State;
use crate::request::{Receive, Received};
use crate::socket::control_messages::{ControlWriter, messages};
use crate::socket::times::{TIMESTAMPING_NEW, Times, on_the_wall};

/// `TCP_INQ`, an option and what the control message is called that it asks for.
const TCP_INQ: i32 = 36;

/// Whether a stream may be sent with these control messages (`sock_cmsg_send`): all that is wrong is `EINVAL`, and what is right
/// says nothing about octets.
pub(crate) fn check_stream_control(control: Option<&[u8]>) -> Result<(), Errno> {
    let may_be = |(level, kind, data): (i32, i32, &[u8])| {
        level != libc::SOL_SOCKET
            || match kind {
                libc::SO_MARK | libc::SO_PRIORITY | libc::SO_TIMESTAMPING | TIMESTAMPING_NEW => {
                    data.len() == 4
                }
                libc::SCM_RIGHTS | libc::SCM_CREDENTIALS => true,
                _ => false,
            }
    };
    let are_fine = messages(control.unwrap_or_default()).all(|message| message.is_some_and(may_be));
    if are_fine { Ok(()) } else { fail(libc::EINVAL) }
}

impl State {
    /// Tells with received octets what the program asked for: when the latest came, and how many are left.
    pub(crate) fn tell_with_stream(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        control: &mut [u8],
        received: &mut Received,
        now: Instant,
    ) {
        let Some(socket) = self.sockets.get(id) else { return };
        let times = Times::wanted(|option| socket.settings.int(libc::SOL_SOCKET, option));
        let wants_left = socket.settings.int(libc::SOL_TCP, TCP_INQ) != 0;
        if !times.is_any() && !wants_left {
            return;
        }
        let Some(stack) = self.queue.stack() else { return };
        let Some(info) = stack.info(connection, now) else { return };
        let mut out = ControlWriter::new(Some(control));
        if received.len > 0 {
            let wall = on_the_wall(now, now).saturating_sub(info.last_data_recv.into());
            times.put(&mut out, wall);
        }
        if wants_left {
            let unread = stack.queued(connection).map_or(0, |(unread, _)| unread);
            // At the end of the stream there is one more thing to read: that it ends.
            let is_end = unread == 0 && stack.readiness(connection).is_none_or(|ready| ready.read_closed);
            let left = if is_end { 1 } else { i32::try_from(unread).unwrap_or(i32::MAX) };
            out.put_int(libc::SOL_TCP, TCP_INQ, left);
        }
        let (control_len, cut) = out.finish();
        received.control_len = control_len;
        received.flags |= cut;
    }

    /// The urgent octet by itself (`MSG_OOB`), which is never waited for.
    pub(crate) fn receive_urgent(
        &mut self,
        connection: ConnectionId,
        request: &mut Receive<'_, '_>,
    ) -> Result<Received, Errno> {
        let Some(stack) = self.queue.stack() else { return fail(libc::ENOTCONN) };
        let octet = match stack.recv_urgent(connection, request.flags & libc::MSG_PEEK != 0) {
            Ok(Some(octet)) => octet,
            Ok(None) => return Ok(Received::default()),
            Err(UrgentError::None) => return fail(libc::EINVAL),
            Err(UrgentError::WouldBlock) => return fail(libc::EAGAIN),
            Err(UrgentError::NotConnected) => return fail(libc::ENOTCONN),
        };
        let is_kept = request.flags & libc::MSG_TRUNC == 0;
        match request.buffers.iter_mut().find_map(|buffer| buffer.first_mut()) {
            Some(room) => {
                *room = if is_kept { octet } else { *room };
                Ok(Received { len: 1, flags: libc::MSG_OOB, ..Received::default() })
            }
            None => Ok(Received { flags: libc::MSG_OOB | libc::MSG_TRUNC, ..Received::default() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(level: i32, kind: i32, data: &[u8]) -> Result<(), Errno> {
        let mut room = [0; 64];
        let mut out = ControlWriter::new(Some(&mut room));
        out.put(level, kind, data);
        let (len, _) = out.finish();
        check_stream_control(Some(&room[..len]))
    }

    #[test]
    fn a_stream_is_sent_with_messages_that_mean_nothing_to_it_and_not_with_wrong_ones() {
        let wrong = fail(libc::EINVAL);
        assert_eq!(judged(libc::SOL_IP, libc::IP_TOS, &[8]), Ok(()));
        assert_eq!(judged(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &[2, 0, 0, 0]), Ok(()));
        assert_eq!(judged(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &[2]), wrong);
        assert_eq!(judged(libc::SOL_SOCKET, 99, &[0; 4]), wrong);
        assert_eq!(check_stream_control(Some(&[3; 32])), wrong);
        assert_eq!(check_stream_control(None), Ok(()));
    }
}
