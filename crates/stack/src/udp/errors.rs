//! Why a call failed, and ICMP errors.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use wire::icmp::ErrorKind;

/// What ICMP told about a datagram that was sent; what `SO_ERROR` has on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpError {
    /// The port is closed (`ECONNREFUSED`).
    Refused,
    /// The host cannot be reached (`EHOSTUNREACH`).
    HostUnreachable,
    /// Its network cannot be reached (`ENETUNREACH`).
    NetworkUnreachable,
    /// The host does not speak UDP (`ENOPROTOOPT`).
    ProtocolUnreachable,
    /// A router or firewall forbids it (`EACCES`).
    Prohibited,
    /// A header was not understood (`EPROTO`).
    HeaderProblem,
    /// A datagram exceeded the path MTU, which now is this many octets, IP header included (`EMSGSIZE`).
    TooLong {
        /// Octets of the largest IP packet that passes.
        mtu: u16,
    },
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UdpError::Refused => f.write_str("connection refused"),
            UdpError::HostUnreachable => f.write_str("no route to host"),
            UdpError::NetworkUnreachable => f.write_str("network is unreachable"),
            UdpError::ProtocolUnreachable => f.write_str("protocol not available"),
            UdpError::Prohibited => f.write_str("administratively prohibited"),
            UdpError::HeaderProblem => f.write_str("protocol error"),
            UdpError::TooLong { mtu } => write!(f, "longer than the path MTU of {mtu} octets"),
        }
    }
}

impl core::error::Error for UdpError {}

/// One ICMP error in full, for sockets that asked for them (`IP_RECVERR`, `MSG_ERRQUEUE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// What it means.
    pub error: UdpError,
    /// What it said.
    pub kind: ErrorKind,
    /// Its type and code.
    pub type_and_code: (u8, u8),
    /// Where the datagram came from: an address of ours.
    pub local: SocketAddr,
    /// Where the datagram was sent to.
    pub remote: SocketAddr,
    /// The sender of the ICMP error.
    pub reporter: IpAddr,
    /// What came back of the datagram: the first octets of its payload, or all.
    pub payload: Vec<u8>,
}

/// Why a socket was not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpBindError {
    /// Another socket has the address and port, and not both share it (`EADDRINUSE`).
    InUse,
    /// Port 0, or a multicast address: choose a port before.
    Invalid,
    /// There are too many sockets (`ENOBUFS`).
    TooMany,
}

/// Why a socket was not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpConnectError {
    /// There is no such socket (`EBADF`).
    Closed,
    /// The two ends are not of one IP version, or the socket is not for that version (`EAFNOSUPPORT`).
    AddressFamily,
    /// Our address is not the one that the socket is bound to, or no unicast address (`EADDRNOTAVAIL`).
    Source,
    /// Port 0 or the unspecified address (`EINVAL`).
    Destination,
    /// Another socket of this stack is connected so (`EADDRINUSE`).
    InUse,
    /// There are too many next hops (`ENOBUFS`).
    TooMany,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpSendError {
    /// There is no such socket (`EBADF`).
    Closed,
    /// The socket is not connected, and the call names no destination (`EDESTADDRREQ`).
    NotConnected,
    /// The call names no hop, and the destination is not the connected peer (`ENETUNREACH`).
    NoHop,
    /// The socket is bound to any address, and the call names no unicast address of ours (`EADDRNOTAVAIL`).
    Source,
    /// Port 0 or the unspecified address (`EINVAL`).
    Destination,
    /// Source and destination are not of one IP version, or the socket is not for that version (`EAFNOSUPPORT`).
    AddressFamily,
    /// The packet would exceed the path MTU, and we do not fragment (`EMSGSIZE`).
    TooLong {
        /// Octets of the largest IP packet that passes.
        mtu: u16,
    },
    /// More than [`crate::udp::SEGMENTS_MAX`] segments, or more than 65535 octets of them (`EINVAL`).
    Segments,
    /// The send buffer is full (`EAGAIN`); an event reports when there is space.
    WouldBlock,
    /// The stack's memory for datagrams is used up (`ENOBUFS`).
    NoMemory,
    /// ICMP told of an error; this call takes it, and sent nothing.
    Failed(UdpError),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpRecvError {
    /// There is no such socket (`EBADF`).
    Closed,
    /// There is no datagram (`EAGAIN`); an event reports when there is.
    WouldBlock,
    /// ICMP told of an error; this call takes it.
    Failed(UdpError),
}
