//! An interface that is made up, for tests and fuzzers: it lends queues, and steers nothing.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use device_xdp::{AttachMode, CopyMode, LentLayout, XdpError, XdpMode};
use steering::{Claim, ClaimTerms};

use super::data_path::{DataPath, DataPaths, LentQueues};
use super::family::Family;
use super::turns::{Setup, listen_anywhere};
use crate::protocol::{Options, Profile};

/// A connection from this port belongs to the kernel.
pub(super) const OF_THE_KERNEL: u16 = 4999;

/// What happened to a made-up interface.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    #[cfg(test)]
    pub(super) fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap().iter().any(|noted| noted == what)
    }
}

struct MadeUp {
    queues: u16,
    log: Log,
}

/// A broker whose loopback interface is made up, for descendants of `head` or members of a group.
pub(super) fn setup(queues: u16, log: &Log, family: Family, profile: Profile) -> Setup {
    Setup {
        socket: listen_anywhere().expect("there are sockets"),
        interfaces: vec!["lo".to_owned()],
        paths: Box::new(MadeUp { queues, log: log.clone() }),
        family,
        options: Options { spin_us: 20, gather_us: 30, mss_clamp: None, verbose: false, profile },
        observed_in: None,
        zero_copy: false,
    }
}

/// Everything is accelerated.
pub(super) fn all() -> Profile {
    Profile {
        name: "default".to_owned(),
        listeners: true,
        outgoing: true,
        udp: true,
        leaves_unsuited: true,
        reason: None,
    }
}

impl DataPaths for MadeUp {
    fn open(&self, _interface: &str) -> Result<Box<dyn DataPath>, XdpError> {
        Ok(Box::new(MadeUp { queues: self.queues, log: self.log.clone() }))
    }

    fn queues(&self, _interface: &str) -> Result<u16, XdpError> {
        Ok(self.queues)
    }

    fn frame_size(&self, _mtu: u32) -> Option<u16> {
        Some(2048)
    }
}

impl DataPath for MadeUp {
    fn is_kept(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "made up".to_owned()
    }

    fn is_native(&self) -> bool {
        true
    }

    fn lend(
        &mut self,
        queues: &[u16],
        _frame_size: Option<u16>,
        zero_copy: bool,
    ) -> Result<LentQueues, XdpError> {
        self.log.note(format!("lend {queues:?}"));
        if zero_copy {
            self.log.note(format!("lend {queues:?} in zero-copy mode"));
        }
        let any = || OwnedFd::from(File::open("/dev/null").expect("every system has it"));
        let layout = LentLayout {
            interface: "lo".to_owned(),
            queues: queues.to_vec(),
            frame_size: 2048,
            frames: 4096,
            ring_entries: 2048,
            mtu: 1500,
            mode: XdpMode { attach: AttachMode::Native, copy: CopyMode::Copy },
            partial_checksums: true,
            busy_poll: false,
            bulk_lane: false,
        };
        Ok(LentQueues { layout, memory: any(), sockets: queues.iter().map(|_| any()).collect() })
    }

    fn begin_reopening(&mut self) -> Result<(), XdpError> {
        Ok(())
    }

    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        self.log.note(format!("remove {queue}"));
        Ok(())
    }

    fn put_claim(&mut self, _claim: Claim, _terms: ClaimTerms) -> Result<(), XdpError> {
        Ok(())
    }

    fn remove_claim(&mut self, _claim: Claim) -> Result<(), XdpError> {
        Ok(())
    }

    fn add_kernel_flow(
        &mut self,
        _local: SocketAddr,
        _remote: SocketAddr,
        _epoch: u32,
    ) -> Result<(), XdpError> {
        Ok(())
    }

    fn add_awaited_flow(
        &mut self,
        _local: SocketAddr,
        remote: SocketAddr,
        _epoch: u32,
    ) -> Result<bool, XdpError> {
        self.log.note(format!("awaited {}", remote.port()));
        Ok(remote.port() != OF_THE_KERNEL)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("redirected".to_owned(), 7)]
    }
}
