//! When an answer was made, written into its data: whoever gets one knows how old it is. Digits that depend on the name and the time tell it
//! from any other address.

use std::net::Ipv4Addr;

use super::Spec;

/// The first octet of the addresses of type A. An octet of check digits follows, and 16 bits of hundredths of a second since the start that
/// the name says. Nobody connects to them.
const MARK: u8 = 77;
/// A hundredth of a second, the unit of these addresses.
const HUNDREDTH_MS: u64 = 10;
/// When the times of addresses repeat: after 11 minutes.
const ROUND_MS: u64 = (1 << 16) * HUNDREDTH_MS;
/// Clocks and roundings differ by less.
const SLACK_MS: u64 = 60_000;
/// The start of the addresses of type AAAA (RFC 3849). 32 check digits follow, and 32 bits of milliseconds since the start.
const DOCUMENTATION: [u8; 8] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 77];

/// The data of an A record of a name, made at `now_ms`.
pub(super) fn a(spec: &Spec, now_ms: u64) -> [u8; 4] {
    let hundredths = (now_ms.wrapping_sub(spec.start_ms) as i64).div_euclid(HUNDREDTH_MS as i64) as u16;
    let [high, low] = hundredths.to_be_bytes();
    [MARK, digits(spec, hundredths.into()) as u8, high, low]
}

/// The data of an AAAA record.
pub(super) fn aaaa(spec: &Spec, now_ms: u64) -> [u8; 16] {
    let elapsed_ms = now_ms.wrapping_sub(spec.start_ms) as u32;
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&DOCUMENTATION);
    octets[8..12].copy_from_slice(&digits(spec, elapsed_ms).to_be_bytes());
    octets[12..].copy_from_slice(&elapsed_ms.to_be_bytes());
    octets
}

/// When the data of an A or AAAA record of a name was made, seen at `seen_ms`; `None` if the authority did not make it for this name.
#[must_use]
pub fn made_ms(rdata: &[u8], spec: &Spec, seen_ms: u64) -> Option<u64> {
    match *rdata {
        [MARK, check, high, low] => {
            let hundredths = u16::from_be_bytes([high, low]);
            let is_ours = check == digits(spec, hundredths.into()) as u8;
            is_ours.then(|| latest(spec, u64::from(hundredths) * HUNDREDTH_MS, ROUND_MS, seen_ms))
        }
        _ => {
            let [check @ .., a, b, c, d] = *<&[u8; 8]>::try_from(rdata.strip_prefix(&DOCUMENTATION)?).ok()?;
            let elapsed_ms = u32::from_be_bytes([a, b, c, d]);
            let is_ours = check == digits(spec, elapsed_ms).to_be_bytes();
            is_ours.then(|| latest(spec, elapsed_ms.into(), 1 << 32, seen_ms))
        }
    }
}

/// The last moment that lies `within_ms` behind the start, or a number of rounds later or earlier, and is not after `seen_ms`.
fn latest(spec: &Spec, within_ms: u64, round_ms: u64, seen_ms: u64) -> u64 {
    let (first, end) = (i128::from(spec.start_ms) + i128::from(within_ms), i128::from(seen_ms + SLACK_MS));
    let made_ms = first + (end - first).div_euclid(round_ms.into()) * i128::from(round_ms);
    u64::try_from(made_ms).unwrap_or(0)
}

/// Digits that an address has by chance only: those of the name, and of the time.
fn digits(spec: &Spec, time: u32) -> u32 {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&spec.nonce.0.to_be_bytes());
    octets[8..12].copy_from_slice(&spec.number.to_be_bytes());
    octets[12..].copy_from_slice(&time.to_be_bytes());
    // FNV-1a, whose lower digits depend on all octets.
    octets.iter().fold(0x811c_9dc5, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193))
}

/// The private address of names that have one.
pub(super) const PRIVATE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 77);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Nonce;

    const START_MS: u64 = 1_795_632_000_120;

    fn spec(number: u32) -> Spec {
        Spec::new(Nonce(0x0123_4567_89ab_cdef), number, START_MS, 5)
    }

    #[test]
    fn data_tells_when_it_was_made_also_across_a_round() {
        let spec = spec(1);
        for made in [START_MS, START_MS + ROUND_MS - 20, START_MS + ROUND_MS, START_MS - 2000] {
            for later in [0, 5000, 500_000] {
                assert_eq!(made_ms(&a(&spec, made), &spec, made + later), Some(made));
                assert_eq!(made_ms(&aaaa(&spec, made), &spec, made + later), Some(made));
            }
            assert_eq!(made_ms(&a(&spec, made), &spec, made - 30_000), Some(made), "a clock that is behind");
        }
        assert_eq!(made_ms(&[192, 0, 2, 1], &spec, START_MS), None);
        assert_eq!(made_ms(&[], &spec, START_MS), None);
    }

    /// Of 24 bits eight are check digits: one fixed address passes for one name in 256.
    #[test]
    fn an_address_of_another_name_is_none_of_ours() {
        let passes = |rdata: &[u8], number| made_ms(rdata, &spec(number), START_MS).is_some();
        for fixed in [[77, 0, 0, 1], [77, 77, 77, 77], a(&spec(1000), START_MS)] {
            let passed = (0..1000).filter(|number| passes(&fixed, *number)).count();
            assert!(passed < 20, "{fixed:?} passes for {passed} names of 1000");
        }
        let fixed = aaaa(&spec(1000), START_MS);
        assert!((0..1000).all(|number| !passes(&fixed, number)));
    }
}
