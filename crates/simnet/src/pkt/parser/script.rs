//! The outline of a script: options, commands, events.

use super::cursor::Cursor;
use super::definitions::Definitions;
use super::error::{ParseError, Result};
use super::{call, packet, time};
use crate::pkt::ast::{Action, Command, Direction, Event, PacketSpec, Position, Script, ScriptOption, When};

pub(super) fn script(cursor: &mut Cursor<'_>) -> Result<Script> {
    let mut script = Script { options: options(cursor)?, ..Script::default() };
    while cursor.peek() == Some('`') {
        script.setup.push(command(cursor)?);
    }
    while !cursor.at_end() {
        if cursor.peek() == Some('`') {
            script.cleanup.push(command(cursor)?);
        } else if script.cleanup.is_empty() {
            script.events.push(event(cursor)?);
        } else {
            return Err(cursor.expected("the end of the script behind a command without a time"));
        }
    }
    Ok(script)
}

/// The options at the top. An option's value ends with its line, or with its closing quote.
pub(super) fn options(cursor: &mut Cursor<'_>) -> Result<Vec<ScriptOption>> {
    let mut options = Vec::new();
    while cursor.ahead().starts_with("--") {
        let at = cursor.position();
        cursor.advance(2);
        let name = cursor.word("the name of an option")?.to_owned();
        let value = if cursor.rest().starts_with('=') { Some(option_value(cursor)?) } else { None };
        options.push(ScriptOption { name, value, at });
    }
    Ok(options)
}

/// `=value`; quotes that stand behind a name of its own, as in `--define=CC="reno"`, stay.
fn option_value(cursor: &mut Cursor<'_>) -> Result<String> {
    cursor.advance(1);
    match cursor.rest().chars().next() {
        Some(quote @ ('"' | '`')) => return Ok(cursor.quoted(quote)?.to_owned()),
        None => return Err(cursor.expected("the value of an option")),
        Some(_) => {}
    }
    let start = cursor.offset();
    let is_end = |c: char| c.is_whitespace() || c == '"' || c == '`';
    let len = cursor.rest().find(is_end).unwrap_or(cursor.rest().len());
    cursor.advance(len);
    if let Some(quote @ ('"' | '`')) = cursor.rest().chars().next() {
        cursor.quoted(quote)?;
    }
    Ok(cursor.taken_since(start).to_owned())
}

/// The definitions of the command line and, where those say nothing, of the script itself.
pub(super) fn with_own_definitions(given: &Definitions, options: &[ScriptOption]) -> Result<Definitions> {
    let mut definitions = given.clone();
    for option in options.iter().filter(|option| option.name == "define" || option.name == "D") {
        let text = option.value.as_deref().unwrap_or_default();
        let known = text.split_once('=').is_some_and(|(name, _)| given.get(name.trim()).is_some());
        if !known && definitions.define(text).is_none() {
            return Err(ParseError::syntax(option.at, "a definition is NAME=value"));
        }
    }
    Ok(definitions)
}

fn command(cursor: &mut Cursor<'_>) -> Result<Command> {
    let at = cursor.position();
    Ok(Command { text: cursor.quoted('`')?.to_owned(), at })
}

fn event(cursor: &mut Cursor<'_>) -> Result<Event> {
    let at = cursor.position();
    let start = cursor.offset();
    let when = time::when(cursor)?;
    let action = action(cursor)?;
    let text = cursor.taken_since(start).to_owned();
    check_time(when, &action, at)?;
    Ok(Event { when, action, at, text })
}

fn action(cursor: &mut Cursor<'_>) -> Result<Action> {
    match cursor.peek() {
        Some('<' | '>') => Ok(Action::Packet(packet::packet(cursor)?)),
        Some('`') => Ok(Action::Command(command(cursor)?)),
        Some('%') => {
            cursor.expect("%{")?;
            Ok(Action::Code(cursor.until("}%")?.to_owned()))
        }
        Some(c) if c == '.' || c == '_' || c.is_ascii_alphabetic() => Ok(Action::Call(call::call(cursor)?)),
        Some(c) => match substituted_command(cursor, c) {
            Some(command) => Ok(Action::Command(command)),
            None => Err(cursor.expected("a packet, a system call, a command or code")),
        },
        None => Err(cursor.expected("a packet, a system call, a command or code")),
    }
}

/// A name that is defined as a command in backquotes and starts with a digit.
fn substituted_command(cursor: &mut Cursor<'_>, first: char) -> Option<Command> {
    let word = first.is_ascii_digit().then(|| cursor.peek_word()).flatten()?;
    let text = cursor.definitions.get(word)?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
    let at = cursor.position();
    cursor.advance(word.len());
    Some(Command { text, at })
}

/// Only what comes out of the stack can be expected within a range of time.
fn check_time(when: When, action: &Action, at: Position) -> Result<()> {
    let is_range = matches!(when, When::Between(..) | When::AfterBetween(..) | When::Anytime);
    let comes_out = matches!(action, Action::Packet(PacketSpec { direction: Direction::Outbound, .. }));
    if is_range && !comes_out {
        return Err(ParseError::syntax(at, "a range of time or `*` is only for packets that are expected"));
    }
    Ok(())
}
