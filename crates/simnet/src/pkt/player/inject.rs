//! Packets of the script that go into the stack.

use std::net::SocketAddr;

use super::{Player, flow_by_ports};
use crate::pkt::ast::{Body, Ecn, Event, IcmpSpec, IpSpec, OptionsSpec, PacketSpec, Quote, TcpSpec, flag};
use crate::pkt::flow::Stage;
use crate::pkt::packet::{Packet, Segment, Transport, encode, icmp_header};
use crate::pkt::payload;
use crate::pkt::settings::IpVersion;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

/// What our peer's packets start with.
const HOP_LIMIT: u8 = 255;

impl Player<'_> {
    /// Sends `spec` to the stack in live numbers.
    pub(super) fn inject(&mut self, event: &Event, spec: &PacketSpec) -> Result<(), Trouble> {
        let number = flow_of_inbound(&mut self.world, spec)?;
        let body = match &spec.body {
            Body::Tcp(tcp) => Transport::Tcp(segment(&mut self.world, number, spec, tcp)),
            Body::Udp(len) => {
                let flow = &self.world.flows[number];
                let ports = spec.ports.unwrap_or((flow.remote.port(), flow.local.port()));
                Transport::Udp { ports, payload: payload::pattern(0, usize::from(*len)) }
            }
            Body::Icmp(icmp) => self.icmp(number, icmp)?,
        };
        let text = event.text.split_once('<').map_or(event.text.as_str(), |(_, packet)| packet.trim());
        self.note('<', self.world.now, text);
        for body in parts(body, self.world.settings.mss) {
            let flow = &self.world.flows[number];
            let packet = Packet {
                source: flow.remote.ip(),
                destination: flow.local.ip(),
                traffic_class: traffic_class(&spec.ip),
                hop_limit: spec.ip.ttl.unwrap_or(HOP_LIMIT),
                flow_label: spec.ip.flow_label.unwrap_or(0),
                body,
            };
            let octets = encode(&packet).map_err(Trouble::differs)?;
            if let Err(reason) = self.world.host.receive(&octets, self.world.now) {
                self.notes.push(format!("{}: {}: the stack dropped it: {reason}", event.at, event.text));
            }
        }
        Ok(())
    }

    fn icmp(&self, number: usize, icmp: &IcmpSpec) -> Result<Transport, Trouble> {
        let v6 = self.world.settings.ip_version == IpVersion::V6;
        let header = icmp_header(icmp, v6).map_err(Trouble::differs)?;
        let flow = &self.world.flows[number];
        let ports = (flow.local.port(), flow.remote.port());
        let body = match icmp.quote {
            Quote::Raw(len) => {
                let quoted = vec![0; usize::from(len).saturating_sub(wire::icmp::HEADER_LEN)];
                return Ok(Transport::Icmp { header, quoted });
            }
            Quote::Udp(len) => Transport::Udp { ports, payload: vec![0; usize::from(len)] },
            Quote::Tcp(sequence) => Transport::Tcp(Segment {
                ports,
                seq: flow.live_seq(sequence.start),
                ack: 0,
                flags: 0,
                window: 0,
                urgent: 0,
                options: Vec::new(),
                payload: vec![0; sequence.len as usize],
            }),
        };
        let quoted = Packet {
            source: flow.local.ip(),
            destination: flow.remote.ip(),
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 0,
            body,
        };
        let mut quoted = encode(&quoted).map_err(Trouble::differs)?;
        // Routers quote the headers and the start of what follows (RFC 1812, 4.3.2.3).
        quoted.truncate(548);
        Ok(Transport::Icmp { header, quoted })
    }
}

/// A segment of more than `mss` octets as the peer sent it, before a network card joined it: in several, of which the last ends the
/// write and the stream.
fn parts(body: Transport, mss: Option<u16>) -> Vec<Transport> {
    let size = usize::from(mss.unwrap_or(0));
    let whole = match body {
        Transport::Tcp(segment) if size > 0 && segment.payload.len() > size => segment,
        other => return vec![other],
    };
    let count = whole.payload.len().div_ceil(size);
    let part = |(n, payload): (usize, &[u8])| {
        let ends = if n + 1 < count { u16::from(flag::PSH | flag::FIN) } else { 0 };
        let seq = whole.seq.wrapping_add((n * size) as u32);
        let flags = whole.flags & !ends;
        Transport::Tcp(Segment { seq, flags, payload: payload.to_vec(), ..whole.clone() })
    };
    whole.payload.chunks(size).enumerate().map(part).collect()
}

fn segment(world: &mut World, number: usize, spec: &PacketSpec, tcp: &TcpSpec) -> Segment {
    let flow = &mut world.flows[number];
    let options = match &tcp.options {
        OptionsSpec::Exactly(options) => options.clone(),
        OptionsSpec::Any => Vec::new(),
    };
    let mut segment = Segment {
        ports: spec.ports.unwrap_or((flow.remote.port(), flow.local.port())),
        seq: tcp.sequence.start,
        ack: tcp.ack,
        flags: tcp.flags.bits,
        window: tcp.window.unwrap_or(0),
        urgent: tcp.urgent,
        options,
        payload: Vec::new(),
    };
    flow.map_inbound(&mut segment);
    world.cookies.map_inbound(&mut segment, flow.remote.ip());
    segment.payload = payload::pattern(flow.inbound_offset(&segment), tcp.sequence.len as usize);
    segment
}

/// The flow of the packet's ports, else the one under test; a listener's next packet makes a flow.
fn flow_of_inbound(world: &mut World, spec: &PacketSpec) -> Result<usize, Trouble> {
    if let Some(flow) = flow_by_ports(world, spec) {
        return Ok(flow);
    }
    let under_test = world.under_test.map(|flow| &world.flows[flow]);
    let is_udp = matches!(spec.body, Body::Udp(_));
    match (&spec.body, under_test) {
        (Body::Tcp(_), None) => Ok(arrival(world, spec, is_udp)),
        (Body::Tcp(_), Some(flow)) if spec.ports.is_some() || flow.stage == Stage::Listening => {
            Ok(arrival(world, spec, is_udp))
        }
        (_, Some(flow)) if is_udp == flow.is_udp || matches!(spec.body, Body::Icmp(_)) => {
            Ok(world.under_test.unwrap_or_default())
        }
        _ => Err(Trouble::differs("no socket is there for this packet")),
    }
}

/// A peer that was not heard of before. The flow is under test from now on, unless its ports were named while another is.
fn arrival(world: &mut World, spec: &PacketSpec, is_udp: bool) -> usize {
    let before = world.under_test;
    let listener = before.map(|flow| &world.flows[flow]).filter(|flow| flow.stage == Stage::Listening);
    let usual = SocketAddr::new(world.settings.local_ip, world.settings.bind_port);
    let local = listener.map_or(usual, |flow| flow.local);
    let local_ip = if local.ip().is_unspecified() { world.settings.local_ip } else { local.ip() };
    let keeps = spec.ports.is_some() && before.is_some() && listener.is_none();
    let ports = spec.ports.unwrap_or((0, local.port()));
    let remote_port = if ports.0 == 0 { world.free_port() } else { ports.0 };
    let remote = SocketAddr::new(world.settings.remote_ip, remote_port);
    let flow = world.new_flow(Stage::Arrived, is_udp);
    world.flows[flow].local = SocketAddr::new(local_ip, ports.1);
    world.flows[flow].remote = remote;
    if keeps {
        world.under_test = before;
    }
    flow
}

fn traffic_class(ip: &IpSpec) -> u8 {
    let marks = match ip.ecn {
        Some(Ecn::Ect1) => 1,
        Some(Ecn::Ect0) => 2,
        Some(Ecn::Ce) => 3,
        Some(Ecn::NotEct | Ecn::Ect01) | None => 0,
    };
    ip.tos.unwrap_or(marks)
}
