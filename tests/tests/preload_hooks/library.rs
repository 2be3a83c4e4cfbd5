//! Where the library and its mirror are, and programs that run with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Names the library to use instead of building it.
const LIBRARY: &str = "SIDESTEP_PRELOAD";
/// Names a directory of examples to use instead of building them.
const EXAMPLES: &str = "SIDESTEP_EXAMPLES";

/// What a program is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With {
    /// The C library alone.
    Nothing,
    /// The library, in a process that no broker started.
    Library,
    /// The library, and the name of a broker that is not there.
    LostBroker,
    /// The library with the kernel in place of `posix`.
    Mirror,
}

impl With {
    /// `command`, started so.
    pub(crate) fn apply(self, command: &mut Command) -> &mut Command {
        command.env_remove("LD_PRELOAD").env_remove("SIDESTEP_BROKER");
        match self {
            With::Nothing => command,
            With::Library => command.env("LD_PRELOAD", library()),
            With::LostBroker => command.env("LD_PRELOAD", library()).env("SIDESTEP_BROKER", "nobody"),
            With::Mirror => command.env("LD_PRELOAD", mirror()).env("SIDESTEP_BROKER", "nobody"),
        }
    }

    /// What `program` does with `arguments`, given at most five minutes.
    pub(crate) fn output(self, program: impl AsRef<Path>, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.arg("300").arg(program.as_ref()).args(arguments);
        self.apply(&mut command).output().expect("timeout is part of every system")
    }
}

pub(crate) fn library() -> PathBuf {
    std::env::var_os(LIBRARY).map_or_else(|| built().join("libsidestep_preload.so"), PathBuf::from)
}

pub(crate) fn mirror() -> PathBuf {
    let examples = std::env::var_os(EXAMPLES).map_or_else(|| built().join("examples"), PathBuf::from);
    examples.join("libmirror.so")
}

fn built() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(build)
}

/// Builds both beside this test, since no package can depend on a library that is only loaded.
fn build() -> PathBuf {
    let own = std::env::current_exe().expect("the system knows what it runs");
    let directory =
        own.ancestors().nth(2).expect("a test is in deps, below its profile's directory").to_owned();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(lab::workspace_root())
        .args([
            "build",
            "--quiet",
            "--package",
            "preload",
            "--lib",
            "--example",
            "mirror",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(directory.parent().expect("a profile's directory is in the target directory"))
        .status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "cargo build: {status:?}");
    directory
}

/// A directory for files of these tests, each of which names its own.
pub(crate) fn scratch() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload_hooks");
    std::fs::create_dir_all(&directory).expect("the target directory is ours");
    directory
}
