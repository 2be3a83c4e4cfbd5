//! Connections whose SYN carries data (RFC 7413, 4.2).

use super::passive::Opening;
use super::{ListenerId, Stack};
use crate::config::TcpOptions;
use crate::fast_open::CookieVerdict;
use crate::flow_table::FlowKey;
use crate::segment::{FastOpenCookie, Segment};
use crate::tcp::Events;
use clock::Instant;

impl Stack {
    /// The cookie to send, if one was asked for, and whether the data in the SYN may be taken (RFC 7413, 4.2.1).
    pub(super) fn judge_fast_open(
        &mut self,
        id: ListenerId,
        key: &FlowKey,
        segment: &Segment<'_>,
        options: &TcpOptions,
        now: Instant,
    ) -> (Option<Box<FastOpenCookie>>, bool) {
        let enabled = self.shared.config.fast_open_server && options.fast_open_queue > 0;
        let Some(offered) = segment.options.fast_open.as_ref().filter(|_| enabled) else {
            return (None, false);
        };
        let client = key.remote().ip();
        let fresh = || -> Option<Box<FastOpenCookie>> {
            Some(Box::new(self.fast_open_server.cookie(client).into_iter().collect()))
        };
        let counters = &mut self.shared.counters;
        if offered.is_empty() {
            counters.fast_open_cookie_requested += 1;
            return (fresh(), false);
        }
        let verdict = self.fast_open_server.validate(client, offered);
        if verdict == CookieVerdict::Invalid {
            counters.fast_open_passive_fail += 1;
            return (fresh(), false);
        }
        let renewed = if verdict == CookieVerdict::ValidUntilRotation { fresh() } else { None };
        let pending_max = u32::from(options.fast_open_queue);
        let listener = self.listeners.get_mut(id);
        if !listener.is_some_and(|listener| listener.has_fast_open_room(pending_max, now)) {
            counters.fast_open_listen_overflow += 1;
            return (None, false);
        }
        (renewed, true)
    }

    /// Makes a connection of a SYN with a right cookie, which may be read and answered before the handshake is complete.
    pub(super) fn open_fast(&mut self, opening: Opening, segment: &Segment<'_>, now: Instant) {
        let Opening { listener, key, hop, agreement, cookie } = opening;
        let Some(id) = self.open_passive(listener, key, hop, agreement, now) else {
            return;
        };
        self.end_time_wait(&key);
        self.shared.counters.fast_open_passive += 1;
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.begin_fast_open();
        }
        self.with_connection(id, now, |connection, shared| {
            if let Some(cookie) = cookie {
                connection.rare().fast_open = Some(*cookie);
            }
            connection.begin_fast(segment, shared, now)
        });
        self.offer_to_accept(listener, id);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.events |= Events::READABLE;
        }
    }
}
