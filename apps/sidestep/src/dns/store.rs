//! The file of a zone that changes while it is served, and its journal: a version, and what came since. The time of a secondary zone's file
//! says when a primary confirmed the last one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use dns_auth::compile::{compile, compile_changed};
use dns_transfer::difference::apply;
use dns_transfer::{Difference, lacking};
use dns_wire::NameBuf;
use dns_zone::text::{Position, Problem, ZoneTextError, ZoneTextErrors};
use dns_zone::{Changed, Zone};

use super::config::ZoneSpec;
use super::privileges::explain_write_denial;
use super::version::{Version, write_zone_to};
use super::{journal, load};

/// A journal of that many octets is short, whatever the zone has.
const JOURNAL_MIN: u64 = 1 << 20;

/// Writes the zone in place of what is there: a crash leaves the old file or the new one, whole. A symbolic link stays one.
pub(super) fn save(path: &Path, zone: &Zone) -> anyhow::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = temporary(&target);
    let written = write_to(&temporary, zone).inspect_err(|_| drop(fs::remove_file(&temporary)));
    written.with_context(|| format!("writing {}", temporary.display()))?;
    if let Ok(old) = fs::metadata(&target) {
        fs::set_permissions(&temporary, old.permissions()).context("keeping the permissions")?;
        // Root without that capability may not: the zone matters more than its owner.
        if rustix::process::geteuid().is_root()
            && let Err(error) = std::os::unix::fs::chown(&temporary, Some(old.uid()), Some(old.gid()))
        {
            log::warn!("{}: its owner cannot be kept: {error}", target.display());
        }
    }
    fs::rename(&temporary, &target).with_context(|| format!("renaming {}", temporary.display()))?;
    journal::sync_directory(&target).context("writing the directory")?;
    // The file has all of its differences now.
    journal::remove(path).context("removing the journal")
}

/// Adds differences that lead to `zone` to the journal, and writes the zone, if the journal has become long. An error means that neither has
/// them.
pub(super) fn add(path: &Path, differences: &[Arc<Difference>], zone: &Zone) -> anyhow::Result<()> {
    let len = journal::append(path, differences)?;
    shorten(path, len, zone);
    Ok(())
}

/// As [`add`], to a file that its owner changes, too: then it is not written over.
pub(super) fn add_update(path: &Path, differences: &[Arc<Difference>], zone: &Zone) -> anyhow::Result<()> {
    let (is_edited, time) = (is_edited(path), journal::time(path));
    let len = journal::append(path, differences)?;
    let time = match is_edited {
        // The file stays newer than what was in the journal when it was changed.
        true => time,
        // One whose time is still to come was not changed by this.
        false => file_time(path).filter(|file| journal::time(path).is_some_and(|journal| journal < *file)),
    };
    // The journal has the update, whatever comes of that.
    if let Some(error) = time.and_then(|time| journal::set_time(path, time).err()) {
        log::warn!("zone {}: the time of its journal cannot be kept: {error}", zone.origin());
    }
    match is_edited {
        false => shorten(path, len, zone),
        true if is_long(path, len) => log::warn!(
            "zone {}: its journal grows, as {} was changed by hand: have it read, or put it back",
            zone.origin(),
            path.display()
        ),
        true => {}
    }
    Ok(())
}

fn shorten(path: &Path, len: u64, zone: &Zone) {
    if is_long(path, len)
        && let Err(error) = save(path, zone)
    {
        log::error!(
            "zone {}: its journal grows, as its file cannot be written anew: {error:#}",
            zone.origin()
        );
    }
}

fn is_long(path: &Path, len: u64) -> bool {
    len > JOURNAL_MIN.max(fs::metadata(path).map_or(0, |metadata| metadata.len()) / 2)
}

/// Whether somebody has changed the file after the last update, and it was not read since.
fn is_edited(path: &Path) -> bool {
    journal::time(path).is_some_and(|journal| file_time(path) > Some(journal))
}

/// When the file of a zone was changed; `None` if there is none.
pub(super) fn file_time(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Writes all updates of a zone into its file, if there are some.
///
/// # Errors
/// The file was changed after the last update, so it must not be written over; or it cannot be written.
pub(super) fn settle(path: &Path, source: &Zone) -> anyhow::Result<()> {
    if journal::read(path)?.is_empty() {
        return Ok(());
    }
    if is_edited(path) {
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
    let time = file_time(&spec.file);
    with_journal(Version::first(compile(load::read(spec)?)), &spec.file, time).map(|(version, _)| version)
}

/// The same for a tool, which changes nothing: a server may be writing there.
pub(super) fn look(spec: &ZoneSpec) -> Result<Version, ZoneTextErrors> {
    let held = Version::first(compile(load::read(spec)?));
    let Some(zone) = held.tree() else { return Ok(held) };
    let differences = journal::look(&spec.file);
    let differences = differences.map_err(|error| cannot_read(zone, &spec.file, &error.to_string()))?;
    Ok(match follow(zone, &differences) {
        Ok(Some((changed, differences))) => held.next(compile_changed(&held.served, changed), &differences),
        _ => held,
    })
}

/// The version in the file alone: an older one, of a zone that can be had from elsewhere.
pub(super) fn read_file_alone(spec: &ZoneSpec) -> Result<Version, ZoneTextErrors> {
    Ok(Version::first(compile(load::read(spec)?)))
}

/// A zone that was read from its file, which was changed at `time`, and what the journal says since. Then, what whoever had it read should know.
///
/// # Errors
/// The journal cannot be read: what it has may be right, so what is in the file is not the last version.
pub(super) fn with_journal(
    held: Version,
    path: &Path,
    time: Option<SystemTime>,
) -> Result<(Version, Option<String>), ZoneTextErrors> {
    let Some(zone) = held.tree() else { return Ok((held, None)) };
    Ok(match newer(zone, path, time)? {
        (Some((changed, differences)), warning) => {
            (held.next(compile_changed(&held.served, changed), &differences), warning)
        }
        (None, warning) => (held, warning),
    })
}

/// The same of a zone alone.
pub(super) fn zone_with_journal(
    zone: Zone,
    path: &Path,
    time: Option<SystemTime>,
) -> Result<(Zone, Option<String>), ZoneTextErrors> {
    let (newer, warning) = newer(&zone, path, time)?;
    Ok((newer.map_or(zone, |(changed, _)| changed.zone), warning))
}

/// What came since the file was written, and the differences that lead there.
type Newer = (Changed, Vec<Arc<Difference>>);

/// `None` if the file has it all, or the journal is for another one: then why.
fn newer(
    zone: &Zone,
    path: &Path,
    time: Option<SystemTime>,
) -> Result<(Option<Newer>, Option<String>), ZoneTextErrors> {
    let unreadable = |error: &io::Error| cannot_read(zone, path, &error.to_string());
    let differences = journal::read(path).map_err(|error| unreadable(&error))?;
    let error = match follow(zone, &differences) {
        Ok(newer) => {
            note_read(zone, path, time, newer.is_none());
            return Ok((newer, None));
        }
        Err(error) => error,
    };
    // What comes later is not to stand behind it.
    let aside = journal::set_aside(path).map_err(|error| unreadable(&error))?;
    let why = format!(
        "its journal is not for its file, and is set aside as {}: updates are lost that the file does not have: {error:#}",
        aside.display()
    );
    log::error!("zone {}: {why}", zone.origin());
    Ok((None, Some(why)))
}

/// What is served has all that the file had at `time`: it may be written over, unless it was changed again. A journal whose updates are all in the
/// file is of no use any more.
fn note_read(zone: &Zone, path: &Path, time: Option<SystemTime>, has_all: bool) {
    let noted = match time {
        _ if has_all => journal::remove(path),
        Some(time) if journal::time(path).is_some_and(|journal| journal < time) => {
            journal::set_time(path, time)
        }
        _ => Ok(()),
    };
    if let Err(error) = noted {
        log::warn!("zone {}: {} counts as changed by hand: {error}", zone.origin(), path.display());
    }
}

/// # Errors
/// The differences are for other versions.
fn follow(zone: &Zone, differences: &[Arc<Difference>]) -> anyhow::Result<Option<Newer>> {
    if differences.is_empty() {
        return Ok(None);
    }
    let newer = lacking(zone, differences);
    let newer = newer
        .with_context(|| format!("none of its versions is that of serial {} in the file", zone.serial()))?;
    if newer.is_empty() {
        return Ok(None); // A crash between a new file and the end of the journal leaves what led to the file.
    }
    Ok(Some((apply(zone, newer)?, newer.to_vec())))
}

fn cannot_read(zone: &Zone, path: &Path, reason: &str) -> ZoneTextErrors {
    let problem = Problem::CannotRead { path: journal::path(path), reason: reason.to_owned() };
    let error = ZoneTextError {
        path: path.to_owned(),
        position: Position { line: 1, column: 1, ..Position::default() },
        problem,
    };
    ZoneTextErrors {
        errors: vec![error],
        origin: Some(Box::new(NameBuf::from(zone.origin()))),
        stopped_early: false,
    }
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
#[path = "store_history_tests.rs"]
mod histories;

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

    /// A directory of a test, which goes with it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let directory =
                std::env::temp_dir().join(format!("sidestep-store-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            Place(directory)
        }

        /// The file of a zone, of version 1.
        fn zone(&self) -> (PathBuf, ZoneSpec) {
            let file = self.0.join("a.zone");
            fs::write(&file, "@ 60 SOA . . 1 1 2 3 4\n").unwrap();
            let origin = Some(NameBuf::from_text(b"example.", None).unwrap());
            (file.clone(), ZoneSpec { origin, ..ZoneSpec::of(file) })
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn differences(from: &Zone, to: &Zone) -> [Arc<Difference>; 1] {
        [Arc::new(Difference::between(from, to, History::OCTETS_MAX).unwrap())]
    }

    #[test]
    fn a_journal_that_cannot_be_read_stays_and_its_zone_is_not_served_without_it() {
        let place = Place::new("unreadable");
        let (file, spec) = place.zone();
        fs::create_dir(journal::path(&file)).unwrap(); // Nobody can read that, root neither.
        let errors = read(&spec).unwrap_err();
        assert!(errors.is_unreadable() && journal::path(&file).exists(), "{errors}");
        assert_eq!(errors.origin.as_deref(), spec.origin.as_ref());
    }

    #[test]
    fn a_journal_for_other_versions_is_set_aside() {
        let place = Place::new("unfit");
        let (file, spec) = place.zone();
        journal::append(&file, &differences(&version(5, 1), &version(6, 2))).unwrap();
        assert_eq!(read(&spec).unwrap().tree().unwrap().serial(), 1);
        assert!(!journal::path(&file).exists() && place.0.join("a.zone.journal.unfit").exists());
    }

    #[test]
    fn a_file_that_was_changed_by_hand_is_not_written_over() {
        let place = Place::new("edited");
        let (file, _) = place.zone();
        let [first, long, longer] =
            [(1, 0), (2, 10_000), (3, 10_001)].map(|(serial, hosts)| version(serial, hosts));
        journal::append(&file, &differences(&version(5, 1), &version(6, 2))).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20)); // File systems tell such times apart.
        File::options().append(true).open(&file).unwrap().set_modified(SystemTime::now()).unwrap();
        let text = fs::read(&file).unwrap();
        // Not only the first update finds it so.
        add_update(&file, &differences(&first, &long), &long).unwrap();
        add_update(&file, &differences(&long, &longer), &longer).unwrap();
        assert_eq!(fs::read(&file).unwrap(), text, "it is the operator's");
        assert!(settle(&file, &long).is_err());
        let earlier = SystemTime::now() - std::time::Duration::from_secs(60);
        File::options().append(true).open(&file).unwrap().set_modified(earlier).unwrap();
        add_update(&file, &differences(&long, &longer), &longer).unwrap();
        assert_ne!(fs::read(&file).unwrap(), text, "it has all updates");
    }

    #[test]
    fn a_file_that_was_touched_is_written_again_once_it_was_read() {
        let place = Place::new("touched");
        let (file, spec) = place.zone();
        let versions = [1, 2, 3, 4].map(|serial| version(serial, serial - 1));
        let update = |from: usize| {
            add_update(&file, &differences(&versions[from], &versions[from + 1]), &versions[from + 1])
                .unwrap();
        };
        update(0);
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        File::options().append(true).open(&file).unwrap().set_modified(later).unwrap();
        update(1);
        assert!(settle(&file, &versions[2]).is_err(), "nobody knows what changed");
        assert_eq!(read(&spec).unwrap().tree().unwrap().serial(), 3);
        update(2);
        settle(&file, &versions[3]).unwrap();
        assert_eq!(read_file_alone(&spec).unwrap().tree().unwrap().serial(), 4);
    }

    #[test]
    fn a_crash_between_a_new_file_and_the_end_of_its_journal_counts_as_no_change_by_hand() {
        let place = Place::new("between");
        let (file, spec) = place.zone();
        let versions = [1, 2, 3].map(|serial| version(serial, serial - 1));
        add_update(&file, &differences(&versions[0], &versions[1]), &versions[1]).unwrap();
        let left = fs::read(journal::path(&file)).unwrap();
        save(&file, &versions[1]).unwrap();
        fs::write(journal::path(&file), left).unwrap();
        journal::set_time(&file, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(read(&spec).unwrap().tree().unwrap().serial(), 2);
        assert!(!journal::path(&file).exists(), "the file has it all");
        add_update(&file, &differences(&versions[1], &versions[2]), &versions[2]).unwrap();
        settle(&file, &versions[2]).unwrap();
    }

    #[test]
    fn a_link_to_a_file_stays_a_link() {
        let place = Place::new("link");
        let (file, _) = place.zone();
        let link = place.0.join("linked.zone");
        std::os::unix::fs::symlink("a.zone", &link).unwrap();
        save(&link, &version(2, 1)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&file).unwrap().contains("h0"), "what it leads to has the zone");
    }

    #[test]
    fn a_long_journal_goes_into_the_file_and_stays_while_that_cannot_be_written() {
        let place = Place::new("long");
        let (file, spec) = place.zone();
        fs::create_dir_all(place.0.join("a.zone.new")).unwrap(); // In the way of the new file.
        let zones =
            [(1, 0), (2, 10_000), (3, 10_001), (4, 10_002)].map(|(serial, hosts)| version(serial, hosts));
        let step = |from: usize| {
            add(&file, &differences(&zones[from], &zones[from + 1]), &zones[from + 1]).unwrap();
            let version = read(&spec).unwrap();
            let zone = version.tree().unwrap();
            assert_eq!(
                (zone.serial(), zone.record_count()),
                (from as u32 + 2, zones[from + 1].record_count())
            );
            journal::read(&file).unwrap().len()
        };
        assert_eq!([step(0), step(1)], [1, 2], "the file cannot be written");
        fs::remove_dir(place.0.join("a.zone.new")).unwrap();
        assert_eq!(step(2), 0, "the file has it all");
    }
}
