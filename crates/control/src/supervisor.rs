//! Carries out a [`PortPlan`]: the steering program, the sockets, the mirror.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use clock::Instant;
use device_xdp::{SteeringOptions, SteeringProgram, XdpDevice, XdpError, XdpMode, XdpOptions, queue_pairs};
use steering::{ListenAddress, LocalAddress, Transport};

use crate::clamps::{ClampWatch, SegmentClamp};
use crate::mirror::{Change, Mirror};
use crate::monitor::{MonitorError, NetlinkMonitor};
use crate::neighbours::{NeighbourMove, NeighbourWatch};
use crate::plan::{Action, PortPlan, PortView};
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
    /// How the program is attached.
    pub steering: SteeringOptions,
    /// How devices are opened.
    pub device: XdpOptions,
}

/// Events for the engines and the log.
pub enum PortEvent {
    /// A device for one engine, in addition to those that it has. Claimed packets arrive on it from now on.
    QueuesOpened {
        /// The device.
        device: Box<XdpDevice>,
        /// The engine.
        engine: usize,
        /// Queues of the interface that it serves.
        queues: Vec<u16>,
        /// The mode of its AF_XDP sockets.
        mode: XdpMode,
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
    /// The device could not be opened.
    #[error(transparent)]
    Xdp(#[from] XdpError),
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
    monitor: NetlinkMonitor,
    plan: PortPlan,
    program: Option<SteeringProgram>,
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
    pub fn new(config: PortConfig) -> Result<PortSupervisor, MonitorError> {
        Ok(PortSupervisor {
            monitor: NetlinkMonitor::new()?,
            plan: PortPlan::new(config.engines, config.listens.clone()),
            config,
            program: None,
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
                Err(XdpError::QueueBusy { .. }) if self.plan.is_reopening() => self.plan.on_failure(now),
                Err(error) => {
                    self.plan.on_failure(now);
                    self.fail(error.into(), &mut events);
                }
            }
        }
        events
    }

    /// Replaces the claims, from the next [`PortSupervisor::poll`] on.
    pub fn set_listens(&mut self, listens: Vec<(Transport, ListenAddress)>) {
        self.plan.set_listens(listens);
    }

    /// The kernel's state as last read.
    pub fn mirror(&self) -> &Mirror {
        self.monitor.mirror()
    }

    /// The steering program, while it is attached.
    pub fn program(&self) -> Option<&SteeringProgram> {
        self.program.as_ref()
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
            frame_size: self.config.device.frame_size_for(link.mtu),
            queues: queue_pairs(name).ok()?, // It may be gone already; the news are on their way.
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
    ) -> Result<(), XdpError> {
        match action {
            Action::Detach => {
                self.program = None;
                events.push(PortEvent::DeviceGone);
            }
            Action::Reopen => {
                events.push(PortEvent::Reopening);
                attached(&mut self.program).set_reopening(true)?;
            }
            Action::Reopened => {
                attached(&mut self.program).set_reopening(false)?;
                self.plan.on_reopened();
            }
            Action::Attach => {
                let program = SteeringProgram::attach(&self.config.interface, self.config.steering)?;
                self.program = Some(program);
                self.plan.on_attached(view.expect("only what is there is attached"));
            }
            Action::Open { engine, queues, frame_size } => {
                let frame_size = frame_size.or(self.config.device.frame_size);
                let options = XdpOptions { frame_size, ..self.config.device.clone() };
                let device = XdpDevice::open(attached(&mut self.program), &queues, &options)?;
                self.plan.on_opened(&queues);
                let mode = device.mode();
                events.push(PortEvent::QueuesOpened { device: Box::new(device), engine, queues, mode });
            }
            Action::TellMtu(mtu) => {
                self.plan.on_mtu_told(mtu);
                events.push(PortEvent::MtuChanged(u16::try_from(mtu).unwrap_or(u16::MAX)));
            }
            Action::SetClaims(claims) => {
                attached(&mut self.program).set_claims(&claims)?;
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

fn attached(program: &mut Option<SteeringProgram>) -> &mut SteeringProgram {
    program.as_mut().expect("the plan attaches first")
}
