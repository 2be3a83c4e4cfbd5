//! The file of a secondary zone: its last version, and in the file's time when a primary confirmed it last.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use dns_transfer::text::write_zone;
use dns_zone::Zone;

/// Writes the zone in place of what is there: a crash leaves the old file or the new one, whole.
pub(super) fn save(path: &Path, zone: &Zone) -> anyhow::Result<()> {
    let temporary = temporary(path);
    write_to(&temporary, zone).with_context(|| format!("writing {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("renaming {}", temporary.display()))?;
    // The rename is on disk when the directory is.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).context("writing the directory")
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
    /// Keeps the error that `fmt::Write` has no place for.
    struct Out(BufWriter<File>, io::Result<()>);
    impl std::fmt::Write for Out {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.1 = self.0.write_all(text.as_bytes());
            if self.1.is_ok() { Ok(()) } else { Err(std::fmt::Error) }
        }
    }
    let mut out = Out(BufWriter::new(File::create(path)?), Ok(()));
    let written = write_zone(zone, &mut out);
    out.1?;
    written.map_err(io::Error::other)?;
    out.0.into_inner()?.sync_all()
}
