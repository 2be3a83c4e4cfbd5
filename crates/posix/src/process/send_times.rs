//! Looks which octets have left or were acknowledged, where a program wants to know (`SO_TIMESTAMPING`).

use clock::Instant;
use stack::tcp::TcpInfo;

use crate::process::state::State;
use crate::socket::times::on_the_wall;

impl State {
    /// What has left and what was acknowledged since the last look.
    pub(crate) fn look_at_send_times(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.queue.stamped) {
            let connection = self.sockets.get(id).and_then(|socket| socket.connection());
            let info = connection.and_then(|connection| self.queue.stack()?.info(connection, now));
            let (Some(info), Some(socket)) = (info, self.sockets.get_mut(id)) else { continue };
            let TcpInfo { bytes_acked, send_queue, notsent_bytes, .. } = info;
            let sent = bytes_acked + u64::from(send_queue - notsent_bytes);
            let times = &mut socket.rare().send_times;
            let has_news = times.advance(sent, bytes_acked, on_the_wall(now, now));
            if !times.due.is_empty() {
                self.queue.stamped.push(id);
            }
            if has_news {
                self.raise(id, libc::EPOLLERR as u32);
            }
        }
    }
}
