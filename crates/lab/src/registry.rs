//! Cleaning up when this program ends, however it ends.
//!
//! Owners clean up on drop. On SIGINT and SIGTERM a thread removes whatever is registered and ends the
//! program. After SIGKILL that is impossible, so the next laboratory removes what dead processes left.
//! That is why every name contains a process id.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Start of the name of every namespace.
const NAMESPACE_PREFIX: &str = "ss-";
/// Start of the name of every temporary directory.
const DIRECTORY_PREFIX: &str = "sidestep-lab-";
/// What a shell reports for a program ended by Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;
/// Time for processes to end by themselves.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Registry {
    processes: BTreeSet<i32>,
    namespaces: BTreeSet<String>,
    directories: BTreeSet<PathBuf>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    processes: BTreeSet::new(),
    namespaces: BTreeSet::new(),
    directories: BTreeSet::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    // A thread that panicked while it held the lock cannot have damaged the set.
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn add_process(pid: Pid) {
    registry().processes.insert(pid.as_raw_nonzero().get());
}

pub(crate) fn remove_process(pid: Pid) {
    registry().processes.remove(&pid.as_raw_nonzero().get());
}

/// A name for a namespace of `side`, with this program's process id.
pub(crate) fn namespace_name(number: u32, side: &str) -> String {
    format!("{NAMESPACE_PREFIX}{}-{number}-{side}", std::process::id())
}

pub(crate) fn add_namespace(name: &str) {
    registry().namespaces.insert(name.to_owned());
}

/// Ends what runs in a namespace, and removes it.
pub(crate) fn remove_namespace(name: &str) {
    delete_namespace(name);
    registry().namespaces.remove(name);
}

/// A path for a temporary directory, with this program's process id.
pub(crate) fn directory_path(number: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{DIRECTORY_PREFIX}{}-{number}", std::process::id()))
}

pub(crate) fn add_directory(path: &Path) {
    registry().directories.insert(path.to_owned());
}

pub(crate) fn remove_directory(path: &Path) {
    let _ = std::fs::remove_dir_all(path); // Gone already is fine too.
    registry().directories.remove(path);
}

/// Once per program: removes what dead programs left, and prepares for signals.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        remove_stale();
        // Without it Ctrl-C leaves a laboratory behind, and the next laboratory removes it.
        if let Ok(signals) = Signals::new([SIGINT, SIGTERM]) {
            std::thread::spawn(move || clean_up_on_signal(signals));
        }
    });
}

fn clean_up_on_signal(mut signals: Signals) {
    if signals.forever().next().is_some() {
        // Held to the end, so that no thread registers anything more.
        let registry = registry();
        signal_all(&registry.processes, Signal::TERM);
        std::thread::sleep(GRACE);
        signal_all(&registry.processes, Signal::KILL);
        registry.namespaces.iter().for_each(|name| delete_namespace(name));
        for directory in &registry.directories {
            let _ = std::fs::remove_dir_all(directory);
        }
        std::process::exit(EXIT_INTERRUPTED);
    }
}

fn signal_all(processes: &BTreeSet<i32>, signal: Signal) {
    for pid in processes.iter().filter_map(|&pid| Pid::from_raw(pid)) {
        let _ = kill_process(pid, signal); // Ended already is fine too.
    }
}

fn delete_namespace(name: &str) {
    let inside = |name: &str| ip_output(&["netns", "pids", name]);
    let pids = inside(name).split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    signal_all(&pids, Signal::KILL);
    ip_output(&["netns", "delete", name]);
}

fn ip_output(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn remove_stale() {
    for name in names_in("/run/netns").filter(|name| owner_is_gone(name, NAMESPACE_PREFIX)) {
        delete_namespace(&name);
    }
    let temporary = std::env::temp_dir();
    for name in names_in(&temporary).filter(|name| owner_is_gone(name, DIRECTORY_PREFIX)) {
        let _ = std::fs::remove_dir_all(temporary.join(name));
    }
}

fn names_in(directory: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Whether `name` is one of ours and its process no longer runs.
fn owner_is_gone(name: &str, prefix: &str) -> bool {
    let owner = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next());
    let owner = owner.and_then(|pid| pid.parse::<u32>().ok());
    owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_processes_are_stale() {
        let own = namespace_name(0, "srv");
        assert!(!owner_is_gone(&own, NAMESPACE_PREFIX));
        // Beyond the kernel's largest process id, 2^22.
        assert!(owner_is_gone("ss-4194305-0-srv", NAMESPACE_PREFIX));
        assert!(!owner_is_gone("ss-other-4194305", NAMESPACE_PREFIX));
        assert!(!owner_is_gone("somebody", NAMESPACE_PREFIX));
    }
}
