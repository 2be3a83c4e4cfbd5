//! Keys, from the octets that a terminal sends for them (ECMA-48, and xterm's names of the cursor keys).

/// A key that views know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Cursor up.
    Up,
    /// Cursor down.
    Down,
    /// Cursor left.
    Left,
    /// Cursor right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the begin.
    Home,
    /// To the end.
    End,
    /// Return.
    Enter,
    /// Escape.
    Escape,
    /// The tabulator.
    Tab,
    /// Ctrl-C or Ctrl-D, which the terminal makes no signal of while a view is on it.
    Interrupt,
    /// Any other character of ASCII.
    Character(char),
}

/// The keys in what was read at once. A sequence that no key has is left out.
pub(super) fn parse(mut octets: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = octets.split_first() {
        octets = rest;
        keys.extend(match first {
            0x1b => of_escape(&mut octets),
            b'\r' | b'\n' => Some(Key::Enter),
            b'\t' => Some(Key::Tab),
            0x03 | 0x04 => Some(Key::Interrupt),
            b' '..=b'~' => Some(Key::Character(first.into())),
            _ => None,
        });
    }
    keys
}

/// What follows an escape: `[` or `O`, parameters, and a final octet. Without them it is the key itself.
fn of_escape(octets: &mut &[u8]) -> Option<Key> {
    let Some((b'[' | b'O', rest)) = octets.split_first() else { return Some(Key::Escape) };
    let parameters = rest.iter().take_while(|octet| (0x20..0x40).contains(*octet)).count();
    let (parameters, rest) = rest.split_at(parameters);
    let Some((last, rest)) = rest.split_first() else {
        *octets = &[]; // It was cut.
        return None;
    };
    *octets = rest;
    match (last, parameters) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
        (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_each_other_however_many_come_at_once() {
        assert_eq!(parse(b"\x1b[A\x1bOBq"), [Key::Up, Key::Down, Key::Character('q')]);
        assert_eq!(parse(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"), [Key::PageUp, Key::PageDown, Key::Home, Key::End]);
        assert_eq!(parse(b"\r\t\x03"), [Key::Enter, Key::Tab, Key::Interrupt]);
    }

    #[test]
    fn a_lone_escape_is_a_key() {
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b\x1b[D"), [Key::Escape, Key::Left]);
    }

    #[test]
    fn what_is_no_key_is_left_out() {
        for octets in [&b"\x1b[1;5P"[..], b"\x1b[", b"\x1b[12", b"\xc3\xbc", b"\x00\x7f"] {
            assert_eq!(parse(octets), [], "{octets:?}");
        }
    }
}
