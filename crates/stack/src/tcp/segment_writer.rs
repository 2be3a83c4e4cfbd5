//! The octets of a segment.

use crate::flow_table::{AddressPair, FlowKey};
use crate::segment::SegmentOptions;
use crate::seq::SeqNum;
use core::net::{Ipv4Addr, Ipv6Addr};
use wire::checksum::Sum;
use wire::tcp::{self};
use wire::{ipv4, ipv6, protocol};

/// Writes segments of one flow.
pub(crate) struct SegmentWriter {
    pub(crate) key: FlowKey,
    pub(crate) hop_limit: u8,
    /// With ECN bits.
    pub(crate) traffic_class: u8,
    pub(crate) checksum_offload: bool,
}

/// Header of one segment to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// Urgent pointer, which counts only with the URG bit.
    pub(crate) urgent: u16,
    pub(crate) options: SegmentOptions,
}

impl SegmentWriter {
    /// Writes an IP packet into the front of `room`, with `payload_len` octets that `fill` puts in. `None` if it does not fit.
    pub(crate) fn write(
        &self,
        room: &mut [u8],
        outgoing: &Outgoing,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let options = outgoing.options.encode();
        let header_len = tcp::HEADER_LEN + options.len();
        let segment_len = header_len + payload_len;
        let (ip_len, pseudo_header) = self.write_ip(room, segment_len)?;
        let segment = room.get_mut(ip_len..ip_len + segment_len)?;
        fill(&mut segment[header_len..]);
        let checksum = Some(pseudo_header).filter(|_| !self.checksum_offload);
        tcp::write(segment, &self.fields(outgoing, &options), checksum)?;
        Some(ip_len + segment_len)
    }

    /// Writes the headers of a packet whose `payload_len` octets are elsewhere, without a TCP checksum. Their length.
    pub(crate) fn write_headers(
        &self,
        room: &mut [u8],
        outgoing: &Outgoing,
        payload_len: usize,
    ) -> Option<usize> {
        let options = outgoing.options.encode();
        let header_len = tcp::HEADER_LEN + options.len();
        let (ip_len, _) = self.write_ip(room, header_len + payload_len)?;
        let len = ip_len + header_len;
        tcp::write(room.get_mut(ip_len..len)?, &self.fields(outgoing, &options), None)?;
        Some(len)
    }

    fn fields<'o>(&self, outgoing: &Outgoing, options: &'o [u8]) -> tcp::Fields<'o> {
        let (source_port, destination_port) = self.key.ports();
        tcp::Fields {
            source_port,
            destination_port,
            sequence_number: outgoing.seq.0,
            acknowledgement_number: outgoing.ack.0,
            flags: outgoing.flags,
            window: outgoing.window,
            urgent_pointer: outgoing.urgent,
            options,
        }
    }

    #[inline]
    fn write_ip(&self, room: &mut [u8], payload_len: usize) -> Option<(usize, Sum)> {
        match self.key.address_pair() {
            AddressPair::V4(source, destination) => self.write_ipv4(room, (source, destination), payload_len),
            AddressPair::V6(source, destination) => self.write_ipv6(room, (source, destination), payload_len),
        }
    }

    #[inline]
    fn write_ipv4(
        &self,
        room: &mut [u8],
        (source, destination): (Ipv4Addr, Ipv4Addr),
        payload_len: usize,
    ) -> Option<(usize, Sum)> {
        let fields = ipv4::Fields {
            source,
            destination,
            protocol: protocol::TCP,
            ttl: self.hop_limit,
            traffic_class: self.traffic_class,
            payload_len,
        };
        let sum = Sum::pseudo_v4(source, destination, protocol::TCP, payload_len as u16);
        Some((ipv4::write(room, &fields)?, sum))
    }

    #[inline(never)]
    fn write_ipv6(
        &self,
        room: &mut [u8],
        (source, destination): (Ipv6Addr, Ipv6Addr),
        payload_len: usize,
    ) -> Option<(usize, Sum)> {
        let fields = ipv6::Fields {
            source,
            destination,
            next_header: protocol::TCP,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            payload_len,
        };
        let sum = Sum::pseudo_v6(source, destination, protocol::TCP, payload_len as u16);
        Some((ipv6::write(room, &fields)?, sum))
    }
}
