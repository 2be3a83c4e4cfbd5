//! A port and its TAP interface as a [`DataPath`].

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use clock::Duration;
use device::{DataPath, Opened, PathError};
use exception_path::{Counts, Steered, TapInterface};
use steering::{Claim, ClaimTable};

use crate::port::OpenPort;
use crate::queue::DpdkDevice;
use crate::{DpdkError, DpdkOptions, PortName};

/// An open port, until it and all of its devices are dropped.
pub(crate) struct DpdkPath {
    port: Arc<OpenPort>,
    claims: Arc<ArcSwap<ClaimTable>>,
    queues: Vec<Queue>,
}

struct Queue {
    tap: Arc<TapInterface>,
    counts: Arc<Counts>,
    /// Of which the queue's device has a second one.
    in_use: Arc<()>,
}

impl DpdkPath {
    /// Starts DPDK's environment and the port, and makes the TAP interface, which gets the port's MAC address and MTU. What the port receives
    /// waits there until [`DataPath::open`] has made devices of its queues.
    pub(crate) fn open(name: &PortName, options: &DpdkOptions) -> Result<DpdkPath, DpdkError> {
        let port = Arc::new(OpenPort::open(name, options)?);
        let taps = TapInterface::open(&options.tap, port.queues(), port.mac, port.mtu)?;
        let queue = |tap| Queue { tap: Arc::new(tap), counts: Arc::default(), in_use: Arc::default() };
        let claims = Arc::new(ArcSwap::from_pointee(ClaimTable::new(&BTreeSet::new())));
        Ok(DpdkPath { port, claims, queues: taps.into_iter().map(queue).collect() })
    }
}

impl DataPath for DpdkPath {
    fn queues(&self) -> Option<u16> {
        Some(self.port.queues())
    }

    /// Frames are of the size that the port's MTU needs. A larger one of the TAP interface changes nothing.
    fn frame_size_for(&self, _mtu: u32) -> Option<u16> {
        Some(0)
    }

    fn attach(&mut self) -> Result<(), PathError> {
        Ok(())
    }

    fn detach(&mut self) {
        self.claims.store(Arc::new(ClaimTable::new(&BTreeSet::new())));
    }

    fn set_claims(&mut self, claims: &BTreeSet<Claim>) -> Result<(), PathError> {
        self.claims.store(Arc::new(ClaimTable::new(claims)));
        Ok(())
    }

    fn set_reopening(&mut self, _max: Duration) -> Result<(), PathError> {
        Ok(())
    }

    fn open(&mut self, queues: &[u16], _frame_size: Option<u16>) -> Result<Opened, PathError> {
        let [number] = *queues else {
            let reason = format!(
                "{} queues of {} for one engine: start an engine for each",
                queues.len(),
                self.port.name
            );
            return Err(PathError::Failed(reason.into()));
        };
        let queue = &self.queues[usize::from(number)];
        if Arc::strong_count(&queue.in_use) > 1 {
            return Err(PathError::Busy(format!("queue {number} of {} is in use", self.port.name).into()));
        }
        let device = DpdkDevice::new(Arc::clone(&self.port), number, Arc::clone(&queue.in_use));
        let (claims, tap) = (Arc::clone(&self.claims), Arc::clone(&queue.tap));
        let steered = Steered::new(device, claims, tap, Arc::clone(&queue.counts));
        let mode = format!("DPDK {} ({})", self.port.name.device(), self.port.driver);
        Ok(Opened { device: Box::new(steered), mode })
    }

    fn counters(&self) -> Option<Vec<(&'static str, u64)>> {
        let mut sums = Vec::new();
        self.queues.iter().for_each(|queue| queue.counts.add_to(&mut sums));
        Some(sums)
    }
}
