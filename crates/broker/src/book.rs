//! A process's book: the ends of its connections, in a file in memory that the process writes and the broker reads when the process is gone. The kernel tells
//! the peers of a process that is killed, but it does not know these connections.
//!
//! ```text
//!   word    0   1      2   3        4
//!         our address  peer's   our port << 32 | peer's port << 16 | 1, or 0 if there is none
//! ```
//!
//! Addresses are those of IPv6, or mapped ones, in network byte order.

use std::io::Result;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::fs::fcntl_get_seals;
use rustix::io::pread;

/// Words of a connection.
pub const ENTRY_WORDS: usize = 5;
/// Connections in a book at most.
pub const ENTRIES_MAX: usize = 1 << 18;

const ENTRY_LEN: usize = ENTRY_WORDS * 8;
/// Octets that are read at once.
const PIECE_LEN: usize = 1024 * ENTRY_LEN;
const IS_THERE: u64 = 1;

/// The words of a connection, of which the last is to be written last.
pub fn entry(local: SocketAddr, remote: SocketAddr) -> [u64; ENTRY_WORDS] {
    let address = |end: SocketAddr| {
        let octets = match end.ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        let number = u128::from_ne_bytes(octets);
        [number as u64, (number >> 64) as u64]
    };
    let ([our_first, our_second], [first, second]) = (address(local), address(remote));
    let ports = u64::from(local.port()) << 32 | u64::from(remote.port()) << 16 | IS_THERE;
    [our_first, our_second, first, second, ports]
}

/// The connections in a book. The process may have been anybody's: whatever the file is, this ends, and waits for nothing.
pub(crate) fn read(file: BorrowedFd<'_>) -> Result<Vec<(SocketAddr, SocketAddr)>> {
    fcntl_get_seals(file)?; // Files in memory have seals, and reading one never blocks.
    let (mut found, mut octets) = (Vec::new(), vec![0; PIECE_LEN]);
    for at in (0..ENTRIES_MAX * ENTRY_LEN).step_by(PIECE_LEN) {
        let count = pread(file, &mut *octets, at as u64)?;
        found.extend(octets[..count].chunks_exact(ENTRY_LEN).filter_map(connection));
        if count < PIECE_LEN {
            break;
        }
    }
    Ok(found)
}

fn connection(entry: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, ports) = entry.split_last_chunk::<8>()?;
    let ports = u64::from_ne_bytes(*ports);
    if ports & IS_THERE == 0 {
        return None;
    }
    let end = |octets: &[u8], port: u64| {
        let address = Ipv6Addr::from(*octets.first_chunk::<16>()?);
        Some(SocketAddr::new(address.to_canonical(), port as u16))
    };
    Some((end(addresses, ports >> 32)?, end(&addresses[16..], ports >> 16)?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn file(octets: &[u8]) -> std::fs::File {
        let mut file = std::fs::File::from(memfd_create("book", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(octets).unwrap();
        file
    }

    #[test]
    fn what_is_written_is_read() {
        let ends = |local: &str, remote: &str| (local.parse().unwrap(), remote.parse().unwrap());
        let connections =
            [ends("192.0.2.1:80", "192.0.2.2:40000"), ends("[2001:db8::1]:65535", "[2001:db8::2]:1")];
        let mut octets = vec![0; 3000 * ENTRY_LEN];
        for (place, (local, remote)) in [(0, connections[0]), (2999, connections[1])] {
            let words = entry(local, remote).map(u64::to_ne_bytes);
            octets[place * ENTRY_LEN..][..ENTRY_LEN].copy_from_slice(words.as_flattened());
        }
        assert_eq!(read(file(&octets).as_fd()).unwrap(), connections);
        octets[4 * 8] = 0;
        octets.truncate(2999 * ENTRY_LEN + 39);
        assert_eq!(read(file(&octets).as_fd()).unwrap(), [], "one is over, and one is cut off");
    }

    #[test]
    fn what_is_no_file_in_memory_is_an_error() {
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(read(pipe.as_fd()).is_err());
        assert!(read(std::fs::File::open("/dev/zero").unwrap().as_fd()).is_err());
    }
}
