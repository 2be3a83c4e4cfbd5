//! From a zone file to a zone tree.

use std::path::Path;

use dns_wire::{Name, Rtype};

use crate::builder::{RecordError, ZoneBuilder};
use crate::text::{Files, Limits, Receiver, Record, ZoneTextErrors, read_zone_into};
use crate::tree::Zone;

/// Reads the zone in the file at `path`, see [`crate::text::read_zone`], and builds its tree. `seed` keys the tree's hashes: take it from a
/// source that the outside cannot guess.
///
/// # Errors
/// All that was found wrong, with its place.
pub fn load_zone<F: Files + ?Sized>(
    files: &mut F,
    path: &Path,
    origin: Option<Name<'_>>,
    limits: &Limits,
    seed: u64,
) -> Result<Zone, ZoneTextErrors> {
    load(files, path, origin, limits, Loader::new(seed)).map(|(zone, _)| zone)
}

/// The same of a zone that is to be signed: the records that its signer makes are left out, and counted.
///
/// # Errors
/// All that was found wrong, with its place.
pub fn load_source<F: Files + ?Sized>(
    files: &mut F,
    path: &Path,
    origin: Option<Name<'_>>,
    limits: &Limits,
    seed: u64,
) -> Result<(Zone, usize), ZoneTextErrors> {
    load(files, path, origin, limits, Loader { is_source: true, ..Loader::new(seed) })
}

fn load<F: Files + ?Sized>(
    files: &mut F,
    path: &Path,
    origin: Option<Name<'_>>,
    limits: &Limits,
    mut loader: Loader,
) -> Result<(Zone, usize), ZoneTextErrors> {
    read_zone_into(files, path, origin, limits, &mut loader)?;
    let builder = loader.builder.expect("a zone that was read without errors has a SOA");
    Ok((builder.finish().expect("the SOA was the first record"), loader.left_out))
}

struct Loader {
    /// Made when the SOA comes, which is first and whose owner is the origin.
    builder: Option<ZoneBuilder>,
    /// Whether memory was set aside, by the first part of the file.
    has_room: bool,
    seed: u64,
    /// Whether what signing makes is left out, and how many records that were.
    is_source: bool,
    left_out: usize,
}

impl Loader {
    fn new(seed: u64) -> Loader {
        Loader { builder: None, has_room: false, seed, is_source: false, left_out: 0 }
    }
}

impl Receiver for &mut Loader {
    type Refusal = RecordError;

    fn on_owner(&mut self, owner: Name<'_>) {
        if let Some(builder) = &self.builder {
            builder.expect_owner(owner);
        }
    }

    fn on_progress(&mut self, done: u64, of: u64) {
        if let Some(builder) = &mut self.builder
            && !std::mem::replace(&mut self.has_room, true)
        {
            builder.make_room(done, of);
        }
    }

    fn on_record(&mut self, record: Record<'_>) -> Result<(), RecordError> {
        // A digest of the zone would be of another one, without what signing makes (RFC 8976, 2.1).
        if self.is_source && (record.rtype.is_made_by_signing() || record.rtype == Rtype::ZONEMD) {
            self.left_out += 1;
            return Ok(());
        }
        let seed = self.seed;
        let builder = self.builder.get_or_insert_with(|| ZoneBuilder::new(record.owner, seed));
        builder.add(record.owner, record.ttl, record.rtype, record.rdata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TextFile;
    use std::io;

    struct Only(&'static str);

    impl Files for Only {
        fn open(&mut self, _: &Path) -> io::Result<TextFile> {
            Ok(self.0.as_bytes().to_vec().into())
        }
    }

    fn read(text: &'static str) -> Result<Zone, String> {
        let path = Path::new("example.zone");
        load_zone(&mut Only(text), path, None, &Limits::default(), 1).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_zone_file_becomes_a_tree() {
        let zone = read("@ 60 SOA ns host 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n").unwrap();
        assert_eq!((zone.origin().to_string().as_str(), zone.record_count()), ("example.", 3));
    }

    #[test]
    fn a_source_is_read_without_what_signing_makes() {
        let text = "@ 60 SOA ns host 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nns NSEC @ A RRSIG NSEC\n\
                    ns RRSIG A 13 2 60 20260101000000 20250101000000 1 @ AAAA\n@ NSEC3PARAM 1 0 0 -\n\
                    0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 0 0 - 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom A\n@ CDS 0 0 0 00\n\
                    @ ZONEMD 1 1 1 00112233445566778899aabb\n";
        let path = Path::new("example.zone");
        let (zone, left_out) = load_source(&mut Only(text), path, None, &Limits::default(), 1)
            .map_err(|e| e.to_string())
            .unwrap();
        assert_eq!((zone.record_count(), left_out, zone.is_signed()), (4, 5, false));
        let whole = read(text).unwrap();
        assert_eq!((whole.record_count(), whole.is_signed()), (9, true));
    }

    #[test]
    fn what_the_tree_refuses_is_told_with_its_place() {
        let error = read("@ 60 SOA ns host 1 2 3 4 5\na CNAME b\na A 192.0.2.1\n").unwrap_err();
        assert!(error.starts_with("example.zone:3:1: ") && error.contains("CNAME"), "{error}");
    }

    #[test]
    fn a_file_without_records_is_no_zone() {
        assert!(read("; nothing\n").is_err());
    }
}
