//! The journal of a zone: the differences that came since its file was written.
//!
//! ```text
//!   "sidestep journal 1\n", then for each difference:
//!   0  length of the rest behind the checksum   u32, little endian as all here
//!   4  CRC-32 of that rest                      u32
//!   8  the records, see `Difference::encode`
//! ```
//!
//! A difference is on disk before it is served. What a crash leaves of the last one is cut off when the journal is read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use dns_transfer::Difference;

use super::privileges::{explain_denial, explain_write_denial};

const MAGIC: &[u8] = b"sidestep journal 1\n";
const HEAD: usize = 8;

/// Adds differences, and says how long the journal of the zone in `file` is now.
pub(super) fn append(file: &Path, differences: &[Arc<Difference>]) -> anyhow::Result<u64> {
    let path = path(file);
    append_to(&path, differences).with_context(|| format!("writing {}", path.display()))
}

fn append_to(path: &Path, differences: &[Arc<Difference>]) -> io::Result<u64> {
    let mut journal = File::options().create(true).append(true).open(path).map_err(explain_write_denial)?;
    let before = journal.metadata()?.len();
    let mut octets = if before == 0 { MAGIC.to_vec() } else { Vec::new() };
    for difference in differences {
        let records = difference.encode();
        let len = u32::try_from(records.len()).map_err(io::Error::other)?;
        octets.extend_from_slice(&len.to_le_bytes());
        octets.extend_from_slice(&crc32fast::hash(records).to_le_bytes());
        octets.extend_from_slice(records);
    }
    let written = journal.write_all(&octets).and_then(|()| journal.sync_data());
    let written = written.and_then(|()| if before == 0 { sync_directory(path) } else { Ok(()) });
    if let Err(error) = written {
        journal.set_len(before)?; // What follows is not to stand behind half a difference.
        return Err(error);
    }
    Ok(before + octets.len() as u64)
}

/// The differences in the journal of the zone in `file`, as far as they are whole. The rest is cut off: mostly it is what was being written when the machine
/// stopped. It may be damage with updates behind it, too, so a copy of all is kept.
pub(super) fn read(file: &Path) -> io::Result<Vec<Arc<Difference>>> {
    let octets = octets(file)?;
    let (differences, whole) = split(&octets);
    if whole < octets.len() {
        cut(&path(file), whole, is_torn(&octets[whole..]))?;
    }
    Ok(differences)
}

/// The same, and nothing is cut off: somebody else may be writing there.
pub(super) fn look(file: &Path) -> io::Result<Vec<Arc<Difference>>> {
    Ok(split(&octets(file)?).0)
}

fn octets(file: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(explain_denial),
    }
}

/// The differences that are whole, and where they end.
fn split(octets: &[u8]) -> (Vec<Arc<Difference>>, usize) {
    let Some(mut rest) = octets.strip_prefix(MAGIC) else { return (Vec::new(), 0) };
    let mut differences = Vec::new();
    while let Some((difference, behind)) = split_difference(rest) {
        differences.push(Arc::new(difference));
        rest = behind;
    }
    (differences, octets.len() - rest.len())
}

/// When the journal was written; `None` if there is none.
pub(super) fn time(file: &Path) -> Option<SystemTime> {
    fs::metadata(path(file)).and_then(|metadata| metadata.modified()).ok()
}

/// Has the journal be of an earlier time than it is.
pub(super) fn set_time(file: &Path, time: SystemTime) -> io::Result<()> {
    File::options().append(true).open(path(file))?.set_modified(time)
}

/// Whether this is how a difference begins that was not written to its end.
fn is_torn(rest: &[u8]) -> bool {
    let Some(len) = rest.first_chunk::<4>() else { return true };
    rest.len() < HEAD || rest.len() - HEAD < u32::from_le_bytes(*len) as usize
}

/// Cuts off what is not whole. What cannot be copied stays, unless it is `torn`: a disk that is full is no reason to serve nothing.
fn cut(path: &Path, whole: usize, torn: bool) -> io::Result<()> {
    let copy = free_name_beside(path);
    let kept = match fs::copy(path, &copy) {
        Ok(_) => format!("a copy of all is in {}", copy.display()),
        Err(error) => {
            let _ = fs::remove_file(&copy);
            if !torn {
                return Err(io::Error::new(
                    error.kind(),
                    format!("it is damaged, and cannot be copied: {error}"),
                ));
            }
            format!("they cannot be copied: {error}")
        }
    };
    log::warn!("{}: what is behind {whole} octets is cut off; {kept}", path.display());
    let journal = File::options().write(true).open(path)?;
    journal.set_len(whole as u64)?;
    journal.sync_all()
}

fn split_difference(octets: &[u8]) -> Option<(Difference, &[u8])> {
    let (head, rest) = octets.split_first_chunk::<HEAD>()?;
    let [len, checksum] =
        [&head[..4], &head[4..]].map(|word| u32::from_le_bytes(word.try_into().expect("four octets")));
    let (records, rest) = rest.split_at_checked(len as usize)?;
    let difference = Difference::decode(records).filter(|_| crc32fast::hash(records) == checksum)?;
    Some((difference, rest))
}

/// Removes the journal: the file has all that it says.
pub(super) fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(path(file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is created or renamed in it is on disk when the directory is.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Sets a journal aside that does not fit the file, which somebody has changed: what comes later is not to stand behind it.
pub(super) fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let aside = free_name_beside(&path(file));
    fs::rename(path(file), &aside)?;
    Ok(aside)
}

/// What is set aside at most of one zone, before the last is overwritten.
const ASIDE_MAX: u32 = 16;

/// `NAME.unfit`, or `NAME.unfit.1` and so on: what was set aside before is not overwritten.
fn free_name_beside(path: &Path) -> PathBuf {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(".unfit");
        if number > 0 {
            name.push(format!(".{number}"));
        }
        PathBuf::from(name)
    };
    (0..ASIDE_MAX).map(named).find(|name| !name.exists()).unwrap_or_else(|| named(ASIDE_MAX - 1))
}

pub(super) fn path(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".journal");
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use dns_wire::{NameBuf, Rtype};
    use dns_zone::{Zone, ZoneBuilder};

    use super::*;

    /// A file of a test, which is not there, in a directory that goes with it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let directory =
                std::env::temp_dir().join(format!("sidestep-journal-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            Place(directory.join("a.zone"))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    fn version(serial: u32) -> Zone {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let mut builder = ZoneBuilder::new(origin.as_name(), 3);
        let soa = [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
        builder.add(origin.as_name(), 60, Rtype::SOA, &soa).unwrap();
        builder.add(origin.as_name(), 60, Rtype::A, &serial.to_be_bytes()).unwrap();
        builder.finish().unwrap()
    }

    fn differences(serials: std::ops::Range<u32>) -> Vec<Arc<Difference>> {
        let between = |serial| Difference::between(&version(serial), &version(serial + 1), 10_000).unwrap();
        serials.map(|serial| Arc::new(between(serial))).collect()
    }

    #[test]
    fn what_was_added_is_read_in_its_order() {
        let Place(file) = &Place::new("order");
        assert!(read(file).unwrap().is_empty());
        let first = append(file, &differences(1..2)).unwrap();
        let second = append(file, &differences(2..4)).unwrap();
        assert_eq!((first < second, fs::metadata(path(file)).unwrap().len()), (true, second));
        assert_eq!(read(file).unwrap(), differences(1..4));
        remove(file).unwrap();
        remove(file).unwrap();
        assert!(read(file).unwrap().is_empty());
    }

    #[test]
    fn a_crash_at_any_instant_loses_no_difference_that_was_whole_and_keeps_none_that_was_not() {
        let Place(file) = &Place::new("crash");
        let mut ends = vec![MAGIC.len() as u64];
        (1..4).for_each(|serial| ends.push(append(file, &differences(serial..serial + 1)).unwrap()));
        let whole = fs::read(path(file)).unwrap();
        for len in 0..=whole.len() {
            fs::write(path(file), &whole[..len]).unwrap();
            let count = ends.iter().filter(|end| **end <= len as u64).count().saturating_sub(1) as u32;
            assert_eq!(read(file).unwrap(), differences(1..1 + count), "{len} octets");
            append(file, &differences(1 + count..5)).unwrap();
            assert_eq!(read(file).unwrap(), differences(1..5), "what comes later is read, too");
        }
    }

    /// As on a disk that is full.
    #[test]
    fn what_cannot_be_copied_is_cut_off_only_if_it_was_never_whole() {
        let Place(file) = &Place::new("full");
        let end = append(file, &differences(1..2)).unwrap() as usize;
        append(file, &differences(2..4)).unwrap();
        for number in 0..ASIDE_MAX {
            let copy = free_name_beside(&path(file));
            fs::create_dir(copy).unwrap_or_else(|error| panic!("{number}: {error}"));
        }
        let mut octets = fs::read(path(file)).unwrap();
        octets[end + HEAD] ^= 1;
        fs::write(path(file), &octets).unwrap();
        assert!(read(file).is_err(), "an update stands behind the damage");
        assert_eq!(fs::read(path(file)).unwrap(), octets);
        fs::write(path(file), &octets[..end + HEAD + 1]).unwrap();
        assert_eq!(read(file).unwrap(), differences(1..2), "the machine stopped while it was written");
        assert_eq!(fs::metadata(path(file)).unwrap().len(), end as u64);
    }

    #[test]
    fn a_changed_octet_ends_what_is_read() {
        let Place(file) = &Place::new("octet");
        let end = append(file, &differences(1..2)).unwrap() as usize;
        append(file, &differences(2..4)).unwrap();
        let whole = fs::read(path(file)).unwrap();
        for at in 0..end {
            let mut octets = whole.clone();
            octets[at] ^= 1;
            fs::write(path(file), &octets).unwrap();
            assert!(read(file).unwrap().is_empty(), "octet {at}");
        }
        // What stood behind it was acknowledged.
        let copies = ["", ".1", ".2"].map(|number| {
            let mut name = path(file).into_os_string();
            name.push(format!(".unfit{number}"));
            fs::read(name).unwrap()
        });
        assert!(copies.iter().all(|copy| copy.len() == whole.len()), "whole copies, none overwritten");
    }
}
