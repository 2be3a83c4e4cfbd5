//! The ways to peers, and the ports to connect from.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use clock::Instant;
use steering::Transport;

use super::broker::Broker;
use super::machine::local_ports;
use super::notice::Notice;
use super::outcome::{Outcome, done};
use super::spread::{DeviceSpread, Misdirected};
use crate::protocol::{Answer, HomePorts, News, QUEUES_MAX, Refusal};
use crate::registry::{ClientId, LinkNumber};

impl Broker {
    pub(super) fn route(
        &mut self,
        client: ClientId,
        id: u64,
        remote: IpAddr,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Outcome {
        let mirror = self.monitor.mirror();
        self.routes.begin((client, id), (remote, from), &self.ports, mirror, now)?;
        self.registry.on_connecting(client, now);
        self.settle_registry(now); // It has its queues before it has the way.
        self.answer_routes(now); // The neighbour is known more often than not.
        Ok(None)
    }

    /// Answers the requests whose route is known by now.
    pub(super) fn answer_routes(&mut self, now: Instant) {
        for mut found in self.routes.settle(&self.ports, self.monitor.mirror(), now) {
            if let Ok(route) = &mut found.outcome {
                route.all_queues_yours = self.registry.has_all_queues(found.client, route.link);
                if !route.all_queues_yours {
                    route.home_ports = self.home_ports(found.client, route.link, route.local.is_ipv4(), now);
                }
            }
            let answer = found.outcome.map(Answer::Route);
            let outcome = self.answer(found.client, found.id, answer, Vec::new());
            self.note(found.client, outcome, now);
        }
    }

    /// The ports from which a client that has some of an interface's queues may connect.
    pub(super) fn home_ports(
        &mut self,
        client: ClientId,
        link: LinkNumber,
        is_ipv4: bool,
        now: Instant,
    ) -> Option<HomePorts> {
        let queues = self.queues_served(client, link);
        let paths = &*self.paths;
        let port = self.ports.iter_mut().find(|port| port.link == link && !queues.is_empty())?;
        let spread = port.spread.believed(|| paths.spread(&port.name), now)?;
        let hashes_ports = spread.hashes_ports_of(is_ipv4)?;
        let (range, reserved) = local_ports()?;
        let entries = spread.table.entries();
        (reserved.len() <= HomePorts::RESERVED_MAX).then(|| HomePorts {
            key: spread.key.clone(),
            entries: entries.len() as u32, // At most some thousand.
            home: home_of(spread, &queues),
            hashes_ports,
            range,
            reserved,
        })
    }

    /// The queues of an interface by which packets come to a client, alone or among those who share them.
    fn queues_served(&self, client: ClientId, link: LinkNumber) -> BTreeSet<u16> {
        let served = self.registry.queues_of(client, link);
        let numbers = (0..QUEUES_MAX).filter(|number| served.contains(*number));
        numbers.map(|number| self.registry.queue_of(link, number)).collect()
    }

    /// A client had no answer to a connection from such a port. If it came by another queue, the interface is not what it says.
    pub(super) fn on_unanswered(
        &mut self,
        client: ClientId,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Outcome {
        if !self.registry.covers(client, Transport::Tcp, local) {
            return Err(Refusal::NoSuchClaim);
        }
        let links: Vec<LinkNumber> = self.ports.iter().map(|port| port.link).collect();
        for link in links {
            let queues = self.queues_served(client, link);
            let paths = &*self.paths;
            let Some(port) = self.ports.iter_mut().find(|port| port.link == link) else { continue };
            let is_promised = port.spread.promises((local, remote), &queues);
            if !port.take_misdirected(local, remote) || !is_promised {
                continue;
            }
            match port.spread.on_misdirected(|| paths.spread(&port.name), now) {
                Misdirected::Changed => self.tell_all(&News::SpreadChanged { link }, now),
                Misdirected::Doubted => {
                    let interface = port.name.clone();
                    self.notices.push(Notice::Doubted { interface });
                    self.tell_ways_changed(now);
                }
                Misdirected::Noted => {}
            }
        }
        done(Ok(()))
    }
}

/// One bit for each entry that leads to one of these queues.
fn home_of(spread: &DeviceSpread, queues: &BTreeSet<u16>) -> Vec<u64> {
    let is_home = |queue: &u16| queues.contains(queue);
    let word = |entries: &[u16]| {
        let bits = entries.iter().enumerate().filter(|(_, queue)| is_home(queue));
        bits.fold(0, |word, (bit, _)| word | 1 << bit)
    };
    spread.table.entries().chunks(64).map(word).collect()
}
