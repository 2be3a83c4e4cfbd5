//! The device of a smoltcp interface: two queues.

use std::collections::VecDeque;

use smoltcp::phy::{self, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::time;

/// Packets between the interface and the simulation.
#[derive(Debug)]
pub(super) struct Wire {
    mtu: usize,
    pub(super) arrived: VecDeque<Vec<u8>>,
    pub(super) leaving: VecDeque<Vec<u8>>,
}

impl Wire {
    pub(super) fn new(mtu: usize) -> Wire {
        Wire { mtu, arrived: VecDeque::new(), leaving: VecDeque::new() }
    }
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _at: time::Instant) -> Option<(Arrived, Leaving<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Leaving(&mut self.leaving)))
    }

    fn transmit(&mut self, _at: time::Instant) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.leaving))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }
}

/// A packet for the interface.
pub(super) struct Arrived(Vec<u8>);

impl phy::RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Room for a packet of the interface.
pub(super) struct Leaving<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        self.0.push_back(packet);
        result
    }
}
