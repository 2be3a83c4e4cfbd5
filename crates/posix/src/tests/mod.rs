//! Two simulated processes on a wire in memory, each with its own engine, in one real process.

mod clock;
mod datagrams;
mod departures;
mod epoll;
mod kernel_only;
mod leaving;
mod sharing;
mod source_ports;
mod streams;
mod usage;

use std::collections::{BTreeSet, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ::clock::{Duration, Instant};
use device::memory::{self, MemoryDevice};
use stack::{Handshake, Hop, LateSegment, LinkId, Stray};
use transit::{Established, SocketKind};

use crate::address::{decode, encode};
use crate::broker_side::{
    Answers, Asked, Attachment, CameOfBegun, ClaimId, Enqueued, HomePorts, Incident, MadeBecause, NotMoved,
    Peer, Purpose, RequestId, Routed, Status, Way,
};
use crate::descriptors::fd_table::FdTable;
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::process::Process;
use crate::request::{EpollEvent, Receive, Received, Send, Verdict};
use crate::socket::{Inherited, Place, Role};

pub(crate) use clock::Clock;

/// Where the left process is, and the right one.
const LEFT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const RIGHT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Gives a process one end of the wire, and all that it asks for.
struct Wire {
    device: Option<MemoryDevice>,
    local: IpAddr,
    incidents: VecDeque<Incident>,
    asked: u64,
    others: Arc<Others>,
}

/// Other processes.
#[derive(Default)]
struct Others {
    /// They have all sockets as well.
    share: AtomicBool,
    /// Connections and datagrams that were left to them.
    left: AtomicU32,
    /// Connections that wait in the kernel's accept queues, if it has a way there; else why not.
    accept_queue: Mutex<Option<Result<u32, NotMoved>>>,
    /// How often one was left to the kernel for all.
    left_sockets: AtomicU32,
    /// Those of the connections that have `SO_KEEPALIVE`.
    kept_alive: AtomicU32,
    /// Segments that came too late for connections which the kernel has.
    late: AtomicU32,
    /// Claims that there are, and how many there ever were.
    claimed: Mutex<BTreeSet<ClaimId>>,
    claims: AtomicU32,
    handed_on: Mutex<Vec<Handshake>>,
    /// The far ends of what became the kernel's.
    far_ends: Mutex<Vec<RawFd>>,
    /// What children got: whether `SO_KEEPALIVE` was set, and `O_NONBLOCK`.
    given_to_children: Mutex<Vec<(u32, bool)>>,
    /// How often all queues were given back.
    gave_back: AtomicU32,
    /// Questions to the parent that are not answered, and how many of them there ever were at once.
    asks_parent: AtomicU32,
    asked_parent_at_once: AtomicU32,
    /// The broker does not answer.
    stands_still: AtomicBool,
    /// Nor does it answer to claims.
    claims_none: AtomicBool,
    /// Nor does it pass new connections of claims to the kernel.
    keeps_new: AtomicBool,
    /// It stops in the middle of what it is offered, and these are the requests, and how many connections each has.
    stops_in_the_middle: AtomicBool,
    begun: Mutex<Vec<(RequestId, usize)>>,
    /// It has gone on: what came of them.
    came_of_begun: Mutex<Option<CameOfBegun>>,
    /// Nor has it ever.
    is_silent: AtomicBool,
    /// Connections that it was offered meanwhile.
    tried: AtomicU32,
    /// The kernel takes no connections.
    take_none: AtomicBool,
    /// Ways to peers are being looked for.
    looking: AtomicBool,
    /// The profile keeps connections that send in bulk.
    keeps_unsuited: AtomicBool,
    /// Answers come by our queues to what leaves from some ports only.
    home_ports: Mutex<Option<Arc<HomePorts>>>,
    /// Ends of connections that were said to be unanswered.
    unanswered: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    /// The interface has just begun to put packets into other queues.
    spread_changes: AtomicBool,
    /// What happens while a connection is moved.
    meanwhile: Mutex<Option<Box<dyn FnMut() + std::marker::Send>>>,
}

impl Others {
    fn answers(&self) -> Answers {
        self.home_ports.lock().unwrap().clone().map_or(Answers::Ours, Answers::From)
    }
}

impl Attachment for Wire {
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn reach(&mut self) -> bool {
        !self.others.is_silent.load(Ordering::Relaxed)
    }

    fn may_be_reached(&self) -> bool {
        true
    }

    fn has_incident(&self) -> bool {
        !self.incidents.is_empty()
    }

    fn spin(&self) -> Duration {
        Duration::ZERO
    }

    fn gather(&self) -> Duration {
        Duration::ZERO
    }

    fn wants(&self, _: Purpose) -> bool {
        true
    }

    fn leaves_unsuited(&mut self) -> bool {
        !self.others.keeps_unsuited.load(Ordering::Relaxed)
    }

    fn attach(&mut self) {
        let device = self.device.take().map(Box::new);
        self.incidents.extend(device.map(|device| Incident::Granted {
            link: LinkId(0),
            index: 7,
            device,
            descriptors: Vec::new(),
        }));
    }

    fn ready(&mut self, _: LinkId) {}

    fn claim(&mut self, _: BorrowedFd<'_>, _: Purpose) -> Result<Option<ClaimId>, String> {
        if self.others.claims_none.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.asked += 1;
        let claim = ClaimId(self.asked);
        self.others.claimed.lock().unwrap().insert(claim);
        self.others.claims.fetch_add(1, Ordering::Relaxed);
        Ok(Some(claim))
    }

    fn release(&mut self, claims: &[ClaimId]) {
        let mut claimed = self.others.claimed.lock().unwrap();
        claims.iter().for_each(|claim| assert!(claimed.remove(claim), "it is claimed, and released once"));
    }

    fn begin_route(&mut self, _: Peer<'_>, _: Option<IpAddr>, _: Instant) -> Result<RequestId, MadeBecause> {
        self.asked += 1;
        let way = Way { local: self.local, hop: Hop::default(), answers: self.others.answers() };
        self.incidents.push_back(Incident::Routed(RequestId(self.asked), Routed::Way(way)));
        Ok(RequestId(self.asked))
    }

    fn unanswered(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.others.unanswered.lock().unwrap().push((local, remote));
    }

    /// The kernel's socket is one end of a pair, with what was received ready to be read.
    fn move_to_kernel(
        &mut self,
        connection: &Established,
        _: SocketKind,
        offered_for: Option<Duration>,
    ) -> Result<OwnedFd, NotMoved> {
        if offered_for.is_some() && self.others.stands_still.load(Ordering::Relaxed) {
            self.others.tried.fetch_add(1, Ordering::Relaxed);
            return Err(NotMoved::NotYet);
        }
        if let Some(happens) = self.others.meanwhile.lock().unwrap().as_mut() {
            happens();
        }
        if self.others.take_none.load(Ordering::Relaxed) {
            return Err(NotMoved::Refused);
        }
        let [ours, other] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        let other = other.into_raw_fd();
        syscall::write(other, &connection.received).unwrap();
        self.others.far_ends.lock().unwrap().push(other);
        Ok(ours)
    }

    fn enqueue(
        &mut self,
        connections: &[&Established],
        _: BorrowedFd<'_>,
        offered_for: Option<Duration>,
    ) -> Vec<Enqueued> {
        if offered_for.is_some() && self.others.stands_still.load(Ordering::Relaxed) {
            return vec![Enqueued::Done(Err(NotMoved::NotYet)); connections.len()];
        }
        if offered_for.is_some() && self.others.stops_in_the_middle.load(Ordering::Relaxed) {
            self.asked += 1;
            self.others.begun.lock().unwrap().push((RequestId(self.asked), connections.len()));
            return vec![Enqueued::Begun(RequestId(self.asked)); connections.len()];
        }
        assert!(connections.iter().all(|it| it.unacked.is_empty() && it.unsent.is_empty()));
        let enqueued = match &mut *self.others.accept_queue.lock().unwrap() {
            Some(Ok(waiting)) => {
                *waiting += connections.len() as u32;
                Ok(())
            }
            Some(Err(why)) => Err(*why),
            None => Err(NotMoved::Refused),
        };
        vec![Enqueued::Done(enqueued); connections.len()]
    }

    fn await_enqueued(&mut self, request: RequestId) -> CameOfBegun {
        assert_eq!(self.others.begun.lock().unwrap().remove(0).0, request);
        self.others.came_of_begun.lock().unwrap().take().unwrap()
    }

    fn look_at_enqueued(&mut self, request: RequestId) -> Option<CameOfBegun> {
        let has_come = self.others.came_of_begun.lock().unwrap().is_some();
        has_come.then(|| self.await_enqueued(request))
    }

    fn deliver_late(&mut self, _: &LateSegment) {
        self.others.late.fetch_add(1, Ordering::Relaxed);
    }

    /// There is nobody to ask.
    fn begin_stray(&mut self, stray: Box<Stray>, _: Instant) -> Result<(), Box<Stray>> {
        Err(stray)
    }

    fn disown(&mut self, _: u64) {}

    fn give_to_child(&mut self, _: u64, socket: BorrowedFd<'_>) {
        let mut value = [0; 4];
        syscall::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, &mut value).unwrap();
        let flags = syscall::fcntl(socket.as_raw_fd(), libc::F_GETFL, 0).unwrap();
        let seen = (u32::from_ne_bytes(value), flags & libc::O_NONBLOCK != 0);
        self.others.given_to_children.lock().unwrap().push(seen);
    }

    fn refuse_child(&mut self, _: u64) {}

    /// It is the kernel's at once.
    fn begin_inherit(&mut self, _: SocketAddr, _: SocketAddr) -> Asked<RequestId> {
        self.asked += 1;
        let open = self.others.asks_parent.fetch_add(1, Ordering::Relaxed) + 1;
        self.others.asked_parent_at_once.fetch_max(open, Ordering::Relaxed);
        let [ours, _] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        let ours = Some(ours).filter(|_| !self.others.take_none.load(Ordering::Relaxed));
        self.incidents.push_back(Incident::ParentAnswers(RequestId(self.asked), ours));
        Asked::Yes(RequestId(self.asked))
    }

    fn is_shared(&mut self, _: ClaimId) -> bool {
        self.others.share.load(Ordering::Relaxed)
    }

    fn leave_socket(&mut self, _: ClaimId) {
        self.others.left_sockets.fetch_add(1, Ordering::Relaxed);
    }

    /// It comes from an address of this host: the kernel has no other.
    fn deliver(&mut self, _: BorrowedFd<'_>, local: SocketAddr, _: SocketAddr, octets: &[u8]) {
        self.others.left.fetch_add(1, Ordering::Relaxed);
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.send_to(octets, (Ipv4Addr::LOCALHOST, local.port())).unwrap();
    }

    fn move_to_sibling(&mut self, socket: OwnedFd) {
        self.others.left.fetch_add(1, Ordering::Relaxed);
        let mut value = [0; 4];
        syscall::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, &mut value).unwrap();
        self.others.kept_alive.fetch_add(u32::from_ne_bytes(value), Ordering::Relaxed);
    }

    fn move_handshake(&mut self, handshake: Handshake) {
        self.others.handed_on.lock().unwrap().push(handshake.clone());
    }

    fn drain(&mut self, _: ClaimId) {}

    fn begin_to_drain(&mut self, _: ClaimId) -> Option<RequestId> {
        self.asked += 1;
        Some(RequestId(self.asked))
    }

    fn is_drained(&mut self, _: RequestId, _: Duration) -> bool {
        !self.others.keeps_new.load(Ordering::Relaxed)
    }

    /// Its answers are never so late: each of them is asked for.
    fn stands_still(&mut self) -> bool {
        false
    }

    fn give_back(&mut self) {
        self.others.gave_back.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&mut self, _: Status) {}

    fn poll(&mut self) -> Option<Incident> {
        if self.others.spread_changes.swap(false, Ordering::Relaxed) {
            return Some(Incident::SpreadChanged(LinkId(0)));
        }
        if let Some(outcome) = self.others.came_of_begun.lock().unwrap().take() {
            let (request, _) = self.others.begun.lock().unwrap().remove(0);
            return Some(Incident::Enqueued(request, outcome));
        }
        let is_way = matches!(self.incidents.front(), Some(Incident::Routed(..)));
        if is_way && self.others.looking.load(Ordering::Relaxed) {
            return None;
        }
        self.incidents.pop_front().inspect(|incident| {
            if let Incident::ParentAnswers(..) = incident {
                self.others.asks_parent.fetch_sub(1, Ordering::Relaxed);
            }
        })
    }

    fn in_child(self: Box<Self>) -> Option<Box<dyn Attachment>> {
        None
    }
}

/// Both ends.
struct Pair {
    left: Process,
    right: Process,
    /// Those that the left one knows, and the right one.
    others: Arc<Others>,
    others_of_right: Arc<Others>,
}

impl Pair {
    fn new() -> Pair {
        let (mut left, mut right) = memory::pair(&memory::Config::default());
        Pair::with(Some(left.remove(0)), Some(right.remove(0)))
    }

    /// Processes that want queues, and get none.
    fn without_queues() -> Pair {
        Pair::with(None, None)
    }

    fn with(left: Option<MemoryDevice>, right: Option<MemoryDevice>) -> Pair {
        let (others, others_of_right) = (Arc::<Others>::default(), Arc::<Others>::default());
        let process = |device, local, others| {
            let wire = Wire { device, local, incidents: VecDeque::new(), asked: 0, others };
            Process::new(FdTable::leaked(), Some(Box::new(wire)))
        };
        Pair {
            left: process(left, LEFT, Arc::clone(&others)),
            right: process(right, RIGHT, Arc::clone(&others_of_right)),
            others,
            others_of_right,
        }
    }

    /// Lets packets travel until all have arrived, as programs do that wait.
    fn settle(&self) {
        for _ in 0..50 {
            for process in [&self.left, &self.right] {
                let mut state = process.lock();
                let now = process.now();
                state.turn(now);
                state.queue.send_the_rest(now);
                process.note_turn();
            }
        }
    }

    /// Makes a connection of the left process one that it has inherited.
    fn make_inherited(&self, fd: RawFd) -> SocketId {
        let mut state = self.left.lock();
        let id = state.socket_of(fd).expect("it is ours");
        let (local, remote) = state.endpoints(id).expect("it is connected");
        let inherited = Inherited { local, remote, request: None };
        state.sockets.get_mut(id).expect("it is there").role =
            Role::Stream(Place::FromParent(Box::new(inherited)));
        id
    }

    /// Holds time for both: from here on it goes by [`Pair::pass`], however busy the machine is.
    fn hold(&self) {
        [&self.left, &self.right].into_iter().for_each(|process| process.clock.hold());
    }

    /// Lets time go on after [`Pair::hold`].
    fn pass(&self, time: Duration) {
        [&self.left, &self.right].into_iter().for_each(|process| process.clock.pass(time));
    }

    /// A listener on the left that does not block.
    fn listen(&self) -> (RawFd, SocketAddr) {
        let fd = self.left.listen_anywhere(libc::SOCK_NONBLOCK);
        let port = crate::address::local_of(fd).unwrap().port();
        // The first call that asks for connections makes it ours.
        assert_eq!(self.left.accept4(fd, 0), Err(Errno(libc::EAGAIN)));
        (fd, SocketAddr::new(LEFT, port))
    }

    /// A connection: the descriptor of the left process, and that of the right one. Neither blocks.
    fn connected(&self) -> (RawFd, RawFd) {
        let (_, left, right) = self.accepted(libc::SOCK_NONBLOCK);
        (left, right)
    }

    /// The same with its listener before it, accepted with these flags.
    fn accepted(&self, flags: i32) -> (RawFd, RawFd, RawFd) {
        let (listener, address) = self.listen();
        let right = self.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(self.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        self.settle();
        let left = self.left.accept4(listener, flags).expect("the handshake is complete");
        (listener, left, right)
    }
}

/// Calls as a program would make them: first ours, then the kernel's.
impl Process {
    /// Waits until so many threads sleep in calls.
    fn until_asleep(&self, count: usize) {
        until("threads sleep", || self.lock().queue.sleepers.len() >= count);
    }

    fn tcp_socket(&self, flags: i32) -> RawFd {
        const FREE_BIND: i32 = 15;
        let fd = syscall::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0).unwrap().into_raw_fd();
        syscall::setsockopt(fd, libc::SOL_IP, FREE_BIND, &1i32.to_ne_bytes()).unwrap();
        self.on_socket(fd, libc::AF_INET, libc::SOCK_STREAM | flags, 0);
        fd
    }

    fn listen_anywhere(&self, flags: i32) -> RawFd {
        let fd = self.tcp_socket(flags);
        let (name, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
        syscall::bind(fd, &name[..len]).unwrap();
        syscall::listen(fd, 16).unwrap();
        self.on_listen(fd, 16);
        fd
    }

    fn accept4(&self, fd: RawFd, flags: i32) -> Result<RawFd, Errno> {
        match self.accept(fd, None, flags) {
            Verdict::Done(accepted) => accepted.map(|(fd, _)| fd),
            Verdict::Kernel => {
                let (accepted, _) = syscall::accept(fd, None, flags)?;
                self.on_accept();
                Ok(accepted)
            }
        }
    }

    fn connect_to(&self, fd: RawFd, address: SocketAddr) -> Result<(), Errno> {
        let (name, len) = encode(address, libc::AF_INET);
        done(self.connect(fd, &name[..len]))
    }

    fn recv(&self, fd: RawFd, room: &mut [u8], flags: i32) -> Result<usize, Errno> {
        self.recvmsg(fd, room, flags).map(|received| received.len)
    }

    fn recvmsg(&self, fd: RawFd, room: &mut [u8], flags: i32) -> Result<Received, Errno> {
        let mut buffers = [IoSliceMut::new(room)];
        done(self.receive(fd, &mut Receive { buffers: &mut buffers, name: None, control: None, flags }))
    }

    /// Four octets, by whom the verdict says.
    fn recv4(&self, fd: RawFd) -> Verdict<Received> {
        let mut room = [0; 4];
        let buffers = &mut [IoSliceMut::new(&mut room)];
        self.receive(fd, &mut Receive { buffers, name: None, control: None, flags: 0 })
    }

    fn send_all(&self, fd: RawFd, data: &[u8]) -> Result<usize, Errno> {
        self.send_with(fd, data, 0)
    }

    fn send_with(&self, fd: RawFd, data: &[u8], flags: i32) -> Result<usize, Errno> {
        let buffers = [IoSlice::new(data)];
        done(self.send(fd, &Send { buffers: &buffers, name: None, control: None, flags }))
    }

    /// close(2), and what follows it in time.
    fn shut_down(&self, fd: RawFd) {
        self.let_go(fd);
        self.lock().end_leaving();
    }

    /// close(2).
    fn let_go(&self, fd: RawFd) {
        match self.close(fd) {
            Verdict::Kernel => syscall::close(fd).unwrap(),
            Verdict::Done(result) => result.unwrap(),
        }
    }

    fn epoll(&self) -> RawFd {
        let fd = syscall::epoll_create(libc::EPOLL_CLOEXEC).unwrap();
        self.on_epoll_create(fd);
        fd
    }

    fn watch(&self, epfd: RawFd, op: i32, fd: RawFd, events: i32) -> Result<(), Errno> {
        done(self.epoll_ctl(epfd, op, fd, Some(EpollEvent { events: events as u32, data: fd as u64 })))
    }

    /// What is ready now: descriptors and bits.
    fn ready(&self, epfd: RawFd) -> Vec<(RawFd, i32)> {
        let mut events = [EpollEvent::default(); 8];
        let count = match self.epoll_wait(epfd, &mut events, Some(std::time::Duration::ZERO), None) {
            Verdict::Done(count) => count.unwrap(),
            Verdict::Kernel => 0,
        };
        let mut ready: Vec<_> =
            events[..count].iter().map(|it| ({ it.data } as RawFd, { it.events } as i32)).collect();
        ready.sort_unstable();
        ready
    }

    fn peer_of(&self, fd: RawFd) -> SocketAddr {
        let mut name = [0; 28];
        let len = done(self.getpeername(fd, &mut name)).unwrap();
        decode(&name[..len], libc::AF_INET).unwrap()
    }

    fn option(&self, fd: RawFd, level: i32, option: i32) -> i32 {
        let mut value = [0; 4];
        assert_eq!(done(self.getsockopt(fd, level, option, &mut value)), Ok(4));
        i32::from_ne_bytes(value)
    }
}

/// What a call that is ours returned.
#[track_caller]
fn done<T>(verdict: Verdict<T>) -> Result<T, Errno> {
    match verdict {
        Verdict::Done(result) => result,
        Verdict::Kernel => panic!("left to the kernel"),
    }
}

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Waits for what other threads do.
#[track_caller]
fn until(what: &str, mut happens: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !happens() {
        assert!(began.elapsed() < PATIENCE, "not so: {what}");
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// Waits until the kernel says that there is something to read.
#[track_caller]
fn until_readable(fd: RawFd) {
    let mut asked = [syscall::PollFd { fd, events: libc::POLLIN, revents: 0 }];
    assert_eq!(syscall::ppoll(&mut asked, Some(PATIENCE), None).unwrap(), 1, "nothing comes");
}

const EAGAIN: Errno = Errno(libc::EAGAIN);
