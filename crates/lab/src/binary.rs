//! Where the `sidestep` binary and the examples are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names a binary to use instead of building one.
const BINARY: &str = "SIDESTEP_BIN";
/// Names a directory of examples to use instead of building them.
const EXAMPLES: &str = "SIDESTEP_EXAMPLES";

/// The directory of the workspace.
pub fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

/// The `sidestep` of the same build as the calling program, with the library of `sidestep run` beside it. It is built once per process,
/// or `SIDESTEP_BIN` names it.
///
/// # Panics
///
/// If it cannot be built.
pub fn sidestep_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let named = std::env::var_os(BINARY).map(PathBuf::from);
        // Programs start in directories of their own, where a relative path would be wrong.
        named.map_or_else(build, |path| std::path::absolute(&path).unwrap_or(path))
    })
}

/// The example `name` of the crate `native`, of the same build. It is built once per process, or taken from the
/// directory that `SIDESTEP_EXAMPLES` names.
///
/// # Panics
///
/// If it cannot be built.
pub fn example_binary(name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if let Some(directory) = std::env::var_os(EXAMPLES) {
        return PathBuf::from(directory).join(name);
    }
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.insert(name.to_owned()) {
        cargo_build(&["--package", "native", "--example", name]);
    }
    build_directory().join("examples").join(name)
}

fn build() -> PathBuf {
    // No package can depend on a library that is only loaded at run time, so it is built here.
    cargo_build(&["--package", "sidestep", "--package", "preload"]);
    build_directory().join("sidestep")
}

/// Builds what `arguments` name, with the profile and target directory of the calling program.
fn cargo_build(arguments: &[&str]) {
    let directory = build_directory();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = directory.parent().unwrap_or(&directory);
    let status = Command::new(cargo)
        .current_dir(workspace_root())
        .args(["build", "--quiet", "--profile", profile, "--target-dir"])
        .arg(target)
        .args(arguments)
        .status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "cargo build {arguments:?}: {status:?}");
}

/// `target/debug` or the like: where this program itself was built.
fn build_directory() -> PathBuf {
    let own = std::env::current_exe().expect("the system knows what it runs");
    let directory = own.parent().expect("a program is in a directory");
    match directory.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => directory.parent().expect("deps is in a profile's directory").to_owned(),
        _ => directory.to_owned(),
    }
}
