//! Files that are of configured zones: refreshes of zones that catalogs have brought write none of them, also those that are under way when the
//! configuration takes a zone over. And files that two zones have, which no configuration may name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::bail;
use dns_wire::NameBuf;
use dns_zone::text::origin_from_path;

use super::super::config::ZoneSpec;
use super::super::transfers::SecondarySpec;

/// Which files are not for secondary zones.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    state: Mutex<State>,
    is_written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    claimed: BTreeSet<PathBuf>,
    /// Files that are being written or removed.
    busy: Vec<PathBuf>,
}

impl Claims {
    /// From now on these are all files of configured zones. Waits until none of them is being written.
    pub(crate) fn claim<'f>(&self, files: impl Iterator<Item = &'f Path>) {
        let mut directories = BTreeMap::new();
        let files: BTreeSet<PathBuf> = files.map(|file| identity(file, &mut directories)).collect();
        let mut state = self.state();
        state.claimed = files;
        let is_busy = |state: &mut State| state.busy.iter().any(|file| state.claimed.contains(file));
        drop(self.is_written.wait_while(state, is_busy));
    }

    /// Has the file of a secondary zone written or removed; `None` if it is a configured zone's.
    pub(super) fn change<T>(&self, file: &Path, change: impl FnOnce() -> T) -> Option<T> {
        let file = identity(file, &mut BTreeMap::new());
        {
            let mut state = self.state();
            if state.claimed.contains(&file) {
                return None;
            }
            state.busy.push(file.clone());
        }
        let changed = change();
        let mut state = self.state();
        if let Some(at) = state.busy.iter().position(|busy| *busy == file) {
            state.busy.swap_remove(at);
        }
        drop(state);
        self.is_written.notify_all();
        Some(changed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a secondary zone whose file another zone has, too: each would have the other's version after a restart. So it is with other zones
/// of one file, of which one at least `is_written`: what the server writes beside the file would be both zones'.
pub(crate) fn refuse_shared_files(
    secondaries: &[Arc<SecondarySpec>],
    zones: &[ZoneSpec],
    is_written: impl Fn(&ZoneSpec) -> bool,
) -> anyhow::Result<()> {
    let (mut directories, mut owners) = (BTreeMap::new(), BTreeMap::new());
    for spec in secondaries {
        let Some(file) = &spec.file else { continue };
        let other: Option<&NameBuf> = owners.insert(identity(file, &mut directories), &spec.origin);
        if let Some(other) = other {
            let (origin, file) = (&spec.origin, file.display());
            bail!(
                "secondary {origin}: file: {file} is the file of secondary {other}, too: give it another one"
            );
        }
    }
    let mut readers: BTreeMap<PathBuf, &ZoneSpec> = BTreeMap::new();
    for zone in zones {
        let (own, file) = (identity(&zone.file, &mut directories), zone.file.display());
        if let Some(origin) = owners.get(&own) {
            let name = name_of(zone).map(|name| format!(" {name}")).unwrap_or_default();
            bail!("secondary {origin}: file: {file} is the file of [[zone]]{name}, too: give it another one");
        }
        let Some(other) = readers.insert(own, zone).filter(|other| is_written(zone) || is_written(other))
        else {
            continue;
        };
        // A zone may be named by the configuration and on the command line, too.
        if let (Some(name), Some(other)) = (name_of(zone), name_of(other))
            && name != other
        {
            bail!(
                "[[zone]] {name}: file: {file} is the file of [[zone]] {other}, too: zones with updates, a journal or dnssec have a file each"
            );
        }
    }
    Ok(())
}

/// Refuses a query log in a file that the configuration names for something else, which would be written over or renamed.
pub(crate) fn refuse_query_log<'f>(
    log: &'f Path,
    files: impl Iterator<Item = &'f Path>,
) -> anyhow::Result<()> {
    let mut directories = BTreeMap::new();
    let own = identity(log, &mut directories);
    for file in files {
        if identity(file, &mut directories) == own {
            bail!(
                "query-log: {} is the file of something else, too: give the log another one",
                log.display()
            );
        }
    }
    Ok(())
}

/// The name of a zone, as far as it is known without a look at its file.
fn name_of(zone: &ZoneSpec) -> Option<NameBuf> {
    zone.origin.clone().or_else(|| origin_from_path(&zone.file))
}

/// The same for all ways to write a path. The file itself need not be there. `directories` are those that are known: most files lie in a few.
fn identity<'f>(path: &'f Path, directories: &mut BTreeMap<&'f Path, PathBuf>) -> PathBuf {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return path.to_owned() };
    let canonical = directories.entry(directory).or_insert_with(|| {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
    });
    canonical.join(name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn zones_have_one_file_only_as_long_as_it_is_only_read() {
        let zone = |origin: &str| ZoneSpec {
            origin: Some(NameBuf::from_text(origin.as_bytes(), None).unwrap()),
            ..ZoneSpec::of("parked.zone".into())
        };
        let zones = [zone("a.example."), zone("b.example."), ZoneSpec::of("./other.zone".into())];
        assert!(refuse_shared_files(&[], &zones, |_| false).is_ok());
        assert!(refuse_shared_files(&[], &zones, |zone| zone.origin.is_none()).is_ok());
        let twice = [zone("a.example."), zone("A.example.")];
        assert!(refuse_shared_files(&[], &twice, |_| true).is_ok(), "it is one zone");
        for written in &zones[..2] {
            let is_written = |zone: &ZoneSpec| zone.origin == written.origin;
            let refused = refuse_shared_files(&[], &zones, is_written).unwrap_err().to_string();
            assert!(refused.contains("a.example") && refused.contains("b.example"), "{refused}");
        }
    }

    #[test]
    fn a_query_log_has_a_file_of_its_own_however_its_path_is_written() {
        let files = || [Path::new("a.zone"), Path::new("b.zone")].into_iter();
        assert!(refuse_query_log(Path::new("log.json"), files()).is_ok());
        let refused = refuse_query_log(Path::new("./b.zone"), files()).unwrap_err().to_string();
        assert!(refused.starts_with("query-log: ./b.zone is the file of something else"), "{refused}");
    }

    #[test]
    fn a_file_that_is_claimed_is_not_changed_however_its_path_is_written() {
        let claims = Claims::default();
        let directory = std::env::temp_dir();
        let (one, other) = (directory.join("one.zone"), directory.join("other.zone"));
        assert_eq!(claims.change(&one, || 7), Some(7));
        claims.claim([one.as_path()].into_iter());
        assert_eq!((claims.change(&one, || 7), claims.change(&other, || 7)), (None, Some(7)));
        let roundabout = directory.join(".").join("one.zone");
        assert_eq!(claims.change(&roundabout, || 7), None);
        claims.claim([].into_iter());
        assert_eq!(claims.change(&one, || 7), Some(7));
    }

    #[test]
    fn whoever_claims_a_file_waits_until_it_is_written() {
        let (claims, is_written) = (Claims::default(), AtomicBool::new(false));
        let ((begin, begun), (go, wait)) = (channel(), channel());
        thread::scope(|scope| {
            let (claims, is_written) = (&claims, &is_written);
            scope.spawn(move || {
                claims.change(Path::new("/one.zone"), || {
                    begin.send(()).unwrap();
                    wait.recv().unwrap();
                    is_written.store(true, Ordering::SeqCst);
                })
            });
            begun.recv().unwrap();
            scope.spawn(move || {
                claims.claim([Path::new("/one.zone")].into_iter());
                assert!(is_written.load(Ordering::SeqCst));
            });
            go.send(()).unwrap();
        });
    }
}
