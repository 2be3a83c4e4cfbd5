//! One connection, as the script counts it and as it is.
//!
//! A script knows neither the stack's port nor its initial sequence number nor its clock of timestamps. A flow learns
//! them from what the stack sends, and turns the script's numbers into live ones and back. Numbers of SYN segments are
//! those of the script's initial sequence numbers; numbers of all others are relative to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::ast::{OptionSpec, flag};
use super::packet::Segment;

/// How far a flow has come, as far as the player must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A socket that has done nothing.
    New,
    /// A socket that listens: the next packet in makes a flow of its own.
    Listening,
    /// A packet came in for a listener.
    Arrived,
    /// connect() was called, or a datagram sent.
    Connecting,
    /// The script has seen packets of both sides.
    Known,
}

/// Initial sequence numbers of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Isns {
    local: u32,
    remote: u32,
}

/// One connection, or a socket that may become one.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) stage: Stage,
    pub(crate) is_udp: bool,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    script: Isns,
    live: Isns,
    /// A SYN with another initial sequence number came in: if the stack answers it, the numbers start anew.
    renewal: Option<u32>,
    /// Live timestamp by script timestamp, for what the script echoes.
    timestamps: BTreeMap<u32, u32>,
    /// Script's and live value of the first timestamp that came out.
    first_timestamp: Option<(u32, u32)>,
    /// Live flow label by the script's name for it, as they were seen last.
    flow_label: Option<(u32, u32)>,
    /// What the program wrote, from the first octet on.
    pub(crate) written: Vec<u8>,
    /// Octets that the program has read.
    pub(crate) read: usize,
}

impl Flow {
    pub(crate) fn new(stage: Stage, is_udp: bool, local: SocketAddr, remote: SocketAddr) -> Flow {
        Flow {
            stage,
            is_udp,
            local,
            remote,
            script: Isns::default(),
            live: Isns::default(),
            renewal: None,
            timestamps: BTreeMap::new(),
            first_timestamp: None,
            flow_label: None,
            written: Vec::new(),
            read: 0,
        }
    }

    /// Turns a segment of the script, about to go in, into a live one. Ports are not touched.
    pub(crate) fn map_inbound(&mut self, segment: &mut Segment) {
        let is_syn = segment.has(flag::SYN);
        if is_syn {
            self.learn_remote_isn(segment);
        }
        let remote_offset = if is_syn { 0 } else { self.live.remote };
        segment.seq = segment.seq.wrapping_add(remote_offset);
        let offset = self.local_offset(is_syn);
        if segment.has(flag::ACK) {
            segment.ack = segment.ack.wrapping_add(offset);
        }
        let has_ack = segment.has(flag::ACK);
        for option in &mut segment.options {
            match option {
                OptionSpec::Sack(blocks) => offset_blocks(blocks, offset),
                OptionSpec::Timestamps { echo_reply: Some(echo), .. } if has_ack => {
                    *echo = self.live_timestamp(*echo)
                }
                _ => {}
            }
        }
    }

    fn learn_remote_isn(&mut self, segment: &Segment) {
        match self.stage {
            Stage::Arrived if self.script == Isns::default() => self.set_remote_isn(segment.seq),
            // The answer to our SYN, or a SYN that crosses it.
            Stage::Connecting => self.set_remote_isn(segment.seq),
            _ if segment.seq != self.script.remote && !segment.has(flag::ACK) => {
                self.renewal = Some(segment.seq)
            }
            _ => {}
        }
    }

    fn set_remote_isn(&mut self, isn: u32) {
        self.script.remote = isn;
        self.live.remote = isn;
    }

    /// Learns from a segment that the stack sent, which the script expects to be `expected`: its sequence number if it
    /// starts the connection, and its timestamp.
    pub(crate) fn learn_outbound(
        &mut self,
        live: &Segment,
        expected_seq: u32,
        expected_options: &[OptionSpec],
    ) {
        if live.has(flag::SYN) {
            self.learn_local_isn(live, expected_seq);
        }
        if let (Some((script, _)), Some((value, _))) =
            (timestamps(expected_options), timestamps(&live.options))
        {
            self.timestamps.insert(script, value);
            self.first_timestamp.get_or_insert((script, value));
        }
    }

    fn learn_local_isn(&mut self, live: &Segment, expected_seq: u32) {
        let answers_anew = self.renewal.is_some() && live.has(flag::ACK) && live.seq != self.live.local;
        if let Some(isn) = self.renewal.take_if(|_| answers_anew) {
            self.set_remote_isn(isn);
            self.first_timestamp = None;
            self.timestamps.clear();
        }
        if answers_anew || matches!(self.stage, Stage::Arrived | Stage::Connecting) {
            self.script.local = expected_seq;
            self.live.local = live.seq;
        }
        self.stage = match (self.stage, live.has(flag::ACK)) {
            // Until the peer's SYN came, its sequence numbers are not known.
            (Stage::Connecting, false) => Stage::Connecting,
            _ => Stage::Known,
        };
    }

    /// Turns a segment that the stack sent into the script's numbers. Ports are not touched.
    pub(crate) fn map_outbound(&self, segment: &mut Segment) {
        let is_syn = segment.has(flag::SYN);
        segment.seq = segment.seq.wrapping_sub(self.local_offset(is_syn));
        let offset = if is_syn { 0 } else { self.live.remote };
        if segment.has(flag::ACK) {
            segment.ack = segment.ack.wrapping_sub(offset);
        }
        for option in &mut segment.options {
            match option {
                OptionSpec::Sack(blocks) => offset_blocks(blocks, offset.wrapping_neg()),
                OptionSpec::Timestamps { value: Some(value), .. } => *value = self.script_timestamp(*value),
                _ => {}
            }
        }
    }

    /// The live sequence number of what the script calls `seq`, outside SYNs.
    pub(crate) fn live_seq(&self, seq: u32) -> u32 {
        seq.wrapping_add(self.live.local)
    }

    /// Where in the stream that the stack sends the payload of a live segment starts.
    pub(crate) fn outbound_offset(&self, live: &Segment) -> u32 {
        stream_offset(live, self.live.local)
    }

    /// The same for the stream that the script sends.
    pub(crate) fn inbound_offset(&self, live: &Segment) -> u32 {
        stream_offset(live, self.live.remote)
    }

    fn local_offset(&self, is_syn: bool) -> u32 {
        if is_syn { self.live.local.wrapping_sub(self.script.local) } else { self.live.local }
    }

    /// What to echo for the script's `echo`: the live value that it saw there, else as far from the first one.
    fn live_timestamp(&self, echo: u32) -> u32 {
        match (self.timestamps.get(&echo), self.first_timestamp) {
            (Some(live), _) => *live,
            (None, Some((script, live))) => echo.wrapping_sub(script).wrapping_add(live),
            (None, None) => echo,
        }
    }

    fn script_timestamp(&self, value: u32) -> u32 {
        self.first_timestamp.map_or(value, |(script, live)| value.wrapping_sub(live).wrapping_add(script))
    }

    /// Whether a live flow label is what the script's name for it stands for; equal names stand for equal labels.
    pub(crate) fn accept_flow_label(&mut self, script: u32, live: u32) -> bool {
        let fits = match self.flow_label {
            None => true,
            Some((known, label)) => (known == script) == (label == live),
        };
        self.flow_label = Some((script, live));
        fits && live != 0
    }
}

/// Value and echo of the timestamps option, if it is there and names both.
pub(crate) fn timestamps(options: &[OptionSpec]) -> Option<(u32, u32)> {
    options.iter().find_map(|option| match option {
        OptionSpec::Timestamps { value: Some(value), echo_reply } => Some((*value, echo_reply.unwrap_or(0))),
        _ => None,
    })
}

fn stream_offset(segment: &Segment, isn: u32) -> u32 {
    // A SYN takes the number in front of its data.
    segment.seq.wrapping_sub(isn).wrapping_sub(u32::from(!segment.has(flag::SYN)))
}

fn offset_blocks(blocks: &mut [(u32, u32)], offset: u32) {
    for (left, right) in blocks {
        *left = left.wrapping_add(offset);
        *right = right.wrapping_add(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(stage: Stage) -> Flow {
        let (local, remote) = ("192.168.0.1:8080".parse().unwrap(), "192.0.2.1:40000".parse().unwrap());
        Flow::new(stage, false, local, remote)
    }

    fn segment(flags: u8, seq: u32, ack: u32) -> Segment {
        Segment {
            ports: (0, 0),
            seq,
            ack,
            flags: u16::from(flags),
            window: 0,
            urgent: 0,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// A listener's connection: the script's SYN has 1000, its SYN-ACK 0; the stack's initial number is 77777.
    fn established() -> Flow {
        let mut flow = flow(Stage::Arrived);
        flow.map_inbound(&mut segment(flag::SYN, 1000, 0));
        let answer = segment(flag::SYN | flag::ACK, 77777, 1001);
        flow.learn_outbound(&answer, 0, &[]);
        flow
    }

    #[test]
    fn numbers_of_syns_are_the_scripts_own() {
        let flow = established();
        let mut answer = segment(flag::SYN | flag::ACK, 77777, 1001);
        flow.map_outbound(&mut answer);
        assert_eq!((answer.seq, answer.ack), (0, 1001));
    }

    #[test]
    fn other_numbers_are_relative_to_the_initial_ones() {
        let mut flow = established();
        let mut data = segment(flag::ACK, 1, 101);
        data.options.push(OptionSpec::Sack(vec![(201, 301)]));
        flow.map_inbound(&mut data);
        assert_eq!((data.seq, data.ack), (1001, 77878));
        assert_eq!(data.options[0], OptionSpec::Sack(vec![(77978, 78078)]));
        assert_eq!(flow.inbound_offset(&data), 0, "the first octet of the stream");
        let mut answer = segment(flag::ACK, 77778, 1001);
        flow.map_outbound(&mut answer);
        assert_eq!((answer.seq, answer.ack), (1, 1));
    }

    #[test]
    fn a_connecting_socket_teaches_its_number_and_learns_the_peers() {
        let mut flow = flow(Stage::Connecting);
        flow.learn_outbound(&segment(flag::SYN, 500, 0), 0, &[]);
        let mut answer = segment(flag::SYN | flag::ACK, 9, 1);
        flow.map_inbound(&mut answer);
        assert_eq!((answer.seq, answer.ack), (9, 501));
        let mut ack = segment(flag::ACK, 501, 10);
        flow.map_outbound(&mut ack);
        assert_eq!((ack.seq, ack.ack), (1, 1));
    }

    #[test]
    fn a_new_connection_on_old_ports_starts_anew_once_it_is_answered() {
        let mut flow = established();
        flow.map_inbound(&mut segment(flag::SYN, 5000, 0));
        let mut challenge = segment(flag::ACK, 77778, 1001);
        flow.map_outbound(&mut challenge);
        assert_eq!((challenge.seq, challenge.ack), (1, 1), "a challenge is of the old connection");
        let answer = segment(flag::SYN | flag::ACK, 88888, 5001);
        flow.learn_outbound(&answer, 0, &[]);
        let mut data = segment(flag::ACK, 1, 1);
        flow.map_inbound(&mut data);
        assert_eq!((data.seq, data.ack), (5001, 88889));
    }

    #[test]
    fn timestamps_are_echoed_as_the_stack_sent_them() {
        let mut flow = established();
        let stamp =
            |value, echo_reply| OptionSpec::Timestamps { value: Some(value), echo_reply: Some(echo_reply) };
        let mut live = segment(flag::ACK, 77778, 1001);
        live.options.push(stamp(4_000_000, 1));
        flow.learn_outbound(&live, 1, &[stamp(100, 1)]);
        let mut ack = segment(flag::ACK, 1, 1);
        ack.options = vec![stamp(5, 100), stamp(5, 110)];
        flow.map_inbound(&mut ack);
        assert_eq!(ack.options, [stamp(5, 4_000_000), stamp(5, 4_000_010)]);
        flow.map_outbound(&mut live);
        assert_eq!(live.options, [stamp(100, 1)]);
    }

    #[test]
    fn equal_names_of_flow_labels_stand_for_equal_labels() {
        let mut flow = established();
        assert!(flow.accept_flow_label(1, 0xabc) && flow.accept_flow_label(1, 0xabc));
        assert!(flow.accept_flow_label(2, 0xdef), "another name, another label");
        assert!(!flow.accept_flow_label(3, 0xdef));
        assert!(!flow.accept_flow_label(3, 0), "no label at all");
    }
}
