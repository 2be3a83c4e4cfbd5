//! Tokens of Python.

use super::PythonError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(i128),
    Float(f64),
    Text(String),
    Symbol(&'static str),
    /// The end of a line, or `;`.
    EndOfStatement,
}

/// A token and where its text starts and ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Longer ones first.
const SYMBOLS: &[&str] = &[
    "+=", "-=", "*=", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "(", ")", "[", "]", ",", "+", "-", "*",
    "/", "%", "&", "|", "^", "~", "<", ">", "=", ":", ".", "{", "}", "@",
];

/// Cuts `code` into tokens. Within brackets the end of a line means nothing.
pub(super) fn tokens(code: &str) -> Result<Vec<Placed>, PythonError> {
    let mut tokens = Vec::new();
    let mut brackets = 0_u32;
    let mut offset = 0;
    while let Some(c) = code[offset..].chars().next() {
        let rest = &code[offset..];
        let start = offset;
        let token = match c {
            '\n' | ';' => {
                offset += 1;
                (brackets == 0 || c == ';').then_some(Token::EndOfStatement)
            }
            '#' => {
                offset += rest.find('\n').unwrap_or(rest.len());
                None
            }
            '\\' | ' ' | '\t' | '\r' => {
                offset += continued_line(rest)?;
                None
            }
            '"' | '\'' => Some(text(rest, c, &mut offset)?),
            _ if c.is_ascii_digit() || starts_with_fraction(rest) => Some(number(rest, &mut offset)?),
            _ if c.is_alphabetic() || c == '_' => {
                let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                offset += len;
                Some(Token::Name(rest[..len].to_owned()))
            }
            _ => Some(symbol(rest, &mut offset, &mut brackets)?),
        };
        tokens.extend(token.map(|token| Placed { token, start, end: offset }));
    }
    Ok(tokens)
}

/// Length of a blank, or of a backslash with the end of its line.
fn continued_line(rest: &str) -> Result<usize, PythonError> {
    let Some(behind) = rest.strip_prefix('\\') else { return Ok(1) };
    let blank = behind.len() - behind.trim_start_matches([' ', '\t', '\r']).len();
    // Scripts of one line write the backslash in front of a blank, too.
    Ok(1 + blank + usize::from(behind[blank..].starts_with('\n')))
}

fn starts_with_fraction(rest: &str) -> bool {
    rest.starts_with('.') && rest[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn symbol(rest: &str, offset: &mut usize, brackets: &mut u32) -> Result<Token, PythonError> {
    let found = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
    let symbol = found.ok_or_else(|| {
        let c = rest.chars().next().unwrap_or_default();
        PythonError::Raised(format!("SyntaxError: `{c}`"))
    })?;
    match *symbol {
        "(" | "[" | "{" => *brackets += 1,
        ")" | "]" | "}" => *brackets = brackets.saturating_sub(1),
        _ => {}
    }
    *offset += symbol.len();
    Ok(Token::Symbol(symbol))
}

fn text(rest: &str, quote: char, offset: &mut usize) -> Result<Token, PythonError> {
    let mut text = String::new();
    let mut hidden = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            _ if hidden => {
                text.push(if c == 'n' { '\n' } else { c });
                hidden = false;
            }
            '\\' => hidden = true,
            _ if c == quote => {
                *offset += index + 1;
                return Ok(Token::Text(text));
            }
            _ => text.push(c),
        }
    }
    Err(PythonError::Raised("SyntaxError: a string has no end".to_owned()))
}

fn number(rest: &str, offset: &mut usize) -> Result<Token, PythonError> {
    let len = number_len(rest);
    let digits = rest[..len].replace('_', "");
    *offset += len;
    let token = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => i128::from_str_radix(hexadecimal, 16).ok().map(Token::Int),
        None => match digits.parse() {
            Ok(value) => Some(Token::Int(value)),
            Err(_) => digits.parse().ok().map(Token::Float),
        },
    };
    token.ok_or_else(|| PythonError::Raised(format!("SyntaxError: `{digits}` is no number")))
}

/// Letters, digits, dots, and a sign behind the `e` of an exponent.
fn number_len(rest: &str) -> usize {
    let is_hexadecimal = rest.starts_with("0x") || rest.starts_with("0X");
    let mut before = ' ';
    for (index, c) in rest.char_indices() {
        let exponent_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E') && !is_hexadecimal;
        if !(c.is_ascii_alphanumeric() || c == '.' || c == '_' || exponent_sign) {
            return index;
        }
        before = c;
    }
    rest.len()
}
