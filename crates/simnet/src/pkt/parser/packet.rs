//! Packets: direction, IP header, ports, and what they carry.

use super::cursor::Cursor;
use super::error::{ParseError, Result};
use super::{icmp, tcp};
use crate::pkt::ast::{Body, Direction, Ecn, IpSpec, OptionsSpec, PacketSpec, Position};

pub(super) fn packet(cursor: &mut Cursor<'_>) -> Result<PacketSpec> {
    let at = cursor.position();
    let direction = if cursor.eat("<") { Direction::Inbound } else { Direction::Outbound };
    if direction == Direction::Outbound {
        cursor.expect(">")?;
    }
    refuse_encapsulation(cursor)?;
    let ip = ip(cursor)?;
    let (ports, body) = if cursor.eat_word("udp") {
        (ports(cursor)?, Body::Udp(in_parentheses(cursor)?))
    } else if cursor.eat_word("icmp") || cursor.eat_word("icmpv6") {
        (None, Body::Icmp(icmp::icmp(cursor)?))
    } else {
        (ports(cursor)?, Body::Tcp(tcp::tcp(cursor)?))
    };
    let packet = PacketSpec { direction, ip, ports, body };
    check_direction(&packet, at)?;
    Ok(packet)
}

/// `(number)`.
pub(super) fn in_parentheses<T: TryFrom<i64>>(cursor: &mut Cursor<'_>) -> Result<T> {
    cursor.expect("(")?;
    let number = cursor.number("a number of octets")?;
    cursor.expect(")")?;
    Ok(number)
}

fn refuse_encapsulation(cursor: &mut Cursor<'_>) -> Result<()> {
    match cursor.peek_word() {
        Some(word @ ("ipv4" | "ipv6" | "gre" | "GREv0" | "mpls" | "psp")) => {
            Err(cursor.unsupported(format!("encapsulation in {word}")))
        }
        _ => Ok(()),
    }
}

/// `[ect0]`, `(tos 0x10)`, `[ttl 64]`, several between commas; nothing at all.
fn ip(cursor: &mut Cursor<'_>) -> Result<IpSpec> {
    let mut ip = IpSpec::default();
    let end = match cursor.peek() {
        Some('(') => ")",
        Some('[') => "]",
        _ => return Ok(ip),
    };
    cursor.advance(1);
    loop {
        let at = cursor.position();
        match cursor.word("what the IP header says")? {
            "noecn" => ip.ecn = Some(Ecn::NotEct),
            "ect0" => ip.ecn = Some(Ecn::Ect0),
            "ect1" => ip.ecn = Some(Ecn::Ect1),
            "ect01" => ip.ecn = Some(Ecn::Ect01),
            "ce" => ip.ecn = Some(Ecn::Ce),
            "tos" => ip.tos = Some(cursor.number("a type of service")?),
            "ttl" => ip.ttl = Some(cursor.number("a time to live")?),
            "flowlabel" => ip.flow_label = Some(cursor.number("a flow label")?),
            other => return Err(ParseError::syntax(at, format!("`{other}` is no field of an IP header"))),
        }
        if cursor.eat(end) {
            return Ok(ip);
        }
        cursor.expect(",")?;
    }
}

/// `source > destination`.
fn ports(cursor: &mut Cursor<'_>) -> Result<Option<(u16, u16)>> {
    let Some((_, len)) = cursor.peek_integer() else { return Ok(None) };
    if !cursor.rest()[len..].trim_start().starts_with('>') {
        return Ok(None);
    }
    let source = cursor.number("a port")?;
    cursor.expect(">")?;
    Ok(Some((source, cursor.number("a port")?)))
}

/// Wildcards are for expected packets; they cannot be sent.
fn check_direction(packet: &PacketSpec, at: Position) -> Result<()> {
    if packet.direction == Direction::Outbound {
        return Ok(());
    }
    if packet.ip.ecn == Some(Ecn::Ect01) {
        return Err(ParseError::syntax(at, "[ect01] is only for packets that are expected"));
    }
    match &packet.body {
        Body::Tcp(tcp) if tcp.options == OptionsSpec::Any => {
            Err(ParseError::syntax(at, "<...> is only for packets that are expected"))
        }
        Body::Tcp(tcp) if tcp.sequence.len > u32::from(u16::MAX) => {
            Err(ParseError::syntax(at, "no IP packet carries so many octets"))
        }
        _ => Ok(()),
    }
}
