//! What values say: the records of one name and type, in the words of zone files, and the settings of a zone.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::path::Path;

use dns_wire::{Name, Rtype};
use dns_zone::text::{Files, Limits, Receiver, Record, TextFile, read_part_into};
use serde::Deserialize;
use thiserror::Error;

use crate::layout::shortened;

/// Octets of a value with records at most: more than the records of one name and type may have in a message.
const VALUE_MAX: usize = 1 << 20;
/// Octets of data that the records of one name and type have at most: a message carries no more.
const DATA_MAX: usize = 65_535;

/// The records of one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSet {
    /// Seconds: the lowest of all lines (RFC 2181, 5.2).
    pub ttl: u32,
    /// The data of each, each once.
    pub records: Vec<Vec<u8>>,
}

/// What of a zone is not in its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Whether the servers sign it.
    pub dnssec: bool,
    /// Whether it is denied by NSEC3 records then.
    pub nsec3: bool,
}

/// Why a value is not what it should be. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    /// It has no line with a record.
    #[error("it has no record; delete the key instead")]
    Empty,
    /// More octets than a value may have.
    #[error("{0} octets are too many")]
    TooLong(usize),
    /// A line without a TTL.
    #[error("line {line}: expected a TTL in seconds and the data, such as 300 192.0.2.1, found {found:?}")]
    Ttl {
        /// Which.
        line: usize,
        /// What it begins with.
        found: String,
    },
    /// A line that is no record.
    #[error("line {line}: {problem}")]
    Record {
        /// Which.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A record that goes on in the next line.
    #[error("a record goes on in the next line: each has one line, without parentheses around its end")]
    Lines,
    /// Records that come with signatures.
    #[error("{0} records come with signing, and not from etcd")]
    OfSigning(Rtype),
    /// Another number of records than one, where one has to be.
    #[error("expected one SOA record, found {0}")]
    Soa(usize),
    /// Settings that cannot be read.
    #[error("{0}")]
    Settings(String),
}

/// Reads the records of a name and type in `zone`. Each line has a TTL and the data; names in the data are relative to the zone.
///
/// # Errors
/// What is wrong with the first line that is wrong.
pub fn read_records(
    zone: Name<'_>,
    owner: Name<'_>,
    rtype: Rtype,
    value: &[u8],
) -> Result<RecordSet, ValueError> {
    if value.len() > VALUE_MAX {
        return Err(ValueError::TooLong(value.len()));
    }
    if matches!(rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3 | Rtype::NSEC3PARAM) {
        return Err(ValueError::OfSigning(rtype));
    }
    let (text, lines) = as_zone_file(owner, rtype, value)?;
    let mut set =
        Collected { ttl: u32::MAX, records: BTreeSet::new(), in_order: Vec::new(), octets: 0, count: 0 };
    let (mut file, limits) = (OneText(Some(text)), Limits::default());
    // Every line has its TTL, so that of records without one is of no concern.
    let read = read_part_into(&mut file, Path::new(""), (zone, 0), &limits, &mut set);
    if let Err(errors) = read {
        let first = errors.errors.first();
        let line = first.and_then(|error| lines.get(error.position.line.saturating_sub(1) as usize));
        let problem = first.map_or_else(|| errors.to_string(), |error| shortened(&error.problem.to_string()));
        return Err(ValueError::Record { line: line.copied().unwrap_or(0), problem });
    }
    match set.count {
        0 => Err(ValueError::Empty),
        count if count != lines.len() => Err(ValueError::Lines),
        count if rtype == Rtype::SOA && count != 1 => Err(ValueError::Soa(count)),
        _ => Ok(RecordSet { ttl: set.ttl, records: set.in_order }),
    }
}

/// The settings of a zone; those of an empty value are the defaults.
///
/// # Errors
/// The value is no table of settings.
pub fn read_settings(value: &[u8]) -> Result<Settings, ValueError> {
    let text = std::str::from_utf8(value).map_err(|error| ValueError::Settings(error.to_string()))?;
    toml::from_str(text).map_err(|error| ValueError::Settings(shortened(error.message())))
}

/// A value as lines of a zone file, and the number of each in the value.
fn as_zone_file(owner: Name<'_>, rtype: Rtype, value: &[u8]) -> Result<(Vec<u8>, Vec<usize>), ValueError> {
    let (mut text, mut lines) = (Vec::with_capacity(2 * value.len()), Vec::new());
    let mut head = owner.to_string(); // Lines without one have that of the line before.
    for (number, line) in value.split(|octet| *octet == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b";") {
            continue;
        }
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (ttl, data) = line.split_at(end);
        let found = || String::from_utf8_lossy(&ttl[..ttl.len().min(40)]).into_owned();
        let ttl = std::str::from_utf8(ttl).ok().filter(|ttl| is_ttl(ttl));
        let ttl = ttl.ok_or_else(|| ValueError::Ttl { line: number + 1, found: found() })?;
        write!(head, " {ttl} IN {rtype}").expect("a text takes all");
        text.extend_from_slice(head.as_bytes());
        head.clear();
        text.extend_from_slice(data);
        text.push(b'\n');
        lines.push(number + 1);
    }
    Ok((text, lines))
}

/// Whether a word has the form of a TTL: `300`, `1h30m`. The reader says whether it is one.
fn is_ttl(word: &str) -> bool {
    let is_part = |octet: u8| octet.is_ascii_digit() || b"smhdw".contains(&octet.to_ascii_lowercase());
    word.as_bytes().first().is_some_and(u8::is_ascii_digit) && word.bytes().all(is_part)
}

/// The only text that there is to read.
struct OneText(Option<Vec<u8>>);

impl Files for OneText {
    fn open(&mut self, _: &Path) -> io::Result<TextFile> {
        self.0.take().map(TextFile::from).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct Collected {
    ttl: u32,
    /// To find those that come twice.
    records: BTreeSet<Vec<u8>>,
    in_order: Vec<Vec<u8>>,
    /// Of all data.
    octets: usize,
    count: usize,
}

impl Receiver for &mut Collected {
    type Refusal = &'static str;

    fn on_owner(&mut self, _owner: Name<'_>) {}

    fn on_progress(&mut self, _done: u64, _of: u64) {}

    fn on_record(&mut self, record: Record<'_>) -> Result<(), &'static str> {
        self.count += 1;
        self.ttl = self.ttl.min(record.ttl);
        if self.octets > DATA_MAX || self.records.contains(record.rdata) {
            return Ok(()); // That there are too many has been said.
        }
        self.octets += record.rdata.len();
        if self.octets > DATA_MAX {
            return Err("the records of one name and type exceed the 65535 octets of a message");
        }
        self.records.insert(record.rdata.to_vec());
        self.in_order.push(record.rdata.to_vec());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;

    fn read(owner: &str, rtype: Rtype, value: &str) -> Result<RecordSet, ValueError> {
        let zone = NameBuf::from_text(b"example.org.", None).unwrap();
        let owner = NameBuf::from_text(owner.as_bytes(), Some(zone.as_name())).unwrap();
        read_records(zone.as_name(), owner.as_name(), rtype, value.as_bytes())
    }

    #[test]
    fn each_line_is_a_record_with_a_ttl_and_the_lowest_ttl_counts() {
        let set =
            read("www", Rtype::A, "300 192.0.2.1\n\n; a comment\r\n 1m  192.0.2.2 ; of rack 7\n").unwrap();
        assert_eq!(set, RecordSet { ttl: 60, records: vec![vec![192, 0, 2, 1], vec![192, 0, 2, 2]] });
        let twice = read("www", Rtype::A, "300 192.0.2.1\n300 192.0.2.1").unwrap();
        assert_eq!(twice.records.len(), 1);
    }

    #[test]
    fn names_in_data_are_relative_to_the_zone() {
        let set = read("@", Rtype::MX, "60 10 mail").unwrap();
        assert_eq!(set.records, [b"\x00\x0a\x04mail\x07example\x03org\x00".to_vec()]);
        assert_eq!(read("a", Rtype::NS, "60 .").unwrap().records, [vec![0]]);
        assert_eq!(read("a", Rtype::TXT, "60 \"a b\" c").unwrap().records, [b"\x03a b\x01c".to_vec()]);
        assert_eq!(read("a", Rtype(65400), "60 \\# 2 abcd").unwrap().records, [vec![0xab, 0xcd]]);
        assert_eq!(read("\\064\\.", Rtype::A, "60 192.0.2.1").unwrap().records, [vec![192, 0, 2, 1]]);
    }

    #[test]
    fn a_value_that_is_wrong_says_which_line_and_why() {
        let error = |value: &str| read("www", Rtype::A, value).unwrap_err().to_string();
        assert_eq!(
            error("192.0.2.1"),
            "line 1: expected a TTL in seconds and the data, such as 300 192.0.2.1, found \"192.0.2.1\""
        );
        assert!(error("300 192.0.2.1\n\n300 192.0.2.300").starts_with("line 3: "));
        assert!(error("300").starts_with("line 1: "));
        assert!(error("99999999999 192.0.2.1").starts_with("line 1: "));
        assert!(
            error("").starts_with("it has no record") && error("; nothing\n").starts_with("it has no record")
        );
        assert!(error("300 IN A 192.0.2.1").starts_with("line 1: "));
        assert_eq!(read("a", Rtype::NSEC, "1 b A").unwrap_err(), ValueError::OfSigning(Rtype::NSEC));
        assert!(matches!(read("a", Rtype::A, &"x".repeat(VALUE_MAX + 1)), Err(ValueError::TooLong(_))));
    }

    #[test]
    fn a_value_has_no_more_data_than_a_message_and_says_where_that_is_exceeded() {
        let lines = |count: u32| -> String {
            (0..count)
                .map(|number| format!("60 10.{}.{}.{}\n", number >> 16, number >> 8 & 255, number & 255))
                .collect()
        };
        assert_eq!(read("a", Rtype::A, &lines(16_383)).unwrap().records.len(), 16_383);
        let error = read("a", Rtype::A, &lines(40_003)).unwrap_err().to_string();
        assert!(error.starts_with("line 16384: ") && error.contains("65535 octets"), "{error}");
    }

    #[test]
    fn a_long_name_is_no_longer_with_many_lines() {
        let owner = ["\\001".repeat(60), "\\001".repeat(60), "\\001".repeat(60)].join(".");
        let zone = NameBuf::from_text(b"example.org.", None).unwrap();
        let owner = NameBuf::from_text(owner.as_bytes(), Some(zone.as_name())).unwrap();
        let (text, lines) =
            as_zone_file(owner.as_name(), Rtype::A, "1 192.0.2.1\n".repeat(1000).as_bytes()).unwrap();
        assert!(text.len() < 30_000 && lines.len() == 1000, "{}", text.len());
        assert_eq!(
            read(&owner.as_name().to_string(), Rtype::A, "1 192.0.2.1\n1 192.0.2.2").unwrap().records.len(),
            2
        );
    }

    #[test]
    fn a_value_has_no_records_of_other_names_and_types() {
        for value in [
            "300 ( 192.0.2.1\nb.example.org. 300 IN A 192.0.2.2 )",
            "300 192.0.2.1 (\n300 192.0.2.2 )",
            "300 192.0.2.1 \\\n300 192.0.2.2",
            "300 192.0.2.1\n$ORIGIN b.\n",
            "300 192.0.2.1\n$INCLUDE /etc/passwd",
            "300 192.0.2.1 \"\n300 192.0.2.2\"",
        ] {
            assert!(read("a", Rtype::A, value).is_err(), "{value}");
        }
        assert_eq!(read("a", Rtype::TXT, "300 ( a\n300 b )").unwrap_err(), ValueError::Lines);
    }

    #[test]
    fn a_zone_has_one_soa() {
        let soa = "3600 ns host 0 1 2 3 4";
        assert_eq!(read("@", Rtype::SOA, soa).unwrap().records.len(), 1);
        let two = format!("{soa}\n3600 ns other 0 1 2 3 4");
        assert!(read("@", Rtype::SOA, &two).is_err());
    }

    #[test]
    fn settings_are_a_table_in_which_nothing_is_unknown() {
        assert_eq!(read_settings(b""), Ok(Settings::default()));
        assert_eq!(read_settings(b"dnssec = true\n"), Ok(Settings { dnssec: true, nsec3: false }));
        assert!(read_settings(b"dnsec = true").unwrap_err().to_string().contains("unknown field"));
        assert!(read_settings(b"\xff").is_err());
        let long = format!("{} = true", "x".repeat(1 << 20));
        assert!(read_settings(long.as_bytes()).unwrap_err().to_string().len() < 300);
        let long = format!("60 {}", "x".repeat(1 << 19));
        assert!(read("a", Rtype::A, &long).unwrap_err().to_string().len() < 300);
    }
}
