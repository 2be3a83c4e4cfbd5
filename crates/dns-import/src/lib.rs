//! Reads the configuration of another authoritative server, and writes that of `sidestep dns serve` which serves the same zones.
//!
//! | file | what it reads |
//! | --- | --- |
//! | `bind.rs` | `named.conf` of BIND 9 |
//! | `nsd.rs` | `nsd.conf` of NSD 4 |
//! | `knot.rs` | `knot.conf` of Knot DNS 3 |
//! | `config.rs` | nothing: what all of them become, and how it is written |
//!
//! What has no counterpart becomes a [`Note`], with the line that it stands in: nothing is passed over in silence. No file is opened here:
//! whoever calls reads the files that a configuration includes.
#![forbid(unsafe_code)]

mod bind;
mod config;
mod knot;
mod nsd;

use std::io;

pub use config::{Config, Key, Note, Secondary, Zone};
use thiserror::Error;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// BIND 9.
    Bind,
    /// NSD 4.
    Nsd,
    /// Knot DNS 3.
    Knot,
}

/// Why a configuration cannot be read.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A file.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// Something that is not of the server's syntax.
    #[error("{path}, line {line}: {what}")]
    Syntax {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What was found or missed.
        what: String,
    },
}

/// Where something stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    path: String,
    line: usize,
}

impl Place {
    fn error(&self, what: impl Into<String>) -> ImportError {
        ImportError::Syntax { path: self.path.clone(), line: self.line, what: what.into() }
    }
}

/// What reads files: this crate opens none.
pub trait Reader {
    /// The text of the file at `path`.
    fn read(&mut self, path: &str) -> io::Result<String>;

    /// The paths of the files that `pattern` means, a path with `*` in its last part, in their order.
    fn matching(&mut self, pattern: &str) -> io::Result<Vec<String>>;
}

/// Reads the files of a configuration.
struct Files<'r> {
    reader: &'r mut dyn Reader,
    depth: usize,
}

impl Files<'_> {
    fn read(&mut self, path: &str) -> Result<String, ImportError> {
        self.reader.read(path).map_err(|source| ImportError::File { path: path.to_owned(), source })
    }

    /// Calls `read` for each file that an include means, at `path` or by a pattern. A file that includes itself is an error.
    fn include(
        &mut self,
        path: &str,
        mut read: impl FnMut(&str, &mut Self) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        const DEPTH_MAX: usize = 16;
        let failed = |source| ImportError::File { path: path.to_owned(), source };
        if self.depth == DEPTH_MAX {
            return Err(failed(io::Error::other("included by itself, or too deep")));
        }
        let paths = if path.contains('*') {
            self.reader.matching(path).map_err(failed)?
        } else {
            vec![path.to_owned()]
        };
        self.depth += 1;
        paths.iter().try_for_each(|path| read(path, self))?;
        self.depth -= 1;
        Ok(())
    }
}

/// Reads the configuration of `server` at `path`, with all that it includes.
pub fn import(server: Server, path: &str, reader: &mut dyn Reader) -> Result<Config, ImportError> {
    let mut files = Files { reader, depth: 0 };
    match server {
        Server::Bind => bind::import(path, &mut files),
        Server::Nsd => nsd::import(path, &mut files),
        Server::Knot => knot::import(path, &mut files),
    }
}

/// The path of a file that another one, or an option for a directory, names.
fn join(directory: &str, path: &str) -> String {
    if path.starts_with('/') || directory.is_empty() {
        return path.to_owned();
    }
    format!("{}/{path}", directory.trim_end_matches('/'))
}

/// The directory of a file.
fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| if directory.is_empty() { "/" } else { directory })
}
