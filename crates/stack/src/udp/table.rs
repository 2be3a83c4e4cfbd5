//! Finds the socket of a datagram.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;

use crate::flow_table::{FlowKey, FlowTable};
use crate::slab::Slab;
use crate::udp::{UdpBindError, UdpId, UdpSocket};

/// All sockets, found by what they are bound or connected to.
#[derive(Debug)]
pub(crate) struct UdpTable {
    sockets: Slab<UdpSocket>,
    groups: Slab<Group>,
    /// Places of groups, by [`Group::key`].
    bound: FlowTable,
    /// Places of connected sockets, by their flow.
    connected: FlowTable,
}

/// Sockets that share an address and port (`SO_REUSEPORT`); mostly one.
#[derive(Debug)]
struct Group {
    key: FlowKey,
    reuse_port: bool,
    members: Vec<UdpId>,
}

impl UdpTable {
    pub(crate) fn new(sockets_max: u32, key: [u64; 2]) -> UdpTable {
        UdpTable {
            sockets: Slab::new(sockets_max),
            groups: Slab::new(2 * sockets_max), // A dual-stack socket is in two.
            bound: FlowTable::new(0, key),
            connected: FlowTable::new(0, key),
        }
    }

    pub(crate) fn get(&self, id: UdpId) -> Option<&UdpSocket> {
        self.sockets.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: UdpId) -> Option<&mut UdpSocket> {
        self.sockets.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (UdpId, &UdpSocket)> {
        self.sockets.iter()
    }

    /// Adds a bound socket.
    pub(crate) fn insert(&mut self, socket: UdpSocket) -> Result<UdpId, UdpBindError> {
        let keys = binding_keys(&socket);
        if !self.may_join(&keys, socket.reuse_port) {
            return Err(UdpBindError::InUse);
        }
        let reuse_port = socket.reuse_port;
        let id = self.sockets.insert_with(|_| socket).ok_or(UdpBindError::TooMany)?;
        self.join(id, &keys, reuse_port);
        Ok(id)
    }

    /// The socket is found no more.
    pub(crate) fn hide(&mut self, id: UdpId) {
        let Some(socket) = self.sockets.get(id) else {
            return;
        };
        match socket.peer {
            Some(peer) => {
                self.connected.remove(self.connected.hash_of(&peer.key), id.index());
            }
            None => binding_keys(socket).iter().for_each(|key| self.leave(id, key)),
        }
    }

    /// Takes a hidden socket out.
    pub(crate) fn remove(&mut self, id: UdpId) -> Option<UdpSocket> {
        self.sockets.remove(id)
    }

    /// The hidden socket `id` is found by its flow `key` from now on.
    pub(crate) fn show_connected(&mut self, id: UdpId, key: &FlowKey) {
        self.connected.insert(self.connected.hash_of(key), id.index());
    }

    /// Whether the socket `id`, which is connected, may be found by its address again.
    pub(crate) fn may_show_bound(&self, id: UdpId) -> bool {
        self.get(id).is_some_and(|socket| self.may_join(&binding_keys(socket), socket.reuse_port))
    }

    /// The hidden socket `id` is found by its address from now on.
    pub(crate) fn show_bound(&mut self, id: UdpId) {
        if let Some(socket) = self.sockets.get(id) {
            let (keys, reuse_port) = (binding_keys(socket), socket.reuse_port);
            self.join(id, &keys, reuse_port);
        }
    }

    /// The socket for datagrams of a flow: the one connected so, else one bound to the address, else one bound to any, those
    /// of IPv4 before those of both versions.
    #[inline]
    pub(crate) fn find(&self, flow: &FlowKey) -> Option<UdpId> {
        self.find_connected(flow).or_else(|| self.find_bound(flow))
    }

    /// The socket that is connected so.
    #[inline]
    pub(crate) fn find_connected(&self, flow: &FlowKey) -> Option<UdpId> {
        if self.connected.is_empty() {
            return None;
        }
        let is_it = |socket: &UdpSocket| socket.peer.is_some_and(|peer| peer.key == *flow);
        let hash = self.connected.hash_of(flow);
        let place = self
            .connected
            .find(hash, |place| self.sockets.at(place).is_some_and(|(_, socket)| is_it(socket)));
        place.and_then(|place| self.sockets.at(place)).map(|(id, _)| id)
    }

    fn find_bound(&self, flow: &FlowKey) -> Option<UdpId> {
        if self.bound.is_empty() {
            return None;
        }
        let local = flow.local();
        let any = |address: IpAddr| FlowKey::of_binding(SocketAddr::new(address, local.port()));
        let specific = self.group(&FlowKey::of_binding(local));
        let group = specific.or_else(|| match local {
            SocketAddr::V4(_) => {
                self.group(&any(Ipv4Addr::UNSPECIFIED.into())).or_else(|| self.group(&any(DUAL_STACK.into())))
            }
            SocketAddr::V6(_) => self.group(&any(Ipv6Addr::UNSPECIFIED.into())),
        });
        group.map(|group| self.choose(group, flow))
    }

    /// The member of a group that gets a flow: always the same one, unless sockets come or go.
    fn choose(&self, group: &Group, flow: &FlowKey) -> UdpId {
        if let [only] = group.members[..] {
            return only;
        }
        let hash = self.bound.hash_of(flow) >> 32;
        group.members[((hash * group.members.len() as u64) >> 32) as usize]
    }

    fn group(&self, key: &FlowKey) -> Option<&Group> {
        let place = self.group_place(key)?;
        self.groups.at(place).map(|(_, group)| group)
    }

    fn group_place(&self, key: &FlowKey) -> Option<u32> {
        let is_it = |place| self.groups.at(place).is_some_and(|(_, group)| group.key == *key);
        self.bound.find(self.bound.hash_of(key), is_it)
    }

    fn may_join(&self, keys: &[FlowKey], reuse_port: bool) -> bool {
        let groups = keys.iter().filter_map(|key| self.group(key));
        groups.into_iter().all(|group| group.reuse_port && reuse_port)
    }

    fn join(&mut self, id: UdpId, keys: &[FlowKey], reuse_port: bool) {
        for key in keys {
            match self.group_place(key).and_then(|place| self.groups.at_mut(place)) {
                Some((_, group)) => group.members.push(id),
                None => {
                    let group = Group { key: *key, reuse_port, members: vec![id] };
                    let group = self.groups.insert_with(|_| group).expect("two for each socket");
                    self.bound.insert(self.bound.hash_of(key), group.index());
                }
            }
        }
    }

    fn leave(&mut self, id: UdpId, key: &FlowKey) {
        let Some(place) = self.group_place(key) else {
            return;
        };
        let Some((handle, group)) = self.groups.at_mut(place) else {
            return;
        };
        if let Some(at) = group.members.iter().position(|member| *member == id) {
            group.members.swap_remove(at);
        }
        if group.members.is_empty() {
            self.groups.remove(handle);
            self.bound.remove(self.bound.hash_of(key), place);
        }
    }

    /// For a pool that is dropped together with the sockets.
    pub(crate) fn forget_queues(&mut self) {
        let ids: Vec<UdpId> = self.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(socket) = self.sockets.get_mut(id) {
                socket.incoming.forget();
                socket.outgoing.forget();
            }
        }
    }
}

/// Stands for all addresses of IPv4, as those sockets have it that are for IPv6 as well.
const DUAL_STACK: Ipv6Addr = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();

fn binding_keys(socket: &UdpSocket) -> ArrayVec<FlowKey, 2> {
    let mut keys = ArrayVec::new();
    keys.push(FlowKey::of_binding(socket.local));
    if socket.is_dual_stack() {
        keys.push(FlowKey::of_binding(SocketAddr::new(DUAL_STACK.into(), socket.local.port())));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::UdpBind;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn bind(
        table: &mut UdpTable,
        local: &str,
        dual_stack: bool,
        reuse_port: bool,
    ) -> Result<UdpId, UdpBindError> {
        let bind = UdpBind { dual_stack, reuse_port, ..UdpBind::new(address(local)) };
        table.insert(UdpSocket::new(&bind))
    }

    fn find(table: &UdpTable, local: &str, remote: &str) -> Option<UdpId> {
        table.find(&FlowKey::new(address(local), address(remote)).unwrap())
    }

    fn table() -> UdpTable {
        UdpTable::new(1000, [1, 2])
    }

    #[test]
    fn a_specific_address_goes_before_any() {
        let mut table = table();
        for (any, specific, other, remote) in [
            ("0.0.0.0:53", "192.0.2.1:53", "192.0.2.2:53", "198.51.100.1:9"),
            ("[::]:53", "[2001:db8::1]:53", "[2001:db8::2]:53", "[2001:db8::9]:9"),
        ] {
            let any_id = bind(&mut table, any, false, false).unwrap();
            assert_eq!(find(&table, specific, remote), Some(any_id));
            let specific_id = bind(&mut table, specific, false, false).unwrap();
            assert_eq!(find(&table, specific, remote), Some(specific_id));
            assert_eq!(find(&table, other, remote), Some(any_id));
        }
    }

    #[test]
    fn a_dual_stack_socket_gets_both_versions_unless_ipv4_has_its_own() {
        let mut table = table();
        let dual = bind(&mut table, "[::]:53", true, false).unwrap();
        assert_eq!(find(&table, "192.0.2.1:53", "192.0.2.9:9"), Some(dual));
        assert_eq!(find(&table, "[2001:db8::1]:53", "[2001:db8::9]:9"), Some(dual));
        let v4 = bind(&mut table, "0.0.0.0:53", false, false).unwrap();
        assert_eq!(find(&table, "192.0.2.1:53", "192.0.2.9:9"), Some(v4));
        table.hide(dual);
        assert_eq!(find(&table, "[2001:db8::1]:53", "[2001:db8::9]:9"), None);
    }

    #[test]
    fn an_address_is_shared_only_if_all_agree() {
        let mut table = table();
        bind(&mut table, "192.0.2.1:53", false, true).unwrap();
        assert_eq!(bind(&mut table, "192.0.2.1:53", false, false), Err(UdpBindError::InUse));
        assert!(bind(&mut table, "192.0.2.1:53", false, true).is_ok());
        bind(&mut table, "[::]:53", true, false).unwrap();
        assert_eq!(bind(&mut table, "[::]:53", true, true), Err(UdpBindError::InUse));
    }

    #[test]
    fn flows_spread_over_the_sockets_of_a_group_and_stay_where_they_are() {
        let mut table = table();
        let ids: Vec<_> = (0..4).map(|_| bind(&mut table, "0.0.0.0:53", false, true).unwrap()).collect();
        let who = |table: &UdpTable, port| find(table, "192.0.2.1:53", &format!("192.0.2.9:{port}")).unwrap();
        let chosen: Vec<_> = (1..=1000).map(|port| who(&table, port)).collect();
        for id in &ids {
            let share = chosen.iter().filter(|chosen| *chosen == id).count();
            assert!((180..=320).contains(&share), "{share} of 1000 flows");
        }
        assert!((1..=1000).all(|port| who(&table, port) == chosen[port - 1]));
        table.hide(ids[3]);
        assert!((1..=1000).all(|port| who(&table, port) != ids[3]));
    }

    #[test]
    fn nothing_is_left_of_sockets_that_are_gone() {
        let mut table = table();
        for _ in 0..3 {
            let ids: Vec<_> = (0..8).map(|_| bind(&mut table, "[::]:53", true, true).unwrap()).collect();
            for id in ids {
                table.hide(id);
                table.remove(id);
            }
            assert!(table.bound.is_empty() && table.groups.is_empty() && table.sockets.is_empty());
        }
    }
}
