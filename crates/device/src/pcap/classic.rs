//! The classic pcap format (pcap-savefile(5)).

use super::capture::{ByteOrder, CaptureError, ETHERNET, Entry};

const FILE_HEADER_LEN: usize = 24;
const PACKET_HEADER_LEN: usize = 16;
/// The mark of files with nanoseconds, as a little-endian number.
pub(super) const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;
const MICROSECOND_MAGIC: u32 = 0xa1b2_c3d4;
/// No sane file holds longer packets; libpcap has the same limit.
const PACKET_LEN_MAX: usize = 262_144;

pub(super) fn read(octets: &[u8], magic: [u8; 4]) -> Result<Vec<Entry>, CaptureError> {
    let (order, nanos_per_tick) = recognise(magic).ok_or(CaptureError::Unrecognised)?;
    let truncated = |start| CaptureError::Truncated { start, end: octets.len() };
    let network = order.u32(octets, 20).ok_or(truncated(0))?;
    let link_type = network & 0xffff; // The rest says whether frame check sequences follow.
    if link_type != ETHERNET {
        return Err(CaptureError::LinkType(link_type));
    }
    let mut packets = Vec::new();
    let mut at = FILE_HEADER_LEN;
    while at < octets.len() {
        let field = |index: usize| order.u32(octets, at + 4 * index).ok_or(truncated(at));
        let (seconds, ticks, len) = (field(0)?, field(1)?, field(2)? as usize);
        field(3)?;
        if len > PACKET_LEN_MAX {
            return Err(CaptureError::Length { offset: at, len });
        }
        let start = at + PACKET_HEADER_LEN;
        if start + len > octets.len() {
            return Err(truncated(at));
        }
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * nanos_per_tick;
        packets.push(Entry { time_ns, frame: start..start + len });
        at = start + len;
    }
    Ok(packets)
}

/// Byte order and nanoseconds per unit of the fractional part.
fn recognise(magic: [u8; 4]) -> Option<(ByteOrder, u64)> {
    let unit = |number| match number {
        NANOSECOND_MAGIC => Some(1),
        MICROSECOND_MAGIC => Some(1000),
        _ => None,
    };
    let little = unit(u32::from_le_bytes(magic)).map(|unit| (ByteOrder::Little, unit));
    little.or_else(|| unit(u32::from_be_bytes(magic)).map(|unit| (ByteOrder::Big, unit)))
}
