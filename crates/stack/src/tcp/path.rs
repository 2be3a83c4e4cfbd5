//! How a connection reacts to its path: ICMP errors, and the segment size (RFC 1191, 8201, 4821, 5927).

use clock::Instant;
use wire::icmp::ErrorKind;

use crate::config::PathMtuProbing;
use crate::seq::SeqNum;
use crate::tcp::connection::{Connection, Fate, Shared, State};
use crate::tcp::user::TcpError;
use crate::udp::is_plausible_too_big;

/// What an ICMP error quotes of the segment that caused it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted {
    pub(crate) seq: SeqNum,
    /// Octets of the packet by its IP header.
    pub(crate) len: usize,
}

impl Connection {
    /// An ICMP error quotes a segment of ours.
    ///
    /// RFC 5927, 4.1: only what is in flight can have caused one. 5.2: an established connection does not end by it.
    pub(crate) fn on_icmp_error(
        &mut self,
        kind: ErrorKind,
        quoted: Quoted,
        shared: &mut Shared,
        now: Instant,
    ) -> Fate {
        let seq = quoted.seq;
        let in_flight = seq.is_at_or_after(self.send.snd_una) && seq.is_before(self.send.snd_nxt);
        if !in_flight {
            shared.counters.out_of_window_icmps += 1;
            return Fate::Alive;
        }
        if let ErrorKind::TooBig { mtu } = kind {
            self.on_too_big(mtu, quoted.len, shared, now);
            return Fate::Alive;
        }
        let Some(error) = self.error_of(kind) else {
            return Fate::Alive;
        };
        if matches!(self.state, State::SynSent | State::SynReceived) {
            shared.counters.attempt_fails += 1;
            return self.fail(error, shared, now);
        }
        self.soft_error = Some(error);
        Fate::Alive
    }

    /// Codes of RFC 792 and RFC 4443, as Linux maps them.
    fn error_of(&self, kind: ErrorKind) -> Option<TcpError> {
        match (self.key.is_v6(), kind) {
            (false, ErrorKind::Unreachable { code: 0 | 6 | 11 }) => Some(TcpError::NetworkUnreachable),
            (false, ErrorKind::Unreachable { code: 2 }) => Some(TcpError::ProtocolUnreachable),
            (false, ErrorKind::Unreachable { code: 3 }) => Some(TcpError::Refused),
            (true, ErrorKind::Unreachable { code: 0 }) => Some(TcpError::NetworkUnreachable),
            (true, ErrorKind::Unreachable { code: 4 }) => Some(TcpError::Refused),
            (_, ErrorKind::Unreachable { .. } | ErrorKind::TimeExceeded { .. }) => {
                Some(TcpError::HostUnreachable)
            }
            _ => None,
        }
    }

    /// A burst brings an error for each of its packets; those that come when the MTU is lower already tell nothing new.
    fn on_too_big(&mut self, mtu: u32, quoted_len: usize, shared: &mut Shared, now: Instant) {
        let link_mtu = shared.paths.link(self.link).mtu;
        if !is_plausible_too_big(quoted_len, mtu, link_mtu) {
            shared.counters.out_of_window_icmps += 1;
            return;
        }
        let (reported, sent_len) = (mtu.min(link_mtu.into()) as u16, quoted_len as u16);
        if !self.path_mtu.on_packet_too_big(reported, sent_len, now) {
            return;
        }
        shared.counters.path_mtu_reductions += 1;
        shared.path_mtus.insert(self.key.remote().ip(), self.path_mtu.mtu(), now);
        self.on_mtu_reduced(shared, now);
    }

    /// Segments in flight that are too large now are sent again at once, in smaller ones.
    fn on_mtu_reduced(&mut self, shared: &mut Shared, now: Instant) {
        let before = self.send.mss;
        self.update_mss(shared);
        if self.send.mss < before && !self.is_all_acknowledged() {
            self.with_recovery(shared, now, |recovery, context| recovery.on_mss_reduced(context));
        }
    }

    /// What another connection to the same host was told of the path holds for this one (RFC 8201, 5.2). Asked for when segments
    /// are lost, which is when it matters.
    pub(crate) fn learn_path_mtu(&mut self, shared: &mut Shared, now: Instant) {
        let before = self.path_mtu.mtu();
        if let Some(cached) = shared.path_mtus.get(self.key.remote().ip(), now) {
            self.path_mtu.start_at(cached);
        }
        if self.path_mtu.mtu() < before {
            self.on_mtu_reduced(shared, now);
        }
    }

    /// The interface has another MTU or clamp.
    pub(crate) fn on_link_changed(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        if self.state != State::Closed {
            self.path_mtu.on_link_mtu(shared.paths.link(self.link).mtu);
            self.on_mtu_reduced(shared, now);
        }
        Fate::Alive
    }

    /// Full segments vanish again and again, and nobody says why: perhaps the ICMP errors vanish too (RFC 2923, 2.1).
    pub(crate) fn suspect_black_hole(&mut self, shared: &mut Shared, now: Instant) {
        if shared.config.path_mtu_probing == PathMtuProbing::Off {
            return;
        }
        if self.path_mtu.on_black_hole_suspected() {
            shared.counters.mtu_probe_fail += 1;
            self.on_mtu_reduced(shared, now);
        }
    }

    /// Octets of payload of a probe of a larger path MTU, if one is due and there is the data and the window for it
    /// (RFC 4821, 7.2); `allowance` is what the congestion window lets go. It counts as sent: of what is due and not sent nothing
    /// would be heard.
    pub(crate) fn due_mtu_probe(
        &mut self,
        (unsent, allowance): (u32, u32),
        shared: &Shared,
        now: Instant,
    ) -> Option<u32> {
        let wanted = shared.config.path_mtu_probing != PathMtuProbing::Off && self.path_mtu.is_probe_due(now);
        let quiet = self.transfer.as_ref().is_some_and(|transfer| {
            transfer.recovery.state() == crate::recovery::State::Open && transfer.mtu_probe.is_none()
        });
        if !wanted || !quiet {
            return None;
        }
        // RFC 9293, 3.7.1 (MUST-16): a probe is no larger than what the peer takes either.
        let gain_max = self.payload_limit(shared).saturating_sub(self.send.mss);
        let mtu = self.path_mtu.mtu();
        let gain_by_link = shared.paths.link(self.link).mtu.saturating_sub(mtu);
        let most = u32::from(self.send.mss) + u32::from(gain_max.min(gain_by_link));
        if gain_max == 0 || unsent.min(allowance).min(self.usable_window()) < most {
            return None;
        }
        let probe = self.path_mtu.next_probe(now, mtu.saturating_add(gain_max))?;
        Some(u32::from(self.send.mss) + u32::from(probe.saturating_sub(mtu)))
    }

    /// Something that was sent as a probe is acknowledged, or is to be sent again.
    pub(crate) fn judge_mtu_probe(&mut self, una: SeqNum, shared: &mut Shared, now: Instant) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        if transfer.mtu_probe.is_some_and(|probe| probe.end.is_at_or_before(una)) {
            transfer.mtu_probe = None;
            self.path_mtu.on_probe_acked();
            shared.counters.mtu_probe_success += 1;
            shared.path_mtus.insert(self.key.remote().ip(), self.path_mtu.mtu(), now);
            self.update_mss(shared);
        }
    }

    /// The segment at `start` is sent again: if it was a probe, its size did not pass.
    pub(crate) fn note_probe_lost(&mut self, start: SeqNum, shared: &mut Shared) {
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        if transfer.mtu_probe.is_some_and(|probe| probe.start == start) {
            transfer.mtu_probe = None;
            self.path_mtu.on_probe_lost();
            shared.counters.mtu_probe_fail += 1;
        }
    }
}
