//! How what was seen is written: the same for the same, and nothing that differs from run to run.

use crate::sys::{Errno, Result};

/// Has a stable form.
pub(crate) trait Show {
    /// That form.
    fn show(&self) -> String;
}

macro_rules! show_by_display {
    ($($kind:ty)*) => {
        $(impl Show for $kind {
            fn show(&self) -> String {
                self.to_string()
            }
        })*
    };
}

show_by_display!(i16 i32 i64 u8 u16 u32 u64 usize bool str String Errno);

impl Show for () {
    fn show(&self) -> String {
        "ok".to_owned()
    }
}

impl<T: Show + ?Sized> Show for &T {
    fn show(&self) -> String {
        (*self).show()
    }
}

impl<T: Show> Show for Result<T> {
    fn show(&self) -> String {
        match self {
            Ok(value) => value.show(),
            Err(errno) => errno.show(),
        }
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Show::show)
    }
}

impl<A: Show, B: Show> Show for (A, B) {
    fn show(&self) -> String {
        format!("{}, {}", self.0.show(), self.1.show())
    }
}

impl<A: Show, B: Show, C: Show> Show for (A, B, C) {
    fn show(&self) -> String {
        format!("{}, {}, {}", self.0.show(), self.1.show(), self.2.show())
    }
}

impl Show for Vec<u8> {
    fn show(&self) -> String {
        show_octets(self)
    }
}

impl Show for [u8] {
    fn show(&self) -> String {
        show_octets(self)
    }
}

/// What list elements are; octets have a form of their own.
trait Element: Show {}
impl Element for String {}
impl Element for &str {}
impl Element for i16 {}
impl Element for i32 {}
impl Element for u32 {}
impl Element for usize {}
impl Element for bool {}
impl Element for Vec<u8> {}

impl<T: Element> Show for Vec<T> {
    fn show(&self) -> String {
        let elements: Vec<String> = self.iter().map(Show::show).collect();
        format!("[{}]", elements.join(", "))
    }
}

/// Text as text, what [`pattern`] makes by its length, all else in hexadecimal.
fn show_octets(octets: &[u8]) -> String {
    const LEN_MAX: usize = 40;
    if octets.len() > LEN_MAX {
        let kind = if octets == pattern(octets.len()) { "the pattern" } else { "something else" };
        return format!("{} octets of {kind}", octets.len());
    }
    if octets.iter().all(|octet| octet.is_ascii_graphic() || *octet == b' ') {
        return format!("{:?}", String::from_utf8_lossy(octets));
    }
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(" ")
}

/// Octets that show where they belong.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    pattern_from(0, len)
}

/// `len` octets of the pattern, beginning with that at `start`.
pub(crate) fn pattern_from(start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

macro_rules! flags {
    ($prefix:literal $value:expr; $($name:ident)*) => {{
        let mut rest = $value;
        let mut names: Vec<String> = Vec::new();
        $(if rest & libc::$name != 0 {
            names.push(stringify!($name).trim_start_matches($prefix).to_owned());
            rest &= !libc::$name;
        })*
        if rest != 0 {
            names.push(format!("{rest:#x}"));
        }
        if names.is_empty() { "none".to_owned() } else { names.join("|") }
    }};
}

/// Events of poll(2).
pub(crate) fn poll_names(events: i16) -> String {
    flags!("POLL" events; POLLIN POLLPRI POLLOUT POLLERR POLLHUP POLLNVAL POLLRDNORM POLLRDBAND POLLWRNORM POLLWRBAND
        POLLRDHUP)
}

/// Events of epoll(7).
pub(crate) fn epoll_names(events: u32) -> String {
    flags!("EPOLL" events as i32; EPOLLIN EPOLLPRI EPOLLOUT EPOLLERR EPOLLHUP EPOLLRDNORM EPOLLRDBAND EPOLLWRNORM
        EPOLLWRBAND EPOLLRDHUP)
}

/// Flags of messages.
pub(crate) fn message_names(flags: i32) -> String {
    flags!("MSG_" flags; MSG_OOB MSG_PEEK MSG_TRUNC MSG_CTRUNC MSG_EOR MSG_ERRQUEUE MSG_CMSG_CLOEXEC)
}

/// Flags of open files.
pub(crate) fn file_names(flags: i32) -> String {
    flags!("O_" flags; O_RDWR O_WRONLY O_NONBLOCK O_APPEND O_ASYNC O_DIRECT)
}

/// States of TCP as the kernel numbers them, include/net/tcp_states.h.
pub(crate) fn tcp_state_name(state: u8) -> &'static str {
    const NAMES: [&str; 13] = [
        "none",
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
    ];
    NAMES.get(usize::from(state)).unwrap_or(&"unknown")
}
