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

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use device_xdp::LentLayout;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tcp_repair::Established;

pub use crate::refusal::Refusal;
pub use crate::report::{ProgramReport, SocketReport};

/// Said in [`Request::Hello`]; a broker of another version refuses. It counts what an older library or broker would not understand.
pub const VERSION: u32 = 5;

/// Names the broker's socket to programs: its abstract name, without the leading zero octet.
pub const ENVIRONMENT: &str = "SIDESTEP_BROKER";

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
    /// Something happened.
    News(News),
}

/// What a library may ask. [`Request::Hello`] comes first, once.
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
    /// Queues, please: [`Answer::Attached`]. What there is comes before the answer, what is released later comes later; both as
    /// [`News::QueueGranted`].
    Attach,
    /// Queues of a [`News::QueueGranted`] are served: the device was made, and packets may come. [`Answer::Done`].
    Ready {
        /// Of which interface.
        link: u16,
        /// Which.
        queues: Vec<u16>,
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
    },
    /// Claims are no longer needed: [`Answer::Done`], or a refusal if one of them is none of ours.
    Release {
        /// Which; at most [`RELEASED_MAX`].
        claims: Vec<ClaimId>,
    },
    /// The listener is closed, and its connections live on: new ones are the kernel's from now on. [`Answer::Done`].
    Drain {
        /// Which.
        claim: ClaimId,
    },
    /// The way to a peer: [`Answer::Route`], within some four seconds.
    Route {
        /// The peer.
        remote: IpAddr,
        /// The address that our end is bound to, if it is.
        from: Option<IpAddr>,
    },
    /// A connection of ours becomes the kernel's: [`Answer::Moved`]. The stack must have let go of it, and must not answer
    /// segments of it that come on our queues for a while.
    ///
    /// Beside it: a file with the octets that [`Moving`] counts, unless there are none.
    Move {
        /// The connection.
        connection: Moving,
    },
    /// Answers a [`News::Surrender`]: [`Answer::Done`].
    ///
    /// Beside it: the kernel's socket of the connection, unless that is not ours.
    Surrendered {
        /// The [`News::Surrender`] that asked for this.
        token: u64,
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
    /// A connection that waited to be accepted at a listener of ours which is closed; some other process that has the same listener
    /// is to have it: [`Answer::Done`], or a refusal if there is none. The listener must be, or have been, claimed by us on this
    /// connection to the broker.
    ///
    /// Beside it: the kernel's socket.
    Adopt,
    /// A handshake at a listener that we are about to close; whoever has the same listener and gets our queues is to finish it, as
    /// [`News::Handshake`]. [`Answer::Done`].
    Handshake(Handshake),
    /// Whether another process has claimed the very socket of a claim of ours: [`Answer::Done`], or a refusal if none has.
    IsShared {
        /// Which.
        claim: ClaimId,
    },
    /// A datagram that came to a socket of ours is to be the kernel's, for all who have the socket: [`Answer::Done`].
    ///
    /// Beside it: the socket.
    Deliver {
        /// Where it went, to which the socket is bound.
        local: SocketAddr,
        /// Where it came from.
        remote: SocketAddr,
        /// What it said, at most [`DATAGRAM_MAX`] octets.
        octets: Vec<u8>,
    },
    /// A segment came on our queues for a connection that was moved a moment ago, by [`Request::Move`]: the kernel is to have it.
    /// [`Answer::Done`].
    Late {
        /// The end that was ours.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The TCP header and what follows, at most [`DATAGRAM_MAX`] octets.
        octets: Vec<u8>,
    },
    /// Our queues are free, as their sockets are closed, and we want no others: the opposite of [`Request::Attach`].
    /// [`Answer::Done`].
    GiveBack,
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
    /// It is done.
    Done,
    /// It is not possible.
    Refused(Refusal),
}

/// What the broker sends on its own initiative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// Queues are ours, in addition to those that we have; claims take hold of them after [`Request::Ready`].
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
    /// A child wants a connection that it inherited: answer by [`Request::Surrendered`].
    Surrender {
        /// To be named in the answer.
        token: u64,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection to be accepted at a listener of ours.
    ///
    /// Beside it: the kernel's socket.
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
    /// The broker ends. What is claimed becomes the kernel's.
    Closing,
}

/// Number of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(pub u64);

/// A transport that can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// What a shadow is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// TCP: it listens.
    Listener,
    /// TCP: it is bound, and our end of a connection that we make.
    Outgoing,
    /// UDP: it is bound, by bind(2) or connect(2).
    Udp,
}

/// What a client learns at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Interfaces that queues may come from.
    pub interfaces: Vec<Interface>,
    /// How the program is to run.
    pub options: Options,
    /// Proves to the broker that a process was forked from this one.
    pub key: Key,
}

/// A random number that the broker gives to each client, and that its children inherit with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub [u64; 2]);

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Ours, which all messages use: it stays the same when the interface goes and comes back.
    pub link: u16,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Octets of its longest IP packet.
    pub mtu: u16,
    /// Its addresses, and those of VLAN interfaces on it.
    pub addresses: Vec<Address>,
    /// Its queues.
    pub queues: u16,
}

/// An address, and the VLAN identifiers in front of packets to it, outer first, 0 where there is no tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// VLAN identifiers.
    pub vlan: [u16; 2],
}

/// From which addresses connections may be opened behind certain VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// VLAN identifiers, outer first, 0 where there is no tag.
    pub vlan: [u16; 2],
    /// Ranges, first and last address, that do not overlap, in ascending order; those of IPv4 come first.
    pub allowed: Vec<(IpAddr, IpAddr)>,
}

/// How a program is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Microseconds that a call polls before it sleeps.
    pub spin_us: u32,
    /// Microseconds that packets may gather while it sleeps.
    pub gather_us: u32,
    /// Largest TCP segment to announce and to send; `None` takes what the interface allows.
    #[serde(default)]
    pub mss_clamp: Option<u16>,
    /// Whether to say on stderr what becomes of each socket.
    pub verbose: bool,
    /// What is known of the program.
    pub profile: Profile,
}

/// What is known of a program: what of it is worth taking from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// TCP listeners.
    pub listeners: bool,
    /// TCP connections that it makes.
    pub outgoing: bool,
    /// UDP sockets.
    pub udp: bool,
    /// Connections that send in bulk move to the kernel.
    pub leaves_bulk: bool,
    /// Why not all.
    pub reason: Option<String>,
}

/// A connection whose octets are in the file beside the message: first received, then not acknowledged, then not sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// All but the octets.
    pub connection: Established,
    /// Octets received and not read.
    pub received_len: u32,
    /// Octets sent and not acknowledged.
    pub unacked_len: u32,
    /// Octets that were never sent.
    pub unsent_len: u32,
}

/// A handshake that a peer has begun and whose ACK is missing: as `stack::Handshake`, whose fields have the same names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// The interface that its packets leave by.
    pub link: u16,
    /// Our hardware address.
    pub source: [u8; 6],
    /// The next hop's.
    pub destination: [u8; 6],
    /// VLAN tags in front of its packets, outer first: protocol identifier and control information.
    pub tags: [Option<(u16, u16)>; 2],
    /// The sequence number of the peer's SYN.
    pub irs: u32,
    /// The sequence number of ours.
    pub iss: u32,
    /// Largest segment that the peer takes.
    pub peer_mss: u16,
    /// The shifts of the peer's windows and of ours.
    pub window_scales: Option<(u8, u8)>,
    /// Both sides agreed on SACK.
    pub sack_permitted: bool,
    /// Both sides agreed on ECN.
    pub ecn: bool,
    /// Our timestamp and the peer's.
    pub timestamps: Option<(u32, u32)>,
    /// The window that our SYN-ACK offered.
    pub window: u16,
    /// SYN-ACKs sent.
    pub syn_acks: u8,
    /// Timeouts so far.
    pub timeouts: u8,
    /// Microseconds since the SYN came.
    pub age_us: u64,
    /// The headers of the SYN, if the listener wants them; at most [`SYN_MAX`] octets.
    pub saved_syn: Option<Vec<u8>>,
}

/// Queues that become ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Of which interface, as it is now.
    pub interface: Interface,
    /// Their numbers.
    pub queues: Vec<u16>,
    /// Whether these and those that we have are all that the interface has.
    pub all_queues_yours: bool,
    /// Whether they go on if the broker is killed.
    #[serde(default)]
    pub is_kept: bool,
    /// From which addresses peers may open connections.
    pub sources: Vec<Sources>,
    /// How to map what comes beside it.
    pub layout: LentLayout,
}

/// Where a claim takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// On which interface.
    pub link: u16,
    /// To which address.
    pub local: Address,
}

/// The way to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The address that packets leave from.
    pub local: IpAddr,
    /// By which interface.
    pub link: u16,
    /// Our hardware address.
    pub source: [u8; 6],
    /// The next hop's.
    pub destination: [u8; 6],
    /// VLAN identifiers in front of packets, outer first, 0 where there is no tag.
    pub vlan: [u16; 2],
    /// Octets of the longest IP packet there.
    pub mtu: u16,
    /// Whether all queues of the interface are ours. If not, answers may arrive at a process that does not know the connection.
    pub all_queues_yours: bool,
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
