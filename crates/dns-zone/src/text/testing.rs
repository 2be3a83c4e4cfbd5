//! Zones as strings.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use super::{Files, Limits, Record, Summary, TextFile, ZoneTextErrors, read_zone};

/// Files in memory, by path.
pub(super) struct Texts(pub(super) HashMap<PathBuf, Vec<u8>>);

impl Files for Texts {
    fn open(&mut self, path: &Path) -> io::Result<TextFile> {
        self.0.get(path).cloned().map(TextFile::from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// A SOA at the origin, as the first line of a zone.
pub(super) const SOA: &str = "@ 3600 IN SOA ns hostmaster 1 1h 15m 1w 5m\n";

pub(super) fn read(
    files: &[(&str, &str)],
    limits: &Limits,
    mut receive: impl FnMut(Record<'_>),
) -> Result<Summary, ZoneTextErrors> {
    let texts = files.iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()));
    let mut texts = Texts(texts.collect());
    read_zone(&mut texts, Path::new(files[0].0), None, limits, |record| {
        receive(record);
        Ok::<(), Infallible>(())
    })
}

/// Every record as owner, TTL, type and RDATA in hex; the first file is the zone.
pub(super) fn records_of(files: &[(&str, &str)]) -> Result<Vec<String>, ZoneTextErrors> {
    let mut records = Vec::new();
    read(files, &Limits::default(), |record| {
        let hex: String = record.rdata.iter().map(|octet| format!("{octet:02x}")).collect();
        records.push(format!("{} {} {} {hex}", record.owner, record.ttl, record.rtype));
    })?;
    Ok(records)
}

/// The records behind a SOA in a zone called `example.`
pub(super) fn records(text: &str) -> Vec<String> {
    let text = format!("{SOA}{text}");
    records_of(&[("example.zone", &text)]).unwrap_or_else(|errors| panic!("{errors}")).split_off(1)
}

/// What is wrong behind a SOA in a zone called `example.`, by line: the SOA is on line 1.
pub(super) fn errors(text: &str) -> Vec<String> {
    let text = format!("{SOA}{text}");
    let errors = records_of(&[("example.zone", &text)]).expect_err(&text).errors;
    errors.iter().map(ToString::to_string).collect()
}

/// The RDATA of a record of this type.
pub(super) fn rdata(rtype: &str, text: &str) -> Vec<u8> {
    let text = format!("@ 3600 IN SOA . . 0 0 0 0 0\nx 0 IN {rtype} {text}\n");
    // A SOA has to be first, and there can be only one.
    let text = if rtype == "SOA" { text.split_once('\n').map_or("", |(_, second)| second) } else { &text };
    let text = text.replace("x 0 IN SOA", "@ 0 IN SOA");
    let mut octets = Vec::new();
    let read = read(&[("example.zone", &text)], &Limits::default(), |record| octets = record.rdata.to_vec());
    read.unwrap_or_else(|errors| panic!("{errors}"));
    octets
}

/// Why the text is not RDATA of this type.
pub(super) fn refusal(rtype: &str, text: &str) -> String {
    let text = format!("{SOA}x 0 IN {rtype} {text}\n");
    let errors = records_of(&[("example.zone", &text)]).expect_err(&text);
    errors.errors[0].problem.to_string()
}
