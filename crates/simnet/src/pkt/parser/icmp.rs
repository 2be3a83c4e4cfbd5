//! ICMP messages.

use super::cursor::Cursor;
use super::error::Result;
use super::{packet, tcp};
use crate::pkt::ast::{IcmpSpec, Quote, SequenceRange};

/// `unreachable frag_needed mtu 1400 [1:1461(1460)]`.
pub(super) fn icmp(cursor: &mut Cursor<'_>) -> Result<IcmpSpec> {
    let kind = cursor.word("the type of an ICMP message")?.to_owned();
    let code = match cursor.peek_word() {
        Some(word) if is_code(word) => Some(cursor.word("")?.to_owned()),
        _ => None,
    };
    let mtu = if cursor.eat_word("mtu") { Some(cursor.number("an MTU")?) } else { None };
    let echo_id = if cursor.eat_word("id") { Some(cursor.number("an identifier")?) } else { None };
    let quote = quote(cursor)?;
    Ok(IcmpSpec { kind, code, mtu, echo_id, quote })
}

/// Codes are words; what starts with a digit is the time of the next event.
fn is_code(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word != "mtu" && word != "id"
}

/// `[1:1461(1460)]`, `[tcp 1:1461(1460)]`, `[udp (100)]`, `[raw (8)]`; nothing is a segment without data at zero.
fn quote(cursor: &mut Cursor<'_>) -> Result<Quote> {
    if !cursor.eat("[") {
        return Ok(Quote::Tcp(SequenceRange::default()));
    }
    let quote = if cursor.eat_word("udp") {
        Quote::Udp(packet::in_parentheses(cursor)?)
    } else if cursor.eat_word("raw") {
        Quote::Raw(packet::in_parentheses(cursor)?)
    } else {
        cursor.eat_word("tcp");
        Quote::Tcp(tcp::sequence(cursor)?)
    };
    cursor.expect("]")?;
    Ok(quote)
}
