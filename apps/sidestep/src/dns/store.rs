//! The file of a zone that changes while it is served, and its journal: a version, and what came since. The time of a secondary zone's file
//! says when a primary confirmed the last one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use dns_auth::compile::{compile, compile_changed};
use dns_transfer::Difference;
use dns_transfer::difference::apply;
use dns_zone::Zone;
use dns_zone::text::ZoneTextErrors;

use super::config::ZoneSpec;
use super::version::{Version, write_zone_to};
use super::{journal, load};

/// A journal of that many octets is short, whatever the zone has.
const JOURNAL_MIN: u64 = 1 << 20;

/// Writes the zone in place of what is there: a crash leaves the old file or the new one, whole.
pub(super) fn save(path: &Path, zone: &Zone) -> anyhow::Result<()> {
    let temporary = temporary(path);
    write_to(&temporary, zone).with_context(|| format!("writing {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("renaming {}", temporary.display()))?;
    journal::sync_directory(path).context("writing the directory")?;
    // The file has all of its differences now.
    journal::remove(path).context("removing the journal")
}

/// Adds differences that lead to `zone` to the journal, and writes the zone, if the journal has become long.
pub(super) fn add(path: &Path, differences: &[Arc<Difference>], zone: &Zone) -> anyhow::Result<()> {
    let len = journal::append(path, differences)?;
    let whole = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if len > JOURNAL_MIN.max(whole / 2) {
        return save(path, zone);
    }
    Ok(())
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
    let differences = journal::read(path)?;
    let (Some(zone), Some(last)) = (held.tree(), differences.last()) else { return Ok(None) };
    if last.to() == zone.serial() {
        return Ok(None); // A crash between a new file and the end of the journal leaves what led to the file.
    }
    let first = differences.iter().position(|difference| difference.from() == zone.serial());
    let first = first.with_context(|| format!("it has no version {}", zone.serial()))?;
    let changed = apply(zone, &differences[first..])?;
    Ok(Some(held.next(compile_changed(&held.served, changed), &differences[first..])))
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
    let mut file = File::create(path)?;
    write_zone_to(zone, &mut file)?;
    file.sync_all()
}
