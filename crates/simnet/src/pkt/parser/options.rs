//! TCP options.

use super::cursor::Cursor;
use super::error::{ParseError, Result};
use crate::pkt::ast::{OptionSpec, OptionsSpec};

/// Names of options that others' players know and this one does not.
const FOREIGN: &[&str] = &[
    "ECN",
    "mp_capable",
    "mp_capable_no_cs",
    "mp_join",
    "mp_join_syn",
    "mp_join_syn_ack",
    "mp_join_ack",
    "dss",
    "dss4",
    "dss8",
    "add_address",
    "add_addr",
    "rm_addr",
    "remove_address",
    "mp_prio",
    "mp_fail",
    "mp_fastclose",
    "mp_tcprst",
    "mp_reset",
    "TARR",
    "exp",
    "EXP",
    "ACC",
    "AccECN",
    "tcp_ao",
    "ao",
];

/// `<a,b,...>`, `<...>`, or nothing: no options.
pub(super) fn options(cursor: &mut Cursor<'_>) -> Result<OptionsSpec> {
    let mut list = Vec::new();
    // An event starts with a time, so this cannot be the next packet's direction.
    if !cursor.eat("<") {
        return Ok(OptionsSpec::Exactly(list));
    }
    if cursor.eat("...") {
        cursor.expect(">")?;
        return Ok(OptionsSpec::Any);
    }
    loop {
        list.push(option(cursor)?);
        if cursor.eat(">") {
            return Ok(OptionsSpec::Exactly(list));
        }
        cursor.expect(",")?;
    }
}

fn option(cursor: &mut Cursor<'_>) -> Result<OptionSpec> {
    let at = cursor.position();
    Ok(match cursor.word("a TCP option")? {
        "nop" => OptionSpec::NoOperation,
        "eol" => OptionSpec::EndOfList,
        "mss" => OptionSpec::MaximumSegmentSize(cursor.number("a segment size")?),
        "wscale" => OptionSpec::WindowScale(number_or_any(cursor, "a shift")?),
        "sackOK" => OptionSpec::SackPermitted,
        "sack" => OptionSpec::Sack(sack_blocks(cursor)?),
        "TS" => timestamps(cursor)?,
        "FO" => OptionSpec::FastOpen { cookie: hexadecimal(cursor)?, experimental: false },
        "FOEXP" => OptionSpec::FastOpen { cookie: hexadecimal(cursor)?, experimental: true },
        "md5" => OptionSpec::Md5(hexadecimal(cursor)?),
        word if FOREIGN.contains(&word) => {
            return Err(ParseError::unsupported(at, format!("TCP option {word}")));
        }
        word => return Err(ParseError::syntax(at, format!("`{word}` is no TCP option"))),
    })
}

fn number_or_any<T: TryFrom<i64>>(cursor: &mut Cursor<'_>, what: &str) -> Result<Option<T>> {
    if cursor.eat("*") { Ok(None) } else { Ok(Some(cursor.number(what)?)) }
}

/// `TS val 100 ecr 0`.
fn timestamps(cursor: &mut Cursor<'_>) -> Result<OptionSpec> {
    if !cursor.eat_word("val") {
        return Err(cursor.expected("`val`"));
    }
    let value = number_or_any(cursor, "a timestamp")?;
    if !cursor.eat_word("ecr") {
        return Err(cursor.expected("`ecr`"));
    }
    Ok(OptionSpec::Timestamps { value, echo_reply: number_or_any(cursor, "a timestamp")? })
}

/// `1001:2001 3001:4001`.
fn sack_blocks(cursor: &mut Cursor<'_>) -> Result<Vec<(u32, u32)>> {
    let mut blocks = Vec::new();
    while blocks.is_empty() || cursor.peek_integer().is_some() {
        let left = cursor.number("the left edge of a block")?;
        cursor.expect(":")?;
        blocks.push((left, cursor.number("the right edge of a block")?));
    }
    Ok(blocks)
}

/// Hexadecimal octets, or a name that is defined as some; nothing where the option ends at once.
fn hexadecimal(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let at = cursor.position();
    let Some(word) = cursor.peek_word() else { return Ok(Vec::new()) };
    cursor.advance(word.len());
    let digits = cursor.definitions.get(word).unwrap_or(word);
    octets(digits).ok_or_else(|| {
        let hint = "; a name must be defined with -D NAME=value";
        ParseError::syntax(at, format!("`{digits}` is not an even number of hexadecimal digits{hint}"))
    })
}

fn octets(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        digits.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}
