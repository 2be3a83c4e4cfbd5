//! Why the broker refuses a request: the text that `sidestep status` shows.

use serde::{Deserialize, Serialize};

/// Why the broker does not do what it was asked. What it is about runs on the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Another version of the protocol.
    #[error(
        "the broker speaks version {0} of the protocol, and the program's library another one: start it again"
    )]
    Version(u32),
    /// All queues belong to other processes. One that is released comes as news.
    #[error("no free queue: other processes have them all")]
    NoFreeQueue,
    /// The interface cannot be used; the text says why.
    #[error("{0}")]
    Interface(String),
    /// There is no interface that can be used.
    #[error("no interface is accelerated")]
    NoInterface,
    /// No descriptor came with the request, or more than it has.
    #[error("the request came without its socket")]
    NoSocket,
    /// The descriptor is no socket of this transport.
    #[error("not an IP socket of this transport")]
    NotThisTransport,
    /// The socket belongs to another network namespace than the interfaces.
    #[error("the socket is in another network namespace")]
    OtherNamespace,
    /// The socket has no port.
    #[error("the socket is not bound")]
    NotBound,
    /// The socket has no peer.
    #[error("the socket is not connected")]
    NotConnected,
    /// The socket's interface is not accelerated, or is a VLAN's.
    #[error("bound to an interface that is not accelerated")]
    OtherDevice,
    /// A listener that does not listen.
    #[error("the socket does not listen")]
    NotListening,
    /// A socket for an outgoing connection that listens or is connected, or a connection that listens.
    #[error("the socket is in use")]
    InUse,
    /// Loopback is the kernel's.
    #[error("bound to loopback")]
    Loopback,
    /// IPv6 link-local addresses are the kernel's.
    #[error("bound to a link-local address")]
    LinkLocal,
    /// No accelerated interface has the address.
    #[error("bound to an address that no accelerated interface has")]
    ForeignAddress,
    /// Several datagrams may come as one packet on all interfaces that there are.
    #[error("UDP on a veth, where a peer on this host may send several datagrams as one packet")]
    MergedDatagrams,
    /// One of those who have the socket has left it to the kernel.
    #[error("one of the processes that have it found that the kernel serves it better")]
    SocketLeft,
    /// There are too many claims.
    #[error("too many claims")]
    TooMany,
    /// The client has no such claim.
    #[error("there is no such claim")]
    NoSuchClaim,
    /// The client has no queue of that interface.
    #[error("this process has no queue of that interface")]
    NotYours,
    /// The peer is this host.
    #[error("the peer is this host")]
    Local,
    /// The kernel has no route there.
    #[error("no route to the peer: {0}")]
    NoRoute(String),
    /// The route does not lead by an accelerated interface.
    #[error("the route uses an interface that is not accelerated")]
    OtherInterface,
    /// The kernel would send from another address than the one that the socket is bound to.
    #[error("bound to another address than the route's source")]
    OtherSource,
    /// Neither the peer nor the router in front of it answers.
    #[error("the next hop does not answer")]
    NoNeighbour,
    /// The connection goes on at the client's stack by now.
    #[error("the broker was asked too long ago")]
    TooLate,
    /// The kernel did not take the connection.
    #[error("the kernel refused the connection: {0}")]
    NotTaken(String),
    /// No connection gets into the accept queues of the kernel's listeners: it takes Linux 6.8.
    #[error("the accept queues of the kernel's listeners cannot be added to: {0}")]
    NoAcceptQueues(String),
    /// The kernel had the connection, or a part of it, and could not go on with it: nobody can.
    #[error("the connection was lost on its way to the kernel: {0}")]
    Lost(String),
    /// The process that has the connection is gone, or has it no longer.
    #[error("the process that had the connection no longer has it")]
    NoParent,
    /// There is no such question.
    #[error("there is no such request")]
    NotAsked,
    /// No other process has the listener.
    #[error("no other process has this listener")]
    Nobody,
    /// No other process has a claim there.
    #[error("no other process has this port")]
    Alone,
    /// Who wants to join has less privilege than the broker.
    #[error("only root, or the broker's user with its capabilities, may join a broker")]
    MayNotJoin,
    /// The broker is about to end, and would leave nothing.
    #[error("the broker is about to end")]
    Ends,
    /// The broker's programs would not outlive it.
    #[error("without a BPF file system at /sys/fs/bpf no other can join")]
    NotKept,
    /// The program's profile keeps it on the kernel.
    #[error("{0}")]
    Profile(String),
}
