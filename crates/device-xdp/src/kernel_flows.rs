//! Flows that belong to the kernel although they are claimed, and flows without an owner for a moment.

use std::net::SocketAddr;

use aya::maps::{HashMap, MapData, MapError};
use steering::Transport;

use crate::XdpError;
use crate::claim_key::octets_of;
use crate::error::{absent_is_fine, map_error};

/// `struct flow_key` of `bpf/maps.bpf.h`: 40 octets without holes, numbers in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FlowKey {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: [u8; 2],
    remote_port: [u8; 2],
    protocol: u8,
    zero: [u8; 3],
}

// SAFETY: only octets, so there are no holes and every bit pattern is valid.
unsafe impl aya::Pod for FlowKey {}

impl FlowKey {
    fn new(transport: Transport, local: SocketAddr, remote: SocketAddr) -> FlowKey {
        FlowKey {
            local: octets_of(local.ip()),
            remote: octets_of(remote.ip()),
            local_port: local.port().to_be_bytes(),
            remote_port: remote.port().to_be_bytes(),
            protocol: transport.number(),
            zero: [0; 3],
        }
    }
}

/// `AWAITED` of `bpf/maps.bpf.h`.
const AWAITED: u32 = 1 << 31;

/// `BPF_NOEXIST`: only if there is no entry.
const NO_EXIST: u64 = 1;

/// Whether an entry was not made as there is one.
fn is_there(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::EEXIST))
}

/// The map `kernel_flows`. The steering program writes to it as well, and the kernel removes what was not looked up for longest
/// when it is full.
pub(crate) struct KernelFlows(pub(crate) HashMap<MapData, FlowKey, u32>);

impl KernelFlows {
    pub(crate) fn add(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
        epoch: u32,
    ) -> Result<(), XdpError> {
        let key = FlowKey::new(transport, local, remote);
        self.0.insert(key, epoch, 0).map_err(map_error("kernel_flows"))
    }

    /// The flow will belong to a socket that does not exist yet. False if it is the kernel's; then it stays the kernel's.
    pub(crate) fn add_awaited(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
        epoch: u32,
    ) -> Result<bool, XdpError> {
        let key = FlowKey::new(transport, local, remote);
        match self.0.insert(key, epoch | AWAITED, NO_EXIST) {
            Err(error) if is_there(&error) => {}
            inserted => return inserted.map(|()| true).map_err(map_error("kernel_flows")),
        }
        if self.0.get(&key, 0).is_ok_and(|note| note == epoch) {
            return Ok(false);
        }
        self.add(transport, local, remote, epoch | AWAITED).map(|()| true)
    }

    pub(crate) fn remove(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), XdpError> {
        let key = FlowKey::new(transport, local, remote);
        absent_is_fine(self.0.remove(&key)).map_err(map_error("kernel_flows"))
    }

    pub(crate) fn contains(
        &self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<bool, XdpError> {
        match self.0.get(&FlowKey::new(transport, local, remote), 0) {
            Ok(note) => Ok(note & AWAITED == 0),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(error) => Err(map_error("kernel_flows")(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_octets_that_the_program_makes() {
        let key = FlowKey::new(
            Transport::Tcp,
            "192.0.2.1:258".parse().unwrap(),
            "198.51.100.7:772".parse().unwrap(),
        );
        // SAFETY: `FlowKey` is `repr(C)`, made of octets only, 40 of them.
        let octets: [u8; 40] = unsafe { std::mem::transmute(key) };
        let address = |last: [u8; 4]| [&[0; 10][..], &[0xff, 0xff], &last].concat();
        let expected =
            [&address([192, 0, 2, 1])[..], &address([198, 51, 100, 7]), &[1, 2, 3, 4, 6, 0, 0, 0]].concat();
        assert_eq!(octets[..], expected);
    }
}
