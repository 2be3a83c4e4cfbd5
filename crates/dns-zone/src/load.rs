//! From a zone file to a zone tree.

use std::path::Path;

use dns_wire::Name;

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
    let mut loader = Loader { builder: None, has_room: false, seed };
    read_zone_into(files, path, origin, limits, &mut loader)?;
    let builder = loader.builder.expect("a zone that was read without errors has a SOA");
    Ok(builder.finish().expect("the SOA was the first record"))
}

struct Loader {
    /// Made when the SOA comes, which is first and whose owner is the origin.
    builder: Option<ZoneBuilder>,
    /// Whether memory was set aside, by the first part of the file.
    has_room: bool,
    seed: u64,
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

    fn load(text: &'static str) -> Result<Zone, String> {
        let path = Path::new("example.zone");
        load_zone(&mut Only(text), path, None, &Limits::default(), 1).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_zone_file_becomes_a_tree() {
        let zone = load("@ 60 SOA ns host 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n").unwrap();
        assert_eq!((zone.origin().to_string().as_str(), zone.record_count()), ("example.", 3));
    }

    #[test]
    fn what_the_tree_refuses_is_told_with_its_place() {
        let error = load("@ 60 SOA ns host 1 2 3 4 5\na CNAME b\na A 192.0.2.1\n").unwrap_err();
        assert!(error.starts_with("example.zone:3:1: ") && error.contains("CNAME"), "{error}");
    }

    #[test]
    fn a_file_without_records_is_no_zone() {
        assert!(load("; nothing\n").is_err());
    }
}
