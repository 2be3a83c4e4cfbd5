//! Zones to serve.

use std::path::{Path, PathBuf};

use crate::{Directory, LabError, workspace_root};

/// A zone file.
#[derive(Clone, Debug)]
pub struct Zone {
    /// Its name, without the last dot.
    pub origin: String,
    /// Where it is.
    pub file: PathBuf,
}

/// The origin of every zone made here.
const ORIGIN: &str = "example.com";

impl Zone {
    /// The sample zone of `specs/lab`, with many kinds of records.
    pub fn sample() -> Zone {
        Zone { origin: ORIGIN.to_owned(), file: workspace_root().join("specs/lab/example.com.zone") }
    }

    /// The sample zone with more records, in the language of zone files.
    pub fn with_records(directory: &Directory, records: &str) -> Result<Zone, LabError> {
        let sample = Zone::sample();
        let text = std::fs::read_to_string(&sample.file)
            .map_err(LabError::system(sample.file.display().to_string()))?;
        Ok(Zone { origin: sample.origin, file: directory.write("example.com.zone", &(text + records))? })
    }

    /// The directory of its file.
    pub(crate) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}
