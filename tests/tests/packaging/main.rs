//! What `make install` and `make deb` make of the binaries that the tests run, installed and started. Needs root.

mod files;
mod service;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use lab::{Directory, sidestep_binary, workspace_root};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether packages can be installed; says so for the calling test if not.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        lab::skip("needs root");
    }
    is_root
}

/// The directory of the binary and the library.
fn binaries() -> PathBuf {
    sidestep_binary().parent().unwrap().canonicalize().unwrap()
}

/// The package, made once for all tests.
fn package() -> PathBuf {
    static PACKAGE: OnceLock<(Directory, PathBuf)> = OnceLock::new();
    let make = || {
        let directory = Directory::new().unwrap();
        let mut command = Command::new(workspace_root().join("packaging/deb.sh"));
        // Nobody downloads it: what compressing takes is saved.
        command.env("DPKG_DEB_COMPRESSOR_TYPE", "none").arg(binaries()).arg(directory.path());
        let output = text(command.output().unwrap());
        let path = PathBuf::from(output.trim());
        (directory, path)
    };
    PACKAGE.get_or_init(make).1.clone()
}

/// What a program that succeeds prints.
fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Installs the package into a root that has nothing but dpkg's directories.
fn install_into(root: &Path) {
    for directory in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(root.join("var/lib/dpkg").join(directory)).unwrap();
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display()));
    command.args(["--force-script-chrootless", "--force-depends", "--install"]).arg(package());
    text(command.output().unwrap());
}
