//! The process that we are loaded into.

use std::sync::OnceLock;

use crate::attachment::Attachment;
use crate::brokered::Brokered;
use crate::fd_table::FdTable;
use crate::process::Process;

static PROCESS: OnceLock<Process> = OnceLock::new();

/// The process, if there is a broker for it.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    PROCESS.get()
}

/// Begins, with the broker of that name; false if there is none.
pub(crate) fn start(broker: &str) -> bool {
    let Some(attachment) = Brokered::connect(broker) else { return false };
    let attachment: Box<dyn Attachment> = Box::new(attachment);
    let is_first = PROCESS.set(Process::new(FdTable::global(), Some(attachment))).is_ok();
    process().into_iter().for_each(Process::find_inherited);
    is_first
}
