//! Arguments of a call as numbers, texts and structures.

use super::Result;
use crate::pkt::ast::{Call, Expression, ExpressionKind};
use crate::pkt::errno::Errno;
use crate::pkt::symbols;
use crate::pkt::trouble::Trouble;

/// The arguments of one call, which must be as many as `count` says.
pub(super) struct Arguments<'a>(&'a [Expression]);

impl<'a> Arguments<'a> {
    pub(super) fn of(call: &'a Call, count: std::ops::RangeInclusive<usize>) -> Result<Arguments<'a>> {
        if !count.contains(&call.arguments.len()) {
            let given = call.arguments.len();
            let (least, most) = (count.start(), count.end());
            let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let name = &call.name;
            return Err(Trouble::differs(format!(
                "{name}() takes {wanted} arguments, the script gives {given}"
            )));
        }
        Ok(Arguments(&call.arguments))
    }

    pub(super) fn get(&self, index: usize) -> &'a Expression {
        &self.0[index]
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn int(&self, index: usize) -> Result<i64> {
        integer(&self.0[index])
    }

    pub(super) fn fd(&self, index: usize) -> Result<i32> {
        self.int(index).map(|fd| fd as i32)
    }

    /// A number of octets or things.
    pub(super) fn count(&self, index: usize) -> Result<usize> {
        let count = self.int(index)?;
        usize::try_from(count).map_err(|_| Trouble::unsupported(format!("a count of {count}")))
    }
}

/// What an expression is as a number.
pub(crate) fn integer(expression: &Expression) -> Result<i64> {
    match &expression.kind {
        ExpressionKind::Integer(value) => Ok(*value),
        ExpressionKind::Word(word) => {
            let value = symbols::value(word).or_else(|| Errno::named(word).map(|errno| errno.0.into()));
            value.ok_or_else(|| Trouble::unsupported(format!("the name {word}")))
        }
        ExpressionKind::Or(left, right) => Ok(integer(left)? | integer(right)?),
        ExpressionKind::Apply(name, arguments) if matches!(name.as_str(), "htons" | "htonl" | "ntohs") => {
            match &arguments[..] {
                [argument] => integer(argument),
                _ => Err(Trouble::differs(format!("{name}() takes one argument"))),
            }
        }
        ExpressionKind::Apply(name, _) if name == "sizeof" => Ok(4),
        other => Err(Trouble::unsupported(format!("{} for a number", kind_name(other)))),
    }
}

/// The number in `[number]`.
pub(super) fn bracketed(expression: &Expression) -> Result<i64> {
    match &expression.kind {
        ExpressionKind::Array(items) if items.len() == 1 => integer(&items[0]),
        other => Err(Trouble::unsupported(format!("{} for one number in brackets", kind_name(other)))),
    }
}

/// The field `name`, as a number; `None` if it is not there.
pub(super) fn field(expression: &Expression, name: &str) -> Result<Option<i64>> {
    expression.field(name).map(integer).transpose()
}

pub(super) fn kind_name(kind: &ExpressionKind) -> &'static str {
    match kind {
        ExpressionKind::Ellipsis => "`...`",
        ExpressionKind::Integer(_) => "a number",
        ExpressionKind::Word(_) => "a name",
        ExpressionKind::Text(_) => "a string",
        ExpressionKind::Or(..) => "`|`",
        ExpressionKind::Array(_) => "an array",
        ExpressionKind::Struct(_) => "a structure",
        ExpressionKind::Tuple(_) => "a list in braces",
        ExpressionKind::Apply(..) => "such an expression",
    }
}
