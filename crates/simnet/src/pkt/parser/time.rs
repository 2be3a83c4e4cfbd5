//! Times of events.

use clock::Duration;

use super::cursor::Cursor;
use super::error::{ParseError, Result};
use crate::pkt::ast::When;

/// `*`, `1.5`, `+.1`, `1~2`, `+.1~+.2`.
pub(super) fn when(cursor: &mut Cursor<'_>) -> Result<When> {
    if cursor.eat("*") {
        return Ok(When::Anytime);
    }
    let relative = cursor.eat("+");
    let at = cursor.position();
    let start = seconds(cursor)?;
    if !cursor.eat("~") {
        return Ok(if relative { When::After(start) } else { When::At(start) });
    }
    if relative {
        cursor.expect("+")?;
    }
    let end = seconds(cursor)?;
    if end < start {
        return Err(ParseError::syntax(at, "the range of time ends before it starts"));
    }
    Ok(if relative { When::AfterBetween(start, end) } else { When::Between(start, end) })
}

/// Seconds, with up to nine decimals that count.
pub(super) fn seconds(cursor: &mut Cursor<'_>) -> Result<Duration> {
    let ahead = cursor.ahead();
    let whole_len = digits(ahead);
    let whole = &ahead[..whole_len];
    // Two dots are the start of an ellipsis: `0...0.1` is from 0 until 0.1.
    let fraction = ahead[whole_len..].strip_prefix('.').filter(|rest| !rest.starts_with('.')).unwrap_or("");
    let fraction = &fraction[..digits(fraction)];
    if whole.is_empty() && fraction.is_empty() {
        return Err(cursor.expected("a time in seconds"));
    }
    let at = cursor.position();
    let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let parsed = (if whole.is_empty() { Ok(0) } else { whole.parse::<u32>() }, nanos.parse::<u32>());
    let (Ok(whole_seconds), Ok(nanos)) = parsed else {
        return Err(ParseError::syntax(at, "this time is out of range"));
    };
    let dot = usize::from(!fraction.is_empty());
    cursor.advance(whole_len + dot + fraction.len());
    Ok(Duration::from_secs(whole_seconds.into()) + Duration::from_nanos(nanos.into()))
}

fn digits(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())
}
