//! An interface that is open, and the thread that follows it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use control::{MonitorError, PortConfig, PortError, PortEvent, PortSupervisor};
use device_xdp::{SteeringCounters, SteeringOptions, XdpError, XdpOptions};
use engine::{Clock, EngineHandle};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use stack::LinkId;
use steering::{ListenAddress, Transport};

use crate::follower::Follower;
use crate::shadow::Owner;

/// What the steering program counted, a second ago at most; `None` while it is not attached.
pub type SteeringCounts = Arc<Mutex<Option<SteeringCounters>>>;

/// Which interface, and what of its packets is ours.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its name.
    pub name: String,
    /// What the engines' stacks call it.
    pub link: LinkId,
    /// What is claimed on it.
    pub listens: Vec<(Transport, ListenAddress)>,
    /// How the steering program is attached.
    pub steering: SteeringOptions,
    /// How devices are opened.
    pub device: XdpOptions,
}

impl InterfaceConfig {
    /// The interface `name` with `listens` claimed, otherwise as it comes.
    pub fn new(name: &str, listens: Vec<(Transport, ListenAddress)>) -> InterfaceConfig {
        InterfaceConfig {
            name: name.to_owned(),
            link: LinkId(0),
            listens,
            steering: SteeringOptions::default(),
            device: XdpOptions::default(),
        }
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
    /// The program was not attached, or a device not opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// No descriptor or no thread was to be had.
    #[error("following the interface: {0}")]
    System(#[from] std::io::Error),
}

/// An interface that feeds engines. Call [`Interface::stop`] to give it back to the kernel.
pub struct Interface {
    description: String,
    steering: SteeringCounts,
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl Interface {
    /// Attaches to the interface and opens what there is now: queue `q` for engine `q % engines.len()`. What fails at the
    /// start is an error; what fails later is told to `owner` and tried again.
    ///
    /// # Panics
    /// If there is no engine.
    pub fn open(
        config: InterfaceConfig,
        engines: Vec<EngineHandle>,
        owner: impl Owner,
    ) -> Result<Interface, OpenError> {
        device_xdp::queue_pairs(&config.name)?; // Is there such an interface at all?
        let mut supervisor = PortSupervisor::new(PortConfig {
            interface: config.name.clone(),
            listens: config.listens.clone(),
            engines: engines.len(),
            steering: config.steering,
            device: config.device.clone(),
        })?;
        let mut follower = Follower::new(config, engines, owner);
        let clock = Clock::start();
        for event in supervisor.poll(clock.now()) {
            match event {
                PortEvent::Failed(error) => return Err(error.into()),
                event => follower.on_event(event),
            }
        }
        Interface::follow(supervisor, follower, clock)
    }

    fn follow<O: Owner>(
        mut supervisor: PortSupervisor,
        mut follower: Follower<O>,
        clock: Clock,
    ) -> Result<Interface, OpenError> {
        let description = follower.describe();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
        let stopped = Arc::clone(&stop);
        let steering = SteeringCounts::default();
        let counted = Arc::clone(&steering);
        let follow = move || {
            while wait(&supervisor, &stopped, &clock) {
                for event in supervisor.poll(clock.now()) {
                    follower.on_event(event);
                }
                let counts = supervisor.program().and_then(|program| program.counters().ok());
                *counted.lock().unwrap_or_else(PoisonError::into_inner) = counts;
            }
        };
        let thread = std::thread::Builder::new().name("port".to_owned()).spawn(follow)?;
        Ok(Interface { description, steering, stop, thread })
    }

    /// Where it serves and how packets come in, for people, as it was when it was opened.
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// The steering program's counts.
    pub fn steering(&self) -> SteeringCounts {
        Arc::clone(&self.steering)
    }

    /// Detaches from the interface: what comes from now on is the kernel's.
    pub fn stop(self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes()); // Only fails if it is stopping already.
        let _ = self.thread.join(); // A panic there has been reported; the rest is to end all the same.
    }
}

/// Sleeps until there is news; false when it is time to end.
fn wait(supervisor: &PortSupervisor, stop: &OwnedFd, clock: &Clock) -> bool {
    let left = supervisor.poll_timeout().since(clock.now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut fds = [
        PollFd::from_borrowed_fd(supervisor.fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
    ];
    // A signal ends the wait early, which does no harm.
    let _ = poll(&mut fds, Some(&timeout));
    !fds[1].revents().contains(PollFlags::IN)
}
