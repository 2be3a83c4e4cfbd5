//! From octets to entries and tokens (RFC 1035, 5.1).
//!
//! An entry is a line, or several where parentheses span them. The lexer knows blanks, comments, parentheses,
//! quotes and where a token ends. Users of a token, who know its type, resolve escapes.

use super::error::{FileId, Parsed, Position, Problem};

/// A word or a quoted string, still with its escapes, without its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'t> {
    pub(super) text: &'t [u8],
    pub(super) quoted: bool,
    /// True if there is a backslash.
    pub(super) escaped: bool,
    pub(super) position: Position,
}

/// How an entry begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryStart {
    /// With a blank: the owner is that of the record before.
    Blank,
    /// With a token: an owner or a directive.
    Token,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Backslash,
    Blank,
    Newline,
    CarriageReturn,
    Quote,
    Open,
    Close,
    Comment,
}

impl Kind {
    fn ends_word(self) -> bool {
        !matches!(self, Kind::Plain | Kind::Backslash)
    }
}

const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Plain; 256];
    kinds[b'\\' as usize] = Kind::Backslash;
    kinds[b' ' as usize] = Kind::Blank;
    kinds[b'\t' as usize] = Kind::Blank;
    kinds[b'\n' as usize] = Kind::Newline;
    kinds[b'\r' as usize] = Kind::CarriageReturn;
    kinds[b'"' as usize] = Kind::Quote;
    kinds[b'(' as usize] = Kind::Open;
    kinds[b')' as usize] = Kind::Close;
    kinds[b';' as usize] = Kind::Comment;
    kinds
};

pub(super) struct Lexer<'t> {
    text: &'t [u8],
    /// Index of the next octet.
    at: usize,
    file: FileId,
    line: u32,
    /// Index of the first octet of the line.
    line_start: usize,
    /// How many parentheses are open, and where the outermost is.
    depth: u32,
    opened_at: Position,
    /// For text that has no place of its own: where it comes from.
    origin_position: Option<Position>,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t [u8], file: FileId) -> Lexer<'t> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        let at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let opened_at = Position::default();
        Lexer { text, at, file, line: 1, line_start: at, depth: 0, opened_at, origin_position: None }
    }

    /// The text of a file from the beginning of `line` on.
    pub(super) fn resumed(text: &'t [u8], file: FileId, line: u32) -> Lexer<'t> {
        Lexer { line, at: 0, line_start: 0, ..Lexer::new(text, file) }
    }

    /// Text that was made at `position`, which all its tokens are then said to be at.
    pub(super) fn generated(text: &'t [u8], position: Position) -> Lexer<'t> {
        Lexer { origin_position: Some(position), ..Lexer::new(text, position.file) }
    }

    /// Moves to the next entry that is not empty; `None` at the end of the text.
    pub(super) fn start_entry(&mut self) -> Option<EntryStart> {
        debug_assert_eq!(self.depth, 0, "an entry ends outside of parentheses");
        loop {
            let line_start = self.at;
            self.skip_blanks();
            match self.peek()? {
                Kind::Newline => self.take_newline(),
                Kind::Comment => self.skip_comment(),
                _ if self.at == line_start => return Some(EntryStart::Token),
                _ => return Some(EntryStart::Blank),
            }
        }
    }

    /// The next token of the entry, or `None` at its end.
    #[inline]
    pub(super) fn token(&mut self) -> Parsed<Option<Token<'t>>> {
        self.skip_gap()?;
        match self.peek() {
            None | Some(Kind::Newline) => Ok(None),
            Some(Kind::Quote) => self.quoted().map(Some),
            Some(_) => Ok(Some(self.word())),
        }
    }

    /// The next token, which has to be there.
    #[inline]
    pub(super) fn require(&mut self, expected: &'static str) -> Parsed<Token<'t>> {
        match self.token()? {
            Some(token) => Ok(token),
            None => self
                .position()
                .fault(Problem::Expected { expected, found: String::from("the end of the line") }),
        }
    }

    /// The next token, which has to be there and not be in quotes.
    #[inline]
    pub(super) fn require_word(&mut self, expected: &'static str) -> Parsed<Token<'t>> {
        let token = self.require(expected)?;
        if token.quoted { token.unexpected(expected) } else { Ok(token) }
    }

    /// Makes sure that the entry is over.
    pub(super) fn finish_entry(&mut self) -> Parsed<()> {
        match self.token()? {
            None => Ok(()),
            Some(token) => token.unexpected("the end of the line"),
        }
    }

    /// True if no token is left in the entry.
    pub(super) fn next_is_end(&mut self) -> Parsed<bool> {
        self.skip_gap()?;
        Ok(matches!(self.peek(), None | Some(Kind::Newline)))
    }

    /// True if a quoted string begins right here, without a blank before it.
    pub(super) fn at_quote(&self) -> bool {
        self.peek() == Some(Kind::Quote)
    }

    /// True if the next token is this word.
    pub(super) fn next_is(&mut self, word: &[u8]) -> Parsed<bool> {
        self.skip_gap()?;
        let Some(behind) = self.text[self.at..].strip_prefix(word) else { return Ok(false) };
        let ends = behind.first().is_none_or(|&octet| KINDS[usize::from(octet)].ends_word());
        Ok(ends)
    }

    /// Moves to the end of the entry, whatever is in it; false if the text ends before the entry does.
    pub(super) fn skip_entry(&mut self) -> bool {
        while let Some(kind) = self.peek() {
            match kind {
                Kind::Newline if self.depth == 0 => return true,
                Kind::Newline => self.take_newline(),
                Kind::Comment => self.skip_comment(),
                Kind::Quote => {
                    let _ = self.quoted(); // an unterminated one has been or will be someone's error
                }
                Kind::Open => {
                    self.depth += 1;
                    self.at += 1;
                }
                Kind::Close => {
                    self.depth = self.depth.saturating_sub(1);
                    self.at += 1;
                }
                Kind::Backslash => self.at = self.behind_escape(self.at),
                Kind::Plain | Kind::Blank | Kind::CarriageReturn => self.at += 1,
            }
        }
        std::mem::take(&mut self.depth) == 0
    }

    /// How many octets lie behind, and the line that follows them; between two entries.
    pub(super) fn progress(&self) -> (usize, u32) {
        (self.at, self.line)
    }

    pub(super) fn position(&self) -> Position {
        self.position_of(self.at)
    }

    /// The position of an octet on the current line.
    fn position_of(&self, at: usize) -> Position {
        let column = u32::try_from(at - self.line_start + 1).unwrap_or(u32::MAX);
        self.origin_position.unwrap_or(Position { file: self.file, line: self.line, column })
    }

    fn peek(&self) -> Option<Kind> {
        self.text.get(self.at).map(|&octet| KINDS[usize::from(octet)])
    }

    /// Moves to the next token of the entry or to its end.
    #[inline]
    fn skip_gap(&mut self) -> Parsed<()> {
        // Nearly always a token follows one blank.
        if let [b' ' | b'\t', next, ..] = self.text[self.at..]
            && KINDS[usize::from(next)] == Kind::Plain
        {
            self.at += 1;
            return Ok(());
        }
        self.skip_any_gap()
    }

    fn skip_any_gap(&mut self) -> Parsed<()> {
        loop {
            match self.peek() {
                Some(Kind::Blank) => self.at += 1,
                Some(Kind::Plain | Kind::Backslash | Kind::Quote) => return Ok(()),
                Some(Kind::Newline) if self.depth == 0 => return Ok(()),
                Some(Kind::Newline) => self.take_newline(),
                Some(Kind::Comment) => self.skip_comment(),
                Some(Kind::CarriageReturn) if self.carriage_return_ends_line() => self.at += 1,
                Some(Kind::CarriageReturn) => return self.position().fault(Problem::CarriageReturn),
                Some(Kind::Open) => self.open(),
                Some(Kind::Close) => self.close()?,
                None if self.depth == 0 => return Ok(()),
                None => return self.opened_at.fault(Problem::UnclosedParenthesis),
            }
        }
    }

    fn open(&mut self) {
        if self.depth == 0 {
            self.opened_at = self.position();
        }
        self.depth += 1;
        self.at += 1;
    }

    fn close(&mut self) -> Parsed<()> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return self.position().fault(Problem::UnopenedParenthesis);
        };
        self.depth = depth;
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn word(&mut self) -> Token<'t> {
        let start = self.at;
        let rest = &self.text[start..];
        let is_plain = |octet: &u8| KINDS[usize::from(*octet)] == Kind::Plain;
        self.at += rest.iter().position(|octet| !is_plain(octet)).unwrap_or(rest.len());
        let escaped = self.peek() == Some(Kind::Backslash);
        if escaped {
            self.skip_escaped_word();
        }
        Token { text: &self.text[start..self.at], quoted: false, escaped, position: self.position_of(start) }
    }

    #[cold]
    fn skip_escaped_word(&mut self) {
        loop {
            match self.peek() {
                Some(Kind::Plain) => self.at += 1,
                Some(Kind::Backslash) => self.at = self.behind_escape(self.at),
                _ => return,
            }
        }
    }

    fn quoted(&mut self) -> Parsed<Token<'t>> {
        let position = self.position();
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.peek() {
                Some(Kind::Quote) => break,
                Some(Kind::Backslash) => {
                    escaped = true;
                    self.at = self.behind_escape(self.at);
                }
                Some(Kind::Newline) | None => return position.fault(Problem::UnterminatedString),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(Token { text: &self.text[start..self.at - 1], quoted: true, escaped, position })
    }

    /// The index behind the backslash at `at` and the octet after it, which is never the end of a line.
    fn behind_escape(&self, at: usize) -> usize {
        match self.text.get(at + 1) {
            None | Some(b'\n') => at + 1,
            Some(b'\r') if self.text.get(at + 2) == Some(&b'\n') => at + 1,
            Some(_) => at + 2,
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(Kind::Blank) => self.at += 1,
                Some(Kind::CarriageReturn) if self.carriage_return_ends_line() => self.at += 1,
                _ => return,
            }
        }
    }

    fn carriage_return_ends_line(&self) -> bool {
        matches!(self.text.get(self.at + 1), None | Some(b'\n'))
    }

    fn skip_comment(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|&octet| octet == b'\n').unwrap_or(rest.len());
    }

    fn take_newline(&mut self) {
        self.at += 1;
        self.line = self.line.saturating_add(1);
        self.line_start = self.at;
    }
}

impl Token<'_> {
    /// The error that something else should be here.
    pub(super) fn unexpected<T>(&self, expected: &'static str) -> Parsed<T> {
        self.position.fault(Problem::Expected { expected, found: self.found() })
    }

    pub(super) fn fault<T>(&self, problem: Problem) -> Parsed<T> {
        self.position.fault(problem)
    }

    /// The value read from the token, or the error that something else should be here.
    pub(super) fn expect<T>(&self, value: Option<T>, expected: &'static str) -> Parsed<T> {
        match value {
            Some(value) => Ok(value),
            None => self.unexpected(expected),
        }
    }

    fn found(&self) -> String {
        let what = if self.quoted { "the quoted string " } else { "" };
        format!("{what}\"{}\"", self.shown())
    }

    /// The text for a message: printable, and not too long.
    pub(super) fn shown(&self) -> String {
        const SHOWN_MAX: usize = 60;
        let shown = &self.text[..self.text.len().min(SHOWN_MAX)];
        let dots = if shown.len() < self.text.len() { "..." } else { "" };
        let shown = String::from_utf8_lossy(shown);
        let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        shown.chars().map(printable).chain(dots.chars()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every entry as its tokens, a leading `_` for a blank start, quoted strings in quotes.
    fn entries(text: &str) -> Result<Vec<String>, Problem> {
        let mut lexer = Lexer::new(text.as_bytes(), FileId(0));
        let mut entries = Vec::new();
        while let Some(start) = lexer.start_entry() {
            let mut words = Vec::new();
            if start == EntryStart::Blank {
                words.push(String::from("_"));
            }
            while let Some(token) = lexer.token().map_err(|fault| fault.problem)? {
                let text = String::from_utf8_lossy(token.text);
                words.push(if token.quoted { format!("\"{text}\"") } else { text.into_owned() });
            }
            entries.push(words.join(" "));
        }
        Ok(entries)
    }

    #[test]
    fn a_line_is_an_entry_and_blanks_separate_tokens() {
        assert_eq!(entries("a b\tc\n  d  e \n").unwrap(), ["a b c", "_ d e"]);
    }

    #[test]
    fn empty_lines_and_comments_are_no_entries() {
        assert_eq!(entries("\n ; x\n;y\n   \na ; z\n\n").unwrap(), ["a"]);
    }

    #[test]
    fn parentheses_join_lines() {
        assert_eq!(entries("a ( b ; c )\n d\n) e\nf").unwrap(), ["a b d e", "f"]);
        assert_eq!(entries("a ((b\n)\nc)\nd").unwrap(), ["a b c", "d"]);
        assert_eq!(entries("a(b)c").unwrap(), ["a b c"]);
        assert_eq!(entries("a ( b\nc"), Err(Problem::UnclosedParenthesis));
        assert_eq!(entries("a ) b"), Err(Problem::UnopenedParenthesis));
    }

    #[test]
    fn quotes_and_backslashes_take_the_meaning_from_what_follows() {
        assert_eq!(entries(r#"a "b ; (c" d"#).unwrap(), [r#"a "b ; (c" d"#]);
        assert_eq!(entries(r#"a "b\"c" d\;e\ f"#).unwrap(), [r#"a "b\"c" d\;e\ f"#]);
        assert_eq!(entries(r#"a="b""c""#).unwrap(), [r#"a= "b" "c""#]);
        assert_eq!(entries("a \"b\nc\""), Err(Problem::UnterminatedString));
        assert_eq!(entries("a \"b"), Err(Problem::UnterminatedString));
        assert_eq!(entries("a\\\nb").unwrap(), ["a\\", "b"]);
    }

    #[test]
    fn lines_may_end_in_carriage_return_and_newline_or_in_nothing() {
        assert_eq!(entries("a\r\n\r\n b ;x\r\nc(\r\nd)\r\n\te").unwrap(), ["a", "_ b", "c d", "_ e"]);
        assert_eq!(entries("a\rb"), Err(Problem::CarriageReturn));
    }

    #[test]
    fn a_byte_order_mark_is_not_there() {
        assert_eq!(entries("\u{feff}a").unwrap(), ["a"]);
    }

    #[test]
    fn positions_count_from_one() {
        let mut lexer = Lexer::new(b"a\n\n b (\n  c", FileId(7));
        lexer.start_entry();
        let first = lexer.token().unwrap().unwrap().position;
        assert_eq!(first, Position { file: FileId(7), line: 1, column: 1 });
        lexer.start_entry();
        lexer.token().unwrap();
        let third = lexer.token().unwrap().unwrap().position;
        assert_eq!(third, Position { file: FileId(7), line: 4, column: 3 });
        let fault = lexer.token().unwrap_err();
        assert_eq!(fault.position, Position { file: FileId(7), line: 3, column: 4 });
    }

    #[test]
    fn after_an_error_the_next_entry_is_found() {
        let mut lexer = Lexer::new(b"a ( b \" \n \"x)\" ; )\n c )\nd", FileId(0));
        lexer.start_entry();
        lexer.token().unwrap();
        lexer.skip_entry();
        assert_eq!(lexer.start_entry(), Some(EntryStart::Token));
        assert_eq!(lexer.token().unwrap().unwrap().text, b"d");
    }
}
