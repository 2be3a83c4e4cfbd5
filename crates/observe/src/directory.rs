//! Where control sockets are: `PID.sock` in a directory of the user's.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use crate::peer::is_root_or_oneself;

/// Root's directory. Everybody may list it; only root may connect to the sockets.
const SYSTEM: &str = "/run/sidestep";
/// The environment variable that sets another directory, for programs and tools.
const OVERRIDE: &str = "SIDESTEP_RUNTIME_DIR";
/// What stands before the process id of a broker.
const BROKER: &str = "run-";
/// What is looked at in the directory of another user, who may have filled it: entries, and sockets among them.
const ENTRIES_MAX: usize = 4096;
const SOCKETS_MAX: usize = 64;

/// Where programs of this user put their sockets: the directory that root has made for this user ([`make_directory_of`]), if there is
/// one. Otherwise `/run/sidestep` for root, else `sidestep` in `XDG_RUNTIME_DIR`, else a directory of their own among the temporary
/// files; `SIDESTEP_RUNTIME_DIR` takes the place of all these.
pub fn own_directory() -> PathBuf {
    let user = rustix::process::geteuid();
    let made_by_root = base().join(user.as_raw().to_string());
    if made_by_root.is_dir() {
        return made_by_root;
    }
    own(std::env::var_os(OVERRIDE), std::env::var_os("XDG_RUNTIME_DIR"), user.as_raw())
}

/// Root's directory.
fn base() -> PathBuf {
    std::env::var_os(OVERRIDE).map_or_else(|| SYSTEM.into(), PathBuf::from)
}

/// Makes a directory in root's for a user: where a program that root starts, and that becomes this user, has its socket. Tools look
/// there too.
pub fn make_directory_of(user: u32, group: u32) -> io::Result<()> {
    let base = base();
    make(&base)?;
    let directory = base.join(user.to_string());
    match std::fs::DirBuilder::new().mode(0o755).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // Root's directory is nobody else's to write to: what has this name is what we made.
        _ => chown(&directory, Some(user), Some(group)),
    }
}

fn own(named: Option<OsString>, runtime: Option<OsString>, user: u32) -> PathBuf {
    match (named, runtime) {
        (Some(directory), _) => directory.into(),
        (None, _) if user == 0 => SYSTEM.into(),
        (None, Some(directory)) => Path::new(&directory).join("sidestep"),
        (None, None) => std::env::temp_dir().join(format!("sidestep-{user}")),
    }
}

/// Where tools look: this user's directory, root's, to say at least what is there, and those that root made for others.
pub fn directories() -> Vec<PathBuf> {
    let base = base();
    let is_of_user = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let entries = std::fs::read_dir(&base).into_iter().flatten().flatten();
    let made_by_root = entries.filter(|entry| is_of_user(&entry.file_name())).map(|entry| entry.path());
    let mut directories = vec![own_directory(), base.clone()];
    directories.extend(made_by_root);
    let mut seen = BTreeSet::new();
    directories.retain(|directory| seen.insert(directory.clone()));
    directories
}

/// [`own_directory`], created if it is missing.
pub fn make_own_directory() -> io::Result<PathBuf> {
    let directory = own_directory();
    make(&directory)?;
    Ok(directory)
}

/// Creates this user's directory if it is missing.
pub(crate) fn make(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let found = std::fs::metadata(directory)?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if is_ours {
        Ok(())
    } else {
        Err(io::Error::other("the directory is another user's, or others may write to it"))
    }
}

/// The control sockets in a directory, with the process ids in their names.
pub(crate) fn sockets_in(directory: &Path) -> Vec<(u32, PathBuf)> {
    named_sockets_in(directory, process_of)
}

/// The status sockets of brokers in a directory, with the process ids in their names.
pub fn brokers_in(directory: &Path) -> Vec<(u32, PathBuf)> {
    named_sockets_in(directory, |path| process_of(path.file_name()?.to_str()?.strip_prefix(BROKER)?.as_ref()))
}

/// The name of a broker's status socket.
pub fn broker_name(process: u32) -> String {
    format!("{BROKER}{process}.sock")
}

/// In the order of their numbers. A directory that cannot be read has none.
fn named_sockets_in(directory: &Path, process_of: fn(&Path) -> Option<u32>) -> Vec<(u32, PathBuf)> {
    let is_others = !std::fs::metadata(directory).is_ok_and(|it| is_root_or_oneself(it.uid()));
    let most = |most| if is_others { most } else { usize::MAX };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(most(ENTRIES_MAX));
    let paths = entries.map(|entry| entry.path());
    let mut sockets: Vec<_> = paths.filter_map(|path| Some((process_of(&path)?, path))).collect();
    sockets.sort();
    sockets.truncate(most(SOCKETS_MAX));
    sockets
}

/// The process id in the name of a control socket.
fn process_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_one_place_and_users_have_theirs() {
        let runtime = || Some(OsString::from("/run/user/7"));
        assert_eq!(own(None, runtime(), 0), Path::new("/run/sidestep"));
        assert_eq!(own(None, runtime(), 7), Path::new("/run/user/7/sidestep"));
        assert_eq!(own(None, None, 7), std::env::temp_dir().join("sidestep-7"));
        assert_eq!(own(Some("/elsewhere".into()), runtime(), 0), Path::new("/elsewhere"));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = lab::Directory::new().unwrap();
        let open = scratch.path().join("open");
        make(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&open).is_err());
    }

    #[test]
    fn only_numbers_are_processes() {
        assert_eq!(process_of(Path::new("/run/sidestep/12.sock")), Some(12));
        assert_eq!(process_of(Path::new("/run/sidestep/dns.sock")), None);
        assert_eq!(process_of(Path::new("/run/sidestep/12.12~")), None);
    }

    #[test]
    fn programs_and_brokers_are_told_apart_by_name() {
        let scratch = lab::Directory::new().unwrap();
        for name in [&*broker_name(12), "12.sock", "run-7.sock", "run-x.sock", "run-9.sock~", "run-.sock"] {
            scratch.write(name, "").unwrap();
        }
        let numbers =
            |sockets: Vec<(u32, PathBuf)>| sockets.into_iter().map(|(it, _)| it).collect::<Vec<_>>();
        assert_eq!(numbers(brokers_in(scratch.path())), [7, 12]);
        assert_eq!(numbers(sockets_in(scratch.path())), [12]);
    }

    #[test]
    fn in_a_directory_of_another_user_only_so_many_are_asked() {
        if rustix::process::geteuid().as_raw() != 0 {
            return; // Nothing can be given to others.
        }
        let scratch = lab::Directory::new().unwrap();
        for process in 0..=SOCKETS_MAX {
            scratch.write(&broker_name(process as u32), "").unwrap();
        }
        assert_eq!(brokers_in(scratch.path()).len(), SOCKETS_MAX + 1);
        chown(scratch.path(), Some(65534), Some(65534)).unwrap();
        assert_eq!(brokers_in(scratch.path()).len(), SOCKETS_MAX);
    }
}
