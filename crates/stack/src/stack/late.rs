//! Segments for connections that have just left. Their new owner may want them, so that the sender need not send them
//! again.

use std::collections::VecDeque;
use std::net::SocketAddr;

use wire::tcp::flag;

use super::Stack;
use crate::flow_table::FlowKey;

/// A segment of a connection that had left when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateSegment {
    /// The end that was ours.
    pub local: SocketAddr,
    /// The peer's, which sent it.
    pub remote: SocketAddr,
    /// The TCP header and what follows, as they came: the sender's device may have been to finish the checksum.
    pub octets: Vec<u8>,
}

/// The segments that were not collected yet, oldest first.
pub(super) type LateSegments = VecDeque<LateSegment>;

impl Stack {
    /// The oldest segment that came too late for its connection, as long as [`Config::late_segments_max`] allowed to keep it.
    ///
    /// [`Config::late_segments_max`]: crate::Config::late_segments_max
    pub fn next_late_segment(&mut self) -> Option<LateSegment> {
        self.late.pop_front()
    }

    /// A segment arrived for a flow that has left. A segment with a SYN begins another connection, which has no owner.
    #[cold]
    pub(super) fn on_late_segment(&mut self, key: &FlowKey, flags: u8, octets: &[u8]) {
        if self.late.len() >= self.shared.config.late_segments_max || flags & flag::SYN != 0 {
            self.shared.counters.departed_ignored += 1;
            return;
        }
        self.shared.counters.departed_late += 1;
        let (local, remote) = (key.local(), key.remote());
        self.late.push_back(LateSegment { local, remote, octets: octets.to_vec() });
    }
}
