//! The closest zone above a name whose servers are known.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clock::Instant;
use dns_wire::{Name, NameBuf, Rtype};

use super::task::{Mode, ZoneServers};
use crate::cache::{Content, Kind};
use crate::delegation::{Delegation, address, may_be_asked};
use crate::resolver::{Directed, DirectedKind, Resolver};

impl Resolver {
    /// The zone to ask about `name` and `rtype`: one that the user sends elsewhere, else the deepest one that is delegated, else the root.
    pub(crate) fn find_zone(&mut self, name: Name<'_>, rtype: Rtype, now: Instant) -> ZoneServers {
        // A DS record is in the zone above its owner (RFC 4035, 3.1.4.1).
        let name = if rtype == Rtype::DS { name.parent().unwrap_or(name) } else { name };
        let directed = self.directed(name).cloned();
        if let Some(forward) = directed.as_ref().filter(|directed| directed.kind == DirectedKind::Forward) {
            return self.directed_zone(forward, Mode::Forward);
        }
        let floor = directed.as_ref().map_or(0, |directed| directed.zone.as_name().label_count() + 1);
        let mut above = Some(name);
        while let Some(zone) = above.filter(|zone| zone.label_count() >= floor) {
            if let Some(found) = self.cache.get_fresh(zone, Kind::Zone, now)
                && let Content::Zone(delegation) = found.content
            {
                return self.delegated_zone(&delegation, now);
            }
            above = zone.parent();
        }
        match directed {
            Some(stub) => self.directed_zone(&stub, Mode::Iterate),
            None => self.delegated_zone(&Arc::new(self.zones.hints.0.clone()), now),
        }
    }

    /// Whether the root's servers are known only by the hints.
    pub(super) fn has_only_hints(&mut self, now: Instant) -> bool {
        self.cache.get_fresh(Name::ROOT, Kind::Zone, now).is_none()
    }

    /// The deepest zone at or above `name` that the user sends elsewhere.
    pub(crate) fn directed(&self, name: Name<'_>) -> Option<&Directed> {
        let above = self.zones.directed.iter().filter(|directed| name.ends_with(directed.zone.as_name()));
        above.max_by_key(|directed| directed.zone.as_name().len())
    }

    fn directed_zone(&self, directed: &Directed, mode: Mode) -> ZoneServers {
        ZoneServers {
            name: directed.zone.clone(),
            mode,
            addresses: directed.servers.clone(),
            fallback: Vec::new(),
            unresolved: Vec::new(),
            delegation: None,
        }
    }

    /// The servers of a delegation: at the addresses that their own zone gives, once one of those has answered, else at their glue, too.
    pub(super) fn delegated_zone(&mut self, delegation: &Arc<Delegation>, now: Instant) -> ZoneServers {
        let (mut addresses, mut fallback, mut unresolved) = (Vec::new(), Vec::new(), Vec::new());
        for server in &delegation.servers {
            let own = self.known_addresses(server.name.as_name(), now);
            if own.is_empty() && server.glue.is_empty() {
                unresolved.push(server.name.clone());
            }
            // No client waits for an address that has not answered yet, or is dead, where glue may do.
            let port = self.options.server_port;
            let is_proven = own.iter().any(|ip| self.servers.is_proven(SocketAddr::new(*ip, port)));
            addresses.extend(own);
            if is_proven { &mut fallback } else { &mut addresses }.extend(&server.glue);
        }
        let mut addresses = self.usable(addresses);
        let mut fallback = self.usable(fallback);
        fallback.retain(|address| !addresses.contains(address));
        self.lame.remove_from(&mut addresses, delegation.zone.as_name(), now);
        self.lame.remove_from(&mut fallback, delegation.zone.as_name(), now);
        ZoneServers {
            name: delegation.zone.clone(),
            mode: Mode::Iterate,
            addresses,
            fallback,
            unresolved,
            delegation: Some(Arc::clone(delegation)),
        }
    }

    /// The addresses of `name` in the cache.
    fn known_addresses(&mut self, name: Name<'_>, now: Instant) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for rtype in [Rtype::A, Rtype::AAAA] {
            if let Some(found) = self.cache.get_fresh(name, Kind::Type(rtype), now)
                && let Content::Records(rdatas, ..) = found.content
            {
                addresses.extend(rdatas.iter().filter_map(|rdata| address(rtype, rdata)));
            }
        }
        addresses
    }

    /// Those of `addresses` that may be asked, each once, with the port of servers.
    pub(super) fn usable(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<SocketAddr> {
        let mut usable: Vec<SocketAddr> = Vec::new();
        for address in addresses {
            let address = SocketAddr::new(address, self.options.server_port);
            let may = may_be_asked(address, self.options.query_loopback, self.options.ipv6);
            if may && usable.len() < self.options.limits.addresses_max && !usable.contains(&address) {
                usable.push(address);
            }
        }
        usable
    }

    /// Whether the addresses of a zone's servers are never fetched from their own zone: the root's and those of top-level domains are
    /// kept well by the zones above.
    pub(super) fn is_exempt(zone: &NameBuf) -> bool {
        zone.as_name().label_count() < 2
    }
}
