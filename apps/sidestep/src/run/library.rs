//! Finds our library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The library's file name.
const FILE: &str = "libsidestep_preload.so";
/// The environment variable that names another file.
const VARIABLE: &str = "SIDESTEP_LIBRARY";

/// The library beside this program, or in `../lib/sidestep`, or where the environment variable says; otherwise an error message.
pub(super) fn find() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("{VARIABLE}: no file {}", path.display()))
        };
    }
    let own = env::current_exe().map_err(|error| format!("this program's own place: {error}"))?;
    let folder = own.parent().ok_or("this program has no folder")?;
    let places = [folder.join(FILE), folder.join("../lib/sidestep").join(FILE)];
    let found = places.iter().find(|path| path.is_file());
    found.cloned().ok_or_else(|| format!("{FILE} is neither beside {} nor in ../lib/sidestep", own.display()))
}

/// `LD_PRELOAD` with `library` before its present content.
pub(super) fn in_front(library: &OsStr) -> OsString {
    let mut all = library.to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}
