//! Handshakes as values, which leave one stack and enter another.

use clock::Instant;
use transit::{Handshake, Hop, Timestamps};

use crate::flow_table::FlowKey;
use crate::isn::timestamp_clock;
use crate::path::PathId;
use crate::slab::Handle;
use crate::tcp::handshake::{Agreement, HalfOpen};
use crate::tcp::listener::Listener;

/// The largest shift of a window (RFC 7323, 2.3).
const SHIFT_MAX: u8 = 14;

impl HalfOpen {
    /// The handshake as a value: all that a stack with the same listener has to know to go on with it.
    pub(crate) fn detach(self, hop: Hop, now: Instant) -> Handshake {
        let HalfOpen { key, agreement, sent, timeouts, first_sent_at, saved_syn, .. } = self;
        let clock = timestamp_clock(now).wrapping_add(agreement.timestamp_offset);
        Handshake {
            local: key.local(),
            remote: key.remote(),
            hop,
            irs: agreement.irs,
            iss: agreement.iss,
            peer_mss: agreement.peer_mss,
            window_scales: agreement.scales,
            sack_permitted: agreement.sack,
            ecn: agreement.ecn,
            timestamps: agreement.ts_recent.map(|echo| Timestamps { value: clock, echo }),
            window: agreement.window,
            syn_acks: sent,
            timeouts,
            age_us: now.since(first_sent_at).as_nanos() / 1000,
            saved_syn,
        }
    }

    /// Goes on with a handshake that another stack had.
    pub(crate) fn resume(
        from: &Handshake,
        key: FlowKey,
        listener: Handle<Listener>,
        path: PathId,
        now: Instant,
    ) -> HalfOpen {
        let timestamps = from.timestamps;
        let agreement = Agreement {
            irs: from.irs,
            iss: from.iss,
            peer_mss: from.peer_mss,
            // The values may come from an untrusted sender: allow no more than a SYN could say (RFC 7323, 2.3).
            scales: from.window_scales.map(|(theirs, ours)| (theirs.min(SHIFT_MAX), ours.min(SHIFT_MAX))),
            sack: from.sack_permitted,
            ecn: from.ecn,
            ts_recent: timestamps.map(|it| it.echo),
            // Our clock continues where it was: the peer drops older timestamps (RFC 7323, 5.3).
            timestamp_offset: timestamps.map_or(0, |it| it.value.wrapping_sub(timestamp_clock(now))),
            window: from.window,
        };
        HalfOpen {
            key,
            listener,
            path,
            link: from.hop.link,
            agreement,
            sent: from.syn_acks,
            timeouts: from.timeouts,
            acknowledged_at: None,
            answered_at: None,
            queued: false,
            first_sent_at: Instant::from_nanos(
                now.as_nanos().saturating_sub(from.age_us.saturating_mul(1000)),
            ),
            fast_open: None,
            saved_syn: from.saved_syn.clone(),
        }
    }
}
