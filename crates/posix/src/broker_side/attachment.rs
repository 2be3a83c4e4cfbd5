//! What a process needs from a privileged one: queues, claims, routes to peers.
//!
//! The broker's client implements it ([`super::brokered`]); tests have an implementation over a wire in memory. What takes long is
//! started by one call, and its result is an [`Incident`]. Calls that answer at once may take a round trip to another process; they
//! are made when sockets are set up, never on the data path.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use clock::{Duration, Instant};
use device::Device;
use stack::{Handshake, Hop, LateSegment, LinkId, RouteClamp, SourceFilter, Stray};
use steering::{LocalPorts, Spread};
use transit::{Established, SocketKind};
use wire::MacAddress;

use super::left_to_kernel::{LeftToKernel, MadeBecause};

/// Names a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimId(pub(crate) u64);

/// Names something that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId(pub(crate) u64);

/// What a shadow is claimed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A TCP listener.
    Listener,
    /// Our end of a TCP connection that we make.
    Outgoing,
    /// A UDP socket.
    Udp,
}

/// The peer that a socket will connect to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<'n> {
    /// Its address.
    pub(crate) ip: IpAddr,
    /// The same as connect(2) takes it, for a socket of this domain.
    pub(crate) name: &'n [u8],
    pub(crate) domain: i32,
}

/// The way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The address that packets leave from.
    pub(crate) local: IpAddr,
    /// How they leave.
    pub(crate) hop: Hop,
    /// Who gets the answers.
    pub(crate) answers: Answers,
}

/// Who gets the answers to what leaves by an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// We: all its queues are ours.
    Ours,
    /// We, to what leaves from some ports.
    From(Arc<HomePorts>),
    /// Perhaps a process that does not know the connection.
    Anybodys,
}

/// From which ports answers come by the queues that are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HomePorts {
    /// How the interface spreads packets.
    pub(crate) spread: Spread,
    /// The ports that there are.
    pub(crate) ports: LocalPorts,
}

/// What was found of the way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Routed {
    /// This one.
    Way(Way),
    /// None by an interface of ours: the kernel may have one.
    NotOurs,
    /// The peer, or the router in front of it, does not answer.
    NoHost,
}

/// What happened.
pub(crate) enum Incident {
    /// Packets come and go by this device as well from now on.
    Granted {
        /// The interface.
        link: LinkId,
        /// The kernel's number for it.
        index: u32,
        /// The device.
        device: Box<dyn Device>,
        /// Descriptors that the device keeps, to be closed in a child that must not touch it.
        descriptors: Vec<RawFd>,
    },
    /// The devices of an interface are good for nothing any more.
    Lost(LinkId),
    /// What [`Attachment::begin_route`] asked.
    Routed(RequestId, Routed),
    /// What [`Attachment::begin_inherit`] asked: the kernel's socket, if there is one.
    ParentAnswers(RequestId, Option<OwnedFd>),
    /// What came of all connections that [`Attachment::enqueue`] had begun with by this request, in their order; or of each of them, if there is no
    /// answer.
    Enqueued(RequestId, CameOfBegun),
    /// A connection of the kernel that a claim's listener must accept.
    Adopt {
        /// The claim.
        claim: ClaimId,
        /// The connection.
        socket: OwnedFd,
    },
    /// A child wants a connection that it inherited.
    ChildAsks {
        /// To be named in the answer.
        token: u64,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A handshake that another process began at a listener that is ours too.
    Handshake(Box<Handshake>),
    /// A segment came by another process's queue. If its connection is not ours: [`Attachment::disown`].
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
    /// What [`Attachment::begin_stray`] asked: nobody has the connection.
    Nobodys(Box<Stray>),
    /// An interface takes packets of another size.
    Mtu(LinkId, u16),
    /// An interface puts packets into other queues than before.
    SpreadChanged(LinkId),
    /// Somebody else who has the socket of this claim has left it to the kernel.
    SocketLeft(ClaimId),
    /// Peers on an interface may open connections from these addresses.
    Sources(LinkId, Vec<SourceFilter>),
    /// A neighbour has another hardware address.
    Neighbour {
        /// Of which interface.
        link: LinkId,
        /// The address that it had.
        old: MacAddress,
        /// The address that it has.
        new: MacAddress,
    },
    /// The largest TCP segments by route. They replace the earlier ones.
    SegmentsClamped(Vec<RouteClamp>),
    /// A tool asks for the status: answer by [`Attachment::report`].
    StatusWanted,
    /// A tool has connected.
    Observer(Observer),
    /// Another broker has taken the place of one that was killed, and knows our queues: answer by [`Attachment::claim_again`].
    Returned,
    /// The broker is about to end, and moves connections to the kernel until then.
    Closing,
    /// The broker has ended: new sockets run on the kernel.
    Gone,
}

/// A socket, as status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketStatus {
    /// The program's descriptor.
    pub(crate) fd: RawFd,
    /// Whether it is UDP; else TCP.
    pub(crate) is_udp: bool,
    /// Where it is bound.
    pub(crate) local: SocketAddr,
    /// The peer.
    pub(crate) remote: Option<SocketAddr>,
    /// In the words of ss(8).
    pub(crate) state: &'static str,
    /// On the stack.
    pub(crate) accelerated: bool,
    /// Why not, or not wholly.
    pub(crate) why: Option<String>,
}

/// A process's report about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Some sockets, the most telling first.
    pub(crate) sockets: Vec<SocketStatus>,
    /// How many are not among them.
    pub(crate) more: u64,
    /// Connections on the stack.
    pub(crate) accelerated: u64,
    /// Those that were, or might have been.
    pub(crate) left_to_kernel: LeftToKernel,
    /// Counters, by name.
    pub(crate) counters: Vec<(String, u64)>,
}

/// Why a connection is not the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMoved {
    /// The kernel has heard nothing of it: it can go on here.
    Refused,
    /// The same, for now: there was no answer in time.
    NotYet,
    /// The same, and so it is with all others.
    Never,
    /// The kernel may have a part of it, or may get it yet.
    Lost,
}

/// What came of a connection that is to wait in an accept queue of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueued {
    /// It does, or not.
    Done(Result<(), NotMoved>),
    /// That is yet to be seen: [`Incident::Enqueued`].
    Begun(RequestId),
}

/// What came of all connections of a request that a broker had begun with, or of each of them.
pub(crate) type CameOfBegun = Result<Vec<Result<(), NotMoved>>, NotMoved>;

/// Whether a parent was asked for a connection that a process has inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked<T> {
    /// It will answer, or has.
    Yes(T),
    /// The broker is not there for it yet, or has no room.
    NotYet,
    /// There is nobody to ask.
    Nobody,
}

/// A privileged process, or a stand-in for it.
pub(crate) trait Attachment: Send {
    /// Becomes readable when there is an incident.
    fn descriptor(&self) -> Option<RawFd>;

    /// Sees to it that there is a way to whoever answers the rest, and says whether there is; before anything else is asked.
    fn reach(&mut self) -> bool;

    /// Whether it may be able to be asked later, if it is not now.
    fn may_be_reached(&self) -> bool;

    /// Whether there is an incident already, so that the descriptor need not become readable for it: it may have come while
    /// another call waited for its answer.
    fn has_incident(&self) -> bool;

    /// How long calls look for packets before they sleep.
    fn spin(&self) -> Duration;

    /// How long packets may gather while they sleep, see [`engine::Config::gather`].
    fn gather(&self) -> Duration;

    /// Largest TCP segment to announce and to send, if there is a limit.
    fn mss_clamp(&self) -> Option<u16> {
        None
    }

    /// Whether sockets for this are worth taking from the kernel.
    fn wants(&self, purpose: Purpose) -> bool;

    /// Whether connections that the kernel serves better are to be left to it, and can be now.
    fn leaves_unsuited(&mut self) -> bool {
        false
    }

    /// Asks for queues: what there is now comes as incidents before this returns, what becomes free later comes later.
    fn attach(&mut self);

    /// The devices of an interface that were granted are driven by an engine from now on.
    fn ready(&mut self, link: LinkId);

    /// Has packets to where `shadow` is bound come to us. `None` if there was no answer in time: it may be asked again later. The error is the reason why
    /// not, for people.
    fn claim(&mut self, shadow: BorrowedFd<'_>, purpose: Purpose) -> Result<Option<ClaimId>, String>;

    /// After [`Incident::Returned`]: claims again what was claimed before.
    fn claim_again(&mut self, _shadow: BorrowedFd<'_>, _purpose: Purpose, _claim: ClaimId) {}

    /// Ends claims.
    fn release(&mut self, claims: &[ClaimId]);

    /// Looks for the way to a peer from `from`, if the socket is bound: [`Incident::Routed`], at once if it is known. The error if it is
    /// known at once that there is none at all: the kernel's own connect(2) says why.
    fn begin_route(
        &mut self,
        peer: Peer<'_>,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Result<RequestId, MadeBecause>;

    /// Nobody waits for that way any more, as the broker has not told it in time: until it does, it is not asked for others.
    fn give_up_route(&mut self, _request: RequestId) {}

    /// A connection from a port of which answers should come by our queues has had none in time.
    fn unanswered(&mut self, _local: SocketAddr, _remote: SocketAddr) {}

    /// Has the kernel take a connection that our stack let go of; the kernel's socket. One that is only offered need not move: if nobody has
    /// begun to move it within that time, it goes on at the stack.
    fn move_to_kernel(
        &mut self,
        connection: &Established,
        socket: SocketKind,
        offered_for: Option<Duration>,
    ) -> Result<OwnedFd, NotMoved>;

    /// Has connections that our stack let go of wait in the accept queue of the kernel's `listener`, where all who have that find them; what came of
    /// each, in their order. They may be only offered, as by [`Attachment::move_to_kernel`]; what was begun within that time is not waited for any longer.
    fn enqueue(
        &mut self,
        connections: &[&Established],
        _listener: BorrowedFd<'_>,
        _offered_for: Option<Duration>,
    ) -> Vec<Enqueued> {
        vec![Enqueued::Done(Err(NotMoved::Refused)); connections.len()]
    }

    /// Waits for the [`Incident::Enqueued`] of this request, for as long as for a connection that has to move.
    fn await_enqueued(&mut self, _request: RequestId) -> CameOfBegun {
        Err(NotMoved::Lost)
    }

    /// The same if it has come, without waiting.
    fn look_at_enqueued(&mut self, _request: RequestId) -> Option<CameOfBegun> {
        Some(Err(NotMoved::Lost))
    }

    /// Answers have been waited for long enough: until one comes none is waited for.
    fn give_up(&mut self) {}

    /// Whether that is so, or nobody is there, nor about to be.
    fn has_given_up(&mut self) -> bool {
        false
    }

    /// Whether [`Incident::Returned`] has come, which this takes.
    fn has_returned(&mut self) -> bool {
        false
    }

    /// Gives the kernel a segment that came for a connection after it was moved.
    fn deliver_late(&mut self, segment: &LateSegment);

    /// Asks the other processes that may have a connection of which a segment came to us: [`Incident::Nobodys`] if none has. Gives it back if
    /// there is nobody to ask.
    fn begin_stray(&mut self, stray: Box<Stray>, now: Instant) -> Result<(), Box<Stray>>;

    /// The connection of an [`Incident::Strayed`] is not ours.
    fn disown(&mut self, token: u64);

    /// Answers [`Incident::ChildAsks`] by the kernel's socket.
    fn give_to_child(&mut self, token: u64, socket: BorrowedFd<'_>);

    /// A connection that was asked for by [`Incident::ChildAsks`] is not ours.
    fn refuse_child(&mut self, token: u64);

    /// Asks for a connection that this process has inherited: [`Incident::ParentAnswers`].
    fn begin_inherit(&mut self, local: SocketAddr, remote: SocketAddr) -> Asked<RequestId>;

    /// Our connections are in this book from now on, for who tells their peers if this process is killed.
    fn keep_book(&mut self, _book: BorrowedFd<'_>) {}

    /// Whether another process has claimed the same socket.
    fn is_shared(&mut self, claim: ClaimId) -> bool;

    /// Has the kernel serve the socket of this claim for all who have it.
    fn leave_socket(&mut self, claim: ClaimId);

    /// Has the kernel deliver a datagram that came to `shadow`.
    fn deliver(&mut self, shadow: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr, octets: &[u8]);

    /// Waits until the broker has done what it was told, such as to deliver; not for one that is behind.
    fn settle(&mut self) {}

    /// Hands a connection of the kernel to some process that has its listener.
    fn move_to_sibling(&mut self, socket: OwnedFd);

    /// Hands a handshake of ours, which the stack let go of, to some process that has its listener and gets our queue.
    fn move_handshake(&mut self, handshake: Handshake);

    /// Has new connections of a claim be the kernel's.
    fn drain(&mut self, claim: ClaimId);

    /// The same without waiting for it; `None` if nobody can be asked just now.
    fn begin_to_drain(&mut self, claim: ClaimId) -> Option<RequestId>;

    /// Whether that is so, if it is within that time.
    fn is_drained(&mut self, request: RequestId, within: Duration) -> bool;

    /// Whether answers are overdue, so that nothing is to be asked that may wait.
    fn stands_still(&mut self) -> bool;

    /// Gives back all queues, whose devices are closed, and asks for no others.
    fn give_back(&mut self);

    /// Tells of the process.
    fn report(&mut self, status: Status);

    /// The next thing that happened; does not wait.
    fn poll(&mut self) -> Option<Incident>;

    /// In a child of fork(2): another of the same kind, that knows nothing yet; this one is the parent's.
    fn in_child(self: Box<Self>) -> Option<Box<dyn Attachment>>;
}

/// A tool's connection, and the process id as the tools see it.
pub(crate) struct Observer {
    pub(crate) stream: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) program: String,
}
