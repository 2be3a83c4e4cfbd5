//! The entry for fuzzers; an ordinary test replays its corpus.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use dns_wire::{Name, NameBuf};

use super::schema::schema;
use super::{Files, Limits, Record, TextFile, read_zone};

/// Every file has the same text: what includes anything, includes itself.
struct OneText<'a>(&'a [u8]);

impl Files for OneText<'_> {
    fn open(&mut self, _: &Path) -> io::Result<TextFile> {
        Ok(self.0.to_vec().into())
    }
}

/// Reads `data` as a zone and checks what every record has to be.
///
/// # Panics
///
/// If the reader hands on something that is no record.
#[doc(hidden)]
pub fn fuzz_zone_text(data: &[u8]) {
    let limits =
        Limits { generated_records_max: 1000, include_depth_max: 3, includes_max: 20, ..Limits::default() };
    let mut owners_in_zone = Vec::new();
    let summary = read_zone(&mut OneText(data), Path::new("example.com.zone"), None, &limits, |record| {
        check(&record);
        owners_in_zone.push(NameBuf::from(record.owner));
        Ok::<(), Infallible>(())
    });
    match summary {
        Ok(summary) => {
            assert_eq!(summary.record_count, owners_in_zone.len() as u64);
            assert!(owners_in_zone.iter().all(|owner| owner.as_name().ends_with(summary.origin.as_name())));
        }
        Err(errors) => assert!((1..=limits.errors_max).contains(&errors.errors.len()), "{errors}"),
    }
}

fn check(record: &Record<'_>) {
    assert_eq!(Name::from_wire(record.owner.as_bytes()), Ok(record.owner));
    let text = record.owner.to_string();
    let read_back = NameBuf::from_text(text.as_bytes(), None);
    assert_eq!(
        read_back.as_ref().map(|name| name.as_name().as_bytes()),
        Ok(record.owner.as_bytes()),
        "{text}"
    );
    assert!(record.ttl <= i32::MAX as u32 && !record.rtype.is_meta() && record.rdata.len() <= 65535);
    if let Some(fields) = schema(record.rtype) {
        assert!(super::check::is_rdata(fields, record.rdata), "{} {:02x?}", record.rtype, record.rdata);
    }
}
