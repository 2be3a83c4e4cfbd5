//! Follows the kernel's interfaces, addresses and routes, and tells all clients that are concerned.

use clock::Instant;
use control::{Change as KernelChange, NeighbourMove, NetlinkMonitor};

use super::actions::segments_clamped;
use super::broker::{ADDRESSES_MAX, Broker, watch};
use super::notice::Notice;
use super::port::{Change, Port};
use super::token;
use crate::protocol::News;
use crate::registry::LinkNumber;

impl Broker {
    /// Reads what the kernel told, and tells who knows ways if they may be others now. After an error of the socket itself a new one
    /// reads everything again.
    pub(super) fn read_news(&mut self, now: Instant) {
        let news: Result<Vec<KernelChange>, _> = self.monitor.on_readable();
        // There is news of neighbours all the time; moves are reported separately.
        let is_of_ways = |change: &KernelChange| !matches!(change, KernelChange::Neighbours(_));
        let ways_changed = news.as_ref().map_or(true, |changes| changes.iter().any(is_of_ways));
        if ways_changed {
            self.ports.iter_mut().for_each(Port::note_news);
            self.tell_ways_changed(now);
        }
        if news.is_err()
            && let Ok(monitor) = NetlinkMonitor::new()
        {
            self.monitor = monitor; // Closing the old one ends that it is watched.
            let flags = rustix::event::epoll::EventFlags::IN;
            let _ = watch(&self.epoll, self.monitor.fd(), token::NETLINK, flags); // Ticks remain.
        }
        self.follow_segment_clamps(ways_changed, now);
    }

    /// Tells everybody of segment sizes by route, if they are others now; `ways_changed` says whether they may be.
    pub(super) fn follow_segment_clamps(&mut self, ways_changed: bool, now: Instant) {
        let changed = self.clamps.compare(self.monitor.mirror(), ways_changed);
        if let Some(news) = changed.map(segments_clamped) {
            self.tell_all(&news, now);
        }
    }

    /// Compares the interfaces with the kernel's, and informs all clients that are concerned.
    pub(super) fn follow_interfaces(&mut self, now: Instant) {
        for place in 0..self.ports.len() {
            let (paths, link) = (self.paths.as_ref(), self.ports[place].link);
            let changes = self.ports[place].follow(paths, self.monitor.mirror(), now);
            changes.into_iter().for_each(|change| self.on_change(link, change, now));
        }
    }

    fn on_change(&mut self, link: LinkNumber, change: Change, now: Instant) {
        let Some(port) = self.ports.iter().find(|port| port.link == link) else { return };
        let interface = port.name.clone();
        let Some(open) = &port.open else {
            match change {
                Change::Detached => {
                    self.registry.on_detached(link);
                    self.notices.push(Notice::Detached { interface });
                }
                Change::Failed(error) => self.notices.push(Notice::Failed { interface, error }),
                _ => {}
            }
            return;
        };
        match change {
            Change::Attached => {
                let (view, mode) = (open.view.clone(), open.path.describe());
                let (claims, owners) = (open.path.claims(), open.path.owners());
                let places = open.path.places(view.queues);
                self.registry.on_attached(link, view, now);
                self.registry.set_places(link, places);
                self.take_over_left(link, &claims, &owners, now);
                self.notices.push(Notice::Attached { interface, mode });
            }
            Change::Queues => {
                let places = open.path.places(open.view.queues);
                self.registry.on_view(link, open.view.clone(), now);
                self.registry.set_places(link, places);
                // Ways may lead by queues of others; and so may the answers to connections that there are.
                self.tell_all(&News::SpreadChanged { link }, now);
            }
            Change::Spread => self.tell_all(&News::SpreadChanged { link }, now),
            Change::Addresses => {
                let addresses = open.addresses(ADDRESSES_MAX);
                self.registry.on_view(link, open.view.clone(), now);
                self.settle_registry(now);
                self.tell_all(&News::AddressesChanged { link, addresses }, now);
            }
            Change::Outgrown => self.reopen(link, now),
            Change::Mtu => self.tell_all(&News::MtuChanged { link, mtu: open.mtu }, now),
            Change::Moved(NeighbourMove { old, new }) => {
                self.tell_all(&News::NeighbourMoved { link, old, new }, now);
            }
            Change::Sources => {
                let sources = port.sources().to_vec();
                self.tell_all(&News::SourcesChanged { link, sources }, now);
            }
            Change::Detached => self.registry.on_detached(link),
            Change::Failed(error) => self.notices.push(Notice::Failed { interface, error }),
        }
    }

    /// Lends the queues of an interface again, with larger frames. Its program stays, and claimed TCP waits.
    fn reopen(&mut self, link: LinkNumber, now: Instant) {
        if self.registry.queues_lent(link) == 0 {
            return;
        }
        let Some(port) = self.port(link) else { return };
        let interface = port.name.clone();
        let begun = port.open.as_mut().map_or(Ok(()), |open| open.path.begin_reopening());
        self.notices.push(Notice::Outgrown { interface });
        if let Err(error) = begun {
            self.fail(link, &error);
        }
        self.registry.on_reopening(link);
        self.settle_registry(now); // Devices are given up before their MTU is another one.
    }
}
