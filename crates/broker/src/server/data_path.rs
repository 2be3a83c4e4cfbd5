//! The operations that the broker needs on an interface: steering packets, and lending queues.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use device_xdp::{
    AttachMode, Lent, LentLayout, Spare, SteeringOptions, SteeringProgram, XdpDevice, XdpError, XdpOptions,
    queue_pairs,
};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use steering::{Claim, ClaimTerms, Transport};

use super::pins::Pins;

/// Flows of the kernel that are remembered on each interface; more, and the longest unused are forgotten.
const KERNEL_FLOWS: u32 = 1 << 16;

/// An interface whose packets we can take.
pub(crate) trait DataPath: Send {
    /// How packets come in, for people.
    fn describe(&self) -> String;
    /// Whether packets come before the kernel has made its own of them.
    fn is_native(&self) -> bool;
    /// Whether its queues go on if this process is killed.
    fn is_kept(&self) -> bool;
    /// Makes sockets on these queues, and memory of such frames for them, to be given away. `None`: there are none for the interface, which
    /// lending will tell. Without `zero_copy` the owner gets only what is claimed, and others' packets do not depend on its filling the ring.
    fn lend(
        &mut self,
        queues: &[u16],
        frame_size: Option<u16>,
        zero_copy: bool,
    ) -> Result<LentQueues, XdpError>;
    /// Says whether queues are being lent anew: claimed TCP waits meanwhile, instead of being the kernel's, which would reset it.
    fn set_reopening(&mut self, reopening: bool) -> Result<(), XdpError>;
    /// Delivers nothing to the socket of this queue any more.
    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError>;
    /// Takes packets from the kernel.
    fn put_claim(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError>;
    /// Leaves packets to the kernel.
    fn remove_claim(&mut self, claim: Claim) -> Result<(), XdpError>;
    /// Leaves a TCP connection to the kernel, while claims have this epoch.
    fn add_kernel_flow(&mut self, local: SocketAddr, remote: SocketAddr, epoch: u32) -> Result<(), XdpError>;
    /// Has the packets of a TCP connection be nobody's until somebody serves their queue, while claims have this epoch; false if it is
    /// the kernel's.
    fn add_awaited_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        epoch: u32,
    ) -> Result<bool, XdpError>;
    /// What became of the interface's packets.
    fn counters(&self) -> Vec<(String, u64)>;
}

/// What is given to a client.
#[derive(Debug)]
pub(crate) struct LentQueues {
    /// How it is mapped.
    pub(crate) layout: LentLayout,
    /// Packet memory.
    pub(crate) memory: OwnedFd,
    /// One socket for each queue.
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Opens data paths, and says what can be known without one.
pub(crate) trait DataPaths: Send {
    /// Attaches to the interface of this name.
    fn open(&self, interface: &str) -> Result<Box<dyn DataPath>, XdpError>;
    /// Its queues.
    fn queues(&self, interface: &str) -> Result<u16, XdpError>;
    /// Octets of the frames that fit an MTU; a larger size needs other devices.
    fn frame_size(&self, mtu: u32) -> Option<u16>;
}

/// AF_XDP.
#[derive(Clone, Debug)]
pub(crate) struct Xdp {
    /// How devices are made.
    device: XdpOptions,
    /// What keeps programs attached.
    pins: Option<Pins>,
}

impl Xdp {
    pub(super) fn new(pins: Option<Pins>) -> Xdp {
        Xdp { device: XdpOptions::default(), pins }
    }

    /// Detaches what killed brokers left on an interface.
    fn detach_those_of_the_dead(&self, interface: &str) {
        let index = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .and_then(|socket| name_to_index(socket, interface));
        if let (Some(pins), Ok(index)) = (&self.pins, index) {
            pins.detach_those_of_the_dead(index);
        }
    }
}

impl DataPaths for Xdp {
    fn open(&self, interface: &str) -> Result<Box<dyn DataPath>, XdpError> {
        let options = SteeringOptions { kernel_flows: KERNEL_FLOWS, ..SteeringOptions::default() };
        self.detach_those_of_the_dead(interface);
        let mut program = SteeringProgram::attach(interface, options)?;
        let is_kept = self.pins.as_ref().is_some_and(|pins| pins.keep(&mut program).is_ok());
        Ok(Box::new(XdpPath { program, is_kept, device: self.device.clone(), spare: None }))
    }

    fn queues(&self, interface: &str) -> Result<u16, XdpError> {
        queue_pairs(interface)
    }

    fn frame_size(&self, mtu: u32) -> Option<u16> {
        self.device.frame_size_for(mtu)
    }
}

struct XdpPath {
    program: SteeringProgram,
    is_kept: bool,
    device: XdpOptions,
    /// For the queues that were busy when they were last asked for, in this way.
    spare: Option<(XdpOptions, Spare)>,
}

impl DataPath for XdpPath {
    fn describe(&self) -> String {
        let mode = if self.is_native() { "native" } else { "generic" };
        format!("AF_XDP, {mode}")
    }

    fn is_kept(&self) -> bool {
        self.is_kept
    }

    fn is_native(&self) -> bool {
        self.program.mode() == AttachMode::Native
    }

    fn lend(
        &mut self,
        queues: &[u16],
        frame_size: Option<u16>,
        zero_copy: bool,
    ) -> Result<LentQueues, XdpError> {
        let options = XdpOptions {
            frame_size: frame_size.or(self.device.frame_size),
            zero_copy: zero_copy && self.device.zero_copy,
            ..self.device.clone()
        };
        let mut spare = self.spare.take().filter(|(asked, _)| *asked == options).map(|(_, spare)| spare);
        let lent = XdpDevice::lend_with(&mut self.program, queues, &options, &mut spare);
        self.spare = spare.map(|spare| (options, spare));
        let Lent { layout, memory, sockets } = lent?;
        Ok(LentQueues { layout, memory, sockets })
    }

    fn set_reopening(&mut self, reopening: bool) -> Result<(), XdpError> {
        self.program.set_reopening(reopening)
    }

    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        self.program.remove_queue(queue)
    }

    fn put_claim(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError> {
        self.program.put_claim(claim, terms)
    }

    fn remove_claim(&mut self, claim: Claim) -> Result<(), XdpError> {
        self.program.remove_claim(claim)
    }

    fn add_kernel_flow(&mut self, local: SocketAddr, remote: SocketAddr, epoch: u32) -> Result<(), XdpError> {
        self.program.add_kernel_flow(Transport::Tcp, local, remote, epoch)
    }

    fn add_awaited_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        epoch: u32,
    ) -> Result<bool, XdpError> {
        self.program.add_awaited_flow(Transport::Tcp, local, remote, epoch)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let counters = self.program.counters().map(|counters| counters.named());
        let named = counters.into_iter().flatten();
        named.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
