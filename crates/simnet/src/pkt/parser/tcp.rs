//! TCP segments: flags, sequence numbers, acknowledgement, window, urgent pointer.

use super::cursor::Cursor;
use super::error::{ParseError, Result};
use super::options;
use crate::pkt::ast::{Flags, SequenceRange, TcpSpec, flag};

/// `P. 1:1001(1000) ack 1 win 257 urg 5 <options>`.
pub(super) fn tcp(cursor: &mut Cursor<'_>) -> Result<TcpSpec> {
    let flags = flags(cursor)?;
    let sequence = sequence(cursor)?;
    let ack = if cursor.eat_word("ack") { cursor.number("an acknowledgement number")? } else { 0 };
    let window = if cursor.eat_word("win") { Some(cursor.number("a window")?) } else { None };
    let urgent = if cursor.eat_word("urg") { cursor.number("an urgent pointer")? } else { 0 };
    let options = options::options(cursor)?;
    Ok(TcpSpec { flags, sequence, ack, window, urgent, options })
}

/// `start:end(len)`, whose three numbers must agree.
pub(super) fn sequence(cursor: &mut Cursor<'_>) -> Result<SequenceRange> {
    let at = cursor.position();
    let start: u32 = cursor.number("a sequence number")?;
    cursor.expect(":")?;
    let end: u32 = cursor.number("a sequence number")?;
    cursor.expect("(")?;
    let len: u32 = cursor.number("a number of octets")?;
    cursor.expect(")")?;
    if start.wrapping_add(len) != end {
        return Err(ParseError::syntax(at, format!("{start} and {len} octets do not make {end}")));
    }
    Ok(SequenceRange { start, len })
}

/// Letters and `.` for ACK, then perhaps the number of the three ECN bits; `-` for none.
fn flags(cursor: &mut Cursor<'_>) -> Result<Flags> {
    let at = cursor.position();
    let ahead = cursor.ahead();
    let len = ahead.find(char::is_whitespace).unwrap_or(ahead.len());
    let word = &ahead[..len];
    if let Some(refused) = unknown_protocol(cursor) {
        return Err(refused);
    }
    let flags =
        read_flags(word).ok_or_else(|| ParseError::syntax(at, format!("`{word}` are no TCP flags")))?;
    cursor.advance(len);
    Ok(flags)
}

fn unknown_protocol(cursor: &mut Cursor<'_>) -> Option<ParseError> {
    match cursor.peek_word()? {
        word @ ("sctp" | "udplite" | "dccp") => Some(cursor.unsupported(format!("protocol {word}"))),
        _ => None,
    }
}

fn read_flags(word: &str) -> Option<Flags> {
    let mut flags = Flags::default();
    if word == "-" {
        return Some(flags);
    }
    for c in word.chars() {
        flags.bits |= match c {
            'F' => u16::from(flag::FIN),
            'S' => u16::from(flag::SYN),
            'R' => u16::from(flag::RST),
            'P' => u16::from(flag::PSH),
            '.' => u16::from(flag::ACK),
            'U' => u16::from(flag::URG),
            'E' => u16::from(flag::ECE),
            'W' | 'C' => u16::from(flag::CWR),
            'A' => flag::AE,
            '0'..='7' if !flags.counts_ce => {
                flags.counts_ce = true;
                // AE, CWR, ECE are neighbours in the header, from bit 8 down.
                u16::try_from(c.to_digit(8)?).ok()? << 6
            }
            _ => return None,
        };
    }
    (!word.is_empty()).then_some(flags)
}
