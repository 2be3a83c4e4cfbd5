//! `sidestep dns serve` on kernel sockets of the loopback interface.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lab::{Child, Directory, LabError, sidestep_binary};

/// Time for the ready line, on a machine that is busy with other tests.
const START_MAX: Duration = Duration::from_secs(60);

/// A running server at addresses of its own on 127.0.0.1 and ::1.
pub struct Serving {
    /// The process.
    pub process: Child,
    /// Its files.
    pub directory: Directory,
    /// Its address on 127.0.0.1.
    pub v4: SocketAddr,
    /// Its address on ::1.
    pub v6: SocketAddr,
    /// The line that it printed when ready.
    pub ready: String,
}

impl Serving {
    /// Serves `zone` with one engine and more `arguments`.
    pub fn start(zone: &Path, arguments: &[&str]) -> Serving {
        Serving::start_in(Directory::new().unwrap(), &["--zone", &zone.display().to_string()], arguments)
    }

    /// Serves what `sources` name, which may lie in `directory`.
    pub fn start_in(directory: Directory, sources: &[&str], arguments: &[&str]) -> Serving {
        Serving::start_by(&[], directory, sources, arguments)
    }

    /// The same, by a command that replaces itself by the server, such as `prlimit --nofile=64`.
    pub fn start_by(by: &[&str], directory: Directory, sources: &[&str], arguments: &[&str]) -> Serving {
        let (process, ready) = start(by, &directory, sources, arguments).unwrap();
        // `... on 127.0.0.1:1 [::1]:2 over kernel sockets, ...`
        let addresses = |word: &str| word.trim_end_matches(',').parse::<SocketAddr>().ok();
        let mut addresses = ready.split_whitespace().filter_map(addresses);
        let (v4, v6) = (addresses.next().unwrap(), addresses.next().unwrap());
        Serving { process, directory, v4, v6, ready }
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> u64 {
        stats(self.directory.path()).into_iter().find(|(own, _)| own == name).map_or(0, |(_, value)| value)
    }
}

fn start(
    by: &[&str],
    directory: &Directory,
    sources: &[&str],
    arguments: &[&str],
) -> Result<(Child, String), LabError> {
    let control = directory.path().join("control.sock").display().to_string();
    let binary = sidestep_binary().display().to_string();
    let words = [by, &[&binary]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args([
        "dns",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "[::1]:0",
        "--cores",
        "0",
    ]);
    command.args(["--control", &control]).args(sources).args(arguments);
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "root"]); // The files of a test are root's.
    }
    let mut process = Child::spawn("sidestep", &mut command)?;
    let ready = process.wait_for_line("sidestep dns: ready", START_MAX)?;
    Ok((process, ready))
}

/// The counters of the server whose control socket is `control.sock` in `directory`.
pub fn stats(directory: &Path) -> Vec<(String, u64)> {
    let control = directory.join("control.sock").display().to_string();
    let output = command(&["dns", "stats", "--control", &control]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

/// Runs `sidestep` with `arguments` to its end.
pub fn command(arguments: &[&str]) -> Output {
    Command::new(sidestep_binary()).args(arguments).output().unwrap()
}
