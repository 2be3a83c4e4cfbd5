//! Where control sockets are: `PID.sock` in a directory of the user's.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Root's directory. Everybody may list it; only root may connect to the sockets.
const SYSTEM: &str = "/run/sidestep";
/// The environment variable that sets another directory, for programs and tools.
const OVERRIDE: &str = "SIDESTEP_RUNTIME_DIR";

/// The directory in which programs of this user open their sockets: `/run/sidestep` for root, else `sidestep` in `XDG_RUNTIME_DIR`, else
/// a directory in the one for temporary files. `SIDESTEP_RUNTIME_DIR` overrides all of these.
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

/// The directories in which tools look: this user's and root's.
pub fn directories() -> Vec<PathBuf> {
    let own = own_directory();
    let system = PathBuf::from(SYSTEM);
    if own == system || std::env::var_os(OVERRIDE).is_some() { vec![own] } else { vec![own, system] }
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

/// The process id in the name of a socket.
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
