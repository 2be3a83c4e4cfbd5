//! Listeners: who listens where, found by a hash of the address and port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use clock::Instant;

use super::{ListenError, ListenerId, Stack};
use crate::config::TcpOptions;
use crate::flow_table::FlowKey;
use crate::tcp::Listener;

impl Stack {
    /// Listens on `local`; with an unspecified IPv6 address and `dual_stack` for IPv4 as well. `backlog` connections and one
    /// more may wait to be accepted, as on Linux.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        dual_stack: bool,
        backlog: u32,
        options: Arc<TcpOptions>,
    ) -> Result<ListenerId, ListenError> {
        if self.listener_at(local).is_some() {
            return Err(ListenError::InUse);
        }
        self.saves_syns |= options.save_syn;
        let listener = Listener::new(local, dual_stack, backlog, options);
        let id = self.listeners.insert_with(|_| listener).ok_or(ListenError::TooMany)?;
        self.listening.insert(self.listening.hash_of(&FlowKey::of_binding(local)), id.index());
        Ok(id)
    }

    /// Stops listening. Connections that wait for `accept` are reset.
    pub fn close_listener(&mut self, id: ListenerId, now: Instant) {
        self.remove_listener(id, now);
    }

    pub(super) fn remove_listener(&mut self, id: ListenerId, now: Instant) -> Option<Listener> {
        self.forget_half_open_of(id);
        let mut listener = self.listeners.remove(id)?;
        self.listening.remove(self.listening.hash_of(&FlowKey::of_binding(listener.local)), id.index());
        while let Some(waiting) = listener.pop() {
            self.abort(waiting, now);
        }
        Some(listener)
    }

    /// The listener for packets to `local`: one for this very address before one for any of its version, and that before one
    /// for both versions.
    pub(super) fn find_listener(&self, local: SocketAddr) -> Option<ListenerId> {
        let any = |address: IpAddr| self.listener_at(SocketAddr::new(address, local.port()));
        match local {
            SocketAddr::V4(_) => {
                let of_both = || any(Ipv6Addr::UNSPECIFIED.into()).filter(|id| self.is_dual_stack(*id));
                let of_version = || any(Ipv4Addr::UNSPECIFIED.into());
                self.listener_at(local).or_else(of_version).or_else(of_both)
            }
            SocketAddr::V6(_) => self.listener_at(local).or_else(|| any(Ipv6Addr::UNSPECIFIED.into())),
        }
    }

    fn is_dual_stack(&self, id: ListenerId) -> bool {
        self.listeners.get(id).is_some_and(|listener| listener.dual_stack)
    }

    /// The listener that is bound to exactly this address.
    fn listener_at(&self, local: SocketAddr) -> Option<ListenerId> {
        let is_it = |(_, listener): &(ListenerId, &Listener)| {
            (listener.local.ip(), listener.local.port()) == (local.ip(), local.port())
        };
        let hash = self.listening.hash_of(&FlowKey::of_binding(local));
        let place =
            self.listening.find(hash, |place| self.listeners.at(place).as_ref().is_some_and(is_it))?;
        self.listeners.at(place).map(|(id, _)| id)
    }
}
