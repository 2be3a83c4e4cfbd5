//! The log file: a line of JSON for each query. When it is full, it becomes FILE.1 in place of the one before, and a new one begins.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A file of at most so many octets, and its predecessor.
pub(super) struct Lines {
    path: PathBuf,
    file: BufWriter<File>,
    len: u64,
    len_max: u64,
}

impl Lines {
    /// Opens the file, and adds to what it has.
    pub(super) fn open(path: &Path, len_max: u64) -> anyhow::Result<Lines> {
        let open = || -> io::Result<Lines> {
            let file = append_to(path)?;
            let len = file.metadata()?.len();
            Ok(Lines { path: path.to_owned(), file: BufWriter::new(file), len, len_max })
        };
        open().with_context(|| format!("log file {}", path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line.
    pub(super) fn add(&mut self, text: &str) -> io::Result<()> {
        let len = text.len() as u64 + 1;
        if self.len > 0 && self.len + len > self.len_max {
            self.begin_anew()?;
        }
        self.len += len;
        writeln!(self.file, "{text}")?;
        self.file.flush()
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        let old = OsString::from_iter([self.path.as_os_str(), ".1".as_ref()]);
        std::fs::rename(&self.path, old)?;
        (self.file, self.len) = (BufWriter::new(append_to(&self.path)?), 0);
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_becomes_the_old_one_and_there_are_never_more_than_two() {
        let directory = std::env::temp_dir().join(format!("sidestep-lines-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("log");
        for _ in 0..2 {
            // What an earlier process wrote counts.
            let mut lines = Lines::open(&path, 20).unwrap();
            (0..10).for_each(|number| lines.add(&format!("line {number}")).unwrap());
        }
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(
            (read("log.1"), read("log")),
            ("line 6\nline 7\n".to_owned(), "line 8\nline 9\n".to_owned())
        );
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
        let mut lines = Lines::open(&path, 20).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(lines.add("one more line").is_err(), "the file is gone, and so is its place");
    }
}
