//! Readiness as poll(2) and epoll(7) tell it.

use stack::tcp::Readiness;

pub(crate) const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
pub(crate) const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
pub(crate) const HANG_UP: u32 = (libc::EPOLLHUP | libc::EPOLLRDHUP) as u32 | READABLE;

/// `tcp_poll` of Linux.
pub(crate) fn poll_of_connection(readiness: Readiness) -> u32 {
    let parts = [
        (readiness.readable, READABLE),
        (readiness.read_closed, READABLE | libc::EPOLLRDHUP as u32),
        (readiness.writable, WRITABLE),
        (readiness.hangup, libc::EPOLLHUP as u32),
        (readiness.error, libc::EPOLLERR as u32),
        (readiness.urgent, libc::EPOLLPRI as u32),
    ];
    parts.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, bits)| all | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_polls_as_on_linux() {
        let open = Readiness { writable: true, ..Readiness::default() };
        assert_eq!(poll_of_connection(open), WRITABLE);
        let half = Readiness { readable: true, read_closed: true, ..open };
        assert_eq!(poll_of_connection(half), WRITABLE | READABLE | libc::EPOLLRDHUP as u32);
        let reset = Readiness { hangup: true, error: true, ..half };
        assert_eq!(poll_of_connection(reset) & (libc::EPOLLHUP | libc::EPOLLERR) as u32, 0x18);
    }
}
