//! The broker's turns: what it is made of, and what it does next. It never waits for a client.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use clock::{Duration, Instant};
use control::sock_diag::tcp_listeners;
use control::{ClampWatch, NetlinkMonitor};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use super::accept_queues::{AcceptQueues, Attach};
use super::books_left::BooksLeft;
use super::broker::{Broker, own_namespace, watch};
use super::config::OpenError;
use super::data_path::DataPaths;
use super::family::{Families, Family};
use super::handshakes::Handshakes;
use super::helpers::{Helpers, Passed, Theirs, close_all};
use super::kept_sockets::KeptSockets;
use super::kernel_memory::KernelMemory;
use super::machine::random_numbers;
use super::pins::Kept;
use super::port::Port;
use super::privilege::Identify;
use super::questions::Questions;
use super::recent_moves::RecentMoves;
use super::routes::Routes;
use super::strangers::{Strangers, set_rights};
use super::strays::Strays;
use super::successor::Succession;
use super::token;
use super::under_way::UnderWay;
use crate::machine_clock;
use crate::protocol::{News, Options};
use crate::registry::{ClientId, LinkNumber, Registry};
use crate::transfer::Inbox;

/// How often the interfaces' queues are counted, of which the kernel does not tell, and shadows are looked after.
const TICK: Duration = Duration::from_secs(1);
/// Turns that are further apart are those of a broker that was stopped in between (SIGSTOP), as it has one with every tick.
const STOPPED: Duration = Duration::from_secs(2);
/// Interfaces at most.
const INTERFACES_MAX: usize = 64;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What a broker is to do.
pub(super) struct Setup {
    /// Where programs reach it: the abstract name, and the socket.
    pub(super) socket: (String, OwnedFd),
    /// Names of interfaces, and what they are to programs. They need not be there yet.
    pub(super) interfaces: Vec<(LinkNumber, String)>,
    /// It takes the place of a broker that was killed.
    pub(super) is_successor: bool,
    /// How they are used.
    pub(super) paths: Box<dyn DataPaths>,
    /// The processes that may connect.
    pub(super) family: Family,
    /// How programs are to run.
    pub(super) options: Options,
    /// Where they have their control sockets.
    pub(super) observed_in: Option<PathBuf>,
    /// Queues are in zero-copy mode whatever the privileges of who has them.
    pub(super) zero_copy: bool,
    /// Tells which processes may share queues.
    pub(super) identify: Identify,
    /// Attaches what the accept queues of the kernel's listeners take.
    pub(super) accept_queue: Attach,
}

impl Broker {
    /// Listens, follows the kernel from now on, and attaches to those of the interfaces that are there.
    pub(super) fn open(setup: Setup, now: Instant) -> Result<Broker, OpenError> {
        let (name, listener) = setup.socket;
        let helpers = Arc::<Helpers>::default();
        let listener = Theirs::new(listener, rustix::process::geteuid().as_raw(), &helpers);
        let namespace = own_namespace()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let monitor = NetlinkMonitor::new()?;
        watch(&epoll, &listener, token::LISTENER, epoll::EventFlags::IN)?;
        let under_way = UnderWay::new()?;
        watch(&epoll, under_way.fd(), token::HELPERS, epoll::EventFlags::IN)?;
        watch(&epoll, monitor.fd(), token::NETLINK, epoll::EventFlags::IN)?;
        let names = setup.interfaces.into_iter().take(INTERFACES_MAX);
        let mut broker = Broker {
            paths: setup.paths,
            observed_in: setup.observed_in,
            zero_copy: setup.zero_copy,
            identify: setup.identify,
            is_closing: false,
            accept_queues: AcceptQueues::new(setup.accept_queue),
            families: Families::new(setup.family, setup.options),
            namespace,
            name,
            listener,
            deaf_until: None,
            epoll,
            monitor,
            ports: names.map(|(link, name)| Port::new(link, name)).collect(),
            registry: Registry::default(),
            succession: setup.is_successor.then(Succession::default),
            connections: BTreeMap::new(),
            kept: KeptSockets::default(),
            kernel_memory: KernelMemory::of_this_machine(),
            doomed: Vec::new(),
            orphans: Vec::new(),
            handshakes: Handshakes::default(),
            moves: RecentMoves::default(),
            farewells: BooksLeft::default(),
            clamps: ClampWatch::default(),
            routes: Routes::default(),
            questions: Questions::default(),
            strays: Strays::default(),
            sending: 0,
            gives: BTreeMap::new(),
            strangers: Strangers::default(),
            inbox: Inbox::new(),
            helpers,
            under_way,
            look: None,
            next_tick: now + TICK,
            last_turn: now,
            notices: Vec::new(),
        };
        if setup.is_successor {
            broker.registry.number_from(machine_clock::nanoseconds());
        }
        broker.follow_segment_clamps(true, now);
        broker.follow_interfaces(now);
        broker.settle(now);
        Ok(broker)
    }

    /// When to call [`Broker::turn`] at the latest.
    pub(super) fn poll_timeout(&self, now: Instant) -> Instant {
        let ports = self.ports.iter().filter_map(|port| port.poll_timeout(now));
        let others = [
            self.registry.poll_timeout(),
            self.routes.poll_timeout(),
            self.questions.poll_timeout(),
            self.strays.poll_timeout(),
            self.under_way.poll_timeout(),
            self.deaf_until,
            self.orphans_due(),
            self.look.is_some().then_some(now),
        ];
        ports.chain(others.into_iter().flatten()).fold(self.next_tick, Instant::min)
    }

    /// Does what there is to do, without waiting for anything.
    pub(super) fn turn(&mut self, now: Instant) {
        if now.since(std::mem::replace(&mut self.last_turn, now)) >= STOPPED {
            self.helpers.begin_anew();
        }
        let mut events = Vec::with_capacity(64);
        let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal leaves the events for the next turn.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait));
        let mut kernel_has_news = false;
        for event in events {
            match event.data.u64() {
                token::LISTENER => self.accept(now),
                token::NETLINK => kernel_has_news = true,
                token::HELPERS => self.hear_helpers(now),
                other => self.serve(token::client(other), other, event.flags, now),
            }
        }
        let is_tick = now >= self.next_tick;
        if kernel_has_news {
            self.read_news(now);
        }
        if kernel_has_news || is_tick || self.ports.iter().any(Port::is_wanted) {
            self.follow_interfaces(now);
        }
        if is_tick {
            self.next_tick = now + TICK;
            self.look_after_shadows();
            self.look_after_left();
            self.look_after_sharers(now);
            self.end_strangers(now);
            self.helpers.retry();
        }
        self.go_on_looking(now);
        self.listen_again(now);
        self.settle_orphans(tcp_listeners, now);
        self.settle(now);
    }

    /// Does all that is due.
    fn settle(&mut self, now: Instant) {
        self.settle_registry(now);
        self.answer_routes(now);
        for question in self.questions.expire(now, None) {
            self.ask_on(question, now);
        }
        self.ask_what_was_early(now);
        let unanswered = self.strays.expire(now);
        self.settle_strays(unanswered, Ok(()), now);
        self.end_what_is_overdue(now);
        self.settle_registry(now); // Somebody may have been disconnected.
        self.bid_farewells();
        close_all(self.doomed.drain(..));
    }

    /// Tells all clients that this is the end: they move what they have to the kernel, and give their queues back. Nobody gets one any more.
    pub(super) fn begin_to_close(&mut self, now: Instant) {
        self.is_closing = true;
        self.registry.refuse_all();
        self.tell_all(&News::Closing, now);
    }

    /// Whether clients have queues, or something is about to be sent to them, or to the peers of those that are gone.
    pub(super) fn has_to_finish(&self) -> bool {
        self.has_lent() || self.has_farewells() || self.sending > 0
    }

    fn has_lent(&self) -> bool {
        self.ports.iter().any(|port| self.registry.queues_lent(port.link) > 0)
    }

    /// Whether it has all of the interfaces that the killed broker had whose place it is to take.
    pub(super) fn has_taken_over(&self, left: &[Kept]) -> bool {
        let is_open = |link| self.ports.iter().any(|port| port.link == link && port.open.is_some());
        left.iter().filter(|kept| kept.broker == self.name).all(|kept| is_open(kept.link))
    }

    /// Whether another `sidestep run` has joined, that can take this one's place.
    pub(super) fn has_joined(&self) -> bool {
        self.families.are_several()
    }

    /// Lets go of all interfaces as if by SIGKILL. Who has joined gets what the next broker goes on by, and finds the place free when its connection
    /// ends.
    pub(super) fn leave(mut self, now: Instant) {
        self.leave_queues(now);
        self.listener.close();
        self.ports.iter_mut().filter_map(|port| port.open.as_mut()).for_each(|open| open.path.leave());
    }

    fn leave_queues(&mut self, now: Instant) {
        let heads: Vec<ClientId> =
            self.connections.keys().copied().filter(|client| self.families.is_head(*client)).collect();
        for head in heads {
            let open = self.ports.iter().filter_map(|port| Some((port.link, port.open.as_ref()?)));
            let left: Vec<_> = open.flat_map(|(link, open)| open.path.queues_to_leave(link)).collect();
            for (queue, descriptors) in left {
                let descriptors = descriptors.into_iter().map(Passed::from).collect();
                self.tell(head, News::QueueLeft(queue), descriptors, now);
            }
        }
    }

    /// Gives up interfaces that nobody named: those that cannot be used, and those that could only in generic mode, if others can
    /// in native mode. Bridges and the like are of these, and each of their packets would cost more, whosever it is. Returns what
    /// is in the way of the latter. To be called before anybody connects. What a killed broker left to this one stays, with its connections.
    pub(super) fn be_choosy(&mut self, left: &[Kept]) -> Vec<String> {
        let was_left =
            |port: &Port| left.iter().any(|kept| kept.broker == self.name && kept.link == port.link);
        let kept: Vec<LinkNumber> =
            self.ports.iter().filter(|port| was_left(port)).map(|port| port.link).collect();
        let is_native = |port: &Port| port.open.as_ref().is_some_and(|open| open.path.is_native());
        let some_native = self.ports.iter().any(is_native);
        let mut notes = Vec::new();
        for port in self.ports.iter_mut().filter(|port| !kept.contains(&port.link)) {
            if port.open.is_some() && some_native && !is_native(port) {
                port.open = None;
                self.registry.on_detached(port.link);
                notes.push(format!("{} takes XDP in generic mode only: name it to have it used", port.name));
            }
            port.is_given_up = port.open.is_none();
        }
        self.take_notices();
        notes
    }
}

/// Listens at an abstract name that is not in use.
pub(super) fn listen_anywhere() -> io::Result<(String, OwnedFd)> {
    let [random, _] = random_numbers()?;
    let name = format!("sidestep-run-{}-{random:016x}", std::process::id());
    let socket = listen_at(&name)?;
    Ok((name, socket))
}

/// Listens at this abstract name, if nobody does.
pub(super) fn listen_at(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_rights(&socket, false); // Nobody is to send descriptors before it is admitted.
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
