//! Domain names: a borrowed one in wire format, an owned one without heap, and their text.
//!
//! Comparison ignores ASCII case everywhere (RFC 4343); the octets themselves keep their case.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

/// The longest name in octets, length octets and the root label included (RFC 1035, 2.3.4).
pub const NAME_LEN_MAX: usize = 255;
/// The longest label in octets, its length octet not included.
pub const LABEL_LEN_MAX: usize = 63;
/// The most labels a name can have, the root label not included.
pub const LABEL_COUNT_MAX: usize = 127;

/// A valid, absolute, uncompressed name in wire format, borrowed.
///
/// `\x03www\x07example\x00`: labels of 1 to 63 octets behind their length, ended by 0, 255 octets at most.
#[derive(Clone, Copy)]
pub struct Name<'a>(&'a [u8]);

/// Why some octets or some text are not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// The octets end before the root label.
    Truncated,
    /// The octets go on behind the root label.
    TrailingOctets,
    /// A length octet above 63: a compression pointer or an unused label type.
    NotALabel,
    /// More than 255 octets in wire format.
    NameTooLong,
    /// A label of more than 63 octets.
    LabelTooLong,
    /// Two dots in a row, or one in front.
    EmptyLabel,
    /// No text at all.
    Empty,
    /// A backslash at the end, or one followed by a digit but not by a number from 000 to 255.
    BadEscape,
    /// The text is relative and no origin was given.
    NoOrigin,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Truncated => "the name is cut short",
            NameError::TrailingOctets => "octets follow the name",
            NameError::NotALabel => "a length octet above 63",
            NameError::NameTooLong => "the name is longer than 255 octets",
            NameError::LabelTooLong => "a label is longer than 63 octets",
            NameError::EmptyLabel => "a label is empty",
            NameError::Empty => "the name is empty",
            NameError::BadEscape => "a backslash needs a character or three digits up to 255 behind it",
            NameError::NoOrigin => "the name is relative and there is no origin",
        })
    }
}

impl core::error::Error for NameError {}

impl<'a> Name<'a> {
    /// The root: one zero octet.
    pub const ROOT: Name<'static> = Name(&[0]);

    /// All of `octets` as one name.
    pub fn from_wire(octets: &'a [u8]) -> Result<Name<'a>, NameError> {
        match Name::split_from(octets)? {
            (name, []) => Ok(name),
            _ => Err(NameError::TrailingOctets),
        }
    }

    /// All of `octets`, which were found to be one name.
    pub(crate) const fn checked(octets: &'a [u8]) -> Name<'a> {
        Name(octets)
    }

    /// The uncompressed name at the start of `octets`, and what follows it.
    pub fn split_from(octets: &'a [u8]) -> Result<(Name<'a>, &'a [u8]), NameError> {
        let mut at = 0;
        loop {
            let length = usize::from(*octets.get(at).ok_or(NameError::Truncated)?);
            at += 1 + length;
            if length == 0 {
                break;
            }
            if length > LABEL_LEN_MAX {
                return Err(NameError::NotALabel);
            }
            if at >= NAME_LEN_MAX {
                return Err(NameError::NameTooLong);
            }
        }
        let (name, rest) = octets.split_at(at);
        Ok((Name(name), rest))
    }

    /// The octets of the wire format.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The length of the wire format in octets: 1 to 255.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a name is never empty: the root is one octet")]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// True for the root.
    #[must_use]
    pub const fn is_root(self) -> bool {
        self.0.len() == 1
    }

    /// The labels from left to right, without the root label.
    #[must_use]
    pub const fn labels(self) -> Labels<'a> {
        Labels(self.0)
    }

    /// How many labels there are, the root label not counted.
    #[must_use]
    pub fn label_count(self) -> usize {
        self.labels().count()
    }

    /// The name without its first label; `None` for the root.
    #[must_use]
    pub fn parent(self) -> Option<Name<'a>> {
        if self.is_root() {
            return None;
        }
        Some(Name(&self.0[1 + usize::from(self.0[0])..]))
    }

    /// True if this name is `ancestor` or below it.
    #[must_use]
    pub fn ends_with(self, ancestor: Name<'_>) -> bool {
        let Some(mut ahead) = self.len().checked_sub(ancestor.len()) else {
            return false;
        };
        let mut rest = self.0;
        while ahead > 0 {
            let step = 1 + usize::from(rest[0]);
            if step > ahead {
                return false;
            }
            rest = &rest[step..];
            ahead -= step;
        }
        rest.eq_ignore_ascii_case(ancestor.0)
    }

    /// True if the first label is a lone asterisk (RFC 4592, 2.1.1).
    #[must_use]
    pub fn is_wildcard(self) -> bool {
        self.0.starts_with(b"\x01*")
    }

    /// Writes the name in lower case to the front of `into` and returns the part that was written.
    pub fn lowercase(self, into: &mut [u8; NAME_LEN_MAX]) -> Name<'_> {
        let into = &mut into[..self.len()];
        into.copy_from_slice(self.0);
        into.make_ascii_lowercase(); // length octets are below 64 and so never letters
        Name(into)
    }

    /// Where each label starts, root label not included, and how many there are.
    fn label_starts(self) -> ([u8; LABEL_COUNT_MAX], usize) {
        let mut starts = [0; LABEL_COUNT_MAX];
        let (mut count, mut at) = (0, 0);
        while self.0[at] != 0 {
            starts[count] = at as u8;
            count += 1;
            at += 1 + usize::from(self.0[at]);
        }
        (starts, count)
    }

    /// The label whose length octet is at `start`.
    fn label_at(self, start: u8) -> &'a [u8] {
        let start = usize::from(start);
        &self.0[start + 1..start + 1 + usize::from(self.0[start])]
    }
}

/// Equality ignores ASCII case (RFC 4343).
impl PartialEq<Name<'_>> for Name<'_> {
    fn eq(&self, other: &Name<'_>) -> bool {
        self.0.eq_ignore_ascii_case(other.0)
    }
}

impl Eq for Name<'_> {}

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut folded = [0; NAME_LEN_MAX];
        state.write(self.lowercase(&mut folded).as_bytes());
    }
}

/// The canonical order of RFC 4034, 6.1: by labels from the right, each in lower case, the shorter first.
impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, our_count) = self.label_starts();
        let (theirs, their_count) = other.label_starts();
        let pairs = ours[..our_count].iter().rev().zip(theirs[..their_count].iter().rev());
        for (&our_start, &their_start) in pairs {
            let order = compare_labels(self.label_at(our_start), other.label_at(their_start));
            if order.is_ne() {
                return order;
            }
        }
        our_count.cmp(&their_count)
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn compare_labels(ours: &[u8], theirs: &[u8]) -> Ordering {
    let ours = ours.iter().map(u8::to_ascii_lowercase);
    ours.cmp(theirs.iter().map(u8::to_ascii_lowercase))
}

/// Absolute text that a zone file reads back as the same octets: `a\.b.example.com.`
impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                        write!(f, "\\{}", char::from(octet))?;
                    }
                    b'!'..=b'~' => write!(f, "{}", char::from(octet))?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// The labels of a name from left to right, without the root label.
#[derive(Debug, Clone)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (&length, rest) = self.0.split_first()?;
        if length == 0 {
            return None;
        }
        let (label, rest) = rest.split_at(usize::from(length));
        self.0 = rest;
        Some(label)
    }
}

/// A name that owns its octets, in place: 256 octets, no heap.
#[derive(Clone)]
pub struct NameBuf {
    /// The wire format, then whatever was there before.
    octets: [u8; NAME_LEN_MAX],
    /// 1 to 255.
    length: u8,
}

impl NameBuf {
    /// The root.
    #[must_use]
    pub const fn root() -> NameBuf {
        NameBuf { octets: [0; NAME_LEN_MAX], length: 1 }
    }

    /// The name that `text` describes (RFC 1035, 5.1); see [`NameBuf::set_from_text`].
    pub fn from_text(text: &[u8], origin: Option<Name<'_>>) -> Result<NameBuf, NameError> {
        let mut name = NameBuf::root();
        name.set_from_text(text, origin)?;
        Ok(name)
    }

    /// Borrows the name.
    #[must_use]
    pub fn as_name(&self) -> Name<'_> {
        Name(&self.octets[..usize::from(self.length)])
    }

    /// Makes this the same name as `name`, case included.
    pub fn set(&mut self, name: Name<'_>) {
        self.octets[..name.len()].copy_from_slice(name.0);
        self.length = name.len() as u8;
    }

    /// Makes this the name that `text` describes: absolute with a dot at the end, else relative to `origin`; `@` is
    /// the origin; `\.` is a dot within a label, `\DDD` any octet (RFC 1035, 5.1).
    ///
    /// After an error this is the root.
    pub fn set_from_text(&mut self, text: &[u8], origin: Option<Name<'_>>) -> Result<(), NameError> {
        let written = if text == b"@" {
            origin.ok_or(NameError::NoOrigin).map(|origin| {
                self.set(origin);
                origin.len()
            })
        } else if text.contains(&b'\\') {
            self.write_escaped(text, origin)
        } else {
            self.write_plain(text, origin)
        };
        self.length = *written.as_ref().unwrap_or(&1) as u8;
        if written.is_err() {
            self.octets[0] = 0;
        }
        written.map(|_| ())
    }

    /// Puts `label` in front.
    ///
    /// Nothing changes after an error.
    pub fn prepend(&mut self, label: &[u8]) -> Result<(), NameError> {
        if label.is_empty() {
            return Err(NameError::EmptyLabel);
        }
        if label.len() > LABEL_LEN_MAX {
            return Err(NameError::LabelTooLong);
        }
        let (old, room) = (usize::from(self.length), 1 + label.len());
        if old + room > NAME_LEN_MAX {
            return Err(NameError::NameTooLong);
        }
        self.octets.copy_within(..old, room);
        self.octets[0] = label.len() as u8;
        self.octets[1..room].copy_from_slice(label);
        self.length = (old + room) as u8;
        Ok(())
    }

    /// Turns the name into lower case.
    pub fn make_lowercase(&mut self) {
        self.octets[..usize::from(self.length)].make_ascii_lowercase();
    }

    /// Text without escapes is its own wire format one octet later, with lengths in place of the dots.
    fn write_plain(&mut self, text: &[u8], origin: Option<Name<'_>>) -> Result<usize, NameError> {
        match text {
            b"" => return Err(NameError::Empty),
            b"." => {
                self.octets[0] = 0;
                return Ok(1);
            }
            _ => {}
        }
        // Without an origin in sight the text and its first length octet must fit in any case.
        let labels = self.octets.get_mut(1..=text.len()).ok_or(NameError::NameTooLong)?;
        labels.copy_from_slice(text);
        let mut label_start = 0;
        for (index, &octet) in text.iter().enumerate() {
            if octet == b'.' {
                self.octets[label_start] = label_length(index - label_start)?;
                label_start = index + 1;
            }
        }
        if label_start == text.len() {
            return self.finish(label_start, Some(Name::ROOT));
        }
        self.octets[label_start] = label_length(text.len() - label_start)?;
        self.finish(text.len() + 1, origin)
    }

    fn write_escaped(&mut self, text: &[u8], origin: Option<Name<'_>>) -> Result<usize, NameError> {
        let (mut label_start, mut at) = (0, 1);
        let mut rest = text;
        while let Some((&octet, behind)) = rest.split_first() {
            rest = behind;
            if octet == b'.' {
                self.octets[label_start] = label_length(at - label_start - 1)?;
                label_start = at;
            } else {
                let octet =
                    if octet == b'\\' { unescape(&mut rest).ok_or(NameError::BadEscape)? } else { octet };
                *self.octets.get_mut(at).ok_or(NameError::NameTooLong)? = octet;
            }
            at += 1;
        }
        if label_start + 1 == at {
            return self.finish(label_start, Some(Name::ROOT));
        }
        self.octets[label_start] = label_length(at - label_start - 1)?;
        self.finish(at, origin)
    }

    /// Puts `origin` at `at` and returns the length of the whole.
    fn finish(&mut self, at: usize, origin: Option<Name<'_>>) -> Result<usize, NameError> {
        let origin = origin.ok_or(NameError::NoOrigin)?;
        let end = at + origin.len();
        self.octets.get_mut(at..end).ok_or(NameError::NameTooLong)?.copy_from_slice(origin.0);
        Ok(end)
    }
}

fn label_length(length: usize) -> Result<u8, NameError> {
    match length {
        0 => Err(NameError::EmptyLabel),
        1..=LABEL_LEN_MAX => Ok(length as u8),
        _ => Err(NameError::LabelTooLong),
    }
}

/// The octet of an escape whose backslash was just before `rest`; moves `rest` behind the escape.
///
/// `\DDD` is the octet of that decimal number, `\X` is X itself (RFC 1035, 5.1). `None` if there is nothing
/// behind the backslash, or a digit that does not start three digits up to 255.
pub fn unescape(rest: &mut &[u8]) -> Option<u8> {
    let (&first, behind) = rest.split_first()?;
    if !first.is_ascii_digit() {
        *rest = behind;
        return Some(first);
    }
    let (digits, behind) = rest.split_at_checked(3)?;
    let value = digits.iter().try_fold(0u16, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + u16::from(digit - b'0'))
    })?;
    *rest = behind;
    u8::try_from(value).ok()
}

impl Default for NameBuf {
    fn default() -> NameBuf {
        NameBuf::root()
    }
}

impl From<Name<'_>> for NameBuf {
    fn from(name: Name<'_>) -> NameBuf {
        let mut owned = NameBuf::root();
        owned.set(name);
        owned
    }
}

impl PartialEq for NameBuf {
    fn eq(&self, other: &NameBuf) -> bool {
        self.as_name() == other.as_name()
    }
}

impl Eq for NameBuf {}

impl Hash for NameBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_name().hash(state);
    }
}

impl Ord for NameBuf {
    fn cmp(&self, other: &NameBuf) -> Ordering {
        self.as_name().cmp(&other.as_name())
    }
}

impl PartialOrd for NameBuf {
    fn partial_cmp(&self, other: &NameBuf) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_name().fmt(f)
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_name().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).expect(text)
    }

    fn error(text: &str) -> NameError {
        NameBuf::from_text(text.as_bytes(), None).expect_err(text)
    }

    #[test]
    fn text_becomes_wire_format() {
        assert_eq!(name("www.example.com.").as_name().as_bytes(), b"\x03www\x07example\x03com\x00");
        assert_eq!(name(".").as_name(), Name::ROOT);
    }

    #[test]
    fn relative_text_is_completed_by_the_origin() {
        let origin = name("example.com.");
        let completed = |text: &str| NameBuf::from_text(text.as_bytes(), Some(origin.as_name())).unwrap();
        assert_eq!(completed("www").to_string(), "www.example.com.");
        assert_eq!(completed("a\\.b.c").to_string(), "a\\.b.c.example.com.");
        assert_eq!(completed("@"), origin);
        assert_eq!(completed("other.").to_string(), "other.");
        assert_eq!(completed("\\@").as_name().as_bytes(), b"\x01@\x07example\x03com\x00");
        assert_eq!(error("www"), NameError::NoOrigin);
        assert_eq!(error("@"), NameError::NoOrigin);
    }

    #[test]
    fn escapes_stand_for_any_octet() {
        assert_eq!(name("a\\.b\\000\\255\\\\.").as_name().as_bytes(), b"\x06a.b\x00\xff\\\x00");
        for text in ["\\", "a\\", "\\1.", "\\12x.", "\\256."] {
            assert_eq!(error(text), NameError::BadEscape, "{text}");
        }
    }

    #[test]
    fn labels_have_one_to_63_octets() {
        let label = "x".repeat(63);
        assert_eq!(name(&format!("{label}.")).as_name().len(), 65);
        assert_eq!(error(&format!("{label}x.")), NameError::LabelTooLong);
        assert_eq!(error(&format!("{label}\\120.")), NameError::LabelTooLong);
        for text in ["..", ".a.", "a..b.", "\\120..", ".\\120."] {
            assert_eq!(error(text), NameError::EmptyLabel, "{text}");
        }
        assert_eq!(error(""), NameError::Empty);
    }

    #[test]
    fn names_have_at_most_255_octets() {
        let label = "x".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}.", "x".repeat(61));
        assert_eq!(name(&longest).as_name().len(), 255);
        assert_eq!(error(&format!("{label}.{label}.{label}.{}.", "x".repeat(62))), NameError::NameTooLong);
        assert_eq!(
            error(&format!("{label}.{label}.{label}.{}\\120.", "x".repeat(61))),
            NameError::NameTooLong
        );
        assert_eq!(error(&"x.".repeat(5000)), NameError::NameTooLong);
        let origin = name("a.");
        let relative = longest.trim_end_matches('.').as_bytes();
        assert_eq!(NameBuf::from_text(relative, Some(origin.as_name())), Err(NameError::NameTooLong));
    }

    #[test]
    fn wire_format_is_checked() {
        assert_eq!(Name::from_wire(b"\x01a\x00").unwrap().to_string(), "a.");
        assert_eq!(Name::from_wire(b"\x01a"), Err(NameError::Truncated));
        assert_eq!(Name::from_wire(b""), Err(NameError::Truncated));
        assert_eq!(Name::from_wire(b"\x05a\x00"), Err(NameError::Truncated));
        assert_eq!(Name::from_wire(b"\x01a\x00z"), Err(NameError::TrailingOctets));
        assert_eq!(Name::from_wire(b"\x01a\xc0\x0c"), Err(NameError::NotALabel));
        let mut long = b"\x01a".repeat(127);
        long.push(0);
        assert_eq!(Name::from_wire(&long).unwrap().label_count(), 127);
        long.splice(0..0, *b"\x01a");
        assert_eq!(Name::from_wire(&long), Err(NameError::NameTooLong));
        assert_eq!(Name::split_from(b"\x01a\x00rest").unwrap().1, b"rest");
    }

    #[test]
    fn comparison_ignores_case_but_text_keeps_it() {
        assert_eq!(name("WWW.Example."), name("www.eXample."));
        assert_eq!(name("WWW.Example.").to_string(), "WWW.Example.");
        let mut folded = [0; NAME_LEN_MAX];
        assert_eq!(name("WWW.[@Z.").as_name().lowercase(&mut folded).as_bytes(), b"\x03www\x03[@z\x00");
    }

    #[test]
    fn ancestors_end_a_name_at_a_label_only() {
        let below = name("a.Example.com.");
        assert!(below.as_name().ends_with(name("example.COM.").as_name()));
        assert!(below.as_name().ends_with(below.as_name()));
        assert!(below.as_name().ends_with(Name::ROOT));
        assert!(!name("badexample.com.").as_name().ends_with(name("example.com.").as_name()));
        assert!(!name("com.").as_name().ends_with(below.as_name()));
        // The octets match, the labels do not.
        assert!(!name("a\\003com.").as_name().ends_with(name("com.").as_name()));
    }

    #[test]
    fn parents_lead_to_the_root() {
        let below = name("a.b.");
        let parent = below.as_name().parent().unwrap();
        assert_eq!(parent, name("b.").as_name());
        assert_eq!(parent.parent(), Some(Name::ROOT));
        assert_eq!(Name::ROOT.parent(), None);
        assert_eq!(Name::ROOT.label_count(), 0);
    }

    #[test]
    fn canonical_order_is_that_of_the_rfc() {
        // RFC 4034, 6.1.
        let ordered = [
            "example.",
            "a.example.",
            "yljkjljk.a.example.",
            "Z.a.example.",
            "zABC.a.EXAMPLE.",
            "z.example.",
            "\\001.z.example.",
            "*.z.example.",
            "\\200.z.example.",
        ];
        for pair in ordered.windows(2) {
            assert!(name(pair[0]) < name(pair[1]), "{} {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn labels_can_be_put_in_front() {
        let mut below = name("example.");
        below.prepend(b"*").unwrap();
        assert!(below.as_name().is_wildcard());
        assert_eq!(below.to_string(), "*.example.");
        assert_eq!(below.prepend(b""), Err(NameError::EmptyLabel));
        assert_eq!(below.prepend(&[0; 64]), Err(NameError::LabelTooLong));
        while below.prepend(&[b'x'; 63]).is_ok() {}
        assert_eq!(below.as_name().label_count(), 5);
    }
}
