//! What processes are called.

use std::path::Path;

use crate::protocol::NAME_MAX;

/// What a process was started as; if that cannot be seen, what it says it is. Its file would not do: one file may be several
/// programs.
pub(super) fn name_of(pid: u32, said: &str) -> String {
    /// Octets that the kernel keeps of the name.
    const COMM_LEN: usize = 15;
    let file_name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim_end();
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok().and_then(|path| file_name(&path));
    let name = match file {
        Some(file) if comm.len() >= COMM_LEN && file.starts_with(comm) => file,
        _ if comm.is_empty() => file_name(Path::new(said)).unwrap_or_default(),
        _ => comm.to_owned(),
    };
    printable(&name)
}

/// What a process says, to be shown: it may say something that moves a terminal's cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(NAME_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}
