//! The last serial under which a zone was served that its file may lack, in `FILE.serial`.
//!
//! Versions whose file cannot be written are served all the same, and secondaries have them. After a restart the next version has to come behind
//! them. The note is of one length and there from the start, so that it can be written on a full disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::journal;

/// A serial, or blanks.
const LEN: usize = 11;

/// The serial that is noted for a file; `None` if the file has all. Makes place for a note.
pub(super) fn prepare(file: &Path) -> Option<u32> {
    let path = path(file);
    match fs::read_to_string(&path) {
        Ok(text) if text.len() == LEN => return text.trim().parse().ok(),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::error!("{}: it cannot be read, so serials may go back: {error}", path.display());
        }
        _ => {}
    }
    if let Err(error) = note(file, None) {
        log::warn!("{}: it cannot be written: {error}", path.display());
    }
    None
}

/// Notes that versions up to this serial are served; without one, that the file has all. It is on disk then.
pub(super) fn note(file: &Path, serial: Option<u32>) -> io::Result<()> {
    let path = path(file);
    let text = serial.map(|serial| serial.to_string()).unwrap_or_default();
    let is_new = !path.exists();
    let mut note = File::options().write(true).create(true).truncate(false).open(&path)?;
    writeln!(note, "{text:<10}")?;
    note.sync_all()?;
    if is_new { journal::sync_directory(&path) } else { Ok(()) }
}

/// Removes the note of a file that is not there any more.
pub(super) fn remove(file: &Path) {
    let path = path(file);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        log::warn!("{}: removing it: {error}", path.display());
    }
}

fn path(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".serial");
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_never_changes_its_length() {
        let directory = std::env::temp_dir().join(format!("sidestep-served-serial-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("a.zone.signed");
        assert_eq!(prepare(&file), None, "it makes place for one");
        for serial in [None, Some(u32::MAX), Some(7), None] {
            note(&file, serial).unwrap();
            assert_eq!(prepare(&file), serial);
            assert_eq!(fs::metadata(path(&file)).unwrap().len(), LEN as u64);
        }
        remove(&file);
        assert!(!path(&file).exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
