//! Buffers and messages that scripts read into and write from.

use super::Result;
use super::arguments::{Arguments, field, integer};
use crate::pkt::ast::{Call, Expression, ExpressionKind};
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;

/// More octets than this no call of a script moves.
const OCTETS_MAX: usize = 64 << 20;

/// What a call reads into or writes from.
pub(super) struct Transfer<'a> {
    pub(super) fd: i32,
    pub(super) len: usize,
    pub(super) flags: i64,
    /// What is to be written, where the script says.
    pub(super) text: Option<&'a [u8]>,
    /// Whether the buffer is a null pointer.
    pub(super) is_null: bool,
    /// The address argument of sendto() and recvfrom(), or the name of a message.
    pub(super) address: Option<&'a Expression>,
    pub(super) message: Option<&'a Expression>,
}

/// Looks at the arguments of any call that reads or writes.
pub(super) fn transfer(call: &Call) -> Result<Transfer<'_>> {
    match call.name.as_str() {
        "read" | "write" => plain(call, 3, false),
        "recv" | "send" => plain(call, 4, true),
        "recvfrom" | "sendto" => plain(call, 6, true),
        "readv" | "writev" => {
            let arguments = Arguments::of(call, 3..=3)?;
            let len = vector_len(arguments.get(1), arguments.int(2)?)?;
            Ok(of_len(arguments.fd(0)?, len, 0))
        }
        "sendfile" => {
            let arguments = Arguments::of(call, 4..=4)?;
            Ok(of_len(arguments.fd(0)?, checked(arguments.count(3)?)?, 0))
        }
        _ => message(call),
    }
}

fn of_len<'a>(fd: i32, len: usize, flags: i64) -> Transfer<'a> {
    Transfer { fd, len, flags, text: None, is_null: false, address: None, message: None }
}

fn plain(call: &Call, count: usize, has_flags: bool) -> Result<Transfer<'_>> {
    let arguments = Arguments::of(call, count..=count)?;
    let flags = if has_flags { arguments.int(3)? } else { 0 };
    let mut transfer = of_len(arguments.fd(0)?, checked(arguments.count(2)?)?, flags);
    match &arguments.get(1).kind {
        ExpressionKind::Ellipsis => {}
        ExpressionKind::Text(text) => transfer.text = Some(text),
        ExpressionKind::Integer(0) => transfer.is_null = true,
        ExpressionKind::Word(word) if word == "NULL" => transfer.is_null = true,
        _ => return Err(Trouble::unsupported("such a buffer")),
    }
    if transfer.text.is_some_and(|text| text.len() < transfer.len) {
        return Err(Trouble::differs("the string is shorter than the count says"));
    }
    transfer.address = (count == 6).then(|| arguments.get(4));
    Ok(transfer)
}

fn message(call: &Call) -> Result<Transfer<'_>> {
    let arguments = Arguments::of(call, 3..=3)?;
    let message = arguments.get(1);
    let vector = message.field("msg_iov").ok_or_else(|| Trouble::differs("the message has no msg_iov"))?;
    let len = vector_len(vector, vector_count(message)?)?;
    let mut transfer = of_len(arguments.fd(0)?, len, arguments.int(2)?);
    transfer.message = Some(message);
    transfer.address = message.field("msg_name");
    Ok(transfer)
}

/// The number in `msg_iov(number)`; without it, whatever the array has.
fn vector_count(message: &Expression) -> Result<i64> {
    let ExpressionKind::Struct(fields) = &message.kind else { return Ok(-1) };
    let index = fields.iter().find(|field| field.name == "msg_iov").and_then(|field| field.index.as_ref());
    index.map_or(Ok(-1), integer)
}

/// Octets of `[{..., 10}, {..., 20}]`, which must have `count` elements unless that is negative.
fn vector_len(vector: &Expression, count: i64) -> Result<usize> {
    let ExpressionKind::Array(elements) = &vector.kind else {
        return Err(Trouble::unsupported("such a vector of buffers"));
    };
    if count >= 0 && elements.len() as i64 != count {
        return Err(Trouble::differs(format!("the vector has {} elements, not {count}", elements.len())));
    }
    let mut total = 0_usize;
    for element in elements {
        let len = match &element.kind {
            ExpressionKind::Tuple(parts) if parts.len() == 2 => integer(&parts[1])?,
            _ => field(element, "iov_len")?
                .ok_or_else(|| Trouble::unsupported("such an element of a vector"))?,
        };
        let len = usize::try_from(len).map_err(|_| Trouble::unsupported("a negative length"))?;
        total = checked(total.saturating_add(len))?;
    }
    Ok(total)
}

fn checked(len: usize) -> Result<usize> {
    if len > OCTETS_MAX {
        return Err(Trouble::unsupported(format!("moving {len} octets at once")));
    }
    Ok(len)
}

/// Compares what recvmsg() tells beside the data: its flags, and the octets left to read if the socket asks for them.
pub(super) fn check_received(message: &Expression, unread: usize, tells_unread: bool) -> Result<()> {
    let flags = field(message, "msg_flags")?.unwrap_or(0);
    if flags != 0 {
        return Err(Trouble::differs(format!("msg_flags: expected {flags:#x}, came 0")));
    }
    let came = tells_unread.then_some(unread as i64);
    let expected = match message.field("msg_control").map(|control| &control.kind) {
        None => None,
        Some(ExpressionKind::Array(items)) if items.is_empty() => None,
        Some(ExpressionKind::Array(items)) if items.len() == 1 => Some(unread_of(&items[0])?),
        Some(_) => return Err(Trouble::unsupported("such msg_control")),
    };
    if expected == came {
        return Ok(());
    }
    let shown = |count: Option<i64>| {
        count.map_or("no control message".to_owned(), |count| format!("TCP_INQ {count}"))
    };
    Err(Trouble::differs(format!("msg_control: expected {}, came {}", shown(expected), shown(came))))
}

/// The number in a control message `TCP_CM_INQ`.
fn unread_of(control: &Expression) -> Result<i64> {
    let level = field(control, "cmsg_level")?;
    let kind = field(control, "cmsg_type")?;
    if (level, kind) != (Some(sym::SOL_TCP), Some(sym::TCP_CM_INQ)) {
        return Err(Trouble::unsupported("a control message other than TCP_CM_INQ"));
    }
    let data =
        control.field("cmsg_data").ok_or_else(|| Trouble::differs("the control message has no cmsg_data"))?;
    match &data.kind {
        ExpressionKind::Array(items) if items.len() == 1 => integer(&items[0]),
        _ => integer(data),
    }
}
