//! Handshakes as values, which leave one stack and enter another.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::flow_table::FlowKey;
use crate::isn::timestamp_clock;
use crate::path::{Hop, PathId};
use crate::segment::Timestamps;
use crate::seq::SeqNum;
use crate::slab::Handle;
use crate::tcp::handshake::{Agreement, HalfOpen};
use crate::tcp::listener::Listener;

/// The largest shift of a window (RFC 7323, 2.3).
const SHIFT_MAX: u8 = 14;

/// A handshake that a peer has begun and not completed (SYN-RECEIVED of RFC 9293, 3.3.2), off the stack: all that a stack with the
/// same listener has to know to go on with it. The peer's ACK, and another SYN-ACK if that does not come, are the other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Where its packets leave.
    pub hop: Hop,
    /// The sequence number of the peer's SYN.
    pub irs: SeqNum,
    /// The sequence number of ours.
    pub iss: SeqNum,
    /// Largest segment that the peer takes.
    pub peer_mss: u16,
    /// The shifts of the peer's windows and of ours, if both sides scale them.
    pub window_scales: Option<(u8, u8)>,
    /// Both sides agreed on SACK.
    pub sack_permitted: bool,
    /// Both sides agreed on ECN.
    pub ecn: bool,
    /// What the next segment would say, if both sides agreed on timestamps.
    pub timestamps: Option<Timestamps>,
    /// The window that our SYN-ACK offered.
    pub window: u16,
    /// SYN-ACKs sent.
    pub syn_acks: u8,
    /// Timeouts so far.
    pub timeouts: u8,
    /// How long ago the SYN came.
    pub age: Duration,
    /// The headers of the SYN, if the listener wants them.
    pub saved_syn: Option<Box<[u8]>>,
}

impl Handshake {
    pub(crate) fn of(half_open: HalfOpen, hop: Hop, now: Instant) -> Handshake {
        let HalfOpen { key, agreement, sent, timeouts, first_sent_at, saved_syn, .. } = half_open;
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
            age: now.since(first_sent_at),
            saved_syn,
        }
    }

    /// The same on another stack.
    pub(crate) fn resume(
        &self,
        key: FlowKey,
        listener: Handle<Listener>,
        path: PathId,
        now: Instant,
    ) -> HalfOpen {
        let timestamps = self.timestamps;
        let agreement = Agreement {
            irs: self.irs,
            iss: self.iss,
            peer_mss: self.peer_mss,
            // The values may come from an untrusted sender: allow no more than a SYN could say (RFC 7323, 2.3).
            scales: self.window_scales.map(|(theirs, ours)| (theirs.min(SHIFT_MAX), ours.min(SHIFT_MAX))),
            sack: self.sack_permitted,
            ecn: self.ecn,
            ts_recent: timestamps.map(|it| it.echo),
            // Our clock continues where it was: the peer drops older timestamps (RFC 7323, 5.3).
            timestamp_offset: timestamps.map_or(0, |it| it.value.wrapping_sub(timestamp_clock(now))),
            window: self.window,
        };
        HalfOpen {
            key,
            listener,
            path,
            link: self.hop.link,
            agreement,
            sent: self.syn_acks,
            timeouts: self.timeouts,
            acknowledged_at: None,
            answered_at: None,
            queued: false,
            first_sent_at: Instant::from_nanos(now.as_nanos().saturating_sub(self.age.as_nanos())),
            fast_open: None,
            saved_syn: self.saved_syn.clone(),
        }
    }
}
