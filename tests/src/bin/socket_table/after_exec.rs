//! What this program does when a check has started it once more, to see what a program keeps that is started by another.

use std::os::fd::RawFd;

use crate::sys;

/// Does what the words say, and ends with what came of it: 0 if it went well.
pub(crate) fn obey(words: &[String]) -> ! {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let status = match words[..] {
        ["echo", fd] => status_of(fd.parse().map_err(|_| sys::Errno(libc::EINVAL)).and_then(echo)),
        ["accept", fd] => status_of(fd.parse().map_err(|_| sys::Errno(libc::EINVAL)).and_then(accept)),
        ["is-open", fd] => status_of(fd.parse().map_err(|_| sys::Errno(libc::EINVAL)).and_then(is_open)),
        _ => 126,
    };
    sys::exit(status)
}

fn status_of(result: sys::Result<()>) -> i32 {
    result.map_or_else(|errno| errno.0, |()| 0)
}

/// Sends back what comes, once.
fn echo(fd: RawFd) -> sys::Result<()> {
    let octets = sys::read(fd, 1000)?;
    sys::write(fd, &octets).map(drop)
}

/// Greets who connects next.
fn accept(fd: RawFd) -> sys::Result<()> {
    sys::poll_one(fd, libc::POLLIN, 2000)?;
    let accepted = sys::accept(fd)?;
    sys::write(accepted, b"from the new program")?;
    sys::close(accepted)
}

fn is_open(fd: RawFd) -> sys::Result<()> {
    sys::fcntl(fd, libc::F_GETFD, 0).map(drop)
}
