//! Lists of prefixes as text.

use std::io::{self, BufRead};

use thiserror::Error;

use crate::prefix::{Prefix, PrefixError};

/// Why a list was not taken.
#[derive(Debug, Error)]
pub enum ListError {
    /// It could not be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A line of it is no prefix.
    #[error("line {line}: {error}")]
    Prefix {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        error: PrefixError,
    },
}

/// Octets of one line at most: no prefix is longer, and a file that is something else is not read into memory as one line.
const LINE_MAX: u64 = 4096;

/// Reads a list: a prefix a line, with whatever behind it that `#` or `;` begins. Empty lines count for nothing.
///
/// # Errors
/// The first line that is something else, or what reading said.
pub fn read_prefixes(text: &mut dyn BufRead, mut take: impl FnMut(Prefix)) -> Result<(), ListError> {
    let mut octets = Vec::new();
    for line in 1.. {
        octets.clear();
        if io::Read::take(&mut *text, LINE_MAX).read_until(b'\n', &mut octets)? == 0 {
            break;
        }
        let content = octets.split(|octet| matches!(octet, b'#' | b';')).next().unwrap_or_default();
        let content = String::from_utf8_lossy(content);
        let content = content.trim();
        if content.is_empty() {
            continue;
        }
        let prefix = content.parse().map_err(|error| ListError::Prefix { line, error: shortened(error) })?;
        take(prefix);
    }
    Ok(())
}

/// The same, with a text that fits a line of a log.
fn shortened(error: PrefixError) -> PrefixError {
    match error {
        PrefixError::Form(text) => PrefixError::Form(text.chars().take(60).collect()),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let mut prefixes = Vec::new();
        let read = read_prefixes(&mut text.as_bytes(), |prefix| prefixes.push(prefix.to_string()));
        read.map(|()| prefixes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_has_comments_and_empty_lines() {
        let text = "# ours\n192.0.2.0/24 ; the office\r\n\n  2001:db8::/32\n198.51.100.7";
        assert_eq!(read(text).unwrap(), ["192.0.2.0/24", "2001:db8::/32", "198.51.100.7/32"]);
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn an_error_names_the_line() {
        let error = read("192.0.2.0/24\n\nnonsense\n").unwrap_err();
        assert_eq!(error, "line 3: \"nonsense\" is not a prefix such as 192.0.2.0/24 or 2001:db8::/32");
        assert!(read(&"x".repeat(100_000)).unwrap_err().len() < 200);
        assert!(read("\u{0}\u{1}").is_err());
    }
}
