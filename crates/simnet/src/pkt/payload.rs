//! The data of scripts that say only how much of it there is: a pattern by place in the stream, so that an octet that is
//! lost, doubled or moved shows.

/// The octet at `offset` of a stream.
fn octet(offset: u32) -> u8 {
    (offset.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// `len` octets of a stream from `offset` on.
pub(crate) fn pattern(offset: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| octet(offset.wrapping_add(index))).collect()
}

/// Where `data`, which should be the stream from `offset` on, first differs from it.
pub(crate) fn first_difference(offset: u32, data: &[u8]) -> Option<usize> {
    data.iter().enumerate().position(|(index, byte)| *byte != octet(offset.wrapping_add(index as u32)))
}
