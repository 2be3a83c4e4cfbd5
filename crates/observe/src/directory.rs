//! Where control sockets are: `PID.sock` in a directory of the user's.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Root's directory. All may read which processes there are; the sockets are root's alone.
const SYSTEM: &str = "/run/sidestep";
/// Names another directory instead, to programs and tools alike.
const OVERRIDE: &str = "SIDESTEP_RUNTIME_DIR";

/// Where programs of this user put their sockets: `/run/sidestep` for root, else `sidestep` in `XDG_RUNTIME_DIR`, else a
/// directory of their own among the temporary files. `SIDESTEP_RUNTIME_DIR` takes the place of all these.
pub fn own_directory() -> PathBuf {
    let user = rustix::process::geteuid();
    own(std::env::var_os(OVERRIDE), std::env::var_os("XDG_RUNTIME_DIR"), user.as_raw())
}

fn own(named: Option<OsString>, runtime: Option<OsString>, user: u32) -> PathBuf {
    match (named, runtime) {
        (Some(directory), _) => directory.into(),
        (None, _) if user == 0 => SYSTEM.into(),
        (None, Some(directory)) => Path::new(&directory).join("sidestep"),
        (None, None) => std::env::temp_dir().join(format!("sidestep-{user}")),
    }
}

/// Where tools look: this user's directory, and root's, to say at least what is there.
pub fn directories() -> Vec<PathBuf> {
    let own = own_directory();
    let system = PathBuf::from(SYSTEM);
    if own == system || std::env::var_os(OVERRIDE).is_some() { vec![own] } else { vec![own, system] }
}

/// [`own_directory`], made if it was not there.
pub fn make_own_directory() -> io::Result<PathBuf> {
    let directory = own_directory();
    make(&directory)?;
    Ok(directory)
}

/// Makes this user's directory if it is not there.
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

/// The process whose socket has this name.
pub(crate) fn process_of(path: &Path) -> Option<u32> {
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
}
