//! Which version of a peer is here, and how old it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::namespaces::run;

/// The variable that names a directory with newer peers than those of the system: `nsd`, `knotd`, `kxdpgun`, there or in `sbin`.
const PEERS: &str = "SIDESTEP_PEERS";

/// A program of somebody else's.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// As people call it.
    name: &'static str,
    program: &'static str,
    /// How it is asked for its version.
    option: &'static str,
    /// Debian's package.
    package: &'static str,
    version: OnceLock<Version>,
}

/// A version and its age.
#[derive(Clone, Debug, Default)]
struct Version {
    number: String,
    released: Option<SystemTime>,
}

pub(crate) static NSD: Foreign = Foreign::new("NSD", "nsd", "-v", "nsd");
pub(crate) static KNOT: Foreign = Foreign::new("Knot", "knotd", "--version", "knot");
pub(crate) static KXDPGUN: Foreign = Foreign::new("kxdpgun", "kxdpgun", "--version", "knot-dnsutils");

impl Foreign {
    const fn new(
        name: &'static str,
        program: &'static str,
        option: &'static str,
        package: &'static str,
    ) -> Foreign {
        Foreign { name, program, option, package, version: OnceLock::new() }
    }

    /// What is to be started.
    pub(crate) fn program(&self) -> String {
        self.newer().map_or_else(|| self.program.to_owned(), |path| path.display().to_string())
    }

    /// Name and version.
    pub(crate) fn versioned(&self) -> String {
        format!("{} {}", self.name, self.version().number)
    }

    fn newer(&self) -> Option<PathBuf> {
        let directory = PathBuf::from(std::env::var_os(PEERS)?);
        let places = [directory.join(self.program), directory.join("sbin").join(self.program)];
        places.into_iter().find(|path| path.is_file())
    }

    fn version(&self) -> &Version {
        self.version.get_or_init(|| {
            let output = Command::new(self.program()).arg(self.option).output();
            let Ok(output) = output else { return Version { number: "missing".to_owned(), released: None } };
            // NSD tells it on stderr.
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            let released = self.newer().map_or_else(|| packaged(self.package), |path| modified(&path));
            Version { number: number_in(&text), released }
        })
    }
}

/// Name, version and age.
impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = self.version().released.and_then(|released| released.elapsed().ok());
        match age {
            Some(age) => write!(f, "{}, {:.1} years old", self.versioned(), years(age)),
            None => write!(f, "{}, of unknown age", self.versioned()),
        }
    }
}

/// The word after "version" in what a program says of itself.
fn number_in(text: &str) -> String {
    let mut words = text.split_whitespace().skip_while(|word| *word != "version").skip(1);
    words.next().unwrap_or("of an unknown version").trim_end_matches(['.', ',']).to_owned()
}

/// When Debian made the package that is installed: the date below the first entry of its changelog.
fn packaged(package: &str) -> Option<SystemTime> {
    let file = format!("/usr/share/doc/{package}/changelog.Debian.gz");
    let text = run(Command::new("zcat").arg(&file)).ok()?;
    let seconds = run(Command::new("date").args(["-u", "+%s", "-d", signed_at(&text)?])).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().ok()?))
}

/// The date at the end of the newest entry: deb-changelog(5).
fn signed_at(changelog: &str) -> Option<&str> {
    let trailer = changelog.lines().find_map(|line| line.strip_prefix(" -- "))?;
    trailer.split_once(">  ").map(|(_, date)| date)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn years(age: Duration) -> f64 {
    age.as_secs_f64() / (365.25 * 86_400.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        assert_eq!(number_in("NSD version 4.6.1\nWritten by NLnet Labs.\n"), "4.6.1");
        assert_eq!(number_in("knotd (Knot DNS), version 3.2.6\n"), "3.2.6");
        assert_eq!(number_in("no such option"), "of an unknown version");
    }

    #[test]
    fn the_newest_entry_of_a_changelog_dates_a_package() {
        let text = "nsd (2) unstable\n\n  * New\n\n -- A B <a@example.com>  Tue, 15 Nov 2022 20:32:51 +0100\n\n\
                    nsd (1) unstable\n\n -- A B <a@example.com>  Mon, 01 Jan 2018 00:00:00 +0100\n";
        assert_eq!(signed_at(text), Some("Tue, 15 Nov 2022 20:32:51 +0100"));
        assert_eq!(signed_at(""), None);
    }
}
