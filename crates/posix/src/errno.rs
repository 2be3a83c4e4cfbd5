//! Errors as the C library has them. Every error of the stack is converted here, and nowhere else.

use stack::tcp::{RecvError, SendError, TcpError};
use stack::udp::{UdpConnectError, UdpError, UdpRecvError, UdpSendError};
use stack::{ConnectError, ListenError};

/// A value of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Short for `Err(Errno(..))`.
pub(crate) fn fail<T>(errno: i32) -> Result<T, Errno> {
    Err(Errno(errno))
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<TcpError> for Errno {
    fn from(error: TcpError) -> Errno {
        Errno(match error {
            TcpError::Refused => libc::ECONNREFUSED,
            TcpError::Reset => libc::ECONNRESET,
            TcpError::BrokenPipe => libc::EPIPE,
            TcpError::TimedOut => libc::ETIMEDOUT,
            TcpError::HostUnreachable => libc::EHOSTUNREACH,
            TcpError::NetworkUnreachable => libc::ENETUNREACH,
            TcpError::ProtocolUnreachable => libc::ENOPROTOOPT,
            TcpError::Aborted => libc::ECONNABORTED,
        })
    }
}

impl From<SendError> for Errno {
    fn from(error: SendError) -> Errno {
        match error {
            SendError::WouldBlock | SendError::Connecting => Errno(libc::EAGAIN),
            SendError::Closed | SendError::NotConnected => Errno(libc::EPIPE),
            SendError::Failed(error) => error.into(),
        }
    }
}

impl From<RecvError> for Errno {
    fn from(error: RecvError) -> Errno {
        match error {
            RecvError::WouldBlock => Errno(libc::EAGAIN),
            RecvError::NotConnected => Errno(libc::ENOTCONN),
            RecvError::Failed(error) => error.into(),
        }
    }
}

impl From<ConnectError> for Errno {
    fn from(error: ConnectError) -> Errno {
        Errno(match error {
            ConnectError::AddressFamily => libc::EAFNOSUPPORT,
            ConnectError::InUse => libc::EADDRNOTAVAIL,
            ConnectError::TooMany => libc::ENOBUFS,
        })
    }
}

impl From<ListenError> for Errno {
    fn from(error: ListenError) -> Errno {
        Errno(match error {
            ListenError::InUse => libc::EADDRINUSE,
            ListenError::TooMany => libc::ENOBUFS,
        })
    }
}

impl From<UdpError> for Errno {
    fn from(error: UdpError) -> Errno {
        Errno(match error {
            UdpError::Refused => libc::ECONNREFUSED,
            UdpError::HostUnreachable => libc::EHOSTUNREACH,
            UdpError::NetworkUnreachable => libc::ENETUNREACH,
            UdpError::ProtocolUnreachable => libc::ENOPROTOOPT,
            UdpError::Prohibited => libc::EACCES,
            UdpError::HeaderProblem => libc::EPROTO,
            UdpError::TooLong { .. } => libc::EMSGSIZE,
        })
    }
}

impl From<UdpRecvError> for Errno {
    fn from(error: UdpRecvError) -> Errno {
        match error {
            UdpRecvError::Closed => Errno(libc::EBADF),
            UdpRecvError::WouldBlock => Errno(libc::EAGAIN),
            UdpRecvError::Failed(error) => error.into(),
        }
    }
}

impl From<UdpConnectError> for Errno {
    fn from(error: UdpConnectError) -> Errno {
        Errno(match error {
            UdpConnectError::Closed => libc::EBADF,
            UdpConnectError::AddressFamily => libc::EAFNOSUPPORT,
            UdpConnectError::Source => libc::EADDRNOTAVAIL,
            UdpConnectError::Destination => libc::EINVAL,
            UdpConnectError::InUse => libc::EADDRINUSE,
            UdpConnectError::TooMany => libc::ENOBUFS,
        })
    }
}

impl From<UdpSendError> for Errno {
    fn from(error: UdpSendError) -> Errno {
        Errno(match error {
            UdpSendError::Closed => libc::EBADF,
            UdpSendError::NotConnected => libc::EDESTADDRREQ,
            UdpSendError::NoHop => libc::ENETUNREACH,
            UdpSendError::Source => libc::EADDRNOTAVAIL,
            UdpSendError::Destination | UdpSendError::Segments => libc::EINVAL,
            UdpSendError::AddressFamily => libc::EAFNOSUPPORT,
            UdpSendError::TooLong { .. } => libc::EMSGSIZE,
            UdpSendError::WouldBlock => libc::EAGAIN,
            UdpSendError::NoMemory => libc::ENOBUFS,
            UdpSendError::Failed(error) => return error.into(),
        })
    }
}
