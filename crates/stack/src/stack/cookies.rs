//! Connections from SYN cookies, without state about the SYN (RFC 4987, 3.6).

use super::arrival::Whose;
use super::{ListenerId, Stack};
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::segment::Segment;
use crate::tcp::handshake::Agreement;
use crate::tcp::{mss_of_link, receive_limit, scale_for};
use clock::{Duration, Instant};
use std::sync::Arc;
use wire::tcp::flag;

/// How long cookies are believed after the last was sent: they live two minutes (RFC 4987, 3.6).
const COOKIES_BELIEVED: Duration = Duration::from_secs(120);

impl Stack {
    pub(super) fn send_cookie(
        &mut self,
        key: FlowKey,
        hop: Hop,
        segment: &Segment<'_>,
        mut agreement: Agreement,
        now: Instant,
    ) {
        // Nothing is kept of this handshake: what completes it would be taken for the old connection's.
        self.end_time_wait(&key);
        agreement.iss = self.cookies.make(&key, segment.seq, agreement.peer_mss, now);
        let mss = mss_of_link(&self.shared, hop.link, &key, self.shared.config.tcp.mss_max);
        let mut outgoing = agreement.syn_ack(mss, now);
        match &mut outgoing.options.timestamps {
            // The options of the SYN travel in the low bits of our timestamp, and come back with the ACK.
            Some(timestamps) => {
                let options = agreement.cookie_options();
                timestamps.value = crate::syn_cookie::encode_timestamp(timestamps.value, options);
            }
            None => {
                outgoing.options.window_scale = None;
                outgoing.options.sack_permitted = false;
                outgoing.flags &= !flag::ECE;
            }
        }
        self.cookies_sent_at = Some(now);
        self.shared.counters.syncookies_sent += 1;
        self.replies.push(key, hop, outgoing, &mut self.shared.counters);
    }

    pub(super) fn cookies_are_believed(&self, now: Instant) -> bool {
        self.cookies_sent_at.is_some_and(|at| now.since(at) < COOKIES_BELIEVED)
    }

    /// An ACK for nothing that we remember: perhaps for a cookie.
    pub(super) fn on_cookie(
        &mut self,
        id: ListenerId,
        key: FlowKey,
        hop: Hop,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Whose {
        let irs = segment.seq - 1;
        let cookie = segment.ack - 1;
        let Some(mss) = self.cookies.check(&key, irs, cookie, now) else {
            self.shared.counters.syncookies_failed += 1;
            return Whose::Unknown;
        };
        if self.listeners.get(id).is_none_or(|listener| listener.is_full()) {
            self.shared.counters.listen_overflows += 1;
            self.shared.counters.listen_drops += 1;
            return Whose::Ours;
        }
        self.shared.counters.syncookies_recv += 1;
        let Some(options) = self.listeners.get(id).map(|listener| Arc::clone(&listener.options)) else {
            return Whose::Ours;
        };
        let mut agreement = self.agree(&key, segment, &options, now);
        agreement.restore_from_cookie(irs, cookie, mss, &segment.options, scale_for(receive_limit(&options)));
        if let Some(connection) = self.open_passive(id, key, hop, agreement, now) {
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.handshakes = 0; // No sample: when the SYN-ACK was sent is not known.
            }
            self.on_connection_segment(connection, hop, segment, now);
            self.offer_to_accept(id, connection);
        }
        Whose::Ours
    }
}
