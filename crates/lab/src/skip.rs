//! Tests that need privileges report when they cannot run.

use std::io::Write;
use std::thread;

use rustix::net::{AddressFamily, SocketType, socket};

/// Names the file to which a skipped test appends a line; `make test` counts them.
const SKIPPED_FILE: &str = "SIDESTEP_SKIPPED";

/// Whether a laboratory with AF_XDP is possible. If not, reports the calling test as skipped; the test then returns.
///
/// ```no_run
/// if !lab::require_root_and_xdp() {
///     return;
/// }
/// ```
pub fn require_root_and_xdp() -> bool {
    match obstacle() {
        None => true,
        Some(obstacle) => {
            skip(obstacle);
            false
        }
    }
}

fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root and AF_XDP");
    }
    let xdp = socket(AddressFamily::XDP, SocketType::RAW, None);
    xdp.is_err().then_some("needs AF_XDP, which this kernel does not offer")
}

/// Reports the calling test as skipped, with the reason, and counts it. The test then returns.
///
/// # Panics
/// If it cannot be counted.
pub fn skip(obstacle: &str) {
    let current = thread::current();
    let line = format!("skipped: {obstacle}: {}\n", current.name().unwrap_or("a test"));
    // Not by a macro: the test harness would capture its output.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let Some(path) = std::env::var_os(SKIPPED_FILE) else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    assert!(written.is_ok(), "a skipped test must be counted: {}: {written:?}", path.display());
}
