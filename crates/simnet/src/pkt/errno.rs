//! Linux's error numbers, by name and in words.

use std::fmt;

/// An error number of Linux on x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub u16);

/// Declares the numbers, their names and their words in one place, so that they cannot disagree.
macro_rules! errors {
    ($($name:ident = $number:literal $words:literal,)+) => {
        impl Errno {
            $(#[doc = $words] pub const $name: Errno = Errno($number);)+

            const ALL: &[(&str, Errno, &str)] = &[$((stringify!($name), Errno($number), $words)),+];
        }
    };
}

errors! {
    EPERM = 1 "Operation not permitted",
    ENOENT = 2 "No such file or directory",
    EINTR = 4 "Interrupted system call",
    EBADF = 9 "Bad file descriptor",
    EAGAIN = 11 "Resource temporarily unavailable",
    ENOMEM = 12 "Cannot allocate memory",
    EACCES = 13 "Permission denied",
    EFAULT = 14 "Bad address",
    EBUSY = 16 "Device or resource busy",
    EEXIST = 17 "File exists",
    ENODEV = 19 "No such device",
    EINVAL = 22 "Invalid argument",
    EMFILE = 24 "Too many open files",
    ENOTTY = 25 "Inappropriate ioctl for device",
    ESPIPE = 29 "Illegal seek",
    EPIPE = 32 "Broken pipe",
    EDOM = 33 "Numerical argument out of domain",
    ENOSYS = 38 "Function not implemented",
    EPROTO = 71 "Protocol error",
    ENOTSOCK = 88 "Socket operation on non-socket",
    EDESTADDRREQ = 89 "Destination address required",
    EMSGSIZE = 90 "Message too long",
    EPROTOTYPE = 91 "Protocol wrong type for socket",
    ENOPROTOOPT = 92 "Protocol not available",
    EPROTONOSUPPORT = 93 "Protocol not supported",
    EOPNOTSUPP = 95 "Operation not supported",
    EAFNOSUPPORT = 97 "Address family not supported by protocol",
    EADDRINUSE = 98 "Address already in use",
    EADDRNOTAVAIL = 99 "Cannot assign requested address",
    ENETDOWN = 100 "Network is down",
    ENETUNREACH = 101 "Network is unreachable",
    ECONNABORTED = 103 "Software caused connection abort",
    ECONNRESET = 104 "Connection reset by peer",
    ENOBUFS = 105 "No buffer space available",
    EISCONN = 106 "Transport endpoint is already connected",
    ENOTCONN = 107 "Transport endpoint is not connected",
    ESHUTDOWN = 108 "Cannot send after transport endpoint shutdown",
    ETIMEDOUT = 110 "Connection timed out",
    ECONNREFUSED = 111 "Connection refused",
    EHOSTDOWN = 112 "Host is down",
    EHOSTUNREACH = 113 "No route to host",
    EALREADY = 114 "Operation already in progress",
    EINPROGRESS = 115 "Operation now in progress",
}

impl Errno {
    /// The number with this name.
    pub fn named(name: &str) -> Option<Errno> {
        let name = if name == "EWOULDBLOCK" { "EAGAIN" } else { name };
        Errno::ALL.iter().find(|(known, ..)| *known == name).map(|(_, errno, _)| *errno)
    }
}

/// As scripts write it: `EAGAIN (Resource temporarily unavailable)`.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Errno::ALL.iter().find(|(_, errno, _)| errno == self) {
            Some((name, _, words)) => write!(f, "{name} ({words})"),
            None => write!(f, "errno {}", self.0),
        }
    }
}
