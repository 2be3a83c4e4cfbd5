//! An open interface, and the thread that follows the kernel's changes.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use control::{MonitorError, PortConfig, PortError, PortEvent, PortSupervisor};
use device::DataPath;
use device_xdp::{SteeringOptions, XdpError, XdpOptions, XdpPath};
use engine::{Clock, EngineHandle};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use stack::LinkId;
use steering::{ListenAddress, Transport};

use crate::departure::{Answer, Departure, DepartureError, Departures};
use crate::follower::Follower;
use crate::shadow::Owner;

/// Between two looks at queues that are in use when the interface is opened.
const QUEUE_WAIT: std::time::Duration = std::time::Duration::from_millis(20);

/// Those of 1024 workers: with its own 4096 a queue stays below the 1048576 that it may have.
const FRAMES_OF_WORKERS_MAX: u32 = 1 << 19;

/// What became of the interface's packets, each count with its name, at most one second old; `None` while it is not attached.
pub type SteeringCounts = Arc<Mutex<Option<Vec<(&'static str, u64)>>>>;

/// Which interface to open, and which packets to claim.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// Its number in the engines' stacks.
    pub link: LinkId,
    /// The claims on it.
    pub listens: Vec<(Transport, ListenAddress)>,
    /// Largest TCP segment to announce and to send, for paths through tunnels that do not say how narrow they are.
    pub mss_clamp: Option<u16>,
    /// How the steering program is attached.
    pub steering: SteeringOptions,
    /// How devices are opened.
    pub device: XdpOptions,
    /// Engines that receive and send for the others; `None` if each has queues of its own.
    pub dispatch: Option<Dispatch>,
}

/// How queues are shared by more engines than serve them: a pipeline, or a hybrid of that and run to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The first so many engines serve the queues; the others are their workers.
    pub dispatchers: usize,
    /// Percentage of UDP flows that dispatchers answer themselves: 0 is a pipeline. TCP is the workers'.
    pub own_percent: u8,
    /// Keys the hash that flows are spread by; see [`dispatch::Scatter::new`].
    pub key: u64,
}

impl InterfaceConfig {
    /// The interface `name` with `listens` claimed, and defaults for all else.
    pub fn new(name: &str, listens: Vec<(Transport, ListenAddress)>) -> InterfaceConfig {
        InterfaceConfig {
            name: name.to_owned(),
            link: LinkId(0),
            listens,
            mss_clamp: None,
            steering: SteeringOptions::default(),
            device: XdpOptions::default(),
            dispatch: None,
        }
    }
}

impl InterfaceConfig {
    /// Frames that workers may have, beside those that a queue itself needs.
    fn frames_of_workers(&self, engines: usize) -> u32 {
        let workers = self.dispatch.map_or(0, |dispatch| engines.saturating_sub(dispatch.dispatchers));
        u32::try_from(workers * dispatch::OUTSTANDING_MAX).unwrap_or(u32::MAX).min(FRAMES_OF_WORKERS_MAX)
    }
}

/// Why an interface was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such interface, or its queues cannot be counted.
    #[error(transparent)]
    Interface(#[from] XdpError),
    /// The kernel's state cannot be read.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The program could not be attached, or a device not opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A descriptor or thread could not be made.
    #[error("following the interface: {0}")]
    System(#[from] std::io::Error),
}

/// An interface that feeds engines. Call [`Interface::stop`] to give it back to the kernel, after the engines have ended.
pub struct Interface {
    description: String,
    steering: SteeringCounts,
    engines: usize,
    requests: Sender<Request>,
    wake: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

/// Requests to the thread.
pub(crate) enum Request {
    Depart(IpAddr, Answer),
    GiveBack(SocketAddr),
    Stop,
}

impl Interface {
    /// Attaches to the interface and opens its queues: queue `q` for engine `q % engines.len()`, or for one of those that
    /// [`Dispatch`] names. A failure at the start is an error. Later failures go to `owner` as notices, and the thread tries again.
    ///
    /// # Panics
    /// If there is no engine, or, with dispatchers, none of them or no other one.
    pub fn open(
        config: InterfaceConfig,
        engines: Vec<EngineHandle>,
        owner: impl Owner,
    ) -> Result<Interface, OpenError> {
        device_xdp::queue_pairs(&config.name)?; // Is there such an interface at all?
        let mut device = config.device.clone();
        device.frames_per_queue += config.frames_of_workers(engines.len());
        let path = XdpPath::new(&config.name, config.steering, device);
        Interface::open_by(Box::new(path), config, engines, owner)
    }

    /// The same by another way than AF_XDP: `path` is that of the interface that `config` names, whose options for AF_XDP mean nothing here.
    ///
    /// # Panics
    /// As [`Interface::open`].
    pub fn open_by(
        path: Box<dyn DataPath>,
        config: InterfaceConfig,
        engines: Vec<EngineHandle>,
        owner: impl Owner,
    ) -> Result<Interface, OpenError> {
        let port = PortConfig {
            interface: config.name.clone(),
            listens: config.listens.clone(),
            engines: config.dispatch.map_or(engines.len(), |dispatch| dispatch.dispatchers),
        };
        let mut supervisor = PortSupervisor::new(port, path)?;
        let engine_count = engines.len();
        let (requests, receiver) = channel();
        let wake = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?,
        );
        let departures = Departures::new(&config.name, config.link, requests.clone(), Arc::clone(&wake));
        let listens = config.listens.clone();
        let mut follower = Follower::new(config, engines, owner);
        let clock = Clock::start();
        loop {
            for event in supervisor.poll(clock.now()) {
                match event {
                    PortEvent::Failed(error) => return Err(error.into()),
                    event => follower.on_event(event),
                }
            }
            if !supervisor.is_waiting_for_queues() {
                break;
            }
            std::thread::sleep(QUEUE_WAIT);
        }
        let description = follower.describe();
        let steering = SteeringCounts::default();
        let mut following = Following {
            supervisor,
            follower,
            departures,
            listens,
            receiver,
            wake: Arc::clone(&wake),
            clock,
            steering: Arc::clone(&steering),
        };
        let follow = move || while following.turn() {};
        let thread = std::thread::Builder::new().name("port".to_owned()).spawn(follow)?;
        Ok(Interface { description, steering, engines: engine_count, requests, wake, thread })
    }

    /// Takes a local port for a connection to `remote`, claims it, and looks up the route. Takes up
    /// to some seconds if the next hop must be found: do not call it on an engine's thread.
    pub fn depart(&self, remote: IpAddr) -> Result<Departure, DepartureError> {
        if self.engines > 1 {
            return Err(DepartureError::SeveralEngines);
        }
        let (answer, answered) = channel();
        self.send(Request::Depart(remote, answer));
        answered.recv().map_err(|_| DepartureError::Closed)?
    }

    fn send(&self, request: Request) {
        let _ = self.requests.send(request); // A thread that ended has panicked, and said so.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // Only fails if it is to wake already.
    }

    /// The interface, its addresses and its mode, for people, as of opening.
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// What became of the interface's packets.
    pub fn steering(&self) -> SteeringCounts {
        Arc::clone(&self.steering)
    }

    /// Detaches from the interface: what comes from now on is the kernel's. Stop the engines first and wait until they have ended:
    /// they send what is left and wait for it to be acknowledged ([`engine::Config::linger`]), for which they need the interface.
    pub fn stop(self) {
        self.send(Request::Stop);
        let _ = self.thread.join(); // A panic there has been reported; the rest is to end all the same.
    }
}

/// State of the interface's thread.
struct Following<O> {
    supervisor: PortSupervisor,
    follower: Follower<O>,
    departures: Departures,
    listens: Vec<(Transport, ListenAddress)>,
    receiver: Receiver<Request>,
    wake: Arc<OwnedFd>,
    clock: Clock,
    steering: SteeringCounts,
}

impl<O: Owner> Following<O> {
    /// Sleeps until there is news, and handles it; false when the thread should end.
    fn turn(&mut self) -> bool {
        self.wait();
        let now = self.clock.now();
        while let Ok(request) = self.receiver.try_recv() {
            match request {
                Request::Depart(remote, answer) => {
                    self.departures.begin(remote, answer, self.supervisor.mirror(), now);
                }
                Request::GiveBack(local) => self.departures.give_back(local),
                Request::Stop => return false,
            }
            self.supervisor
                .set_listens(self.listens.iter().copied().chain(self.departures.listens()).collect());
        }
        for event in self.supervisor.poll(now) {
            self.follower.on_event(event);
        }
        self.departures.settle(self.supervisor.mirror(), now);
        let counts = self.supervisor.steering_counters();
        *self.steering.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        true
    }

    fn wait(&self) {
        let until = self.supervisor.poll_timeout();
        let until = self.departures.poll_timeout().map_or(until, |departure| departure.min(until));
        let left = until.since(self.clock.now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [
            PollFd::from_borrowed_fd(self.supervisor.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        // A signal ends the wait early, which is harmless.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]); // Never blocks; the count does not matter.
        }
    }
}
