//! What a segment may change.

use stack::tcp::{State, TcpError};
use wire::tcp::flag;

use super::{Before, Victim};
use crate::net::hostile::forged::Forged;

impl Victim {
    /// Compares a connection with what it was before `segment`.
    pub(super) fn check_change(&mut self, flow: usize, segment: &Forged, before: Before) {
        let Some(id) = self.flows[flow].id else {
            return;
        };
        let after = self.stack.state(id);
        if let Some(info) = self.stack.info(id, self.now) {
            self.check_acknowledged(flow, segment, before.acked, info.bytes_acked);
        }
        let error = if after == Some(State::Closed) { self.stack.take_error(id) } else { None };
        if let Some(TcpError::Reset | TcpError::Refused | TcpError::BrokenPipe) = error {
            self.check_reset(flow, segment, before);
        }
        let received_fin = matches!(
            (before.state, after),
            (State::Established, Some(State::CloseWait))
                | (State::FinWait1, Some(State::Closing | State::TimeWait))
                | (State::FinWait2, Some(State::TimeWait))
        );
        if received_fin && let Some(reference) = &self.flows[flow].reference {
            assert!(reference.may_finish(), "the stream ends where no FIN was: {segment:?}");
        }
    }

    /// Only an acknowledgement of what was sent moves `snd_una`, and exactly to where it says.
    fn check_acknowledged(&self, flow: usize, segment: &Forged, before: u64, after: u64) {
        let Some(reference) = self.flows[flow].reference.as_ref().filter(|_| after != before) else {
            return;
        };
        let una = reference.iss.wrapping_add(1).wrapping_add(after as u32);
        let says_so = segment.has(flag::ACK) && (segment.ack == una || segment.ack == una.wrapping_add(1));
        assert!(says_so && after <= reference.sent, "{after} octets count as acknowledged by {segment:?}");
    }

    /// RFC 5961, 3.2: a reset counts at `rcv_nxt` and nowhere else, but at the number of a FIN that was taken, as macOS has it;
    /// RFC 9293, 3.10.7.3: in SYN-SENT if it acknowledges the SYN.
    fn check_reset(&self, flow: usize, segment: &Forged, before: Before) {
        assert!(segment.has(flag::RST), "{segment:?} resets a connection");
        let Some(reference) = &self.flows[flow].reference else {
            return;
        };
        if before.state == State::SynSent {
            let acknowledges = segment.has(flag::ACK) && segment.ack == reference.iss.wrapping_add(1);
            assert!(acknowledges, "{segment:?} refuses a connection");
            return;
        }
        let is_at_fin = matches!(before.state, State::CloseWait | State::LastAck | State::Closing)
            && reference.rcv_nxt(false) == Some(segment.seq);
        let is_next = reference.rcv_nxt(before.finished) == Some(segment.seq);
        assert!(is_next || is_at_fin, "a reset elsewhere counts: {segment:?}");
    }
}
