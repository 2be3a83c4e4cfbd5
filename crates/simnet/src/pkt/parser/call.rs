//! System calls.

use super::cursor::Cursor;
use super::error::Result;
use super::{expression, time};
use crate::pkt::ast::Call;

/// `...0.2 name(arguments) = result ERRNO (note)`.
pub(super) fn call(cursor: &mut Cursor<'_>) -> Result<Call> {
    let end = if cursor.eat("...") { Some(time::seconds(cursor)?) } else { None };
    let name = cursor.word("the name of a system call")?.to_owned();
    cursor.expect("(")?;
    let arguments = expression::list(cursor, ")")?;
    cursor.expect("=")?;
    let result = expression::expression(cursor)?;
    let errno = match cursor.peek_word() {
        Some(word) if word.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Some(cursor.word("")?.to_owned())
        }
        _ => None,
    };
    while cursor.eat("(") {
        cursor.until(")")?;
    }
    Ok(Call { end, name, arguments, result, errno })
}
