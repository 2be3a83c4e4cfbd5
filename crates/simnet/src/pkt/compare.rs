//! A packet that came, beside the one that the script expects.

use super::ast::{Body, Ecn, OptionSpec, OptionsSpec, PacketSpec, TcpSpec, flag};
use super::packet::{Packet, Segment, Transport, icmp_header};
use super::settings::Settings;
use super::show;

/// What differs between `spec` and `packet`, whose numbers are the script's already; empty if nothing does.
pub(crate) fn differences(
    spec: &PacketSpec,
    packet: &Packet,
    settings: &Settings,
    check_push: bool,
) -> Vec<String> {
    let mut found = Differences(Vec::new());
    ip(&mut found, spec, packet);
    match (&spec.body, &packet.body) {
        (Body::Tcp(expected), Transport::Tcp(segment)) => {
            flags(&mut found, expected, segment, check_push);
            tcp(&mut found, expected, segment, settings);
        }
        (Body::Udp(len), Transport::Udp { payload, .. }) => {
            found.check("octets of payload", usize::from(*len), payload.len());
        }
        (Body::Icmp(expected), Transport::Icmp { header, .. }) => {
            match icmp_header(expected, packet.source.is_ipv6()) {
                Ok(expected) => {
                    found.check("ICMP type", expected.kind, header.kind);
                    found.check("ICMP code", expected.code, header.code);
                }
                Err(unknown) => found.0.push(unknown),
            }
        }
        (expected, _) => found.0.push(format!("protocol: expected {}, came another", protocol(expected))),
    }
    if let (Some(expected), Some(ports)) = (spec.ports, packet.ports()) {
        found.check("source port", expected.0, ports.0);
        found.check("destination port", expected.1, ports.1);
    }
    found.0
}

struct Differences(Vec<String>);

impl Differences {
    fn check<T: PartialEq + std::fmt::Display>(&mut self, what: &str, expected: T, came: T) {
        if expected != came {
            self.0.push(format!("{what}: expected {expected}, came {came}"));
        }
    }
}

fn protocol(body: &Body) -> &'static str {
    match body {
        Body::Tcp(_) => "TCP",
        Body::Udp(_) => "UDP",
        Body::Icmp(_) => "ICMP",
    }
}

fn ip(found: &mut Differences, spec: &PacketSpec, packet: &Packet) {
    let marks = packet.traffic_class & 3;
    match spec.ip.ecn {
        None => {}
        Some(Ecn::Ect01) if matches!(marks, 1 | 2) => {}
        Some(ecn) => {
            found.check("ECN marks", ecn_name(ecn), ["noecn", "ect1", "ect0", "ce"][usize::from(marks)])
        }
    }
    if let Some(tos) = spec.ip.tos {
        found.check("type of service", tos, packet.traffic_class);
    }
    if let Some(ttl) = spec.ip.ttl {
        found.check("time to live", ttl, packet.hop_limit);
    }
}

fn ecn_name(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::NotEct => "noecn",
        Ecn::Ect0 => "ect0",
        Ecn::Ect1 => "ect1",
        Ecn::Ect01 => "ect0 or ect1",
        Ecn::Ce => "ce",
    }
}

fn flags(found: &mut Differences, expected: &TcpSpec, segment: &Segment, check_push: bool) {
    let compared = if check_push { u16::MAX } else { !u16::from(flag::PSH) };
    found.check("flags", show::flags(expected.flags.bits & compared), show::flags(segment.flags & compared));
}

fn tcp(found: &mut Differences, expected: &TcpSpec, segment: &Segment, settings: &Settings) {
    found.check("sequence number", expected.sequence.start, segment.seq);
    found.check("octets of payload", expected.sequence.len as usize, segment.payload.len());
    if segment.has(flag::ACK) {
        found.check("acknowledgement number", expected.ack, segment.ack);
    }
    if let Some(window) = expected.window {
        found.check("window", window, segment.window);
    }
    found.check("urgent pointer", expected.urgent, segment.urgent);
    if let OptionsSpec::Exactly(expected) = &expected.options {
        options(found, expected, &segment.options, settings);
    }
}

fn options(found: &mut Differences, expected: &[OptionSpec], came: &[OptionSpec], settings: &Settings) {
    let (expected, came) = (without_padding(expected), without_padding(came));
    let fits = expected.len() == came.len()
        && expected.iter().zip(came).all(|(expected, came)| option_fits(expected, came, settings));
    if !fits {
        found.check("options", list(expected), list(came));
    }
}

/// Ends of the list at its end only fill the last word.
fn without_padding(options: &[OptionSpec]) -> &[OptionSpec] {
    let padding = options.iter().rev().take_while(|option| **option == OptionSpec::EndOfList).count();
    &options[..options.len() - padding]
}

fn option_fits(expected: &OptionSpec, came: &OptionSpec, settings: &Settings) -> bool {
    match (expected, came) {
        (OptionSpec::WindowScale(None), OptionSpec::WindowScale(_)) => true,
        (
            OptionSpec::Timestamps { value, echo_reply },
            OptionSpec::Timestamps { value: Some(came), echo_reply: Some(came_echo) },
        ) => {
            // Without a tick no script of others has right values.
            settings.timestamp_tick.is_zero()
                || value.is_none_or(|value| is_near(value, *came, settings))
                    && echo_reply.is_none_or(|echo| echo == *came_echo)
        }
        (expected, came) => expected == came,
    }
}

fn is_near(expected: u32, came: u32, settings: &Settings) -> bool {
    let ticks = came.wrapping_sub(expected).cast_signed().unsigned_abs();
    settings.timestamp_tick * ticks <= settings.tolerance
}

fn list(options: &[OptionSpec]) -> String {
    let options: Vec<String> = options.iter().map(show::option).collect();
    format!("<{}>", options.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pkt::ast::Action;
    use crate::pkt::parser::{Definitions, parse};

    fn spec(text: &str) -> PacketSpec {
        let script = parse(&format!("0 > {text}"), &Definitions::default()).unwrap();
        match script.events.into_iter().next().unwrap().action {
            Action::Packet(packet) => packet,
            other => panic!("{other:?}"),
        }
    }

    fn came() -> Packet {
        let timestamps = OptionSpec::Timestamps { value: Some(105), echo_reply: Some(9) };
        let segment = Segment {
            ports: (8080, 40000),
            seq: 1,
            ack: 11,
            flags: u16::from(flag::PSH | flag::ACK),
            window: 500,
            urgent: 0,
            options: vec![OptionSpec::NoOperation, OptionSpec::NoOperation, timestamps],
            payload: vec![0; 10],
        };
        Packet {
            source: "192.168.0.1".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            traffic_class: 2,
            hop_limit: 64,
            flow_label: 0,
            body: Transport::Tcp(segment),
        }
    }

    fn told(text: &str, options: &[(&str, &str)]) -> Vec<String> {
        let at = crate::pkt::ast::Position { line: 1, column: 1 };
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| crate::pkt::ast::ScriptOption {
                name: (*name).to_owned(),
                value: Some((*value).to_owned()),
                at,
            })
            .collect();
        let settings = Settings::new(&options).unwrap();
        differences(&spec(text), &came(), &settings, settings.check_push)
    }

    #[test]
    fn a_packet_as_expected_has_no_differences() {
        assert!(told("P. 1:11(10) ack 11 <nop,nop,TS val 100 ecr 9>", &[]).is_empty());
        assert!(told("[ect01] P. 1:11(10) ack 11 win 500 <...>", &[]).is_empty());
        assert!(told("8080 > 40000 P. 1:11(10) ack 11 <...>", &[]).is_empty());
    }

    #[test]
    fn every_difference_is_told() {
        let told = told("[noecn] . 2:12(10) ack 12 win 501 <nop,TS val 100 ecr 9>", &[]);
        assert_eq!(
            told,
            [
                "ECN marks: expected noecn, came ect0",
                "flags: expected ., came P.",
                "sequence number: expected 2, came 1",
                "acknowledgement number: expected 12, came 11",
                "window: expected 501, came 500",
                "options: expected <nop,TS val 100 ecr 9>, came <nop,nop,TS val 105 ecr 9>",
            ]
        );
    }

    #[test]
    fn timestamps_are_compared_only_if_their_tick_is_known() {
        let expected = "P. 1:11(10) ack 11 <nop,nop,TS val 100 ecr 9>";
        assert!(told(expected, &[("tcp_ts_tick_usecs", "500")]).is_empty(), "2.5 ms of 4 ms tolerance");
        assert_eq!(told(expected, &[("tcp_ts_tick_usecs", "1000")]).len(), 1);
        let wrong_echo = "P. 1:11(10) ack 11 <nop,nop,TS val 105 ecr 8>";
        assert!(told(wrong_echo, &[]).is_empty());
        assert_eq!(told(wrong_echo, &[("tcp_ts_tick_usecs", "1000")]).len(), 1);
    }

    #[test]
    fn the_push_flag_may_be_left_out_of_the_comparison() {
        assert!(told(". 1:11(10) ack 11 <...>", &[("any_push", "")]).is_empty());
    }
}
