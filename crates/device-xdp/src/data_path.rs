//! AF_XDP as the [`DataPath`] of an interface.

use std::collections::BTreeSet;

use clock::Duration;
use device::{DataPath, Opened, PathError};
use steering::Claim;

use crate::{SteeringOptions, SteeringProgram, XdpDevice, XdpError, XdpOptions, queue_pairs};

/// The steering program of one interface, and what its devices are opened with. Dropping it detaches the program.
pub struct XdpPath {
    interface: String,
    steering: SteeringOptions,
    options: XdpOptions,
    program: Option<SteeringProgram>,
}

impl XdpPath {
    /// Changes nothing yet. The interface need not exist.
    pub fn new(interface: &str, steering: SteeringOptions, options: XdpOptions) -> XdpPath {
        XdpPath { interface: interface.to_owned(), steering, options, program: None }
    }

    fn attached(&mut self) -> &mut SteeringProgram {
        self.program.as_mut().expect("it is attached first")
    }
}

impl DataPath for XdpPath {
    fn queues(&self) -> Option<u16> {
        queue_pairs(&self.interface).ok()
    }

    fn frame_size_for(&self, mtu: u32) -> Option<u16> {
        self.options.frame_size_for(mtu)
    }

    fn attach(&mut self) -> Result<(), PathError> {
        self.program = Some(SteeringProgram::attach(&self.interface, self.steering)?);
        Ok(())
    }

    fn detach(&mut self) {
        self.program = None;
    }

    fn set_claims(&mut self, claims: &BTreeSet<Claim>) -> Result<(), PathError> {
        Ok(self.attached().set_claims(claims)?)
    }

    fn set_reopening(&mut self, max: Duration) -> Result<(), PathError> {
        Ok(self.attached().set_reopening(max)?)
    }

    fn open(&mut self, queues: &[u16], frame_size: Option<u16>) -> Result<Opened, PathError> {
        let frame_size = frame_size.or(self.options.frame_size);
        let options = XdpOptions { frame_size, ..self.options.clone() };
        let device = XdpDevice::open(self.attached(), queues, &options)?;
        let mode = device.mode().to_string();
        Ok(Opened { device: Box::new(device), mode })
    }

    fn counters(&self) -> Option<Vec<(&'static str, u64)>> {
        let counters = self.program.as_ref()?.counters().ok()?;
        Some(counters.named().to_vec())
    }
}

impl From<XdpError> for PathError {
    fn from(error: XdpError) -> PathError {
        match error {
            XdpError::QueueBusy { .. } => PathError::Busy(Box::new(error)),
            error => PathError::Failed(Box::new(error)),
        }
    }
}
