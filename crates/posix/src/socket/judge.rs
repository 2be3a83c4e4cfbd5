//! Private kernel sockets that show what Linux does with an option: so ranges, lengths and errors are Linux's and are not repeated
//! here.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::address::NAME_MAX;
use crate::descriptors::internal::close;
use crate::errno::Errno;
use crate::socket::option_table::find;
use crate::socket::times::TIMESTAMPING_NEW;

/// A fresh socket of the kernel.
pub(crate) fn fresh(domain: i32) -> Result<OwnedFd, Errno> {
    Ok(syscall::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)?)
}

/// A socket that takes an option as a connection would.
///
/// Most options are the same for every socket, and those that are set often are among them. For the others there is a connection
/// of the kernel's with itself: two sockets may connect to each other at the same time (RFC 9293, 3.5), and the two may be one.
pub(crate) fn of_connections(domain: i32, level: i32, option: i32) -> Result<OwnedFd, Errno> {
    let socket = fresh(domain)?;
    let is_the_same = find(level, option).is_some_and(|row| !row.is_of_the_beginning);
    let is_stamping = matches!(option, libc::SO_TIMESTAMPING | TIMESTAMPING_NEW);
    if (level != libc::SOL_SOCKET || is_stamping) && !is_the_same {
        connect_to_itself(&socket, domain);
    }
    Ok(socket)
}

/// A connection of the kernel's with itself.
pub(crate) fn connected(domain: i32) -> Result<OwnedFd, Errno> {
    let socket = fresh(domain)?;
    connect_to_itself(&socket, domain);
    Ok(socket)
}

/// getsockopt(2) of an option that was not set.
pub(crate) fn get(domain: i32, level: i32, option: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let socket = fresh(domain)?;
    let mut got = syscall::getsockopt(socket.as_raw_fd(), level, option, value);
    if got.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN)) {
        connect_to_itself(&socket, domain);
        got = syscall::getsockopt(socket.as_raw_fd(), level, option, value);
    }
    close(socket);
    Ok(got?)
}

/// Where there is no loopback, the socket stays as it is: then only what depends on a connection is judged as without one.
fn connect_to_itself(socket: &OwnedFd, domain: i32) {
    let fd = socket.as_raw_fd();
    let mut name = [0; NAME_MAX];
    name[..2].copy_from_slice(&(domain as u16).to_ne_bytes());
    let len = match domain {
        libc::AF_INET => {
            name[4..8].copy_from_slice(&[127, 0, 0, 1]);
            16
        }
        _ => {
            name[23] = 1;
            NAME_MAX
        }
    };
    // It must leave no trace: closing resets it.
    let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    let done = syscall::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
        .and_then(|()| syscall::bind(fd, &name[..len]))
        .and_then(|()| syscall::getsockname(fd, &mut name))
        .and_then(|len| {
            syscall::fcntl(fd, libc::F_SETFL, i64::from(libc::O_NONBLOCK))?;
            syscall::connect(fd, &name[..len])
        });
    drop(done); // Over loopback the handshake is complete when the call returns.
}
