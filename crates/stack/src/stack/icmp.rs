//! ICMP errors about our flows (RFC 1122, 4.2.3.9; RFC 5927; RFC 1191; RFC 8201).

use clock::Instant;
use wire::icmp::{ErrorKind, IcmpError};
use wire::ip::Ip;
use wire::{DropReason, protocol};

use super::{HALF_OPEN, Stack};
use crate::flow_table::FlowKey;
use crate::seq::SeqNum;
use crate::tcp::Quoted;
use crate::udp::quoted_len;

impl Stack {
    pub(super) fn on_icmp(&mut self, ip: &Ip<'_>, now: Instant) -> Result<(), DropReason> {
        let error = IcmpError::parse(ip)?;
        let key = FlowKey::new(error.flow.source, error.flow.destination).ok_or(DropReason::IpVersion)?;
        if error.flow.protocol == protocol::UDP {
            self.on_udp_icmp(ip, &error, &key, now);
            return Ok(());
        }
        if error.flow.protocol != protocol::TCP {
            return Err(DropReason::ProtocolUnknown);
        }
        let quoted = Quoted { seq: SeqNum(error.flow.sequence_number), len: quoted_len(ip).unwrap_or(0) };
        match self.find_flow(self.flows.hash_of(&key), &key) {
            Some(place) if place & HALF_OPEN == 0 => self.on_connection_icmp(place, error.kind, quoted, now),
            // A half-open connection is not ended by hearsay; it has its timer.
            Some(_) => {}
            None => self.shared.counters.icmp_unknown += 1,
        }
        Ok(())
    }

    fn on_connection_icmp(&mut self, place: u32, kind: ErrorKind, quoted: Quoted, now: Instant) {
        if let Some((id, _)) = self.connections.at(place) {
            self.with_connection(id, now, |connection, shared| {
                connection.on_icmp_error(kind, quoted, shared, now)
            });
        }
    }
}
