//! The process that we are loaded into.

use std::sync::OnceLock;

use crate::process::Process;

static PROCESS: OnceLock<Process> = OnceLock::new();

/// The process, if there is a broker for it.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    PROCESS.get()
}

/// It begins; false if it had begun before.
pub(crate) fn set(process: Process) -> bool {
    PROCESS.set(process).is_ok()
}
