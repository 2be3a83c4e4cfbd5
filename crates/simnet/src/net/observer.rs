//! An observer that watches the wire and knows the rules, but nothing about the hosts' insides.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use wire::tcp::flag;

use super::content::Content;
use super::sight::Sight;
use super::violation::{Broken, require};

/// Both directions of one flow, named by its two ends.
type Flow = (SocketAddr, SocketAddr);

/// What is known of one side of a flow. Positions count octets of its sequence space from its SYN, which is at zero.
#[derive(Clone, Debug)]
struct Side {
    iss: u32,
    mss: u16,
    scale: Option<u8>,
    /// End of all that it sent.
    sent: u64,
    /// End of what the other side allows it to send, by the segments that have reached it.
    edge: u64,
    /// End of what it allowed the other side to send, in the other side's positions.
    offered: u64,
    /// What it acknowledged last, in the other side's positions.
    acked: u64,
    /// End of what arrived from the other side, in the other side's positions.
    arrived: u64,
    /// Window of its SYN, which is never scaled.
    syn_window: u16,
    is_unclear: bool,
}

/// Checks every packet that a host sends against the packets that the host has received.
#[derive(Debug, Default)]
pub struct Observer {
    /// One entry for each sender: the flow as it sees it.
    sides: BTreeMap<Flow, Side>,
    contents: BTreeMap<Flow, Content>,
    /// Segments seen.
    pub segments: u64,
}

impl Observer {
    /// Tells what `from` sends to `to`.
    pub fn expect(&mut self, from: SocketAddr, to: SocketAddr, content: Content) {
        self.contents.insert((from, to), content);
    }

    /// A host sends `packet`; `mtu` is that of its link. Of hosts that are not `ours` only the basics are asked.
    pub fn on_sent(&mut self, packet: &[u8], mtu: u16, ours: bool) -> Result<(), Broken> {
        let len = packet.len();
        require!(len <= usize::from(mtu), "a packet of {len} octets is sent on a link of {mtu}");
        let Some(sight) = Sight::of(packet) else {
            require!(!ours, "a packet is sent that is not valid TCP: {packet:02x?}");
            return Ok(());
        };
        self.segments += 1;
        let flow = (sight.from, sight.to);
        if sight.has(flag::SYN) {
            return self.on_syn_sent(flow, &sight);
        }
        let peer = self.sides.get(&(sight.to, sight.from)).cloned();
        let (Some(side), Some(peer)) = (self.sides.get_mut(&flow), peer) else {
            return Ok(()); // A reset for something unknown, or an answer out of TIME-WAIT.
        };
        if sight.has(flag::RST) {
            side.is_unclear = true;
            return Ok(());
        }
        if side.is_unclear {
            return Ok(());
        }
        side.check_data(&sight, self.contents.get(&flow).copied(), ours)?;
        if ours {
            side.check_size(&sight, &peer)?;
            side.check_acknowledgement(&sight, &peer)?;
        }
        Ok(())
    }

    fn on_syn_sent(&mut self, flow: Flow, sight: &Sight<'_>) -> Result<(), Broken> {
        match self.sides.get_mut(&flow) {
            Some(side) if side.iss == sight.seq => {}
            // An old SYN came late, or a cookie has expired: the wire does not show which of two connections continues.
            Some(_) => self.forget(flow),
            None => drop(self.sides.insert(flow, Side::new(sight))),
        }
        let arrived = self.sides.get(&(flow.1, flow.0)).cloned();
        let side = self.sides.get_mut(&flow).expect("it was added");
        side.sent = side.sent.max(u64::from(sight.len()));
        if let (Some(ack), Some(peer)) = (sight.ack, arrived) {
            side.offered = side.offered.max(peer.position(ack) + u64::from(sight.window));
            // The SYN has arrived, and RFC 7413 lets data follow at once.
            side.arrived = side.arrived.max(peer.position(ack).min(peer.sent));
            side.edge = side.edge.max(1 + u64::from(peer.syn_window));
        }
        Ok(())
    }

    /// No longer asks anything of a flow.
    fn forget(&mut self, flow: Flow) {
        for flow in [flow, (flow.1, flow.0)] {
            if let Some(side) = self.sides.get_mut(&flow) {
                side.is_unclear = true;
            }
        }
    }

    /// `packet` arrives at its destination: from now on that host knows what is in it.
    pub fn on_delivered(&mut self, packet: &[u8]) {
        let Some(sight) = Sight::of(packet) else {
            return;
        };
        let flow = (sight.from, sight.to);
        let Some(sender) = self.sides.get(&flow).cloned() else {
            return;
        };
        let Some(side) = self.sides.get_mut(&(sight.to, sight.from)) else {
            return;
        };
        if sight.has(flag::RST) {
            return;
        }
        side.arrived = side.arrived.max(sender.position(sight.seq) + u64::from(sight.len()));
        if let Some(ack) = sight.ack {
            let shift = if sight.has(flag::SYN) || !side.scaling_with(&sender) { 0 } else { sender.shift() };
            let window = u64::from(sight.window) << shift;
            side.edge = side.edge.max(side.position(ack) + window);
        }
    }
}

impl Side {
    fn new(sight: &Sight<'_>) -> Side {
        Side {
            iss: sight.seq,
            mss: sight.mss.unwrap_or(if sight.from.is_ipv4() { 536 } else { 1220 }),
            scale: sight.scale,
            sent: 1,
            edge: 1,
            offered: 0,
            acked: 0,
            arrived: 0,
            syn_window: sight.window,
            is_unclear: false,
        }
    }

    /// Distance of `seq` from the SYN. Streams here are shorter than 2^31; what lies in front of the SYN counts as zero.
    fn position(&self, seq: u32) -> u64 {
        let distance = seq.wrapping_sub(self.iss);
        if distance >= 1 << 31 { 0 } else { u64::from(distance) }
    }

    fn shift(&self) -> u8 {
        self.scale.unwrap_or(0)
    }

    /// Scaling is on only if both SYNs offered it (RFC 7323, 1.3).
    fn scaling_with(&self, peer: &Side) -> bool {
        self.scale.is_some() && peer.scale.is_some()
    }

    /// Data is what the stream has there, and lies in the window that the other side offered.
    fn check_data(&mut self, sight: &Sight<'_>, content: Option<Content>, ours: bool) -> Result<(), Broken> {
        let start = self.position(sight.seq);
        let end = start + sight.payload.len() as u64;
        self.sent = self.sent.max(start + u64::from(sight.len()));
        if sight.payload.is_empty() {
            return Ok(());
        }
        // Others' keepalive probes carry an octet of nothing.
        if let Some(content) = content.filter(|_| ours) {
            let differs = content.first_difference(start - 1, sight.payload);
            require!(differs.is_none(), "octet {differs:?} of the stream is sent wrong");
        }
        let edge = self.edge;
        require!(!ours || end <= edge, "octets up to {end} are sent, and the window ends at {edge}");
        Ok(())
    }

    /// Data and options together fit the segment size that the other side announced (RFC 6691), and the sequence number is
    /// not beyond what was sent.
    fn check_size(&self, sight: &Sight<'_>, peer: &Side) -> Result<(), Broken> {
        let (len, mss) = (sight.payload.len() + sight.options_len, peer.mss);
        require!(
            sight.payload.is_empty() || len <= usize::from(mss.max(88)),
            "{len} octets in a segment of {mss}"
        );
        Ok(())
    }

    /// Only what arrived is acknowledged, and neither that nor the window is taken back (RFC 9293, 3.8.6).
    fn check_acknowledgement(&mut self, sight: &Sight<'_>, peer: &Side) -> Result<(), Broken> {
        let Some(ack) = sight.ack else {
            return Err(Broken("a segment without ACK is sent".to_owned()));
        };
        let (acked, arrived) = (peer.position(ack), self.arrived);
        require!(acked <= arrived, "{acked} octets are acknowledged of {arrived} that arrived");
        require!(acked >= self.acked, "{acked} octets are acknowledged, and {} were before", self.acked);
        let shift = if self.scaling_with(peer) { self.shift() } else { 0 };
        let offered = acked + (u64::from(sight.window) << shift);
        require!(offered >= self.offered, "the window moves back from {} to {offered}", self.offered);
        self.acked = acked;
        self.offered = offered;
        Ok(())
    }
}
