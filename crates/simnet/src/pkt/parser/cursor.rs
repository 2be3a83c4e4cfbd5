//! A place in the text of a script, and the words and numbers that can be taken from there.
//!
//! The language has no tokens that are the same everywhere (`P.5` is flags, `.5` a time, `1:2` sequence numbers or an
//! address), so the parser says what it looks for.

use super::definitions::Definitions;
use super::error::{ParseError, Result};
use crate::pkt::ast::Position;

/// Nesting of expressions at most; no real script needs more.
const DEPTH_MAX: u32 = 64;

pub(super) struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    /// Behind the last thing taken; `offset` may stand behind blanks that follow it.
    solid: usize,
    line: u32,
    line_start: usize,
    depth: u32,
    pub(super) definitions: &'a Definitions,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, definitions: &'a Definitions) -> Cursor<'a> {
        Cursor { text, offset: 0, solid: 0, line: 1, line_start: 0, depth: 0, definitions }
    }

    /// A cursor over the text of a definition, for an error to be told at `at`.
    pub(super) fn within(text: &'a str, parent: &Cursor<'a>) -> Cursor<'a> {
        Cursor { depth: parent.depth, ..Cursor::new(text, parent.definitions) }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// The text from an offset up to the last thing taken.
    pub(super) fn taken_since(&self, from: usize) -> &'a str {
        self.text.get(from..self.solid).unwrap_or_default()
    }

    /// Where the next thing stands: behind blanks and comments.
    pub(super) fn position(&mut self) -> Position {
        self.skip_blank();
        let before = self.text.get(self.line_start..self.offset).unwrap_or_default();
        Position { line: self.line, column: before.chars().count() as u32 + 1 }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }

    /// What stands next, behind blanks and comments.
    pub(super) fn ahead(&mut self) -> &'a str {
        self.skip_blank();
        self.rest()
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.ahead().is_empty()
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        self.ahead().chars().next()
    }

    /// Takes `symbol` if it stands next.
    pub(super) fn eat(&mut self, symbol: &str) -> bool {
        let found = self.ahead().starts_with(symbol);
        if found {
            self.advance(symbol.len());
        }
        found
    }

    pub(super) fn expect(&mut self, symbol: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.expected(&format!("`{symbol}`"))) }
    }

    /// Takes the word `word` if it stands next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == Some(word);
        if found {
            self.advance(word.len());
        }
        found
    }

    /// Letters, digits and underscores, if they stand next.
    pub(super) fn peek_word(&mut self) -> Option<&'a str> {
        let ahead = self.ahead();
        let len = ahead.find(|c: char| !is_word(c)).unwrap_or(ahead.len());
        ahead.get(..len).filter(|word| !word.is_empty())
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        let word = self.peek_word().ok_or_else(|| self.expected(what))?;
        self.advance(word.len());
        Ok(word)
    }

    /// A decimal or hexadecimal number that is not the start of a longer word.
    pub(super) fn peek_integer(&mut self) -> Option<(i64, usize)> {
        let ahead = self.ahead();
        let unsigned = ahead.strip_prefix('-').unwrap_or(ahead);
        let sign = ahead.len() - unsigned.len();
        let len = unsigned.find(|c: char| !is_word(c)).unwrap_or(unsigned.len());
        let digits = unsigned.get(..len)?;
        let value = match digits.strip_prefix("0x") {
            Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()? as i64,
            None if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
            None => return None,
        };
        Some((if sign == 1 { value.wrapping_neg() } else { value }, sign + len))
    }

    pub(super) fn integer(&mut self, what: &str) -> Result<i64> {
        let (value, len) = self.peek_integer().ok_or_else(|| self.expected(what))?;
        self.advance(len);
        Ok(value)
    }

    /// An integer that fits its place.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T> {
        let at = self.position();
        let value = self.integer(what)?;
        T::try_from(value).map_err(|_| ParseError::syntax(at, format!("{what} {value} is out of range")))
    }

    /// What stands between a pair of `quote`, which a backslash in front hides.
    pub(super) fn quoted(&mut self, quote: char) -> Result<&'a str> {
        let at = self.position();
        self.expect(&quote.to_string())?;
        let rest = self.rest();
        let mut hidden = false;
        for (index, c) in rest.char_indices() {
            if c == quote && !hidden {
                self.advance(index + c.len_utf8());
                return Ok(&rest[..index]);
            }
            hidden = c == '\\' && !hidden;
        }
        Err(ParseError::syntax(at, format!("no {quote} ends what this one starts")))
    }

    /// What stands up to `end`, which is taken too.
    pub(super) fn until(&mut self, end: &str) -> Result<&'a str> {
        let at = self.position();
        let rest = self.rest();
        let len = rest.find(end).ok_or_else(|| ParseError::syntax(at, format!("no `{end}` follows")))?;
        self.advance(len + end.len());
        Ok(&rest[..len])
    }

    /// The error for something that is missing here.
    pub(super) fn expected(&mut self, what: &str) -> ParseError {
        let at = self.position();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(24).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
        ParseError::syntax(at, format!("{what} expected, not {found}"))
    }

    pub(super) fn unsupported(&mut self, what: impl Into<String>) -> ParseError {
        ParseError::unsupported(self.position(), what)
    }

    /// Runs `read` one level deeper, so that no input exhausts the stack.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Cursor<'a>) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(self.unsupported("so much nesting"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Takes `len` octets, which end at a character's boundary.
    pub(super) fn advance(&mut self, len: usize) {
        self.pass(len);
        self.solid = self.offset;
    }

    fn pass(&mut self, len: usize) {
        let passed = &self.text[self.offset..self.offset + len];
        if let Some(newline) = passed.rfind('\n') {
            self.line += passed.matches('\n').count() as u32;
            self.line_start = self.offset + newline + 1;
        }
        self.offset += len;
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            let len = match rest {
                _ if blank > 0 => blank,
                _ if rest.starts_with("//") || rest.starts_with('#') => rest.find('\n').unwrap_or(rest.len()),
                _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
                _ => return,
            };
            self.pass(len);
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
