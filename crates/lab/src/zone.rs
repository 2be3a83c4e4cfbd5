//! Zones to serve, and queries for them.

use std::fmt::Write as _;
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
    /// The sample zone of `specs/lab`, which has a bit of everything, as it lies there.
    pub fn sample() -> Zone {
        Zone { origin: ORIGIN.to_owned(), file: workspace_root().join("specs/lab/example.com.zone") }
    }

    /// The sample zone with `hosts` more names, `h0.example.com` and so on, each with one address.
    pub fn with_hosts(directory: &Directory, hosts: u32) -> Result<Zone, LabError> {
        let sample = Zone::sample();
        let mut text = std::fs::read_to_string(&sample.file)
            .map_err(LabError::system(sample.file.display().to_string()))?;
        for host in 0..hosts {
            let [_, a, b, c] = host.to_be_bytes();
            let _ = writeln!(text, "h{host} A 10.{a}.{b}.{c}"); // A String takes everything.
        }
        Ok(Zone { origin: ORIGIN.to_owned(), file: directory.write("example.com.zone", &text)? })
    }

    /// A query file for kxdpgun: the address of each of `hosts` names, in an order that follows no pattern.
    pub fn host_queries(&self, directory: &Directory, hosts: u32) -> Result<PathBuf, LabError> {
        // A step that shares no factor with the count visits every host once, far from the last one.
        let step = (1..).map(|n| hosts / 2 + n).find(|step| greatest_common_divisor(*step, hosts) == 1);
        let step = u64::from(step.unwrap_or(1));
        let mut text = String::new();
        for n in 0..u64::from(hosts) {
            let host = n * step % u64::from(hosts);
            let _ = writeln!(text, "h{host}.{} A", self.origin);
        }
        directory.write("queries.txt", &text)
    }

    /// The directory of its file.
    pub(crate) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_asked_for_once() {
        let directory = Directory::new().unwrap();
        let queries = Zone::sample().host_queries(&directory, 100).unwrap();
        let text = std::fs::read_to_string(queries).unwrap();
        let names: std::collections::BTreeSet<&str> = text.lines().collect();
        assert_eq!((text.lines().count(), names.len()), (100, 100));
        assert!(names.contains("h99.example.com A"));
    }
}
