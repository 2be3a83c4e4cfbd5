//! The other end: a process on the kernel's sockets in another namespace, told what to do over a Unix socket, which namespaces do not
//! separate.
//!
//! Each conversation is served by a process of its own, with its own sockets, which go when the conversation ends. A request is a line
//! of words, [`session`] has them all; its answer is a line, `ok` with more words or `error` and a number.

mod client;
mod commands;
mod session;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

pub(crate) use client::{Datagram, Peer, Slot};

use crate::sys;

/// Serves conversations at a new Unix socket for ever.
pub(crate) fn serve(path: &Path) -> io::Result<()> {
    let listener = listen(path)?;
    println!("socket_table: ready");
    serve_on(&listener);
    Ok(())
}

/// The Unix socket of a peer to be.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path)
}

/// Serves conversations; returns an exit status when no more can be.
pub(crate) fn serve_on(listener: &UnixListener) -> i32 {
    // Nobody waits for the processes, and a connection of the other side's that is gone is no reason to end.
    if sys::ignore(libc::SIGCHLD).and_then(|()| sys::ignore(libc::SIGPIPE)).is_err() {
        return 1;
    }
    while let Ok((stream, _)) = listener.accept() {
        let served = sys::fork_to(|| {
            let _ = sys::close(listener.as_raw_fd()); // It only serves this one.
            session::converse(stream);
            0
        });
        if served.is_err() {
            return 1;
        }
    }
    1
}
