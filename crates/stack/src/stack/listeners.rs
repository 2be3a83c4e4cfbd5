//! Listeners: who listens where, found by a hash of the address and port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use clock::Instant;

use super::{ConnectionId, ListenError, ListenerId, Stack};
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
        self.tcp_listen_beside(local, dual_stack, backlog, options)
    }

    /// The same where others may listen on the same address (`SO_REUSEPORT`): each flow has one of them, by its hash. When one of them is
    /// closed, who waits there to be accepted waits at the others, as on Linux with `tcp_migrate_req`.
    pub fn tcp_listen_beside(
        &mut self,
        local: SocketAddr,
        dual_stack: bool,
        backlog: u32,
        options: Arc<TcpOptions>,
    ) -> Result<ListenerId, ListenError> {
        let first = self.listener_at(local);
        self.saves_syns |= options.save_syn;
        let listener = Listener::new(local, dual_stack, backlog, options);
        let id = self.listeners.insert_with(|_| listener).ok_or(ListenError::TooMany)?;
        match first.and_then(|first| self.listeners.get_mut(first)) {
            Some(first) => first.beside.push(id),
            None => self.listening.insert(self.listening.hash_of(&FlowKey::of_binding(local)), id.index()),
        }
        Ok(id)
    }

    /// Stops listening. Connections that wait for `accept` are reset, if nobody listens beside it.
    pub fn close_listener(&mut self, id: ListenerId, now: Instant) {
        self.remove_listener(id, now);
    }

    pub(super) fn remove_listener(&mut self, id: ListenerId, now: Instant) -> Option<Listener> {
        let first = self.hide_listener(id)?;
        match first {
            Some(first) => self.pass_half_open_on(id, first),
            None => self.forget_half_open_of(id),
        }
        let mut listener = self.listeners.remove(id)?;
        while let Some(waiting) = listener.pop() {
            match first {
                Some(first) => self.pass_waiting_on(waiting, first),
                None => self.abort(waiting, now),
            }
        }
        Some(listener)
    }

    /// No flow finds the listener from now on. Returns the first of those beside it, if there are any.
    fn hide_listener(&mut self, id: ListenerId) -> Option<Option<ListenerId>> {
        let listener = self.listeners.get_mut(id)?;
        let (local, mut beside) = (listener.local, std::mem::take(&mut listener.beside));
        let hash = self.listening.hash_of(&FlowKey::of_binding(local));
        if !self.listening.remove(hash, id.index()) {
            let first = self.listener_at(local);
            if let Some(listener) = first.and_then(|first| self.listeners.get_mut(first)) {
                listener.beside.retain(|other| *other != id);
            }
            return Some(first);
        }
        let next = beside.pop();
        if let Some(listener) = next.and_then(|next| self.listeners.get_mut(next)) {
            listener.beside = beside;
        }
        if let Some(next) = next {
            self.listening.insert(hash, next.index());
        }
        Some(next)
    }

    fn pass_half_open_on(&mut self, from: ListenerId, first: ListenerId) {
        let of_it = self.half_open.iter().filter(|(_, half_open)| half_open.listener == from);
        let moved: Vec<(u32, ListenerId)> =
            of_it.map(|(id, half_open)| (id.index(), self.choose_beside(first, &half_open.key))).collect();
        for (place, to) in moved {
            if let Some((_, half_open)) = self.half_open.at_mut(place) {
                half_open.listener = to;
            }
            if let Some(listener) = self.listeners.get_mut(to) {
                listener.half_open += 1;
            }
        }
    }

    fn pass_waiting_on(&mut self, waiting: ConnectionId, first: ListenerId) {
        let Some(key) = self.connections.get(waiting).map(|connection| connection.key) else { return };
        let to = self.choose_beside(first, &key);
        if let Some(connection) = self.connections.get_mut(waiting) {
            connection.listener = Some(to);
            if connection.flags.fast_open_pending
                && let Some(listener) = self.listeners.get_mut(to)
            {
                listener.begin_fast_open();
            }
        }
        self.offer_to_accept(to, waiting);
    }

    /// The listener for a flow: one for this very local address before one for any of its version, and that before one for both
    /// versions. Of several beside each other always the same one, unless listeners come or go.
    pub(super) fn find_listener(&self, flow: &FlowKey) -> Option<ListenerId> {
        let local = flow.local();
        let any = |address: IpAddr| self.listener_at(SocketAddr::new(address, local.port()));
        let first = match local {
            SocketAddr::V4(_) => {
                let of_both = || any(Ipv6Addr::UNSPECIFIED.into()).filter(|id| self.is_dual_stack(*id));
                let of_version = || any(Ipv4Addr::UNSPECIFIED.into());
                self.listener_at(local).or_else(of_version).or_else(of_both)
            }
            SocketAddr::V6(_) => self.listener_at(local).or_else(|| any(Ipv6Addr::UNSPECIFIED.into())),
        };
        first.map(|first| self.choose_beside(first, flow))
    }

    /// One of those beside `first`, or that.
    fn choose_beside(&self, first: ListenerId, flow: &FlowKey) -> ListenerId {
        let beside = self.listeners.get(first).map_or(&[][..], |listener| &listener.beside);
        if beside.is_empty() {
            return first;
        }
        let hash = self.listening.hash_of(flow) >> 32;
        let place = (hash * (beside.len() as u64 + 1)) >> 32;
        beside.get(place as usize).copied().unwrap_or(first)
    }

    fn is_dual_stack(&self, id: ListenerId) -> bool {
        self.listeners.get(id).is_some_and(|listener| listener.dual_stack)
    }

    /// The listener that is bound to exactly this address; the first of several.
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
