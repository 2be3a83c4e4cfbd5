//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks, of which those with packets are read.

use super::capture::{ByteOrder, CaptureError, ETHERNET, Entry};

/// Type of the block that starts a section, the same in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const INTERFACE_DESCRIPTION: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const OPTION_TIME_RESOLUTION: u16 = 9;
/// Type and length before a block's body, and the length again after it.
const BLOCK_OVERHEAD: usize = 12;

/// What an interface description says.
struct Interface {
    link_type: u32,
    snap_len: usize,
    ticks_per_second: u64,
}

pub(super) fn read(octets: &[u8]) -> Result<Vec<Entry>, CaptureError> {
    let mut packets = Vec::new();
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut order = ByteOrder::Little;
    let mut at = 0;
    while at < octets.len() {
        let truncated = CaptureError::Truncated { start: at, end: octets.len() };
        if octets[at..].starts_with(&SECTION_HEADER) {
            order = section_order(octets, at)?;
            interfaces.clear();
        }
        let kind = order.u32(octets, at).ok_or(truncated.clone())?;
        let len = order.u32(octets, at + 4).ok_or(truncated.clone())? as usize;
        if len < BLOCK_OVERHEAD || !len.is_multiple_of(4) {
            return Err(CaptureError::Length { offset: at, len });
        }
        let end = at.checked_add(len).filter(|&end| end <= octets.len()).ok_or(truncated)?;
        let body = at + 8..end - 4;
        let bad = || CaptureError::Length { offset: at, len };
        match kind {
            INTERFACE_DESCRIPTION => {
                interfaces.push(interface(order, &octets[body]).ok_or_else(bad)?);
            }
            ENHANCED_PACKET => {
                let entry = enhanced(order, &octets[body.clone()], &interfaces).ok_or_else(bad)??;
                packets.push(shift(entry, body.start));
            }
            SIMPLE_PACKET => {
                let entry = simple(order, &octets[body.clone()], &interfaces).ok_or_else(bad)??;
                packets.push(shift(entry, body.start));
            }
            _ => {}
        }
        at = end;
    }
    Ok(packets)
}

/// The byte order of the section whose header is at `at`.
fn section_order(octets: &[u8], at: usize) -> Result<ByteOrder, CaptureError> {
    const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
    match ByteOrder::Little.u32(octets, at + 8) {
        None => Err(CaptureError::Truncated { start: at, end: octets.len() }),
        Some(BYTE_ORDER_MAGIC) => Ok(ByteOrder::Little),
        Some(magic) if magic.swap_bytes() == BYTE_ORDER_MAGIC => Ok(ByteOrder::Big),
        Some(_) => Err(CaptureError::Unrecognised),
    }
}

fn interface(order: ByteOrder, body: &[u8]) -> Option<Interface> {
    let link_type = u32::from(order.u16(body, 0)?);
    let snap_len = match order.u32(body, 4)? as usize {
        0 => usize::MAX,
        len => len,
    };
    let mut ticks_per_second = 1_000_000;
    let mut at = 8;
    while let (Some(code), Some(len)) = (order.u16(body, at), order.u16(body, at + 2)) {
        if code == OPTION_TIME_RESOLUTION {
            ticks_per_second = resolution(*body.get(at + 4)?)?;
        }
        at += 4 + usize::from(len).next_multiple_of(4);
    }
    Some(Interface { link_type, snap_len, ticks_per_second })
}

/// Units per second: a negative power of two if the highest bit is set, else of ten.
fn resolution(octet: u8) -> Option<u64> {
    let base: u64 = if octet & 0x80 != 0 { 2 } else { 10 };
    base.checked_pow(u32::from(octet & 0x7f))
}

/// `None` if the block is too short for what it says.
fn enhanced(order: ByteOrder, body: &[u8], interfaces: &[Interface]) -> Option<Result<Entry, CaptureError>> {
    let interface = interfaces.get(order.u32(body, 0)? as usize)?;
    let ticks = u64::from(order.u32(body, 4)?) << 32 | u64::from(order.u32(body, 8)?);
    let len = order.u32(body, 12)? as usize;
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(interface.ticks_per_second);
    entry(interface, nanos as u64, 20, len, body)
}

/// A simple packet has no time: it takes that of the start.
fn simple(order: ByteOrder, body: &[u8], interfaces: &[Interface]) -> Option<Result<Entry, CaptureError>> {
    let interface = interfaces.first()?;
    let len = (order.u32(body, 0)? as usize).min(interface.snap_len);
    entry(interface, 0, 4, len, body)
}

fn entry(
    interface: &Interface,
    time_ns: u64,
    start: usize,
    len: usize,
    body: &[u8],
) -> Option<Result<Entry, CaptureError>> {
    if interface.link_type != ETHERNET {
        return Some(Err(CaptureError::LinkType(interface.link_type)));
    }
    let end = start.checked_add(len).filter(|&end| end <= body.len())?;
    Some(Ok(Entry { time_ns, frame: start..end }))
}

fn shift(entry: Entry, by: usize) -> Entry {
    Entry { frame: entry.frame.start + by..entry.frame.end + by, ..entry }
}
