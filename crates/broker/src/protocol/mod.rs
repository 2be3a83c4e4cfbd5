//! The messages between a program's library and the broker.
//!
//! ```text
//! library                                  broker
//!    | -- Hello ------------------------->  |   who it is; the broker asks the kernel whether that is true
//!    | <------------------------ Welcome -- |   interfaces, options
//!    | -- Claim + shadow ---------------->  |   any number of requests, in any order; each has a number, and one answer
//!    | <------------------------ Claimed -- |   with that number
//!    | <------- News::QueueGranted + fds -- |   news have no number, and come at any time
//! ```
//!
//! Messages are JSON, one in each datagram of a SOCK_SEQPACKET Unix socket with an abstract name, so that a program that changed
//! its root directory or its user still reaches the broker. Descriptors travel beside messages (SCM_RIGHTS); each message says which. A
//! client that breaks a rule is disconnected, and its sockets run on the kernel.

mod refusal;
mod report;
mod values;

use std::net::{IpAddr, SocketAddr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use refusal::Refusal;
pub use report::{ProgramReport, SocketReport};
pub use transit::Handshake;
pub use values::{
    Address, ClaimId, Claimed, Grant, HomePorts, Interface, Key, Moving, Options, Profile, Purpose,
    QueueLeft, Route, Sources, Transport, Welcome,
};

/// Said in [`Request::Hello`]; a broker of another version refuses. It counts what an older library or broker would not understand.
pub const VERSION: u32 = 18;

/// Names the broker's socket to programs: its abstract name, without the leading zero octet.
pub const ENVIRONMENT: &str = "SIDESTEP_BROKER";

/// Is there if programs may have rings of io_uring(7).
pub const IO_URING: &str = "SIDESTEP_IO_URING";

/// Octets of a message at most.
pub const MESSAGE_MAX: usize = 64 << 10;

/// Descriptors beside a message to a program at most: packet memory, sockets of 64 queues, and a bulk lane.
pub const FDS_MAX: usize = 66;

/// Queues of an interface that can be lent: those numbered below this.
pub const QUEUES_MAX: u16 = 64;

/// Keys in a [`Request::MoveFor`] at most.
pub const KEYS_MAX: usize = 16;

/// Claims in a [`Request::Release`] at most.
pub const RELEASED_MAX: usize = 1024;

/// Connections in a [`Request::Enqueue`] at most: they fit a message, and so do the reasons of refusals.
pub const ENQUEUED_MAX: usize = 64;

/// Octets of a datagram or segment that is delivered at most: as numbers they fit a message.
pub const DATAGRAM_MAX: usize = 12 << 10;

/// Octets of the headers of a SYN at most: IPv4 or IPv6 without extension headers, and TCP.
pub const SYN_MAX: usize = 120;

/// Characters of a program's name at most.
pub const NAME_MAX: usize = 256;

/// What a library sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToBroker {
    /// The library's number for it, which the answer has too.
    pub id: u64,
    /// What it asks.
    pub request: Request,
}

/// What the broker sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromBroker {
    /// The one answer to a request.
    Answer {
        /// The request's number.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// What comes beside this belongs to the answer with this number, which is yet to come. The broker has no copy of it any more by then: so what the
    /// program closes is closed.
    Ahead {
        /// The request's number.
        id: u64,
    },
    /// The same of news.
    AheadOfNews(News),
    /// Something happened.
    News(News),
}

/// What a library may ask. [`Request::Hello`] comes first, once; another `sidestep run` says [`Request::Join`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Introduces the client: [`Answer::Welcome`].
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The program's name, for people and for its profile.
        program: String,
        /// Its process, as it knows itself. Behind a PID namespace the broker knows it by another number.
        pid: u32,
    },
    /// We are another `sidestep run`, with the broker's privileges: those that descend from us are programs of this broker, too, for as long as we are
    /// connected. [`Answer::Done`]. Comes instead of [`Request::Hello`], and nothing after it.
    Join {
        /// [`VERSION`].
        version: u32,
        /// How our programs are to run.
        options: Options,
    },
    /// Whether we want queues: [`Answer::Attached`] if we do, else [`Answer::Done`]. What there is comes before the answer, what is released
    /// later comes later; both as [`News::QueueGranted`]. Who wants none has closed the sockets of those that it had: they are free.
    Queues {
        /// We do.
        wanted: bool,
    },
    /// Queues are served: the device of a [`News::QueueGranted`] was made, and packets may come. [`Answer::Done`].
    ///
    /// Or we had them of the killed broker whose place this one has taken, and serve them still. What is ours no more then comes before
    /// the answer, as [`News::QueuesLost`], and what may have changed meanwhile. Claims that are not asked for again are forgotten after a
    /// minute.
    Serve {
        /// Links and their queues.
        queues: Vec<(u16, Vec<u16>)>,
        /// [`Welcome::key`] of the killed broker, which is our key again.
        #[serde(default)]
        key: Option<Key>,
    },
    /// Packets to where this socket is bound are to come to us, on our queues: [`Answer::Claimed`]. May be asked without a
    /// queue: the claim takes force with the first one.
    ///
    /// Beside it: the socket.
    Claim {
        /// TCP or UDP.
        transport: Transport,
        /// What the socket is for.
        purpose: Purpose,
        /// The number that the killed broker gave it whose place this one has taken: the claim keeps it.
        #[serde(default)]
        again: Option<ClaimId>,
    },
    /// Claims are no longer needed: [`Answer::Done`], or a refusal if one of them is none of ours.
    Release {
        /// Which; at most [`RELEASED_MAX`].
        claims: Vec<ClaimId>,
        /// They are of listeners whose connections live on: only new ones are the kernel's from now on.
        #[serde(default)]
        drain: bool,
    },
    /// The way to a peer: [`Answer::Route`], within some four seconds.
    Route {
        /// The peer.
        remote: IpAddr,
        /// The address that our end is bound to, if it is.
        from: Option<IpAddr>,
    },
    /// A connection from one of [`Route::home_ports`] has had no answer for some time, and is the kernel's to make: [`Answer::Done`]. If the answer came by
    /// a queue that is not ours, the interface is not what it says; the broker finds out.
    Unanswered {
        /// Our end, which is claimed.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection of ours becomes the kernel's: [`Answer::Moved`]. The stack must have let go of it, and must not answer
    /// segments of it that come on our queues for a while.
    ///
    /// Beside it: a file with the octets that [`Moving`] counts, unless there are none and it is not just offered.
    Move {
        /// The connection.
        connection: Moving,
        /// We go on with it if we are first to add `F_SEAL_SEAL` (fcntl(2)) to the file: [`Refusal::TooLate`]. If the broker is, it moves.
        #[serde(default)]
        offered: bool,
    },
    /// Connections of ours that wait to be accepted go to the accept queue of the kernel's listener, where all who have the listener find them:
    /// [`Answer::Enqueued`]. As with [`Request::Move`], the stack must have let go of them, and gets back those that are refused. The listener must be, or
    /// have been, claimed by us on this connection to the broker.
    ///
    /// Beside it: the listener, and a file with the octets that each [`Moving`] counts, one after the other, unless there are none and they are not just
    /// offered.
    Enqueue {
        /// The connections; at most [`ENQUEUED_MAX`].
        connections: Vec<Moving>,
        /// As in [`Request::Move`], for all of them together.
        #[serde(default)]
        offered: bool,
    },
    /// A connection that one of the processes had which this one was forked from: [`Answer::Moved`].
    MoveFor {
        /// Their keys, as they were inherited, the nearest first; at most [`KEYS_MAX`]. They are asked in this order.
        keys: Vec<Key>,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection of ours, which the kernel has, is another process's from now on: [`Answer::Done`].
    ///
    /// Either a child's, which asked for it by [`News::ChildAsks`]. Or it waited to be accepted at a listener of ours which is closed, and
    /// some other process has the same listener; a refusal if there is none. The listener must be, or have been, claimed by us on this
    /// connection to the broker.
    ///
    /// Beside it: the kernel's socket. A child is refused without one.
    Give {
        /// The [`News::ChildAsks`] that asked for this.
        #[serde(default)]
        token: Option<u64>,
    },
    /// A handshake at a listener that we are about to close; whoever has the same listener and gets our queues is to finish it, as
    /// [`News::Handshake`]. [`Answer::Done`].
    Handshake(Handshake),
    /// Our connections are in this book from now on: [`Answer::Done`]. If we are gone while there are some, their peers are told.
    ///
    /// Beside it: the file, see [`book`](crate::book).
    Book,
    /// Whether another process has claimed the very socket of a claim of ours: [`Answer::Done`], or a refusal if none has.
    IsShared {
        /// Which.
        claim: ClaimId,
    },
    /// The kernel serves the socket of a claim of ours better: [`Answer::Done`]. All others who have claimed it get [`News::SocketLeft`], and whoever claims
    /// it from now on is refused ([`Refusal::SocketLeft`]). The claim is still ours to release.
    LeaveSocket {
        /// Which.
        claim: ClaimId,
    },
    /// What came on our queues is to be the kernel's: [`Answer::Done`]. Either a datagram to a socket of ours, for all who have the socket. Or
    /// a segment for a connection that was moved a moment ago, by [`Request::Move`].
    ///
    /// Beside it: the socket, if it is a datagram.
    Deliver {
        /// Where it went; a datagram's socket is bound there.
        local: SocketAddr,
        /// Where it came from.
        remote: SocketAddr,
        /// What a datagram said, or the TCP header and what follows; at most [`DATAGRAM_MAX`] octets.
        octets: Vec<u8>,
    },
    /// A segment of no connection of ours came on our queues, to where we have a claim. Other processes with a claim there are asked, by
    /// [`News::Strayed`]. The peer is to be reset after a refusal: [`Refusal::Nobody`], as soon as all of them have said that they do not know it, or
    /// [`Refusal::Alone`], at once, if there are none.
    /// [`Answer::Done`] if one of them has moved the connection, or if not all have answered for some seconds.
    Stray {
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The TCP header and what follows; at most [`DATAGRAM_MAX`] octets. None of them if it is not worth passing on: the peer sends it again.
        octets: Vec<u8>,
    },
    /// We do not know the connection of a [`News::Strayed`]: [`Answer::Done`].
    Unknown {
        /// Which.
        token: u64,
    },
    /// What the program looks like: [`Answer::Done`].
    Status(ProgramReport),
}

/// The broker's answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The client is known now.
    Welcome(Welcome),
    /// What there is has come before this, as [`News::QueueGranted`].
    Attached {
        /// Interfaces without a queue for us, and why.
        without: Vec<(u16, Refusal)>,
    },
    /// The claim is in force, or will be with the first queue.
    Claimed {
        /// Its number.
        claim: ClaimId,
        /// Where it takes packets from the kernel now; changes with the interfaces' addresses.
        on: Vec<Claimed>,
    },
    /// The way to a peer.
    Route(Route),
    /// The kernel has the connection.
    ///
    /// Beside it: its socket.
    Moved,
    /// The kernel's listener has the connections; but for these.
    Enqueued {
        /// Which by their places in the list, in order, and why.
        refused: Vec<(usize, Refusal)>,
    },
    /// It is done.
    Done,
    /// It is not possible.
    Refused(Refusal),
}

/// What the broker sends on its own initiative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// Queues are ours, in addition to those that we have; claims take hold of them after [`Request::Serve`].
    ///
    /// Beside it: the packet memory, then one socket for each queue.
    QueueGranted(Grant),
    /// The interface went, or must be opened anew: all that we have of it is good for nothing any more.
    QueuesLost {
        /// Which.
        link: u16,
    },
    /// The interface has these addresses now, and claims follow.
    AddressesChanged {
        /// Which interface.
        link: u16,
        /// All of them.
        addresses: Vec<Address>,
    },
    /// Peers on the interface may open connections from these addresses now.
    SourcesChanged {
        /// Which interface.
        link: u16,
        /// All of them. Behind other tags nothing is known, and all may.
        sources: Vec<Sources>,
    },
    /// The interface takes packets of this size now.
    MtuChanged {
        /// Which interface.
        link: u16,
        /// Octets of its longest IP packet.
        mtu: u16,
    },
    /// Flows to one hardware address must go to another one.
    NeighbourMoved {
        /// On which interface.
        link: u16,
        /// The address that it had.
        old: [u8; 6],
        /// The address that it has.
        new: [u8; 6],
    },
    /// The largest TCP segments by the kernel's routes, in place of those told before. Told behind queues, too, if there are some.
    SegmentsClamped {
        /// Each network, the bits of it that count, and octets.
        clamps: Vec<(IpAddr, u8, u16)>,
    },
    /// Ways to peers may be others than those that were told.
    WaysChanged,
    /// To who has joined: the broker leaves, and whoever takes its place goes on with this queue, which processes share.
    ///
    /// Beside it: what [`device_xdp::SharedQueue::leave`] returns.
    QueueLeft(QueueLeft),
    /// The interface puts packets into other queues than before: ways and [`Route::home_ports`] may be others, and connections that were made by it may get
    /// nothing any more.
    SpreadChanged {
        /// Which.
        link: u16,
    },
    /// The socket of a claim of ours is the kernel's from now on: release the claim. See [`Request::LeaveSocket`].
    SocketLeft {
        /// Which.
        claim: ClaimId,
    },
    /// A child wants a connection that it inherited: answer by [`Request::Give`].
    ChildAsks {
        /// To be named in the answer.
        token: u64,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A segment came by another process's queue. If we do not know the connection, answer by [`Request::Unknown`]; else move it to the
    /// kernel, as its packets do not come to us any more.
    Strayed {
        /// To be named in the answer.
        token: u64,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The TCP header and what follows, or nothing.
        octets: Vec<u8>,
    },
    /// A connection to be accepted at a listener of ours.
    ///
    /// Beside it, or ahead of it: the kernel's socket.
    Adopt {
        /// The listener's claim.
        claim: ClaimId,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A handshake that another process began at a listener that is ours too, on a queue that is, or is about to be.
    Handshake(Handshake),
    /// A tool asks for the status: answer by [`Request::Status`].
    ReportStatus,
    /// A tool has connected: serve it in the protocol of `observe`.
    ///
    /// Beside it: the connection.
    Observer {
        /// The process id as the tools see it.
        pid: u32,
        /// What the broker calls the program.
        program: String,
    },
    /// The broker is about to end. Who gives its queues back soon can move connections to the kernel before.
    Closing,
}

/// Why a message is none.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// It is longer than [`MESSAGE_MAX`].
    #[error("a message of {0} octets")]
    Length(usize),
    /// It cannot be read.
    #[error("unreadable message: {0}")]
    Content(#[from] serde_json::Error),
}

/// The octets of a message.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    let octets = serde_json::to_vec(message)?;
    if octets.len() > MESSAGE_MAX { Err(ProtocolError::Length(octets.len())) } else { Ok(octets) }
}

/// The message that these octets are.
pub fn decode<M: DeserializeOwned>(octets: &[u8]) -> Result<M, ProtocolError> {
    if octets.len() > MESSAGE_MAX {
        return Err(ProtocolError::Length(octets.len()));
    }
    Ok(serde_json::from_slice(octets)?)
}
