//! A connection that moves from a stack to the kernel, as it travels in a message, with its octets in a file.
//!
//! The client may truncate the file at any time, so it is read, not mapped.
//!
//! The file of a connection that is only offered also decides who has the connection ([`decide`]). No clock could: either process may be
//! stopped between a look at the time and what it does then.

use std::io::Result as IoResult;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::{Errno, Result, pread, write};
use rustix::process::{Resource, getrlimit};
use transit::{Established, SocketKind};

use crate::protocol::Moving;

/// Octets of one connection at most: a peer's window allows a gigabyte, but no buffers are that large.
pub(crate) const OCTETS_MAX: usize = 64 << 20;

/// The message, and the file: if there are octets, or if the connection is only offered.
pub(crate) fn pack(
    connection: &Established,
    socket: SocketKind,
    offered: bool,
) -> Result<(Moving, Option<OwnedFd>)> {
    let parts = [&connection.received, &connection.unacked, &connection.unsent];
    let lens = parts.map(Vec::len);
    if lens.iter().sum::<usize>() > OCTETS_MAX {
        return Err(Errno::TOOBIG);
    }
    let [received_len, unacked_len, unsent_len] = lens.map(|len| len as u32); // At most 2^26.
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| lens.iter().sum::<usize>() as u64 > limit) {
        return Err(Errno::FBIG); // Writing it would end the program by SIGXFSZ: the limit is for files in memory as well (setrlimit(2)).
    }
    let flags = MemfdFlags::CLOEXEC | if offered { MemfdFlags::ALLOW_SEALING } else { MemfdFlags::empty() };
    let file = match lens {
        [0, 0, 0] if !offered => None,
        _ => Some(memfd_create("sidestep-connection", flags)?),
    };
    if let Some(file) = &file {
        parts.iter().try_for_each(|part| write_all(file, part))?;
    }
    let connection =
        Established { received: Vec::new(), unacked: Vec::new(), unsent: Vec::new(), ..*connection };
    Ok((Moving { connection, socket, received_len, unacked_len, unsent_len }, file))
}

/// The connection with its octets.
pub(crate) fn unpack(moving: Moving, file: Option<BorrowedFd<'_>>) -> IoResult<Established> {
    let lens = [moving.received_len, moving.unacked_len, moving.unsent_len].map(|len| len as usize);
    if lens.iter().sum::<usize>() > OCTETS_MAX {
        return Err(Errno::TOOBIG.into());
    }
    if let Some(file) = file {
        fcntl_get_seals(file)?; // Files in memory have seals, and reading one never blocks.
    }
    let mut at = 0;
    let mut part = |len: usize| -> IoResult<Vec<u8>> {
        let mut octets = vec![0; len];
        if len > 0 {
            read_all(file.ok_or(Errno::BADF)?, &mut octets, at)?;
        }
        at += len as u64;
        Ok(octets)
    };
    let [received, unacked, unsent] = [part(lens[0])?, part(lens[1])?, part(lens[2])?];
    Ok(Established { received, unacked, unsent, ..moving.connection })
}

/// Decides who has an offered connection, once: true for who asks first. The broker asks before it leads packets to the kernel, and moves the
/// connection whatever happens then. The client asks when it does not want to wait any longer, and goes on with the connection.
///
/// The kernel adds `F_SEAL_SEAL` once, and refuses it from then on (fcntl(2)). It never waits for the other process.
pub(crate) fn decide(file: impl AsFd) -> bool {
    fcntl_add_seals(file, SealFlags::SEAL).is_ok()
}

fn write_all(file: impl AsFd, mut octets: &[u8]) -> Result<()> {
    while !octets.is_empty() {
        let count = write(&file, octets)?;
        octets = &octets[count..];
    }
    Ok(())
}

/// An end of the file before that of `octets` is an error.
fn read_all(file: impl AsFd, mut octets: &mut [u8], mut at: u64) -> Result<()> {
    while !octets.is_empty() {
        match pread(&file, &mut *octets, at)? {
            0 => return Err(Errno::NODATA),
            count => {
                at += count as u64;
                octets = &mut octets[count..];
            }
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;

    use transit::{SeqNum, State};

    use super::*;
    use crate::protocol::{decode, encode};

    pub(crate) fn connection(received: &[u8], unacked: &[u8], unsent: &[u8]) -> Established {
        Established {
            local: SocketAddr::from(([192, 0, 2, 1], 80)),
            remote: SocketAddr::from(([192, 0, 2, 2], 4000)),
            state: State::Established,
            snd_una: SeqNum(1),
            snd_wnd: 1000,
            snd_wl1: SeqNum(2),
            max_window: 1000,
            rcv_nxt: SeqNum(3),
            rcv_wnd: 1000,
            rcv_wup: SeqNum(3),
            snd_wscale: 0,
            rcv_wscale: 0,
            peer_mss: 1460,
            sack_permitted: false,
            ecn: false,
            timestamps: None,
            unacked: unacked.to_vec(),
            unsent: unsent.to_vec(),
            received: received.to_vec(),
            fin_sent: false,
            read_closed: false,
            orphaned: false,
        }
    }

    #[test]
    fn a_connection_arrives_as_it_left() {
        for original in
            [connection(b"", b"", b""), connection(b"abc", b"", b"defg"), connection(b"", b"x", b"")]
        {
            let (moving, file) = pack(&original, SocketKind::default(), false).unwrap();
            let moving = decode(&encode(&moving).unwrap()).unwrap();
            assert_eq!(unpack(moving, file.as_ref().map(AsFd::as_fd)).unwrap(), original);
        }
    }

    /// In a process of its own, as the limit is the process's.
    #[test]
    fn what_is_longer_than_a_file_may_be_is_refused_and_ends_nobody() {
        let limited = std::env::var_os("SIDESTEP_TEST_LIMITED").is_some();
        if !limited {
            let name = "moving::tests::what_is_longer_than_a_file_may_be_is_refused_and_ends_nobody";
            let command = format!("ulimit -f 1; exec \"$0\" --exact {name}");
            let program = std::env::current_exe().unwrap();
            let mut shell = std::process::Command::new("bash");
            shell.args(["-c", &command]).arg(program).env("SIDESTEP_TEST_LIMITED", "1");
            let output = shell.output().unwrap(); // Through a pipe: our own output may be a file, which the limit is for, too.
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        let packed = |len: usize| {
            pack(&connection(&vec![0; len / 2], b"", &vec![0; len - len / 2]), SocketKind::default(), false)
        };
        assert!(packed(1024).is_ok());
        assert_eq!(packed(1025).unwrap_err(), Errno::FBIG);
    }

    #[test]
    fn one_of_two_has_an_offered_connection() {
        for octets in [b"".as_slice(), b"abc"] {
            let original = connection(octets, b"", b"");
            let (moving, file) = pack(&original, SocketKind::default(), true).unwrap();
            let file = file.expect("there is one, also without octets");
            let theirs = file.try_clone().unwrap();
            assert!(decide(&theirs) && !decide(&file) && !decide(&theirs));
            assert_eq!(unpack(moving, Some(theirs.as_fd())).unwrap(), original);
        }
        let (_, file) = pack(&connection(b"abc", b"", b""), SocketKind::default(), false).unwrap();
        assert!(!decide(file.unwrap()), "one that has to move is nobody's to withdraw");
    }

    #[test]
    fn a_file_that_is_too_short_or_missing_or_no_file_is_an_error() {
        let (moving, file) = pack(&connection(b"abc", b"", b""), SocketKind::default(), false).unwrap();
        rustix::fs::ftruncate(file.as_ref().unwrap(), 2).unwrap();
        assert!(unpack(moving.clone(), file.as_ref().map(AsFd::as_fd)).is_err());
        assert!(unpack(moving.clone(), None).is_err());
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(unpack(moving.clone(), Some(pipe.as_fd())).is_err());
        let other = Moving { received_len: u32::MAX, ..moving };
        assert!(unpack(other, file.as_ref().map(AsFd::as_fd)).is_err());
    }
}
