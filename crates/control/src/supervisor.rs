//! Carries out a [`PortPlan`] on a [`DataPath`], by the mirror of the kernel.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use clock::{Duration, Instant};
use device::{DataPath, Device, Opened, PathError};
use steering::{ListenAddress, LocalAddress, Transport};

use crate::clamps::{ClampWatch, SegmentClamp};
use crate::mirror::{Change, Mirror};
use crate::monitor::{MonitorError, NetlinkMonitor};
use crate::neighbours::{NeighbourMove, NeighbourWatch};
use crate::plan::{Action, PortPlan, PortView, REOPEN_MAX};
use crate::sources::{SourceWatch, Sources};

/// An interface, its claims and its engines.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Name of the interface. It need not exist yet.
    pub interface: String,
    /// What is claimed on it.
    pub listens: Vec<(Transport, ListenAddress)>,
    /// Number of engines, at least one. Queue `q` is engine `q % engines`'s.
    pub engines: usize,
}

/// Events for the engines and the log.
pub enum PortEvent {
    /// A device for one engine, in addition to those that it has. Claimed packets arrive on it from now on.
    QueuesOpened {
        /// The device.
        device: Box<dyn Device>,
        /// The engine.
        engine: usize,
        /// Queues of the interface that it serves.
        queues: Vec<u16>,
        /// How its packets come, for people.
        mode: String,
    },
    /// The interface is gone, or must be attached again: every engine drops all devices of this interface. Until it is back, the
    /// kernel receives its packets.
    DeviceGone,
    /// The interface accepts packets that need larger frames: every engine drops all devices of this interface and soon gets others.
    /// Meanwhile claimed TCP is dropped, and peers send it again; the kernel receives everything else.
    Reopening,
    /// The interface has this MTU now: engines tell their devices and stacks.
    MtuChanged(u16),
    /// A neighbour has another hardware address now.
    NeighbourMoved(NeighbourMove),
    /// The largest TCP segments by the kernel's routes. They replace the earlier ones; the engines pass them to their stacks.
    SegmentsClamped(Vec<SegmentClamp>),
    /// The interface has these addresses now, and the claims have changed accordingly.
    AddressesChanged(BTreeSet<LocalAddress>),
    /// Peers on the interface may open connections from these addresses now.
    SourcesChanged(Vec<Sources>),
    /// Something failed and will be tried again in a second. Reported once, until something else happens.
    Failed(PortError),
}

/// Why an interface is not served, or only in part.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface could not be attached to, or a device not opened.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The kernel's changes cannot be followed.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
}

/// Keeps one interface attached, and hands out devices for it.
///
/// Poll [`PortSupervisor::fd`] until [`PortSupervisor::poll_timeout`], then call [`PortSupervisor::poll`]; also once at
/// the start. All calls belong on one thread, in the network namespace of the interface. Dropping it detaches the program.
pub struct PortSupervisor {
    config: PortConfig,
    path: Box<dyn DataPath>,
    monitor: NetlinkMonitor,
    plan: PortPlan,
    addresses: BTreeSet<LocalAddress>,
    neighbours: NeighbourWatch,
    clamps: ClampWatch,
    sources: SourceWatch,
    last_failure: Option<String>,
}

impl PortSupervisor {
    /// Starts to follow the kernel; changes nothing yet.
    ///
    /// # Panics
    /// If `config.engines` is zero.
    pub fn new(config: PortConfig, path: Box<dyn DataPath>) -> Result<PortSupervisor, MonitorError> {
        Ok(PortSupervisor {
            monitor: NetlinkMonitor::new()?,
            plan: PortPlan::new(config.engines, config.listens.clone()),
            config,
            path,
            addresses: BTreeSet::new(),
            neighbours: NeighbourWatch::default(),
            clamps: ClampWatch::default(),
            sources: SourceWatch::default(),
            last_failure: None,
        })
    }

    /// Readable when the kernel has news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.monitor.fd()
    }

    /// When to call [`PortSupervisor::poll`] at the latest.
    pub fn poll_timeout(&self) -> Instant {
        self.plan.poll_timeout()
    }

    /// Reads the kernel's news and acts on them.
    pub fn poll(&mut self, now: Instant) -> Vec<PortEvent> {
        let mut events = Vec::new();
        let has_news = self.read_news().unwrap_or_else(|error| {
            self.fail(error.into(), &mut events);
            true
        });
        let sources = self.sources.compare(self.monitor.mirror(), &self.config.interface, has_news);
        events.extend(sources.map(PortEvent::SourcesChanged));
        let view = self.view();
        self.note_addresses(view.as_ref(), &mut events);
        let interfaces = self.mirror().interfaces_on(&self.config.interface);
        let moves = self.neighbours.compare(self.monitor.mirror(), &interfaces);
        events.extend(moves.into_iter().map(PortEvent::NeighbourMoved));
        let clamps = self.clamps.compare(self.monitor.mirror(), has_news);
        events.extend(clamps.map(|clamps| PortEvent::SegmentsClamped(clamps.to_vec())));
        while let Some(action) = self.plan.next(view.as_ref(), now) {
            match self.carry_out(action, view.as_ref(), &mut events) {
                Ok(()) => self.last_failure = None,
                // The engines or the kernel still need time.
                Err(PathError::Busy(_)) if self.plan.on_busy(now) => {}
                Err(error) => {
                    self.plan.on_failure(now);
                    self.fail(error.into(), &mut events);
                }
            }
        }
        events
    }

    /// Whether queues are to be opened soon that are still in use: the kernel frees those of a process that was killed some time after its end.
    pub fn is_waiting_for_queues(&self) -> bool {
        self.plan.is_waiting_for_queues()
    }

    /// Replaces the claims, from the next [`PortSupervisor::poll`] on.
    pub fn set_listens(&mut self, listens: Vec<(Transport, ListenAddress)>) {
        self.plan.set_listens(listens);
    }

    /// The kernel's state as last read.
    pub fn mirror(&self) -> &Mirror {
        self.monitor.mirror()
    }

    /// Number of claims in force.
    pub fn claims(&self) -> usize {
        self.plan.claims_in_force()
    }

    /// Packets by what became of them, each with its name; `None` while the interface is not attached.
    pub fn steering_counters(&self) -> Option<Vec<(&'static str, u64)>> {
        self.path.counters()
    }

    /// Tells whether anything changed but neighbours. After an error of the netlink socket a new one is opened, which reads everything
    /// again.
    fn read_news(&mut self) -> Result<bool, MonitorError> {
        match self.monitor.on_readable() {
            Ok(changes) => Ok(changes.iter().any(|change| !matches!(change, Change::Neighbours(_)))),
            Err(error) => {
                self.monitor = NetlinkMonitor::new()?;
                Err(error)
            }
        }
    }

    fn view(&self) -> Option<PortView> {
        let name = &self.config.interface;
        let link = self.mirror().link(name)?;
        let addresses = self.mirror().local_addresses(name);
        Some(PortView {
            index: link.index,
            mtu: link.mtu,
            frame_size: self.path.frame_size_for(link.mtu),
            queues: self.path.queues()?, // It may be gone already; the news are on their way.
            addresses,
        })
    }

    fn note_addresses(&mut self, view: Option<&PortView>, events: &mut Vec<PortEvent>) {
        let addresses = view.map(|view| &view.addresses).cloned().unwrap_or_default();
        if addresses != self.addresses {
            self.addresses.clone_from(&addresses);
            events.push(PortEvent::AddressesChanged(addresses));
        }
    }

    fn carry_out(
        &mut self,
        action: Action,
        view: Option<&PortView>,
        events: &mut Vec<PortEvent>,
    ) -> Result<(), PathError> {
        match action {
            Action::Detach => {
                self.path.detach();
                events.push(PortEvent::DeviceGone);
            }
            Action::Reopen => {
                events.push(PortEvent::Reopening);
                self.path.set_reopening(REOPEN_MAX)?;
            }
            Action::Reopened => {
                self.path.set_reopening(Duration::ZERO)?;
                self.plan.on_reopened();
            }
            Action::Attach => {
                self.path.attach()?;
                self.plan.on_attached(view.expect("only what is there is attached"));
            }
            Action::Open { engine, queues, frame_size } => {
                let Opened { device, mode } = self.path.open(&queues, frame_size)?;
                self.plan.on_opened(&queues);
                events.push(PortEvent::QueuesOpened { device, engine, queues, mode });
            }
            Action::TellMtu(mtu) => {
                self.plan.on_mtu_told(mtu);
                events.push(PortEvent::MtuChanged(u16::try_from(mtu).unwrap_or(u16::MAX)));
            }
            Action::SetClaims(claims) => {
                self.path.set_claims(&claims)?;
                self.plan.on_claimed(claims);
            }
        }
        Ok(())
    }

    /// A failure that repeats every second is reported once.
    fn fail(&mut self, error: PortError, events: &mut Vec<PortEvent>) {
        let text = error.to_string();
        if self.last_failure.as_ref() != Some(&text) {
            self.last_failure = Some(text);
            events.push(PortEvent::Failed(error));
        }
    }
}
