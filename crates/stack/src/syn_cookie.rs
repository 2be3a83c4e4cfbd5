//! SYN cookies (RFC 4987, 3.6).
//!
//! When a listener has too many half-open connections, it stores no new ones. The ACK that ends such a handshake carries what it
//! needs.

use clock::Instant;

use crate::flow_table::{FlowKey, secret_hash};
use crate::seq::SeqNum;

/// Nanoseconds after which cookies change: 2 to this, 68.7 s.
const PERIOD_BITS: u32 = 36;
const HASH_BITS: u32 = 28;
const HASH_MASK: u32 = (1 << HASH_BITS) - 1;

/// Segment sizes that a cookie can carry, in octets of payload, smallest first. What peers announce is rounded down to
/// one of these: the minimum, the default, tunnels of 1280, common clamps of VPNs, PPPoE and Ethernet with and without
/// timestamps in mind, and jumbo frames.
const MSS_V4: [u16; 8] = [216, 536, 1220, 1300, 1380, 1440, 1460, 8960];
const MSS_V6: [u16; 8] = [216, 536, 1220, 1340, 1380, 1420, 1440, 8940];

/// Makes initial sequence numbers in which a connection can be recognised.
///
/// ```text
///    31   30..28   27..0
///   | p |  mss  |  hash of flow, the peer's initial sequence number, period, mss  |      p: lowest bit of the period
/// ```
///
/// A period takes 68.7 seconds, and a cookie is accepted in its own and the next, so for 68.7 to 137.4 seconds. The hash is
/// SipHash-2-4 cut to 28 bits: who does not see the cookie needs 2^28 segments on average for one that is taken, and
/// then has a connection on which it knows our sequence numbers, but to which its own address does not belong. Who does
/// see it could have completed a handshake anyway.
///
/// Window scale, SACK and ECN do not fit; they are carried in the timestamp ([`encode_timestamp`]) if the peer has
/// timestamps, and are off if not.
#[derive(Clone, Copy)]
pub struct SynCookies {
    key: [u64; 2],
}

impl SynCookies {
    /// Cookies under the secret `key`, which is random and differs from every other secret.
    pub const fn new(key: [u64; 2]) -> SynCookies {
        SynCookies { key }
    }

    /// The initial sequence number for the answer to a SYN with sequence number `irs` and the MSS option `mss` (536 or 1220
    /// if there was none: RFC 9293, 3.7.1).
    pub fn make(&self, flow: &FlowKey, irs: SeqNum, mss: u16, now: Instant) -> SeqNum {
        let index = mss_table(flow).partition_point(|size| *size <= mss).saturating_sub(1) as u32;
        self.cookie(flow, irs, index, period(now))
    }

    /// The peer's MSS, at most what it announced but at least 216, if `cookie` was made for this flow and `irs` not long
    /// ago. The ACK that ends the handshake acknowledges `cookie` + 1 and has the sequence number `irs` + 1.
    pub fn check(&self, flow: &FlowKey, irs: SeqNum, cookie: SeqNum, now: Instant) -> Option<u16> {
        let index = cookie.0 >> HASH_BITS & 7;
        let current = period(now);
        let made = current.wrapping_sub((current ^ cookie.0 >> 31) & 1);
        let is_ours = self.cookie(flow, irs, index, made) == cookie;
        is_ours.then_some(mss_table(flow)[index as usize])
    }

    fn cookie(&self, flow: &FlowKey, irs: SeqNum, index: u32, period: u32) -> SeqNum {
        let visible = (period & 1) << 31 | index << HASH_BITS;
        let rest = [irs.0.to_be_bytes(), period.to_be_bytes(), visible.to_be_bytes()];
        let hash = secret_hash(self.key, &[flow.octets(), rest.as_flattened()]);
        SeqNum(visible | hash as u32 & HASH_MASK)
    }
}

impl core::fmt::Debug for SynCookies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SynCookies(secret)")
    }
}

fn period(now: Instant) -> u32 {
    (now.as_nanos() >> PERIOD_BITS) as u32
}

fn mss_table(flow: &FlowKey) -> &'static [u16; 8] {
    if flow.is_v6() { &MSS_V6 } else { &MSS_V4 }
}

/// Options of a SYN that are remembered in the timestamp of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CookieOptions {
    /// The peer's window scale, at most 14.
    pub window_scale: Option<u8>,
    /// Whether SACK may be used.
    pub sack: bool,
    /// Whether ECN was negotiated.
    pub ecn: bool,
}

/// Low bits of a timestamp that carry options: four of window scale, one of SACK, one of ECN.
const OPTION_BITS: u32 = 6;
const NO_WINDOW_SCALE: u8 = 15;

/// The TSval of a SYN-ACK with a cookie: at most `ts_val`, and less than 64 (milliseconds) before it, which makes the round
/// trip that its echo shows as much too long.
pub fn encode_timestamp(ts_val: u32, options: CookieOptions) -> u32 {
    let scale = options.window_scale.map_or(NO_WINDOW_SCALE, |scale| scale.min(14));
    let bits = u32::from(scale) | u32::from(options.sack) << 4 | u32::from(options.ecn) << 5;
    ts_val.wrapping_sub(ts_val.wrapping_sub(bits) & ((1 << OPTION_BITS) - 1))
}

/// The options in the TSecr of the ACK that answers. Only the peer itself can have changed them.
pub fn decode_timestamp(ts_ecr: u32) -> CookieOptions {
    let scale = (ts_ecr & 15) as u8;
    CookieOptions {
        window_scale: (scale != NO_WINDOW_SCALE).then_some(scale),
        sack: ts_ecr & 1 << 4 != 0,
        ecn: ts_ecr & 1 << 5 != 0,
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use clock::Duration;

    use super::*;

    const COOKIES: SynCookies = SynCookies::new([5, 6]);
    const PERIOD: Duration = Duration::from_nanos(1 << PERIOD_BITS);
    const IRS: SeqNum = SeqNum(77);

    fn v4() -> FlowKey {
        FlowKey::v4((Ipv4Addr::LOCALHOST, 80), (Ipv4Addr::LOCALHOST, 50_000))
    }

    fn v6() -> FlowKey {
        FlowKey::v6((Ipv6Addr::LOCALHOST, 80), (Ipv6Addr::LOCALHOST, 50_000))
    }

    #[test]
    fn a_cookie_brings_back_the_mss_rounded_down() {
        let sizes = [(0, 216), (535, 216), (536, 536), (1459, 1440), (1460, 1460), (u16::MAX, 8960)];
        for (mss, expected) in sizes {
            let cookie = COOKIES.make(&v4(), IRS, mss, Instant::ZERO);
            assert_eq!(COOKIES.check(&v4(), IRS, cookie, Instant::ZERO), Some(expected));
        }
        let cookie = COOKIES.make(&v6(), IRS, 1439, Instant::ZERO);
        assert_eq!(COOKIES.check(&v6(), IRS, cookie, Instant::ZERO), Some(1420));
    }

    #[test]
    fn a_cookie_lasts_one_to_two_periods() {
        for made in (0..40).map(|step| Instant::from_nanos(u64::from(u32::MAX) * step)) {
            let cookie = COOKIES.make(&v4(), IRS, 1460, made);
            assert!(COOKIES.check(&v4(), IRS, cookie, made + PERIOD).is_some());
            assert!(COOKIES.check(&v4(), IRS, cookie, made + 2 * PERIOD).is_none());
            assert!(COOKIES.check(&v4(), IRS, cookie, made + 3 * PERIOD).is_none());
        }
    }

    #[test]
    fn a_cookie_serves_only_its_own_connection() {
        let cookie = COOKIES.make(&v4(), IRS, 1460, Instant::ZERO);
        let check = |flow: FlowKey, irs, cookie| COOKIES.check(&flow, irs, cookie, Instant::ZERO);
        assert!(check(v4(), IRS + 1, cookie).is_none());
        assert!(check(v6(), IRS, cookie).is_none());
        assert!((0..32).all(|bit| check(v4(), IRS, SeqNum(cookie.0 ^ 1 << bit)).is_none()));
        assert!(SynCookies::new([5, 7]).check(&v4(), IRS, cookie, Instant::ZERO).is_none());
    }

    #[test]
    fn guessing_succeeds_no_more_often_than_28_bits_allow() {
        let taken =
            |guess: u32| COOKIES.check(&v4(), IRS, SeqNum(guess.wrapping_mul(2_654_435_761)), Instant::ZERO);
        assert!((0..1 << 18).filter_map(taken).count() <= 1);
    }

    #[test]
    fn a_timestamp_brings_back_the_options() {
        for bits in 0..64 {
            let options = decode_timestamp(bits);
            for ts_val in [0, 1, 63, 64, 1_000_000_007, u32::MAX] {
                let encoded = encode_timestamp(ts_val, options);
                assert_eq!(decode_timestamp(encoded), options);
                assert!(ts_val.wrapping_sub(encoded) < 64);
            }
        }
    }
}
