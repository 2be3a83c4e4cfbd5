//! Times of sending (`SO_TIMESTAMPING`): begun by setsockopt(2), noted by sendmsg(2), told by `MSG_ERRQUEUE`.

use clock::Instant;
use stack::ConnectionId;

use crate::ids::SocketId;
use crate::process::State;
use crate::socket::control_messages::{ControlWriter, messages};
use crate::socket::error_queue::{ErrorOrigin, ExtendedError};
use crate::socket::send_times::Due;
use crate::socket::times::{
    OPT_ID, OPT_ID_TCP, TIMESTAMPING_NEW, TX_ACK, TX_ANY, TX_SCHED, TX_SOFTWARE, put_stamping,
};

impl State {
    /// `SO_TIMESTAMPING` was set: numbers begin here if they are wanted from now on.
    pub(crate) fn begin_send_times(&mut self, id: SocketId, connection: ConnectionId, now: Instant) {
        let Some(info) = self.queue.stack().and_then(|stack| stack.info(connection, now)) else { return };
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let (_, flags) = socket.settings.stamping();
        if flags & OPT_ID != 0 {
            let queued = if flags & OPT_ID_TCP != 0 { u64::from(info.send_queue) } else { 0 };
            socket.rare().send_times.first = info.bytes_acked + queued;
        }
    }

    /// A call has sent something: its last octet's times are told, if they are wanted of all calls or of this one.
    pub(crate) fn note_send_times(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        control: Option<&[u8]>,
        now: Instant,
    ) {
        let Some(info) = self.queue.stack().and_then(|stack| stack.info(connection, now)) else { return };
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let (_, flags) = socket.settings.stamping();
        let wanted = messages(control.unwrap_or_default()).flatten().find_map(flags_of_call).unwrap_or(flags);
        let wanted = wanted & (TX_SCHED | TX_SOFTWARE | TX_ACK);
        if wanted == 0 {
            return;
        }
        let times = &mut socket.rare().send_times;
        let end = info.bytes_acked + u64::from(info.send_queue);
        let key = if flags & OPT_ID != 0 { end.wrapping_sub(times.first + 1) as u32 } else { 0 };
        times.due.push_back(Due { end, key, wanted });
        if !self.queue.stamped.contains(&id) {
            self.queue.stamped.push(id);
        }
        self.look_at_send_times(now);
    }

    /// Tells the oldest time of octets that were sent; false if there is none.
    pub(crate) fn tell_send_time(&mut self, id: SocketId, out: &mut ControlWriter<'_>) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let Some(rare) = &mut socket.rare else { return false };
        let Some((moment, key, wall)) = rare.send_times.told.pop_front() else { return false };
        let (option, _) = socket.settings.stamping();
        put_stamping(out, option, wall);
        let origin = ErrorOrigin::Timestamping;
        let error =
            ExtendedError { errno: libc::ENOMSG, origin, kind: 0, code: 0, info: moment as u32, data: key };
        error.put(out, socket.domain, None);
        true
    }
}

/// What one call wants in place of what the option says.
fn flags_of_call((level, kind, data): (i32, i32, &[u8])) -> Option<i32> {
    let is_it = level == libc::SOL_SOCKET && matches!(kind, libc::SO_TIMESTAMPING | TIMESTAMPING_NEW);
    let flags = i32::from_ne_bytes(*data.first_chunk().filter(|_| is_it)?);
    Some(flags & TX_ANY)
}
