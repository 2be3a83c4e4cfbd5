//! Packets that the script expects of the stack.

use clock::Instant;

use super::{Failure, Player, Target, flow_by_ports, seconds};
use crate::pkt::ast::{Body, Event, OptionsSpec, PacketSpec, flag};
use crate::pkt::compare::differences;
use crate::pkt::flow::Flow;
use crate::pkt::packet::{Packet, Segment, Transport};
use crate::pkt::show;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::{Sent, World};

/// How long is waited for a packet that may come at any time.
const PATIENCE: clock::Duration = clock::Duration::from_secs(24 * 3600);

/// A packet that came, perhaps put together of several, and when its first and last part were sent.
struct Arrived {
    packet: Packet,
    parts: u32,
    first: Instant,
    last: Instant,
}

impl<'a> Player<'a> {
    pub(super) fn expect(
        &mut self,
        event: &'a Event,
        spec: &PacketSpec,
        target: Target,
    ) -> Result<(), Failure<'a>> {
        let wrap = |trouble| Failure { event, trouble };
        let number = flow_by_ports(&self.world, spec).or(self.world.under_test);
        let number =
            number.ok_or_else(|| wrap(Trouble::differs("no socket is there that could send this")))?;
        let latest = match target.range {
            Some((_, end)) => end + self.tolerance(end, self.last_event),
            None => self.world.now + PATIENCE,
        };
        let arrived = match self.take(number, spec, latest)? {
            Some(arrived) => arrived,
            None => return Err(wrap(Trouble::differs(self.nothing_came(number, latest)))),
        };
        let result = self.check(number, spec, target, arrived);
        let may_differ = self.world.settings.packets_may_differ;
        result.or_else(|trouble| self.tell_or_fail(event, trouble, may_differ))
    }

    /// The next packet of the flow, waiting for it until `latest`. Segments in a row that together carry what the script
    /// expects in one, as hardware would send it, are put together.
    fn take(
        &mut self,
        number: usize,
        spec: &PacketSpec,
        latest: Instant,
    ) -> Result<Option<Arrived>, Failure<'a>> {
        let Some(sent) = self.next_sent(number, latest)? else { return Ok(None) };
        let mut arrived = Arrived { packet: sent.packet, parts: 1, first: sent.at, last: sent.at };
        let wanted = match &spec.body {
            Body::Tcp(tcp) if !self.world.settings.strict_segments => tcp.sequence.len as usize,
            _ => 0,
        };
        while !arrived.packet.payload().is_empty() && arrived.packet.payload().len() < wanted {
            if !self.continues(number, &arrived.packet, latest)? {
                break;
            }
            let Some(sent) = self.next_sent(number, latest)? else { break };
            append(&mut arrived.packet, sent.packet);
            arrived.parts += 1;
            arrived.last = sent.at;
        }
        Ok(Some(arrived))
    }

    fn next_sent(&mut self, number: usize, latest: Instant) -> Result<Option<Sent>, Failure<'a>> {
        let Some(at) = self.find_sent(number, latest)? else { return Ok(None) };
        Ok(self.world.sent.remove(at))
    }

    /// Place in the queue of the next packet of the flow, waiting for it until `latest`.
    fn find_sent(&mut self, number: usize, latest: Instant) -> Result<Option<usize>, Failure<'a>> {
        loop {
            if let Some(at) = self.world.sent.iter().position(|sent| sent.flow == number) {
                return Ok(Some(at));
            }
            if self.world.now >= latest || self.next_deadline().is_none_or(|deadline| deadline > latest) {
                return Ok(None);
            }
            self.step(latest)?;
        }
    }

    /// Whether the next packet of the flow continues where `packet` ends, with the same header.
    fn continues(&mut self, number: usize, packet: &Packet, latest: Instant) -> Result<bool, Failure<'a>> {
        let Some(at) = self.find_sent(number, latest)? else { return Ok(false) };
        let (Some(before), Some(next)) = (packet.segment(), self.world.sent[at].packet.segment()) else {
            return Ok(false);
        };
        let ends = u16::from(flag::FIN | flag::PSH);
        Ok(next.seq == before.seq.wrapping_add(before.payload.len() as u32)
            && next.flags & !ends == before.flags & !ends
            && next.ack == before.ack
            && !next.payload.is_empty())
    }

    fn nothing_came(&self, number: usize, latest: Instant) -> String {
        let now = seconds(latest);
        let others = self.world.sent.iter().filter(|sent| sent.flow != number).count();
        let others = if others > 0 {
            format!("; {others} packets of other connections are there")
        } else {
            String::new()
        };
        format!("nothing came until {now}{others}")
    }

    fn check(
        &mut self,
        number: usize,
        spec: &PacketSpec,
        target: Target,
        arrived: Arrived,
    ) -> Result<(), Trouble> {
        let Arrived { mut packet, parts, first, last } = arrived;
        let flow = &mut self.world.flows[number];
        let is_label_wrong =
            spec.ip.flow_label.is_some_and(|label| !flow.accept_flow_label(label, packet.flow_label));
        let mut wrong_data = None;
        if let (Transport::Tcp(live), Body::Tcp(expected)) = (&mut packet.body, &spec.body) {
            let options = match &expected.options {
                OptionsSpec::Exactly(options) => &options[..],
                OptionsSpec::Any => &[],
            };
            flow.learn_outbound(live, expected.sequence.start, options);
            wrong_data = check_payload(flow, live);
            flow.map_outbound(live);
            self.world.cookies.map_outbound(live, options);
        }
        self.note('>', first, &show::packet(&packet));
        // Linux sets PSH on whatever leaves as one large packet.
        let check_push = self.world.settings.check_push && parts == 1;
        let mut found = differences(spec, &packet, &self.world.settings, check_push);
        found.extend(wrong_data);
        if is_label_wrong {
            found.push(format!("flow label: {:#x} does not go with those before", packet.flow_label));
        }
        found.extend(self.check_time(target, first, last));
        if found.is_empty() {
            return Ok(());
        }
        found.insert(0, format!("came at {}: > {}", seconds(first), show::packet(&packet)));
        Err(Trouble::Differs(found))
    }

    fn check_time(&self, target: Target, first: Instant, last: Instant) -> Option<String> {
        let (start, end) = target.range?;
        let early = start.since(first) > self.tolerance(start, self.last_event);
        let late = last.since(end) > self.tolerance(end, self.last_event);
        let wanted =
            if start == end { seconds(start) } else { format!("{} to {}", seconds(start), seconds(end)) };
        let word = if early { "early" } else { "late" };
        (early || late).then(|| format!("time: expected {wanted}, came too {word} at {}", seconds(first)))
    }

    /// Fails if unexpected packets came.
    pub(super) fn check_rest(&mut self) -> Result<(), Trouble> {
        let rest = self.take_rest();
        if rest.is_empty() { Ok(()) } else { Err(Trouble::Differs(rest)) }
    }

    /// Unexpected packets, a line each.
    pub(super) fn take_rest(&mut self) -> Vec<String> {
        let World { sent, flows, .. } = &mut self.world;
        let told = sent.drain(..).map(|mut sent| {
            if let Transport::Tcp(segment) = &mut sent.packet.body {
                flows[sent.flow].map_outbound(segment);
            }
            format!("came at {} and was not expected: > {}", seconds(sent.at), show::packet(&sent.packet))
        });
        told.collect()
    }
}

fn append(packet: &mut Packet, next: Packet) {
    if let (Transport::Tcp(segment), Transport::Tcp(next)) = (&mut packet.body, next.body) {
        let Segment { flags, payload, .. } = next;
        segment.flags |= flags;
        segment.payload.extend(payload);
    }
}

/// Whether the data is what the program wrote at that place of the stream.
fn check_payload(flow: &Flow, segment: &Segment) -> Option<String> {
    if segment.payload.is_empty() {
        return None;
    }
    let offset = flow.outbound_offset(segment) as usize;
    let written = flow.written.get(offset..offset.saturating_add(segment.payload.len()));
    let same = written == Some(&segment.payload[..]);
    (!same).then(|| format!("data: not what was written from octet {offset} of the stream on"))
}
