//! Packets in the script's own words, for reports.

use std::fmt::Write;

use super::ast::{OptionSpec, flag};
use super::packet::{Packet, Segment, Transport};

/// A packet as a script would write it; the numbers are as they are.
pub(crate) fn packet(packet: &Packet) -> String {
    let ecn = ["", "[ect1] ", "[ect0] ", "[ce] "][usize::from(packet.traffic_class & 3)];
    match &packet.body {
        Transport::Tcp(segment) => format!("{ecn}{}", self::segment(segment)),
        Transport::Udp { payload, .. } => format!("{ecn}udp ({})", payload.len()),
        Transport::Icmp { header, .. } => format!("{ecn}icmp type_{} code_{}", header.kind, header.code),
    }
}

fn segment(segment: &Segment) -> String {
    let len = segment.payload.len() as u32;
    let end = segment.seq.wrapping_add(len);
    let mut text = format!("{} {}:{end}({len})", flags(segment.flags), segment.seq);
    if segment.has(flag::ACK) {
        _ = write!(text, " ack {}", segment.ack);
    }
    _ = write!(text, " win {}", segment.window);
    if segment.urgent != 0 || segment.has(flag::URG) {
        _ = write!(text, " urg {}", segment.urgent);
    }
    let options: Vec<String> = segment.options.iter().map(option).collect();
    if !options.is_empty() {
        _ = write!(text, " <{}>", options.join(","));
    }
    text
}

/// Flags in the order that scripts write them.
pub(crate) fn flags(bits: u16) -> String {
    const LETTERS: &[(u16, char)] = &[
        (flag::FIN as u16, 'F'),
        (flag::SYN as u16, 'S'),
        (flag::RST as u16, 'R'),
        (flag::PSH as u16, 'P'),
        (flag::URG as u16, 'U'),
        (flag::ECE as u16, 'E'),
        (flag::CWR as u16, 'W'),
        (flag::AE, 'A'),
        (flag::ACK as u16, '.'),
    ];
    let text: String = LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// One TCP option.
pub(crate) fn option(option: &OptionSpec) -> String {
    let number = |number: &Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
    match option {
        OptionSpec::NoOperation => "nop".to_owned(),
        OptionSpec::EndOfList => "eol".to_owned(),
        OptionSpec::MaximumSegmentSize(size) => format!("mss {size}"),
        OptionSpec::WindowScale(shift) => format!("wscale {}", number(&shift.map(u32::from))),
        OptionSpec::SackPermitted => "sackOK".to_owned(),
        OptionSpec::Sack(blocks) => {
            let blocks: Vec<String> = blocks.iter().map(|(left, right)| format!("{left}:{right}")).collect();
            format!("sack {}", blocks.join(" "))
        }
        OptionSpec::Timestamps { value, echo_reply } => {
            format!("TS val {} ecr {}", number(value), number(echo_reply))
        }
        OptionSpec::FastOpen { cookie, experimental } => {
            let name = if *experimental { "FOEXP" } else { "FO" };
            format!("{name} {}", hexadecimal(cookie)).trim_end().to_owned()
        }
        OptionSpec::Md5(digest) => format!("md5 {}", hexadecimal(digest)),
        OptionSpec::Other { kind, data } => format!("option {kind} {}", hexadecimal(data)),
    }
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        _ = write!(text, "{octet:02x}");
        text
    })
}
