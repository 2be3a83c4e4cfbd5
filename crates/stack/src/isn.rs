//! Initial sequence numbers (RFC 6528) and timestamps (RFC 7323).

use clock::Instant;

use crate::flow_table::{FlowKey, secret_hash};
use crate::seq::SeqNum;

/// Nanoseconds of a step of the sequence number clock (RFC 9293, 3.4.1).
const ISN_STEP_NANOS: u64 = 4000;
/// Nanoseconds of a step of the timestamp clock: within 1 ms and 1 s (RFC 7323, 5.4).
const TIMESTAMP_STEP_NANOS: u64 = 1_000_000;

/// Chooses initial sequence numbers and timestamp offsets that nobody outside can guess, and that still grow from one
/// connection of a flow to the next.
#[derive(Clone, Copy)]
pub struct IsnGenerator {
    key: [u64; 2],
}

impl IsnGenerator {
    /// A generator under the secret `key`, which is random and the same for the whole run.
    pub const fn new(key: [u64; 2]) -> IsnGenerator {
        IsnGenerator { key }
    }

    /// The initial sequence number of a connection opened at `now`: a clock of 4 microseconds plus a keyed hash of the
    /// flow (RFC 6528, 3).
    pub fn isn(&self, flow: &FlowKey, now: Instant) -> SeqNum {
        let clock = (now.as_nanos() / ISN_STEP_NANOS) as u32;
        SeqNum(secret_hash(self.key, &[flow.octets()]) as u32) + clock
    }

    /// What is added to [`timestamp_clock`] on this flow. It depends on the addresses alone, so that timestamps grow from any
    /// connection between two hosts to the next, as RFC 6191 wants, while other hosts learn nothing from theirs.
    pub fn timestamp_offset(&self, flow: &FlowKey) -> u32 {
        // Not the octets of a whole flow, so never the hash of one.
        secret_hash(self.key, &[flow.addresses()]) as u32
    }
}

impl core::fmt::Debug for IsnGenerator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("IsnGenerator(secret)")
    }
}

/// Milliseconds, modulo 2^32: the clock of timestamps before a flow's offset is added.
pub const fn timestamp_clock(now: Instant) -> u32 {
    (now.as_nanos() / TIMESTAMP_STEP_NANOS) as u32
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use clock::Duration;

    use super::*;

    const ISN: IsnGenerator = IsnGenerator::new([3, 4]);

    fn flow(local_port: u16, remote_port: u16) -> FlowKey {
        FlowKey::v4((Ipv4Addr::LOCALHOST, local_port), (Ipv4Addr::LOCALHOST, remote_port))
    }

    #[test]
    fn the_sequence_numbers_of_a_flow_step_every_4_microseconds_rfc_9293_section_3_4_1() {
        let now = Instant::from_nanos(1 << 60);
        let first = ISN.isn(&flow(1, 2), now);
        assert_eq!(ISN.isn(&flow(1, 2), now + Duration::from_micros(4)), first + 1);
        assert_eq!(ISN.isn(&flow(1, 2), now + Duration::from_secs(4)), first + 1_000_000);
    }

    #[test]
    fn flows_and_secrets_have_sequence_numbers_of_their_own_rfc_6528_section_3() {
        let isn = ISN.isn(&flow(1, 2), Instant::ZERO);
        assert_ne!(ISN.isn(&flow(2, 1), Instant::ZERO), isn);
        assert_ne!(ISN.isn(&flow(1, 3), Instant::ZERO), isn);
        assert_ne!(IsnGenerator::new([3, 5]).isn(&flow(1, 2), Instant::ZERO), isn);
    }

    #[test]
    fn timestamps_grow_from_one_connection_between_two_hosts_to_the_next_rfc_6191_section_3() {
        let offset = ISN.timestamp_offset(&flow(1, 2));
        assert_eq!(ISN.timestamp_offset(&flow(3, 4)), offset);
        let other = FlowKey::v6((Ipv6Addr::LOCALHOST, 1), (Ipv6Addr::LOCALHOST, 2));
        assert_ne!(ISN.timestamp_offset(&other), offset);
        assert_eq!(timestamp_clock(Instant::from_nanos(5_999_999)), 5);
    }
}
