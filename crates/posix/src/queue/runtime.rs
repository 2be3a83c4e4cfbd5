//! The engine of a queue, and the devices that it drives.

use std::os::fd::RawFd;

use clock::{Duration, Instant};
use engine::{Application, Config, Datagram, DeviceId, Engine, EngineHandle, UdpResponder};
use stack::{Event, LinkId, Stack};

use crate::queue::resting_ports::REST;

/// Connections that the tables of a process are made for.
const CONNECTIONS_MAX: u32 = 1 << 18;

/// Segments that wait to be given to the kernel: more than come between two turns.
const LATE_SEGMENTS_MAX: usize = 1 << 10;
/// Connections of other processes that may be asked about in 150 ms: more are a flood, and each is work for the broker and all siblings.
const STRAYS_MAX: usize = 128;

/// So many handshakes of a listener with a short backlog can be moved, as those with a cookie cannot.
const HALF_OPEN_MIN: u32 = 128;

/// Keeps what happened on the stack until the turn is over.
#[derive(Default)]
pub(crate) struct Events(pub(crate) Vec<Event>);

impl Application for Events {
    fn on_start(&mut self, _: &mut Stack, _: Instant) {}

    fn on_event(&mut self, event: Event, _: &mut Stack, _: Instant) {
        self.0.push(event);
    }
}

/// Programs answer within one or two of their calls; and a peer that waits for its acknowledgement (RFC 896) does not notice this.
const ACK_HOLD_MAX: Duration = Duration::from_millis(1);

/// UDP is for sockets; what no socket wants is not answered.
pub(crate) struct Nobody;

impl UdpResponder for Nobody {
    fn respond(&mut self, _: &mut [Datagram<'_>], _: Instant) {}
}

/// What a process has once it has a queue.
pub(crate) struct Runtime {
    pub(crate) engine: Engine<Nobody, Events>,
    pub(crate) handle: EngineHandle,
    /// Events of the turn that is being worked on: kept for its memory.
    pub(crate) spare: Vec<Event>,
    /// The kernel's numbers for interfaces.
    pub(crate) indices: Vec<(LinkId, u32)>,
    /// Devices by the interface that they belong to, with their descriptors.
    pub(crate) devices: Vec<(DeviceId, LinkId, Vec<RawFd>)>,
    pub(crate) next_device: u32,
}

impl Runtime {
    pub(crate) fn new(gather: Duration) -> std::io::Result<Runtime> {
        let stack = stack::Config {
            connections_max: CONNECTIONS_MAX,
            // The kernel chooses the ports, and does not know which of them our TIME-WAIT still has.
            time_wait_reuse: Some(REST),
            late_segments_max: LATE_SEGMENTS_MAX,
            strays_max: STRAYS_MAX,
            ack_hold_max: ACK_HOLD_MAX,
            half_open_min: HALF_OPEN_MIN,
            ..stack::Config::default()
        };
        let (engine, handle) =
            Engine::driven(Config { gather, ..Config::default() }, Nobody, stack, Events::default())?;
        Ok(Runtime {
            engine,
            handle,
            spare: Vec::new(),
            indices: Vec::new(),
            devices: Vec::new(),
            next_device: 0,
        })
    }

    pub(crate) fn stack(&mut self) -> &mut Stack {
        self.engine.stack()
    }

    /// Interfaces that we have queues of.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.devices.iter().map(|(_, link, _)| *link)
    }

    /// The kernel's number for an interface; zero if we have had no queue of it.
    pub(crate) fn index_of(&self, link: LinkId) -> u32 {
        self.indices.iter().find(|it| it.0 == link).map_or(0, |it| it.1)
    }

    /// Lets go of all devices; returns their descriptors, which are closed.
    pub(crate) fn remove_devices(&mut self) -> Vec<RawFd> {
        self.remove_those(|_| true)
    }

    /// The same for the devices of an interface.
    pub(crate) fn remove_link(&mut self, link: LinkId) -> Vec<RawFd> {
        self.remove_those(|of| of == link)
    }

    fn remove_those(&mut self, is_meant: impl Fn(LinkId) -> bool) -> Vec<RawFd> {
        let devices = std::mem::take(&mut self.devices).into_iter();
        let (gone, kept) = devices.partition(|device| is_meant(device.1));
        self.devices = kept;
        let gone: Vec<(DeviceId, LinkId, Vec<RawFd>)> = gone;
        gone.iter().for_each(|(id, ..)| self.engine.remove_device(*id));
        gone.into_iter().flat_map(|(.., descriptors)| descriptors).collect()
    }
}
