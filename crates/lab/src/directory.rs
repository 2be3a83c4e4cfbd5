//! Temporary directories.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{LabError, registry};

/// A directory that is removed when its owner drops it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// A new and empty one.
    pub fn new() -> Result<Directory, LabError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        registry::prepare();
        let path = registry::directory_path(NEXT.fetch_add(1, Ordering::Relaxed));
        registry::add_directory(&path);
        std::fs::create_dir_all(&path).map_err(LabError::system(path.display().to_string()))?;
        Ok(Directory { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of that name into it, in place of one that is there, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, LabError> {
        let path = self.path.join(name);
        std::fs::write(&path, text).map_err(LabError::system(path.display().to_string()))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        registry::remove_directory(&self.path);
    }
}
