//! One interface that appears, changes and disappears.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use clock::{Duration, Instant};
use control::{Mirror, NeighbourMove, NeighbourWatch, SourceWatch, Sources};
use device_xdp::XdpError;
use steering::{LocalAddress, Marks};

use super::data_path::{DataPath, DataPaths};
use super::spread::SpreadWatch;
use crate::protocol::{Address, Interface, Sources as Told};
use crate::registry::{LinkNumber, View};

/// How long after a failure the next attempt comes.
const RETRY: Duration = Duration::from_secs(1);
/// How long clients get to close the sockets of an interface before another program takes the place of one.
const REPLACE: Duration = Duration::from_millis(100);
/// Ranges of addresses that fit a message beside the rest. Where routes make more of them, sources are not checked.
const RANGES_MAX: usize = 256;

/// An interface that was configured. It need not be there.
pub(super) struct Port {
    pub(super) link: LinkNumber,
    pub(super) name: String,
    /// What it is while it is attached.
    pub(super) open: Option<Open>,
    /// Why it is not, or not wholly, usable.
    pub(super) failure: Option<String>,
    /// Not tried again.
    pub(super) is_given_up: bool,
    /// How it spreads packets over its queues.
    pub(super) spread: SpreadWatch,
    neighbours: NeighbourWatch,
    watch: SourceWatch,
    /// From which addresses peers may open connections.
    sources: Vec<Told>,
    /// Links, addresses or routes may be others than when they were last looked at.
    has_news: bool,
    not_before: Instant,
}

/// An interface that is attached.
pub(super) struct Open {
    pub(super) path: Box<dyn DataPath>,
    pub(super) view: View,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u16,
    /// Of the devices on it. They keep it when the interface needs less.
    pub(super) frame_size: Option<u16>,
    /// Attempts to lend a queue, one after the other, that found it busy.
    pub(super) attempts: u32,
}

/// What happened to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Its program was attached.
    Attached,
    /// Its program was detached, and devices on it are good for nothing any more.
    Detached,
    /// It has other addresses.
    Addresses,
    /// It has another number of queues.
    Queues,
    /// It puts packets into other queues.
    Spread,
    /// It takes packets that need larger frames than its devices have.
    Outgrown,
    /// It takes packets of another size.
    Mtu,
    /// Peers may open connections from other addresses.
    Sources,
    /// A neighbour has another hardware address.
    Moved(NeighbourMove),
    /// It cannot be attached, for another reason than before.
    Failed(String),
}

/// An interface as the kernel has it.
struct Found {
    view: View,
    mac: [u8; 6],
    mtu: u32,
    /// Octets of the frames that its packets fit, if any do.
    frame_size: Option<u16>,
}

impl Port {
    pub(super) fn new(link: LinkNumber, name: String) -> Port {
        let neighbours = NeighbourWatch::default();
        Port {
            link,
            name,
            open: None,
            failure: None,
            is_given_up: false,
            spread: SpreadWatch::default(),
            neighbours,
            watch: SourceWatch::default(),
            sources: Vec::new(),
            has_news: true,
            not_before: Instant::ZERO,
        }
    }

    /// Compares with what the kernel has, and does what follows.
    pub(super) fn follow(&mut self, paths: &dyn DataPaths, mirror: &Mirror, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.is_given_up {
            return changes;
        }
        changes.extend(self.follow_sources(mirror));
        let found = match self.find(paths, mirror) {
            Ok(found) => found,
            // Nothing is known anew; a descriptor or some memory is missing, perhaps.
            Err(error) => {
                changes.extend(self.fail(&error).map(Change::Failed));
                return changes;
            }
        };
        if self.must_close(found.as_ref()) {
            self.open = None;
            self.not_before = now + REPLACE;
            changes.push(Change::Detached);
        }
        let Some(found) = found else { return changes };
        match &mut self.open {
            Some(open) => changes.extend(open.take(found)),
            None if now >= self.not_before => changes.extend(self.attach(paths, found, now)),
            None => {}
        }
        if self.spread.follow(|| paths.spread(&self.name), now) {
            changes.push(Change::Spread);
        }
        let interfaces = mirror.interfaces_on(&self.name);
        let moves = self.neighbours.compare(mirror, &interfaces);
        changes.extend(moves.into_iter().map(Change::Moved));
        changes
    }

    fn follow_sources(&mut self, mirror: &Mirror) -> Option<Change> {
        let has_news = std::mem::take(&mut self.has_news);
        let found = self.watch.compare(mirror, &self.name, has_news)?;
        let count: usize = found.iter().map(|it| it.allowed.len() + it.routed.len()).sum();
        let known = if count > RANGES_MAX { Vec::new() } else { found };
        self.sources = known.into_iter().map(told).collect();
        Some(Change::Sources)
    }

    /// Links, addresses or routes have changed.
    pub(super) fn note_news(&mut self) {
        self.has_news = true;
    }

    /// From which addresses peers may open connections, for clients. Behind tags that are not among them, all may.
    pub(super) fn sources(&self) -> &[Told] {
        &self.sources
    }

    /// `None`: there is no such interface. An error says nothing of it.
    fn find(&self, paths: &dyn DataPaths, mirror: &Mirror) -> Result<Option<Found>, XdpError> {
        let Some(link) = mirror.link(&self.name) else { return Ok(None) };
        let queues = match (paths.queues(&self.name), &self.open) {
            (Ok(queues), _) => queues,
            (Err(XdpError::NoSuchInterface { .. }), _) => return Ok(None), // The news are on their way.
            // It is another one of the same name.
            (Err(_), Some(open)) if open.view.index != link.index => return Ok(None),
            (Err(error), _) => return Err(error),
        };
        let addresses = mirror.local_addresses(&self.name);
        let merges_datagrams = self.open.as_ref().is_some_and(|open| open.path.merges_datagrams());
        let view = View { index: link.index, queues, addresses, merges_datagrams };
        let frame_size = paths.frame_size(link.mtu);
        Ok(Some(Found { view, mac: link.mac.unwrap_or_default(), mtu: link.mtu, frame_size }))
    }

    /// It is gone, is another one of the same name, or takes packets that fit no frames any more.
    fn must_close(&self, found: Option<&Found>) -> bool {
        let Some(open) = &self.open else { return false };
        found.is_none_or(|found| {
            let fits_none = open.frame_size.is_some() && found.frame_size.is_none();
            found.view.index != open.view.index || fits_none
        })
    }

    fn attach(&mut self, paths: &dyn DataPaths, found: Found, now: Instant) -> Option<Change> {
        match paths.open(&self.name, self.link) {
            Ok(path) => {
                let Found { view, mac, mtu, frame_size } = found;
                let view = View { merges_datagrams: path.merges_datagrams(), ..view };
                self.open = Some(Open { path, view, mac, mtu: octets(mtu), frame_size, attempts: 0 });
                self.failure = None;
                Some(Change::Attached)
            }
            Err(error) => {
                self.not_before = now + RETRY;
                self.fail(&error).map(Change::Failed)
            }
        }
    }

    /// Notes a failure; returns its text if it is not the last one again.
    pub(super) fn fail(&mut self, error: &XdpError) -> Option<String> {
        let text = error.to_string();
        let is_new = self.failure.as_ref() != Some(&text);
        self.failure = Some(text.clone());
        is_new.then_some(text)
    }

    /// The interface for clients, while it is attached, with so many addresses at most.
    pub(super) fn interface(&self, addresses_max: usize) -> Option<Interface> {
        let open = self.open.as_ref()?;
        Some(Interface {
            name: self.name.clone(),
            index: open.view.index,
            link: self.link,
            mac: open.mac,
            mtu: open.mtu,
            addresses: open.addresses(addresses_max),
            queues: open.view.queues,
        })
    }

    /// Leaves a TCP connection to the kernel; false if that cannot be noted. The map forgets old ones rather than to be full.
    pub(super) fn add_kernel_flow(&mut self, local: SocketAddr, remote: SocketAddr, marks: Marks) -> bool {
        let outcome = self.open.as_mut().map(|open| open.path.add_kernel_flow(local, remote, marks));
        if let Some(Err(error)) = &outcome {
            self.fail(error);
        }
        !matches!(outcome, Some(Err(_)))
    }

    /// Whether a TCP connection is noted as the kernel's.
    pub(super) fn is_kernel_flow(&self, local: SocketAddr, remote: SocketAddr, marks: Marks) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.path.is_kernel_flow(local, remote, marks).unwrap_or(false))
    }

    /// Makes the packets of a TCP connection wait for its next owner; false if the kernel has it.
    pub(super) fn add_awaited_flow(&mut self, local: SocketAddr, remote: SocketAddr, marks: Marks) -> bool {
        match self.open.as_mut().map(|open| open.path.add_awaited_flow(local, remote, marks)) {
            Some(Err(error)) => {
                self.fail(&error);
                true
            }
            Some(Ok(is_awaited)) => is_awaited,
            None => true,
        }
    }

    /// Has the next packet of a TCP connection choose anew who gets it of those that share its queue.
    pub(super) fn forget_shared_flow(&mut self, local: SocketAddr, remote: SocketAddr) {
        if let Some(Err(error)) = self.open.as_mut().map(|open| open.path.forget_shared_flow(local, remote)) {
            self.fail(&error);
        }
    }

    /// Whether an answer to a connection came by another queue than those of its claim.
    pub(super) fn take_misdirected(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        match self.open.as_mut().map(|open| open.path.take_misdirected(local, remote)) {
            Some(Err(error)) => {
                self.fail(&error);
                false
            }
            outcome => matches!(outcome, Some(Ok(true))),
        }
    }

    /// When to attach again.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (self.is_wanted() && self.not_before > now).then_some(self.not_before)
    }

    /// Whether it should be attached and is not.
    pub(super) fn is_wanted(&self) -> bool {
        self.open.is_none() && !self.is_given_up
    }

    /// Why it is not attached.
    pub(super) fn describe_failure(&self) -> String {
        match &self.failure {
            Some(failure) if failure.contains(&self.name) => failure.clone(),
            Some(failure) => format!("{}: {failure}", self.name),
            None => format!("there is no interface {}", self.name),
        }
    }
}

/// Sources as clients are told of them.
fn told(sources: Sources) -> Told {
    let Sources { vlan, allowed, routed } = sources;
    let ends = |of: Vec<RangeInclusive<IpAddr>>| of.into_iter().map(RangeInclusive::into_inner).collect();
    Told { vlan: [vlan.outer, vlan.inner], allowed: ends(allowed), routed: ends(routed) }
}

impl Open {
    /// Takes over what changed.
    fn take(&mut self, found: Found) -> Vec<Change> {
        let mut changes = Vec::new();
        if found.view.addresses != self.view.addresses {
            changes.push(Change::Addresses);
        }
        if found.view.queues != self.view.queues {
            changes.push(Change::Queues);
        }
        if found.frame_size > self.frame_size {
            self.frame_size = found.frame_size;
            changes.push(Change::Outgrown);
        }
        let mtu = octets(found.mtu);
        if mtu != self.mtu {
            changes.push(Change::Mtu);
        }
        (self.view, self.mac, self.mtu) = (found.view, found.mac, mtu);
        changes
    }

    /// The addresses for clients, so many at most.
    pub(super) fn addresses(&self, max: usize) -> Vec<Address> {
        self.view.addresses.iter().take(max).map(|local| address(*local)).collect()
    }
}

/// An address for clients.
pub(super) fn address(local: LocalAddress) -> Address {
    Address { address: local.address, vlan: [local.vlan.outer, local.vlan.inner] }
}

fn octets(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}
