//! Counters about one thing of many: `zone_serial{zone="example.org."}`, in the form of Prometheus.

use std::fmt::{self, Display, Write};

/// The name of a counter about what the labels say. A quotation mark, backslash or end of line in a value is escaped.
pub fn with_labels(name: &str, labels: &[(&str, &dyn Display)]) -> String {
    let mut text = name.to_owned();
    for (number, (label, value)) in labels.iter().enumerate() {
        text.push(if number == 0 { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        let value = value.to_string();
        value.chars().try_for_each(|char| push_escaped(&mut text, char)).expect("a string takes all");
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
    text
}

/// Adds a character of a value.
///
/// # Errors
/// Those of `text`.
pub fn push_escaped(text: &mut impl Write, char: char) -> fmt::Result {
    match char {
        '\\' => text.write_str("\\\\"),
        '"' => text.write_str("\\\""),
        '\n' => text.write_str("\\n"),
        other => text.write_char(other),
    }
}

/// The name of a counter without its labels, and these; a text that has another form ends them.
pub fn labels_of(counter: &str) -> (&str, Vec<(&str, String)>) {
    let Some((name, mut rest)) = counter.split_once('{') else { return (counter, Vec::new()) };
    let mut labels = Vec::new();
    while let Some((label, behind)) = rest.split_once("=\"") {
        let Some((value, behind)) = value_at_start(behind) else { break };
        labels.push((label, value));
        rest = behind.strip_prefix(',').unwrap_or("");
    }
    (name, labels)
}

/// A value, and what is behind its quotation mark.
fn value_at_start(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_were_written_whatever_is_in_them() {
        let plain = with_labels("pool_up", &[("pool", &"web"), ("address", &"2001:db8::1")]);
        assert_eq!(plain, r#"pool_up{pool="web",address="2001:db8::1"}"#);
        assert_eq!((with_labels("up", &[]), labels_of("up")), ("up".to_owned(), ("up", Vec::new())));
        assert_eq!(with_labels("up", &[("zone", &r#"a\"b\032."#)]), r#"up{zone="a\\\"b\\032."}"#);
        let hostile = ["a\"b", "\\", "\\\"", "}", "\",address=\"192.0.2.1", "\n", "n", "", "{,="];
        for first in hostile {
            for second in hostile {
                let text = with_labels("up", &[("pool", &first), ("address", &second)]);
                let expected = vec![("pool", first.to_owned()), ("address", second.to_owned())];
                assert_eq!(labels_of(&text), ("up", expected), "{text}");
            }
        }
        for broken in ["up{", "up{zone", "up{zone=\"", "up{zone=\"a\\"] {
            assert_eq!(labels_of(broken), ("up", Vec::new()));
        }
    }
}
