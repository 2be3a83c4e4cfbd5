//! Zones to serve.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::namespaces::run;
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

    /// The same zone, signed by BIND's tools with one ECDSA key, and denied by NSEC. Its file takes the place of the unsigned one.
    pub fn signed(self, directory: &Directory) -> Result<Zone, LabError> {
        let command = |program: &str| {
            let mut command = Command::new(program);
            command.current_dir(directory.path());
            command
        };
        let options = ["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", ORIGIN];
        let key = run(command("dnssec-keygen").args(options))?.trim().to_owned();
        let read =
            |path: &Path| std::fs::read_to_string(path).map_err(LabError::system(path.display().to_string()));
        let text = read(&self.file)? + &read(&directory.path().join(format!("{key}.key")))?;
        let unsigned = directory.write("unsigned", &text)?;
        run(command("dnssec-signzone")
            .args(["-q", "-z", "-P", "-o", ORIGIN, "-f"])
            .args([&self.file, &unsigned])
            .arg(&key))?;
        Ok(self)
    }

    /// The directory of its file.
    pub(crate) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}
