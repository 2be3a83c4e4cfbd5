//! An interface that is made up, for tests and fuzzers: it lends queues, and steers nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Instant;
use device_xdp::{AttachMode, CopyMode, LentLayout, QueueOwner, XdpError, XdpMode};
use steering::{Claim, ClaimTerms, Marks};
#[cfg(test)]
use steering::{LocalAddress, Transport, VlanTags};

use super::data_path::{DataPath, DataPaths, LentQueues};
use super::family::Family;
use super::queues_left::Left;
use super::spread::DeviceSpread;
use super::turns::{Setup, listen_anywhere};
use crate::protocol::{Options, Profile};
use crate::registry::{Identity, LinkNumber};

/// A connection from this port belongs to the kernel.
pub(super) const OF_THE_KERNEL: u16 = 4999;
/// The interface that programs know by this number takes XDP in generic mode only.
pub(super) const GENERIC: LinkNumber = 9;

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

/// The maps of a made-up interface: one broker leaves them to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps {
    entries: Arc<Mutex<Entries>>,
    nic: Arc<Mutex<Nic>>,
}

/// What its NIC says, and does.
#[derive(Debug, Default)]
struct Nic {
    spread: Option<DeviceSpread>,
    /// Connections whose answers came by another queue than their claim's.
    misdirected: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Connections that the kernel has.
    kernel_flows: BTreeSet<(SocketAddr, SocketAddr)>,
}

/// Claims, owners of queues, and queues whose owners have ended.
type Entries = (BTreeMap<Claim, ClaimTerms>, BTreeMap<u16, QueueOwner>, BTreeSet<u16>);

impl Maps {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nic(&self) -> MutexGuard<'_, Nic> {
        self.nic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The NIC says from now on that it spreads packets so.
    #[cfg(test)]
    pub(super) fn say(&self, spread: Option<DeviceSpread>) {
        self.nic().spread = spread;
    }

    /// The answer to a connection comes by another queue than its claim's.
    #[cfg(test)]
    pub(super) fn misdirect(&self, local: SocketAddr, remote: SocketAddr) {
        self.nic().misdirected.insert((local, remote));
    }

    /// The kernel has a connection.
    #[cfg(test)]
    pub(super) fn note_kernel_flow(&self, local: SocketAddr, remote: SocketAddr) {
        self.nic().kernel_flows.insert((local, remote));
    }

    /// Claims a port for a queue.
    #[cfg(test)]
    pub(super) fn put(&self, port: u16, queue: u16) {
        let local = LocalAddress { address: [192, 0, 2, 9].into(), vlan: VlanTags::default() };
        let terms = ClaimTerms { queues: [queue].into_iter().collect(), ..ClaimTerms::default() };
        self.lock().0.insert(Claim { transport: Transport::Tcp, local, port }, terms);
    }

    /// The process that has a queue ends, after its broker.
    #[cfg(test)]
    pub(super) fn end_owner(&self, queue: u16) {
        self.lock().2.insert(queue);
    }

    /// Who has queues.
    #[cfg(test)]
    pub(super) fn owned(&self) -> Vec<u16> {
        self.lock().1.keys().copied().collect()
    }

    /// Who has a queue, or a place on one.
    #[cfg(test)]
    pub(super) fn lend(&self, number: u16, owner: QueueOwner) {
        self.lock().1.insert(number, owner);
    }

    /// Whether a port is claimed.
    #[cfg(test)]
    pub(super) fn has(&self, port: u16) -> bool {
        self.lock().0.keys().any(|claim| claim.port == port)
    }
}

struct MadeUp {
    link: LinkNumber,
    queues: u16,
    /// Processes that can share one.
    places: u16,
    log: Log,
    maps: Maps,
}

/// A broker whose loopback interface is made up, for descendants of `head` or members of a group.
pub(super) fn setup(queues: u16, log: &Log, family: Family, profile: Profile) -> Setup {
    Setup {
        socket: listen_anywhere().expect("there are sockets"),
        interfaces: vec![(0, "lo".to_owned())],
        is_successor: false,
        paths: Box::new(MadeUp { link: 0, queues, places: 1, log: log.clone(), maps: Maps::default() }),
        family,
        options: Options {
            spin_us: 20,
            gather_us: 30,
            mss_clamp: None,
            verbose: false,
            share: false,
            profile,
        },
        observed_in: None,
        zero_copy: false,
        accept_queue: |_| Err(XdpError::Lent("a made-up interface has none")),
        identify: |(_, user), _| Some(Identity { user, group: 1 }),
    }
}

/// The same at an interface of which so many processes can share each queue.
#[cfg(test)]
pub(super) fn setup_shared(queues: u16, places: u16, log: &Log, family: Family) -> Setup {
    let made_up = MadeUp { link: 0, queues, places, log: log.clone(), maps: Maps::default() };
    Setup { paths: Box::new(made_up), ..setup(queues, log, family, all()) }
}

/// The same at an interface with such maps; with a name, in the place of the killed broker of that name.
#[cfg(test)]
pub(super) fn setup_with(maps: &Maps, killed: Option<&str>, queues: u16, family: Family) -> Setup {
    let log = Log::default();
    let mut setup = setup(queues, &log, family, all());
    setup.paths = Box::new(MadeUp { link: 0, queues, places: 1, log, maps: maps.clone() });
    if let Some(name) = killed {
        // A helper closes the socket of the one that is gone.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let socket = loop {
            match super::turns::listen_at(name) {
                Ok(socket) => break socket,
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        (setup.socket, setup.is_successor) = ((name.to_owned(), socket), true);
    }
    setup
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
    fn open(&self, _interface: &str, link: LinkNumber) -> Result<Box<dyn DataPath>, XdpError> {
        let MadeUp { queues, places, .. } = *self;
        Ok(Box::new(MadeUp { link, queues, places, log: self.log.clone(), maps: self.maps.clone() }))
    }

    fn queues(&self, _interface: &str) -> Result<u16, XdpError> {
        Ok(self.queues)
    }

    fn frame_size(&self, _mtu: u32) -> Option<u16> {
        Some(2048)
    }

    fn spread(&self, _interface: &str) -> Option<DeviceSpread> {
        self.maps.nic().spread.clone()
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
        self.link != GENERIC
    }

    fn merges_datagrams(&self) -> bool {
        false
    }

    fn lend(
        &mut self,
        queues: &[u16],
        _frame_size: Option<u16>,
        zero_copy: bool,
        owner: QueueOwner,
    ) -> Result<LentQueues, XdpError> {
        self.maps.lock().1.extend(queues.iter().map(|queue| (*queue, owner)));
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
            place: None,
        };
        Ok(LentQueues { layout, memory: any(), sockets: queues.iter().map(|_| any()).collect() })
    }

    fn places(&self, _queues: u16) -> u16 {
        self.places
    }

    fn share(
        &mut self,
        (queue, number): (u16, u16),
        frame_size: Option<u16>,
        zero_copy: bool,
        owner: QueueOwner,
        _identity: Option<Identity>,
    ) -> Result<LentQueues, XdpError> {
        self.log.note(format!("share {queue} as {number}"));
        self.lend(&[number], frame_size, zero_copy, owner)
    }

    fn is_free(&mut self, queue: u16) -> bool {
        self.maps.lock().2.contains(&queue)
    }

    fn leave(&mut self) {}

    fn queues_to_leave(&self, _link: LinkNumber) -> Vec<Left> {
        Vec::new()
    }

    fn owners(&self) -> Vec<(u16, QueueOwner)> {
        self.maps.lock().1.iter().map(|(queue, owner)| (*queue, *owner)).collect()
    }

    fn claims(&self) -> Vec<(Claim, ClaimTerms)> {
        self.maps.lock().0.iter().map(|(claim, terms)| (*claim, *terms)).collect()
    }

    fn begin_reopening(&mut self) -> Result<(), XdpError> {
        Ok(())
    }

    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        self.log.note(format!("remove {queue}"));
        self.maps.lock().1.remove(&queue);
        Ok(())
    }

    fn put_claim(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError> {
        self.maps.lock().0.insert(claim, terms);
        Ok(())
    }

    fn remove_claim(&mut self, claim: Claim) -> Result<(), XdpError> {
        self.maps.lock().0.remove(&claim);
        Ok(())
    }

    fn add_kernel_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        _marks: Marks,
    ) -> Result<(), XdpError> {
        self.maps.nic().kernel_flows.insert((local, remote));
        Ok(())
    }

    fn is_kernel_flow(&self, local: SocketAddr, remote: SocketAddr, _marks: Marks) -> Result<bool, XdpError> {
        Ok(self.maps.nic().kernel_flows.contains(&(local, remote)))
    }

    fn add_awaited_flow(
        &mut self,
        _local: SocketAddr,
        remote: SocketAddr,
        _marks: Marks,
    ) -> Result<bool, XdpError> {
        self.log.note(format!("awaited {}", remote.port()));
        Ok(remote.port() != OF_THE_KERNEL)
    }

    fn forget_shared_flow(&mut self, _local: SocketAddr, remote: SocketAddr) -> Result<(), XdpError> {
        self.log.note(format!("forgotten {}", remote.port()));
        Ok(())
    }

    fn take_misdirected(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<bool, XdpError> {
        Ok(self.maps.nic().misdirected.remove(&(local, remote)))
    }

    fn settle_sharers(&mut self, _now: Instant) -> Result<(), XdpError> {
        Ok(())
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("redirected".to_owned(), 7)]
    }
}
