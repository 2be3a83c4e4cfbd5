//! Times of sending and of acknowledgement: `SO_TIMESTAMPING` of connections.
//!
//! Octets are counted from the first of the connection. A report contains no octets, as with `OPT_TSONLY`.

use std::collections::VecDeque;
use std::time::Duration;

use clock::Instant;
use stack::ConnectionId;
use stack::tcp::TcpInfo;

use super::control_messages::{ControlWriter, messages};
use super::error_queue::{ErrorOrigin, ExtendedError};
use super::times::{
    OPT_ID, OPT_ID_TCP, TIMESTAMPING_NEW, TX_ACK, TX_ANY, TX_SCHED, TX_SOFTWARE, on_the_wall, put_stamping,
};
use super::{Settings, SocketId};
use crate::process::State;

/// Times that wait to be told, at most; later ones are lost, as in a full error queue of Linux.
const TOLD_MAX: usize = 256;

/// What happened to octets: `ee_info` of `struct sock_extended_err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Sent = 0,
    Scheduled = 1,
    Acknowledged = 2,
}

/// The times of one connection.
#[derive(Debug, Default)]
pub(crate) struct SendTimes {
    /// The octet that numbers begin with.
    first: u64,
    due: VecDeque<Due>,
    told: VecDeque<(Moment, u32, Duration)>,
}

/// Octets whose times are wanted.
#[derive(Debug)]
struct Due {
    /// Behind the last of them.
    end: u64,
    key: u32,
    /// Which times are wanted still, by `TX_` flags.
    wanted: i32,
}

impl SendTimes {
    /// Whether there is something to tell.
    pub(crate) fn is_due(&self) -> bool {
        !self.told.is_empty()
    }

    /// Octets up to `sent` have left, those up to `acknowledged` arrived. Returns whether that is something to tell.
    fn advance(&mut self, sent: u64, acknowledged: u64, wall: Duration) -> bool {
        let before = self.told.len();
        for due in &mut self.due {
            let happened = [
                (TX_SCHED, sent, Moment::Scheduled),
                (TX_SOFTWARE, sent, Moment::Sent),
                (TX_ACK, acknowledged, Moment::Acknowledged),
            ];
            for (flag, end, moment) in happened {
                if due.wanted & flag != 0 && end >= due.end {
                    due.wanted &= !flag;
                    if self.told.len() < TOLD_MAX {
                        self.told.push_back((moment, due.key, wall));
                    }
                }
            }
        }
        self.due.retain(|due| due.wanted != 0);
        self.told.len() > before
    }
}

impl Settings {
    /// The flags of `SO_TIMESTAMPING`, and what the option was called that set them.
    fn stamping(&self) -> (i32, i32) {
        let options = [TIMESTAMPING_NEW, libc::SO_TIMESTAMPING];
        let flags = options.map(|option| (option, self.int(libc::SOL_SOCKET, option)));
        flags.into_iter().find(|it| it.1 != 0).unwrap_or((libc::SO_TIMESTAMPING, 0))
    }
}

impl State {
    /// `SO_TIMESTAMPING` was set: numbers begin here if they are wanted from now on.
    pub(super) fn begin_send_times(&mut self, id: SocketId, connection: ConnectionId, now: Instant) {
        let Some(info) = self.stack().and_then(|stack| stack.info(connection, now)) else { return };
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let (_, flags) = socket.settings.stamping();
        if flags & OPT_ID != 0 {
            let queued = if flags & OPT_ID_TCP != 0 { u64::from(info.send_queue) } else { 0 };
            socket.rare().send_times.first = info.bytes_acked + queued;
        }
    }

    /// A call has sent something: its last octet's times are told, if they are wanted of all calls or of this one.
    pub(super) fn note_send_times(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        control: Option<&[u8]>,
        now: Instant,
    ) {
        let Some(info) = self.stack().and_then(|stack| stack.info(connection, now)) else { return };
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
        if !self.stamped.contains(&id) {
            self.stamped.push(id);
        }
        self.look_at_send_times(now);
    }

    /// What has left and what was acknowledged since the last look.
    pub(crate) fn look_at_send_times(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.stamped) {
            let connection = self.sockets.get(id).and_then(|socket| socket.connection());
            let info = connection.and_then(|connection| self.stack()?.info(connection, now));
            let (Some(info), Some(socket)) = (info, self.sockets.get_mut(id)) else { continue };
            let TcpInfo { bytes_acked, send_queue, notsent_bytes, .. } = info;
            let sent = bytes_acked + u64::from(send_queue - notsent_bytes);
            let times = &mut socket.rare().send_times;
            let has_news = times.advance(sent, bytes_acked, on_the_wall(now, now));
            if !times.due.is_empty() {
                self.stamped.push(id);
            }
            if has_news {
                self.raise(id, libc::EPOLLERR as u32);
            }
        }
    }

    /// Tells the oldest time of octets that were sent; false if there is none.
    pub(super) fn tell_send_time(&mut self, id: SocketId, out: &mut ControlWriter<'_>) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_told_once_when_its_last_octet_got_there() {
        let mut times = SendTimes::default();
        times.due.push_back(Due { end: 10, key: 9, wanted: TX_SOFTWARE | TX_ACK });
        times.due.push_back(Due { end: 20, key: 19, wanted: TX_ACK });
        let wall = Duration::from_secs(1);
        assert!(!times.advance(9, 0, wall));
        assert!(times.advance(15, 3, wall) && !times.advance(20, 9, wall));
        assert!(times.advance(20, 20, wall));
        let told: Vec<_> = times.told.drain(..).map(|told| (told.0, told.1)).collect();
        assert_eq!(told, [(Moment::Sent, 9), (Moment::Acknowledged, 9), (Moment::Acknowledged, 19)]);
        assert!(times.due.is_empty());
    }
}
