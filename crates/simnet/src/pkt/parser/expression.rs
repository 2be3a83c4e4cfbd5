//! Arguments and results of system calls.

use super::cursor::Cursor;
use super::error::{ParseError, Result};
use crate::pkt::ast::{Expression, ExpressionKind, Field};

/// `primary | primary | ...`.
pub(super) fn expression(cursor: &mut Cursor<'_>) -> Result<Expression> {
    cursor.deeper(|cursor| {
        let left = primary(cursor)?;
        if !cursor.eat("|") {
            return Ok(left);
        }
        let at = left.at;
        let right = expression(cursor)?;
        Ok(Expression { kind: ExpressionKind::Or(Box::new(left), Box::new(right)), at })
    })
}

/// Expressions between commas, up to `end`, which is taken too.
pub(super) fn list(cursor: &mut Cursor<'_>, end: &str) -> Result<Vec<Expression>> {
    let mut items = Vec::new();
    if cursor.eat(end) {
        return Ok(items);
    }
    loop {
        items.push(expression(cursor)?);
        if cursor.eat(end) {
            return Ok(items);
        }
        cursor.expect(",")?;
    }
}

fn primary(cursor: &mut Cursor<'_>) -> Result<Expression> {
    let at = cursor.position();
    let kind = match cursor.peek() {
        Some('.') => {
            cursor.expect("...")?;
            ExpressionKind::Ellipsis
        }
        Some('"') => ExpressionKind::Text(text(cursor)?),
        Some('[') => {
            cursor.advance(1);
            ExpressionKind::Array(list(cursor, "]")?)
        }
        Some('{') => {
            cursor.advance(1);
            braces(cursor)?
        }
        _ => match cursor.peek_integer() {
            Some((value, len)) => {
                cursor.advance(len);
                ExpressionKind::Integer(value)
            }
            None => return named(cursor),
        },
    };
    Ok(Expression { kind, at })
}

/// A name, what it is defined as, or the application of a name such as `htons(8080)`.
fn named(cursor: &mut Cursor<'_>) -> Result<Expression> {
    let at = cursor.position();
    let word = cursor.word("an expression")?;
    if cursor.eat("(") {
        return Ok(Expression { kind: ExpressionKind::Apply(word.to_owned(), list(cursor, ")")?), at });
    }
    let definitions = cursor.definitions;
    let Some(value) = definitions.get(word).filter(|value| *value != word) else {
        return Ok(Expression { kind: ExpressionKind::Word(word.to_owned()), at });
    };
    let mut inner = Cursor::within(value, cursor);
    let wrong = |error: ParseError| ParseError { at, ..error };
    let kind = expression(&mut inner).map_err(wrong)?.kind;
    Ok(Expression { kind, at })
}

/// Strings, which stick together as in C; `...` behind one says that its end does not matter.
fn text(cursor: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let mut octets = Vec::new();
    while cursor.peek() == Some('"') {
        let at = cursor.position();
        let quoted = cursor.quoted('"')?;
        octets.extend(unescape(quoted).ok_or_else(|| ParseError::syntax(at, "this escape is unknown"))?);
    }
    cursor.eat("...");
    Ok(octets)
}

fn unescape(quoted: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(quoted.len());
    let mut rest = quoted.bytes().peekable();
    while let Some(octet) = rest.next() {
        if octet != b'\\' {
            octets.push(octet);
            continue;
        }
        octets.push(match rest.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let digit = |octet: Option<u8>| char::from(octet?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            other => other,
        });
    }
    Some(octets)
}

/// What follows `{`: fields with names, or values in order.
fn braces(cursor: &mut Cursor<'_>) -> Result<ExpressionKind> {
    if is_field(cursor) {
        return fields(cursor);
    }
    Ok(ExpressionKind::Tuple(list(cursor, "}")?))
}

/// Whether a name and `=`, or a name with something in parentheses and `=`, stands next.
fn is_field(cursor: &mut Cursor<'_>) -> bool {
    let Some(word) = cursor.peek_word() else { return false };
    let behind = cursor.rest()[word.len()..].trim_start();
    let behind = match behind.strip_prefix('(') {
        Some(index) => index.split_once(')').map_or("", |(_, rest)| rest.trim_start()),
        None => behind,
    };
    behind.starts_with('=')
}

fn fields(cursor: &mut Cursor<'_>) -> Result<ExpressionKind> {
    let mut fields = Vec::new();
    loop {
        let name = cursor.word("the name of a field")?.to_owned();
        let index = if cursor.eat("(") {
            let index = expression(cursor)?;
            cursor.expect(")")?;
            Some(index)
        } else {
            None
        };
        cursor.expect("=")?;
        fields.push(Field { name, index, value: expression(cursor)? });
        if cursor.eat("}") {
            return Ok(ExpressionKind::Struct(fields));
        }
        cursor.expect(",")?;
    }
}
