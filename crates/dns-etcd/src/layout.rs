//! Which key says what.
//!
//! ```text
//!   PREFIX zones/ZONE                 the zone is served; the value has its settings
//!   PREFIX records/ZONE/OWNER/TYPE    the records of one name and type
//! ```
//!
//! ZONE is a name with its last dot, OWNER is relative to it (`@` is the zone itself), both in lower case. A slash within a label is written
//! `\047`. There is one spelling for each record set, so that two keys never speak of the same one.

use dns_wire::{Name, NameBuf, NameError, Rtype};
use thiserror::Error;

const ZONES: &str = "zones/";
const RECORDS: &str = "records/";

/// The keys below one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
}

/// Keys from `first` on that come before `end`, in the order of their octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that may be in it.
    pub first: Vec<u8>,
    /// The first key behind it.
    pub end: Vec<u8>,
}

/// What a key is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A zone is there, with these settings.
    Zone(Box<NameBuf>),
    /// Records of one name and type.
    Records {
        /// The zone that they are in.
        zone: Box<NameBuf>,
        /// Their owner, at or below the zone.
        owner: Box<NameBuf>,
        /// Their type.
        rtype: Rtype,
    },
}

/// Why a key is about nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It has another form.
    #[error("expected zones/ZONE or records/ZONE/OWNER/TYPE behind the prefix")]
    Form,
    /// A name that is none.
    #[error("{text:?} is no name: {error}")]
    Name {
        /// What should be a name.
        text: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// A type that is none, or that no zone has.
    #[error("{0:?} is no type of records")]
    Type(String),
    /// Another spelling of the right key.
    #[error("expected the spelling {0}")]
    Spelling(String),
}

impl Layout {
    /// The keys that begin with `prefix`, which ends in a slash.
    pub fn new(prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned() }
    }

    /// All keys.
    pub fn all(&self) -> KeyRange {
        KeyRange::below(self.prefix.clone())
    }

    /// The keys of all zones, without records.
    pub fn zones(&self) -> KeyRange {
        KeyRange::below(format!("{}{ZONES}", self.prefix))
    }

    /// The keys of all records.
    pub fn records(&self) -> KeyRange {
        KeyRange::below(format!("{}{RECORDS}", self.prefix))
    }

    /// The keys of the records of one zone.
    pub fn records_of(&self, zone: Name<'_>) -> KeyRange {
        KeyRange::below(format!("{}{RECORDS}{}/", self.prefix, zone_text(zone)))
    }

    /// Reads a key.
    ///
    /// # Errors
    /// It is about nothing.
    pub fn parse(&self, key: &[u8]) -> Result<Key, KeyError> {
        let rest = key.strip_prefix(self.prefix.as_bytes()).ok_or(KeyError::Form)?;
        let rest = std::str::from_utf8(rest).map_err(|_| KeyError::Form)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let (read, right) = match parts[..] {
            ["zones", zone] => {
                let zone = parse_zone(zone)?;
                let right = format!("{ZONES}{}", zone_text(zone.as_name()));
                (Key::Zone(Box::new(zone)), right)
            }
            ["records", zone, owner, rtype] => {
                let zone = parse_zone(zone)?;
                let mut owner = parse_name(owner, zone.as_name())?;
                owner.make_lowercase();
                if !owner.as_name().ends_with(zone.as_name()) {
                    return Err(KeyError::Form);
                }
                let unknown = || KeyError::Type(shortened(rtype));
                let known = Rtype::from_text(rtype.as_bytes()).filter(|rtype| !rtype.is_meta());
                let rtype = known.ok_or_else(unknown)?;
                let text = owner_text(owner.as_name(), zone.as_name());
                let right = format!("{RECORDS}{}/{text}/{rtype}", zone_text(zone.as_name()));
                (Key::Records { zone: Box::new(zone), owner: Box::new(owner), rtype }, right)
            }
            _ => return Err(KeyError::Form),
        };
        if rest == right { Ok(read) } else { Err(KeyError::Spelling(format!("{}{right}", self.prefix))) }
    }

    /// The key of a zone.
    pub fn key_of_zone(&self, zone: Name<'_>) -> String {
        format!("{}{ZONES}{}", self.prefix, zone_text(zone))
    }

    /// The key of a record set.
    pub fn key_of_records(&self, zone: Name<'_>, owner: Name<'_>, rtype: Rtype) -> String {
        format!("{}{RECORDS}{}/{}/{rtype}", self.prefix, zone_text(zone), owner_text(owner, zone))
    }
}

impl KeyRange {
    /// All keys that begin with `prefix`, which ends in a slash.
    fn below(prefix: String) -> KeyRange {
        let mut end = prefix.clone().into_bytes();
        end.pop();
        end.push(b'/' + 1);
        KeyRange { first: prefix.into_bytes(), end }
    }
}

/// A zone's name is absolute, also where its last dot is missing: the right spelling is then part of the error.
fn parse_zone(text: &str) -> Result<NameBuf, KeyError> {
    let mut zone = parse_name(text, Name::ROOT)?;
    zone.make_lowercase();
    Ok(zone)
}

fn parse_name(text: &str, origin: Name<'_>) -> Result<NameBuf, KeyError> {
    NameBuf::from_text(text.as_bytes(), Some(origin))
        .map_err(|error| KeyError::Name { text: shortened(text), error })
}

/// A text that may have any length, for people.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn zone_text(zone: Name<'_>) -> String {
    zone.to_string().replace('/', "\\047")
}

/// The labels of `owner` in front of those of `zone`.
fn owner_text(owner: Name<'_>, zone: Name<'_>) -> String {
    let own = owner.label_count().saturating_sub(zone.label_count());
    if own == 0 {
        return "@".to_owned();
    }
    let whole = owner.to_string();
    let ancestors = zone.to_string();
    let relative = match zone.label_count() {
        0 => whole.strip_suffix('.'),
        _ => whole.strip_suffix(&ancestors).and_then(|text| text.strip_suffix('.')),
    };
    relative.unwrap_or(&whole).replace('/', "\\047")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("/dns/")
    }

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).unwrap()
    }

    fn records(zone: &str, owner: &str, rtype: Rtype) -> Key {
        Key::Records { zone: Box::new(name(zone)), owner: Box::new(name(owner)), rtype }
    }

    #[test]
    fn a_key_names_a_zone_or_the_records_of_one_name_and_type() {
        let read = |key: &str| layout().parse(key.as_bytes()).unwrap();
        assert_eq!(read("/dns/zones/example.org."), Key::Zone(Box::new(name("example.org."))));
        let www = records("example.org.", "www.example.org.", Rtype::A);
        assert_eq!(read("/dns/records/example.org./www/A"), www);
        assert_eq!(
            read("/dns/records/example.org./@/NS"),
            records("example.org.", "example.org.", Rtype::NS)
        );
        assert_eq!(read("/dns/records/./org/TYPE65400"), records(".", "org.", Rtype(65400)));
        assert_eq!(
            read("/dns/records/0\\04725.2.0.192.in-addr.arpa./1/PTR"),
            records("0/25.2.0.192.in-addr.arpa.", "1.0/25.2.0.192.in-addr.arpa.", Rtype::PTR)
        );
        assert_eq!(
            read("/dns/records/example.org./*.a\\.b/TXT"),
            records("example.org.", "*.a\\.b.example.org.", Rtype::TXT)
        );
    }

    #[test]
    fn a_key_of_another_spelling_says_the_right_one() {
        for (wrong, right) in [
            ("zones/example.org", "zones/example.org."),
            ("zones/Example.org.", "zones/example.org."),
            ("records/example.org./WWW/A", "records/example.org./www/A"),
            ("records/example.org./www/a", "records/example.org./www/A"),
            ("records/example.org./www.example.org./A", "records/example.org./www/A"),
            ("records/example.org./example.org./A", "records/example.org./@/A"),
            ("records/example.org./www/TYPE1", "records/example.org./www/A"),
            ("records/example.org./\\119ww/A", "records/example.org./www/A"),
        ] {
            let error = layout().parse(format!("/dns/{wrong}").as_bytes()).unwrap_err();
            assert_eq!(error, KeyError::Spelling(format!("/dns/{right}")), "{wrong}");
        }
    }

    #[test]
    fn a_key_of_another_form_is_about_nothing() {
        for wrong in [
            "/other/zones/example.org.",
            "/dns/",
            "/dns/zones/",
            "/dns/zones/a..b.",
            "/dns/zone/example.org.",
            "/dns/records/example.org./www",
            "/dns/records/example.org./www/A/1",
            "/dns/records/example.org./www/ANY",
            "/dns/records/example.org./www/NOTYPE",
            "/dns/records/example.org./www.example.net./A",
        ] {
            let error = layout().parse(wrong.as_bytes()).unwrap_err();
            assert!(!matches!(error, KeyError::Spelling(_)), "{wrong}: {error}");
        }
        assert_eq!(layout().parse(b"/dns/zones/\xff"), Err(KeyError::Form));
    }

    #[test]
    fn what_is_said_of_a_key_is_short_however_long_that_is() {
        let long = "x".repeat(1 << 20);
        for wrong in
            [format!("zones/{long}"), format!("records/a./b/{long}"), format!("records/{long}/b/A"), long]
        {
            let error = layout().parse(format!("/dns/{wrong}").as_bytes()).unwrap_err();
            assert!(error.to_string().len() < 400, "{}", error.to_string().len());
        }
    }

    #[test]
    fn keys_that_are_made_are_read_again_and_lie_in_the_ranges() {
        for (zone, owner) in
            [("example.org.", "a/b.c.example.org."), (".", "x."), (".", "."), ("a/b.", "a/b.")]
        {
            let (zone, owner) = (name(zone), name(owner));
            let (zone, owner) = (zone.as_name(), owner.as_name());
            let key = layout().key_of_records(zone, owner, Rtype::MX);
            let read = layout().parse(key.as_bytes()).unwrap();
            assert_eq!(read, records(&zone.to_string(), &owner.to_string(), Rtype::MX));
            for range in [layout().all(), layout().records(), layout().records_of(zone)] {
                assert!((&range.first..&range.end).contains(&&key.clone().into_bytes()), "{key}");
            }
            let key = layout().key_of_zone(zone).into_bytes();
            assert_eq!(layout().parse(&key), Ok(Key::Zone(Box::new(NameBuf::from(zone)))));
            assert!((&layout().zones().first..&layout().zones().end).contains(&&key));
        }
        let other =
            layout().key_of_records(name("b.example.").as_name(), name("b.example.").as_name(), Rtype::A);
        let range = layout().records_of(name("example.").as_name());
        assert!(!(&range.first..&range.end).contains(&&other.into_bytes()));
    }
}
