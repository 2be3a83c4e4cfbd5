//! Reads a zone file through a window of memory, so that a large one takes little.

use std::io::{self, Read};

/// A file to read from its beginning.
pub struct TextFile {
    /// What is in it.
    pub text: Box<dyn Read>,
    /// How many octets that are, as far as known: memory for the zone is set aside by it.
    pub len: u64,
}

impl From<Vec<u8>> for TextFile {
    fn from(text: Vec<u8>) -> TextFile {
        let len = text.len() as u64;
        TextFile { text: Box::new(io::Cursor::new(text)), len }
    }
}

/// Octets held at a time, unless an entry needs more. In the tests of this crate no two lines fit.
const WINDOW_LEN: usize = if cfg!(test) { 48 } else { 1 << 20 };

pub(super) struct Window {
    text: Box<dyn Read>,
    held: Vec<u8>,
    is_last: bool,
}

impl Window {
    pub(super) fn new(text: Box<dyn Read>) -> Window {
        Window { text, held: Vec::new(), is_last: false }
    }

    /// Forgets the first `count` octets and reads on: at least as many as remain, so that work on an entry that is not yet
    /// whole is repeated for twice the text each time.
    pub(super) fn advance(&mut self, count: usize) -> io::Result<()> {
        self.held.drain(..count);
        let wanted = WINDOW_LEN.max(2 * self.held.len());
        let missing = wanted - self.held.len();
        self.held.reserve_exact(missing);
        self.is_last = (&mut self.text).take(missing as u64).read_to_end(&mut self.held)? < missing;
        Ok(())
    }

    /// All that is held, also of a line that is not whole.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// The whole lines held.
    pub(super) fn lines(&self) -> &[u8] {
        let newline = self.held.iter().rposition(|&octet| octet == b'\n');
        match newline {
            _ if self.is_last => &self.held,
            Some(newline) => &self.held[..=newline],
            None => &[],
        }
    }

    /// True if nothing follows.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_through_the_window_whole() {
        let text: Vec<u8> = (0..100).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
        let mut window = Window::new(Box::new(io::Cursor::new(text.clone())));
        let (mut passed, mut count) = (Vec::new(), 0);
        while !window.is_last() {
            window.advance(count).unwrap();
            assert!(window.lines().len() <= WINDOW_LEN && window.lines().ends_with(b"\n"));
            passed.extend_from_slice(window.lines());
            count = window.lines().len();
        }
        assert_eq!(passed, text);
    }

    #[test]
    fn the_window_grows_while_nothing_is_taken() {
        let text = vec![b'x'; 10 * WINDOW_LEN];
        let mut window = Window::new(Box::new(io::Cursor::new(text.clone())));
        for _ in 0..5 {
            window.advance(0).unwrap();
        }
        assert!(window.is_last() && window.lines() == text);
    }
}
