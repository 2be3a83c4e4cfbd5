//! What the kernel tells of a process: its sockets, and whether it is a Go program. A program that does not call our library tells nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::run::is_go;

/// States in /proc/net/tcp (`enum` in net/tcp_states.h).
const CLOSED: &str = "07";
const LISTEN: &str = "0A";

/// One process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    /// It makes system calls without the C library.
    pub(super) is_go: bool,
    /// TCP listeners that it has open.
    pub(super) listeners: usize,
    /// TCP connections of the kernel's that it has open.
    pub(super) connections: usize,
    /// UDP sockets with a port that it has open.
    pub(super) udp: usize,
}

impl Process {
    /// `None` if the process has ended, or is another user's.
    pub(super) fn of(pid: u32) -> Option<Process> {
        let directory = Path::new("/proc").join(pid.to_string());
        let inodes = sockets_in(&directory.join("fd"))?;
        let mut process = Process { is_go: is_go(&directory.join("exe")), ..Process::default() };
        let table = |name: &str| fs::read_to_string(directory.join("net").join(name)).unwrap_or_default();
        for name in ["tcp", "tcp6"] {
            process.count_tcp(&table(name), &inodes);
        }
        process.udp = ["udp", "udp6"].iter().map(|name| own(&table(name), &inodes).count()).sum();
        Some(process)
    }

    /// Counts the sockets with these inodes in a table as /proc/net/tcp.
    fn count_tcp(&mut self, table: &str, inodes: &BTreeSet<u64>) {
        for state in own(table, inodes) {
            match state {
                LISTEN => self.listeners += 1,
                CLOSED => {}
                _ => self.connections += 1,
            }
        }
    }
}

/// The inodes of the sockets that a process has open.
fn sockets_in(descriptors: &Path) -> Option<BTreeSet<u64>> {
    let inode = |entry: fs::DirEntry| -> Option<u64> {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(fs::read_dir(descriptors).ok()?.flatten().filter_map(inode).collect())
}

/// The states of the sockets with these inodes in a table as /proc/net/tcp.
fn own<'t>(table: &'t str, inodes: &'t BTreeSet<u64>) -> impl Iterator<Item = &'t str> {
    table.lines().skip(1).filter_map(|line| {
        let mut columns = line.split_whitespace();
        let (state, inode) = (columns.nth(3)?, columns.nth(5)?);
        inodes.contains(&inode.parse().ok()?).then_some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:D432 08 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1
   3: 0100007F:1F90 0100007F:D433 01 00000000:00000000 00:00000000 00000000     0        0 99 1 0 20 4 30 10 -1
   4: 0100007F:1F91 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0
";

    #[test]
    fn the_sockets_of_a_process_are_counted_by_state() {
        let mut process = Process::default();
        process.count_tcp(TCP, &BTreeSet::from([11, 12, 13, 14]));
        assert_eq!(process, Process { listeners: 1, connections: 2, ..Process::default() });
    }

    #[test]
    fn the_sockets_of_this_process_are_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _end = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let process = Process::of(std::process::id()).unwrap();
        assert!(process.listeners >= 1 && process.connections >= 1, "{process:?}");
        assert!(!process.is_go);
    }
}
