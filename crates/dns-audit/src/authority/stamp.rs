//! When an answer was made, written into its data: whoever gets one knows how old it is.

use std::net::Ipv4Addr;

/// The first octet of the addresses of type A; 24 bits of hundredths of a second follow. Nobody connects to them.
const MARK: u8 = 77;
/// A hundredth of a second, the unit of these addresses.
const HUNDREDTH_MS: u64 = 10;
/// When the addresses repeat: after 46 hours.
const ROUND_MS: u64 = (1 << 24) * HUNDREDTH_MS;
/// Clocks and roundings differ by less.
const SLACK_MS: u64 = 60_000;
/// The start of the addresses of type AAAA (RFC 3849); milliseconds since 1970 are in the last 64 bits.
const DOCUMENTATION: [u8; 8] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 77];

/// The data of an A record made at `now_ms`.
pub(super) fn a(now_ms: u64) -> [u8; 4] {
    let [.., high, middle, low] = (now_ms / HUNDREDTH_MS).to_be_bytes();
    [MARK, high, middle, low]
}

/// The data of an AAAA record.
pub(super) fn aaaa(now_ms: u64) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&DOCUMENTATION);
    octets[8..].copy_from_slice(&now_ms.to_be_bytes());
    octets
}

/// When the data of an A record was made, seen at `seen_ms`; `None` if it is not of the audit zone.
#[must_use]
pub fn made_ms(rdata: &[u8], seen_ms: u64) -> Option<u64> {
    match *rdata {
        [MARK, high, middle, low] => {
            let within = u64::from(u32::from_be_bytes([0, high, middle, low])) * HUNDREDTH_MS;
            let latest = seen_ms + SLACK_MS;
            let round = latest - latest % ROUND_MS;
            Some(if round + within <= latest {
                round + within
            } else {
                (round + within).saturating_sub(ROUND_MS)
            })
        }
        _ => rdata.strip_prefix(&DOCUMENTATION).and_then(|rest| rest.try_into().ok()).map(u64::from_be_bytes),
    }
}

/// The private address of names that have one.
pub(super) const PRIVATE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 77);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_tells_when_it_was_made_also_across_a_round() {
        for made in [1_795_632_000_120, ROUND_MS * 10_000 - 20, ROUND_MS * 10_000] {
            for later in [0, 5000, 86_400_000] {
                assert_eq!(made_ms(&a(made), made + later), Some(made));
                assert_eq!(made_ms(&aaaa(made), made + later), Some(made));
            }
            assert_eq!(made_ms(&a(made), made - 30_000), Some(made), "a clock that is behind");
        }
        assert_eq!(made_ms(&[192, 0, 2, 1], 0), None);
        assert_eq!(made_ms(&[], 0), None);
    }
}
