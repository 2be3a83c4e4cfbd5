//! What can go wrong in the laboratory.

use std::io;
use std::time::Duration;

/// The laboratory failed. It leaves nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program that the laboratory uses is missing or could not be started. `make setup` installs all of them.
    #[error("{program} does not start: {source} (make setup installs what is missing)")]
    Start {
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A command ended with an error.
    #[error("{command}: {output}")]
    Command {
        /// The command line.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// A process did not print or do what was expected in time.
    #[error("{name}: no {wanted} within {} s; it wrote:\n{output}", timeout.as_secs())]
    NotSeen {
        /// The process.
        name: String,
        /// What was expected.
        wanted: String,
        /// How long.
        timeout: Duration,
        /// What the process wrote.
        output: String,
    },
    /// The generator's report lacks a figure.
    #[error("no {field} in the generator's report:\n{report}")]
    Report {
        /// The figure.
        field: &'static str,
        /// The report.
        report: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl LabError {
    /// Adds what was tried to the system's answer.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::System { what: what.into(), source }
    }
}
