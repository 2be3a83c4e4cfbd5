//! Segments that belong to no connection: resets, SYN cookies, answers out of TIME-WAIT.

use wire::tcp::flag;

use super::link_queues::LinkQueues;
use super::{Rooms, Stack, TRANSMIT_QUANTUM, Transmit};
use crate::counters::Counters;
use crate::flow_table::FlowKey;
use crate::path::{Hop, LinkId};
use crate::segment::Segment;
use crate::seq::SeqNum;
use crate::tcp::{Outgoing, SegmentWriter};

/// Replies that may wait for a link; they are sent in the same turn, so more means a flood.
const WAITING_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Replies(LinkQueues<(FlowKey, Hop, Outgoing)>);

impl Replies {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, key: FlowKey, hop: Hop, outgoing: Outgoing, counters: &mut Counters) {
        if self.0.len(hop.link) >= WAITING_MAX {
            counters.replies_dropped += 1;
            return;
        }
        self.0.push(hop.link, (key, hop, outgoing));
    }
}

impl Stack {
    pub(super) fn transmit_reply(&mut self, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        let mut links = self.replies.0.links();
        links.find_map(|link| self.transmit_reply_by(link, rooms))
    }

    fn transmit_reply_by(&mut self, link: LinkId, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        self.replies.0.front(link)?;
        let room = rooms.room(link)?;
        let (key, hop, outgoing) = self.replies.0.pop(link)?;
        self.replies.0.pass_turn(link, 1, TRANSMIT_QUANTUM);
        let writer = SegmentWriter {
            key,
            hop_limit: self.shared.config.tcp.hop_limit,
            traffic_class: 0,
            checksum_offload: self.shared.paths.link(hop.link).tx_checksum_offload,
        };
        let len = writer.write(room, &outgoing, 0, |_| ())?;
        let counters = &mut self.shared.counters;
        counters.out_segs += 1;
        counters.out_rsts += u64::from(outgoing.flags & flag::RST != 0);
        Some(Transmit::whole(len, hop))
    }

    /// Answers `segment` by a reset, unless it is one.
    pub(super) fn reset_peer(&mut self, key: FlowKey, hop: Hop, segment: &Segment<'_>) {
        if let Some(outgoing) = reset_of(segment) {
            self.replies.push(key, hop, outgoing, &mut self.shared.counters);
        }
    }
}

/// The reset that answers `segment` (RFC 9293, 3.10.7.1), unless it is one.
pub(super) fn reset_of(segment: &Segment<'_>) -> Option<Outgoing> {
    if segment.has(flag::RST) {
        return None;
    }
    Some(if segment.has(flag::ACK) {
        Outgoing { seq: segment.ack, flags: flag::RST, ..Outgoing::default() }
    } else {
        let ack = segment.seq + segment.len();
        Outgoing { seq: SeqNum(0), ack, flags: flag::RST | flag::ACK, ..Outgoing::default() }
    })
}
