//! The file of a zone that changes while it is served, and its journal: a version, and what came since. The time of a secondary zone's file
//! says when a primary confirmed the last one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use dns_auth::compile::{compile, compile_changed};
use dns_transfer::Difference;
use dns_transfer::difference::apply;
use dns_zone::text::ZoneTextErrors;
use dns_zone::{Changed, Zone};

use super::config::ZoneSpec;
use super::privileges::explain_write_denial;
use super::version::{Version, write_zone_to};
use super::{journal, load};

/// A journal of that many octets is short, whatever the zone has.
const JOURNAL_MIN: u64 = 1 << 20;

/// Writes the zone in place of what is there: a crash leaves the old file or the new one, whole.
pub(super) fn save(path: &Path, zone: &Zone) -> anyhow::Result<()> {
    let temporary = temporary(path);
    write_to(&temporary, zone).with_context(|| format!("writing {}", temporary.display()))?;
    if let Ok(old) = fs::metadata(path) {
        fs::set_permissions(&temporary, old.permissions()).context("keeping the permissions")?;
    }
    fs::rename(&temporary, path).with_context(|| format!("renaming {}", temporary.display()))?;
    journal::sync_directory(path).context("writing the directory")?;
    // The file has all of its differences now.
    journal::remove(path).context("removing the journal")
}

/// Adds differences that lead to `zone` to the journal, and writes the zone, if the journal has become long. An error means that neither has
/// them.
pub(super) fn add(path: &Path, differences: &[Arc<Difference>], zone: &Zone) -> anyhow::Result<()> {
    let len = journal::append(path, differences)?;
    let whole = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if len > JOURNAL_MIN.max(whole / 2)
        && let Err(error) = save(path, zone)
    {
        log::error!(
            "zone {}: its journal grows, as its file cannot be written anew: {error:#}",
            zone.origin()
        );
    }
    Ok(())
}

/// Writes all updates of a zone into its file, if there are some.
///
/// # Errors
/// The file was changed after the last update, so it must not be written over; or it cannot be written.
pub(super) fn settle(path: &Path, source: &Zone) -> anyhow::Result<()> {
    if journal::read(path)?.is_empty() {
        return Ok(());
    }
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    if changed(path)? > changed(&journal::path(path))? {
        bail!("{} was changed after the last update: put it back, then freeze and change it", path.display());
    }
    save(path, source)
}

/// Removes the file of a zone that is served no longer, and its journal.
pub(super) fn remove(path: &Path) {
    for removed in
        [fs::remove_file(path).context("removing it"), journal::remove(path).context("removing its journal")]
    {
        // What was never written cannot be removed.
        let is_missing = |error: &anyhow::Error| {
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if let Some(error) = removed.err().filter(|error| !is_missing(error)) {
            log::warn!("{}: {error:#}", path.display());
        }
    }
}

/// The zone in the file, and what the journal says since.
pub(super) fn read(spec: &ZoneSpec) -> Result<Version, ZoneTextErrors> {
    let held = Version::first(compile(load::read(spec)?));
    let newer = with_journal(&held, &spec.file);
    let newer =
        newer.inspect_err(|error| log::warn!("zone {}: its journal: {error:#}", held.served.origin()));
    Ok(newer.ok().flatten().unwrap_or(held))
}

/// What the journal says since the file was written; `None` if the file has it all.
///
/// # Errors
/// The journal is for other versions.
pub(super) fn with_journal(held: &Version, path: &Path) -> anyhow::Result<Option<Version>> {
    let Some(zone) = held.tree() else { return Ok(None) };
    let newer = newer(zone, path)?;
    Ok(newer.map(|(changed, differences)| held.next(compile_changed(&held.served, changed), &differences)))
}

/// The same of a zone alone, and the differences that lead there.
pub(super) fn newer(zone: &Zone, path: &Path) -> anyhow::Result<Option<(Changed, Vec<Arc<Difference>>)>> {
    let mut differences = journal::read(path)?;
    let Some(last) = differences.last() else { return Ok(None) };
    if last.to() == zone.serial() {
        return Ok(None); // A crash between a new file and the end of the journal leaves what led to the file.
    }
    let first = differences.iter().position(|difference| difference.from() == zone.serial());
    let first = first.with_context(|| format!("it has no version {}", zone.serial()))?;
    differences.drain(..first);
    Ok(Some((apply(zone, &differences)?, differences)))
}

/// Notes that a primary has confirmed the version now.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    File::options().append(true).open(path)?.set_modified(SystemTime::now())
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write_to(path: &Path, zone: &Zone) -> io::Result<()> {
    let mut file = File::create(path).map_err(explain_write_denial)?;
    write_zone_to(zone, &mut file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use dns_transfer::History;
    use dns_wire::{NameBuf, Rtype};
    use dns_zone::ZoneBuilder;

    use super::*;

    /// A version with `hosts` names.
    fn version(serial: u32, hosts: u32) -> Zone {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let mut builder = ZoneBuilder::new(origin.as_name(), 3);
        let soa = [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
        builder.add(origin.as_name(), 60, Rtype::SOA, &soa).unwrap();
        for host in 0..hosts {
            let owner = NameBuf::from_text(format!("h{host}.example.").as_bytes(), None).unwrap();
            builder.add(owner.as_name(), 60, Rtype::TXT, &[&[99][..], &[b'x'; 99]].concat()).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn a_long_journal_goes_into_the_file_and_stays_while_that_cannot_be_written() {
        let directory = std::env::temp_dir().join(format!("sidestep-store-{}", std::process::id()));
        fs::create_dir_all(directory.join("a.zone.new")).unwrap(); // In the way of the new file.
        let file = directory.join("a.zone");
        fs::write(&file, "@ 60 SOA . . 1 1 2 3 4\n").unwrap();
        let spec = ZoneSpec {
            origin: Some(NameBuf::from_text(b"example.", None).unwrap()),
            ..ZoneSpec::of(file.clone())
        };
        let zones =
            [(1, 0), (2, 10_000), (3, 10_001), (4, 10_002)].map(|(serial, hosts)| version(serial, hosts));
        let step = |from: usize| {
            let difference =
                Difference::between(&zones[from], &zones[from + 1], History::OCTETS_MAX).unwrap();
            add(&file, &[Arc::new(difference)], &zones[from + 1]).unwrap();
            let version = read(&spec).unwrap();
            let zone = version.tree().unwrap();
            assert_eq!(
                (zone.serial(), zone.record_count()),
                (from as u32 + 2, zones[from + 1].record_count())
            );
            journal::read(&file).unwrap().len()
        };
        assert_eq!([step(0), step(1)], [1, 2], "the file cannot be written");
        fs::remove_dir(directory.join("a.zone.new")).unwrap();
        assert_eq!(step(2), 0, "the file has it all");
        fs::remove_dir_all(&directory).unwrap();
    }
}
