//! The SYNs of connections, for listeners that ask for them (`TCP_SAVE_SYN`).

use wire::ip::Ip;

use super::{ConnectionId, HALF_OPEN, Stack};
use crate::flow_table::FlowKey;
use crate::tcp::State;

impl Stack {
    /// Keeps the headers of a SYN, which was just worked on, with what became of it. With a cookie nothing became of it.
    #[cold]
    pub(super) fn save_syn(&mut self, key: &FlowKey, packet: &[u8], ip: &Ip<'_>) {
        let Some(place) = self.find_flow(self.flows.hash_of(key), key) else { return };
        if place & HALF_OPEN != 0 {
            let Some((_, half_open)) = self.half_open.at_mut(place & !HALF_OPEN) else { return };
            let listener = self.listeners.get(half_open.listener);
            if listener.is_some_and(|listener| listener.options.save_syn) {
                half_open.saved_syn = headers(packet, ip);
            }
        } else if let Some((_, connection)) = self.connections.at_mut(place)
            && connection.options.save_syn
            && connection.state == State::SynReceived
        {
            connection.rare().saved_syn = headers(packet, ip);
        }
    }

    /// Headers of the SYN that began a connection, IP's and TCP's (`TCP_SAVED_SYN`).
    pub fn saved_syn(&self, id: ConnectionId) -> Option<&[u8]> {
        self.connections.get(id)?.rare.as_ref()?.saved_syn.as_deref()
    }

    /// The application has them.
    pub fn forget_saved_syn(&mut self, id: ConnectionId) {
        if let Some(rare) = self.connections.get_mut(id).and_then(|connection| connection.rare.as_mut()) {
            rare.saved_syn = None;
        }
    }
}

fn headers(packet: &[u8], ip: &Ip<'_>) -> Option<Box<[u8]>> {
    let ip_len = match ip {
        Ip::V4(_) => usize::from(packet.first()? & 0xf) * 4,
        Ip::V6(_) => wire::ipv6::HEADER_LEN,
    };
    let tcp_len = usize::from(ip.payload().get(12)? >> 4) * 4;
    Some([packet.get(..ip_len)?, ip.payload().get(..tcp_len)?].concat().into())
}
