//! Counters of a running server, over a Unix socket: who connects gets `name value` lines and the end of the stream.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dns_auth::Counters;
use dns_server::Admission;
use engine::EngineHandle;
use native::SteeringCounts;

use super::config::default_control;
use super::options;

/// Everything that counts.
pub(crate) struct Sources {
    /// The engines in order.
    pub(crate) engines: Vec<EngineHandle>,
    /// Of every responder, whatever its transport.
    pub(crate) responders: Vec<Arc<Counters>>,
    /// Who is connected by TCP. None when the responder is an echo.
    pub(crate) admission: Option<Arc<Admission>>,
    /// The steering program, if an interface is served.
    pub(crate) steering: Option<SteeringCounts>,
}

impl Sources {
    /// All counts: DNS over all cores together, then each engine, its devices, and TCP.
    fn report(&self) -> String {
        let mut text = String::new();
        for (name, value) in sum(self.responders.iter().map(|counters| counters.named())) {
            let _ = writeln!(text, "dns_{name} {value}");
        }
        for (number, handle) in self.engines.iter().enumerate() {
            for (name, value) in handle.counters().named() {
                let _ = writeln!(text, "engine_{number}_{name} {value}");
            }
            for (name, value) in
                handle.ask_stack(|stack, _| stack.counters().clone()).iter().flat_map(occurred)
            {
                let _ = writeln!(text, "engine_{number}_{name} {value}");
            }
            for report in handle.device_reports() {
                let id = report.id.0;
                let _ = writeln!(text, "# engine {number} device {id}: {}", report.description);
                for (name, value) in report.counters.named() {
                    let _ = writeln!(text, "engine_{number}_device_{id}_{name} {value}");
                }
            }
        }
        let steering = self.steering.iter().filter_map(|counts| *counts.lock().ok()?);
        for (name, value) in steering.flat_map(|counts| counts.named()) {
            let _ = writeln!(text, "steering_{name} {value}");
        }
        if let Some(admission) = &self.admission {
            for (name, value) in admission.counters().named() {
                let _ = writeln!(text, "tcp_{name} {value}");
            }
        }
        text
    }
}

/// What the stack counted, as far as it occurred.
fn occurred(counters: &stack::Counters) -> impl Iterator<Item = (&'static str, u64)> {
    counters.named().filter(|(_, value)| *value != 0)
}

/// Adds up counts of the same name; in the order of names.
fn sum(lists: impl Iterator<Item = Vec<(String, u64)>>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in lists.flatten() {
        *sums.entry(name).or_default() += value;
    }
    sums
}

/// A socket that is removed when the server ends in good order.
pub(crate) struct StatsSocket(PathBuf);

impl Drop for StatsSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // Gone already is fine too.
    }
}

/// Serves `sources` at `path` from a thread of its own. A socket that a dead server left is replaced, one of a living server
/// is an error.
pub(crate) fn serve(path: &Path, sources: Sources) -> anyhow::Result<StatsSocket> {
    let listener = bind(path).with_context(|| format!("statistics socket {}", path.display()))?;
    let answer = move || {
        for stream in listener.incoming().flatten() {
            // A client that does not read must not hold up the next one for long; its loss is its own.
            let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
            let _ = (&stream).write_all(sources.report().as_bytes());
        }
    };
    std::thread::Builder::new().name("dns-stats".to_owned()).spawn(answer)?;
    Ok(StatsSocket(path.to_owned()))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::other("another server is using it; choose a path with --control"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}

/// `sidestep dns stats`.
pub(crate) fn print(options: &options::Stats) -> anyhow::Result<ExitCode> {
    let path = options.control.clone().unwrap_or_else(default_control);
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!("no server answers at {} (is one running? see --control)", path.display())
    })?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("reading the counters")?;
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
