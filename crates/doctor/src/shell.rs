//! Words of commands that are pasted into a shell.

use std::borrow::Cow;

/// A word as a shell takes it for that word, whatever stands in it: an interface may be called `a;reboot`.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"_-.,:/@%+=".contains(&octet);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_for_more_than_a_word_is_quoted() {
        for plain in ["eth0", "enp1s0f0np0.100", "/usr/sbin/nginx"] {
            assert_eq!(word(plain), plain);
        }
        for odd in ["a;reboot", "$x", "`y`", "it's", "two words", "", "~"] {
            let output =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {}", word(odd))]).output();
            assert_eq!(output.unwrap().stdout, odd.as_bytes());
        }
    }
}
