//! A filter's text as words.

/// A word, or one of `(`, `)` and `!`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// Octets before it.
    pub(super) at: usize,
}

/// The words of `text` in order.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].len() - text[at..].trim_start().len();
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let stands_alone = |letter: char| matches!(letter, '(' | ')' | '!');
        let len = if stands_alone(first) {
            first.len_utf8()
        } else {
            rest.find(|letter: char| letter.is_whitespace() || stands_alone(letter)).unwrap_or(rest.len())
        };
        let word = Word { text: &rest[..len], at };
        at += len;
        Some(word)
    })
}
