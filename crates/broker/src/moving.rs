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
    Ok((to_message(connection, socket), pack_octets(&[connection], offered)?))
}

/// The same for several that share a file.
pub(crate) fn pack_all(
    connections: &[&Established],
    socket: SocketKind,
    offered: bool,
) -> Result<(Vec<Moving>, Option<OwnedFd>)> {
    let movings = connections.iter().map(|connection| to_message(connection, socket)).collect();
    Ok((movings, pack_octets(connections, offered)?))
}

fn to_message(connection: &Established, socket: SocketKind) -> Moving {
    let [received_len, unacked_len, unsent_len] = parts(connection).map(|part| part.len() as u32); // At most 2^26, or there is no file.
    let connection =
        Established { received: Vec::new(), unacked: Vec::new(), unsent: Vec::new(), ..*connection };
    Moving { connection, socket, received_len, unacked_len, unsent_len }
}

fn parts(connection: &Established) -> [&[u8]; 3] {
    [&connection.received, &connection.unacked, &connection.unsent]
}

fn pack_octets(connections: &[&Established], offered: bool) -> Result<Option<OwnedFd>> {
    let lens = connections.iter().map(|connection| parts(connection).map(<[u8]>::len).iter().sum::<usize>());
    let total = lens.sum::<usize>();
    if total > OCTETS_MAX {
        return Err(Errno::TOOBIG);
    }
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| total as u64 > limit) {
        return Err(Errno::FBIG); // Writing it would end the program by SIGXFSZ: the limit is for files in memory as well (setrlimit(2)).
    }
    if total == 0 && !offered {
        return Ok(None);
    }
    let flags = MemfdFlags::CLOEXEC | if offered { MemfdFlags::ALLOW_SEALING } else { MemfdFlags::empty() };
    let file = memfd_create("sidestep-connection", flags)?;
    connections
        .iter()
        .flat_map(|connection| parts(connection))
        .try_for_each(|part| write_all(&file, part))?;
    Ok(Some(file))
}

/// The connection with its octets, which begin at `at` in the file.
pub(crate) fn unpack(moving: Moving, file: Option<BorrowedFd<'_>>, at: u64) -> IoResult<Established> {
    let lens = [moving.received_len, moving.unacked_len, moving.unsent_len].map(|len| len as usize);
    if lens.iter().sum::<usize>() > OCTETS_MAX {
        return Err(Errno::TOOBIG.into());
    }
    if let Some(file) = file {
        fcntl_get_seals(file)?; // Files in memory have seals, and reading one never blocks.
    }
    let mut at = at;
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

    use transit::{SeqNum, State, Timestamps};

    use super::*;
    use crate::protocol::{ENQUEUED_MAX, Request, ToBroker, decode, encode};

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
            assert_eq!(unpack(moving, file.as_ref().map(AsFd::as_fd), 0).unwrap(), original);
        }
    }

    #[test]
    fn connections_share_a_file() {
        let originals =
            [connection(b"abc", b"", b""), connection(b"", b"", b""), connection(b"", b"de", b"f")];
        let (movings, file) = pack_all(&originals.each_ref(), SocketKind::default(), false).unwrap();
        let file = file.as_ref().map(AsFd::as_fd);
        for ((moving, original), at) in movings.into_iter().zip(originals).zip([0, 3, 3]) {
            assert_eq!(unpack(moving, file, at).unwrap(), original);
        }
        let [none, silent] = [
            pack_all(&[], SocketKind::default(), false),
            pack_all(&[&connection(b"", b"", b"")], SocketKind::default(), false),
        ];
        assert!(none.unwrap().1.is_none() && silent.unwrap().1.is_none(), "there is nothing to share");
    }

    #[test]
    fn as_many_as_may_move_together_fit_a_message() {
        let end: SocketAddr = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap();
        let longest = Established {
            local: end,
            remote: end,
            snd_una: SeqNum(u32::MAX),
            snd_wnd: u32::MAX,
            snd_wl1: SeqNum(u32::MAX),
            max_window: u32::MAX,
            rcv_nxt: SeqNum(u32::MAX),
            rcv_wnd: u32::MAX,
            rcv_wup: SeqNum(u32::MAX),
            peer_mss: u16::MAX,
            timestamps: Some(Timestamps { value: u32::MAX, echo: u32::MAX }),
            ..connection(b"", b"", b"")
        };
        let (movings, _) = pack_all(&[&longest; ENQUEUED_MAX], SocketKind::default(), true).unwrap();
        encode(&ToBroker { id: u64::MAX, request: Request::Enqueue { connections: movings, offered: true } })
            .unwrap();
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
            assert_eq!(unpack(moving, Some(theirs.as_fd()), 0).unwrap(), original);
        }
        let (_, file) = pack(&connection(b"abc", b"", b""), SocketKind::default(), false).unwrap();
        assert!(!decide(file.unwrap()), "one that has to move is nobody's to withdraw");
    }

    #[test]
    fn a_file_that_is_too_short_or_missing_or_no_file_is_an_error() {
        let (moving, file) = pack(&connection(b"abc", b"", b""), SocketKind::default(), false).unwrap();
        rustix::fs::ftruncate(file.as_ref().unwrap(), 2).unwrap();
        assert!(unpack(moving.clone(), file.as_ref().map(AsFd::as_fd), 0).is_err());
        assert!(unpack(moving.clone(), None, 0).is_err());
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert!(unpack(moving.clone(), Some(pipe.as_fd()), 0).is_err());
        let other = Moving { received_len: u32::MAX, ..moving };
        assert!(unpack(other, file.as_ref().map(AsFd::as_fd), 0).is_err());
    }
}
