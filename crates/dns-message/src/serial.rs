//! Serial numbers and the other numbers of SOA records.

/// The SERIAL in the data of a SOA record.
pub fn serial_of(rdata: &[u8]) -> Option<u32> {
    soa_numbers(rdata).map(|[serial, ..]| serial)
}

/// SERIAL, REFRESH, RETRY, EXPIRE and MINIMUM in the data of a SOA record.
pub fn soa_numbers(rdata: &[u8]) -> Option<[u32; 5]> {
    let octets = rdata.last_chunk::<20>()?;
    Some(std::array::from_fn(|at| {
        u32::from_be_bytes([octets[4 * at], octets[4 * at + 1], octets[4 * at + 2], octets[4 * at + 3]])
    }))
}

/// Whether `serial` comes before `other` (RFC 1982, 3.2).
pub fn is_older(serial: u32, other: u32) -> bool {
    (1..1 << 31).contains(&other.wrapping_sub(serial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_ordered_on_a_circle() {
        assert!(is_older(1, 2) && !is_older(2, 1) && !is_older(7, 7));
        assert!(is_older(u32::MAX, 0) && !is_older(0, u32::MAX));
    }
}
