//! What ICMP errors mean for a UDP socket (RFC 1122, 3.2.2.1 and 4.1.3.3; RFC 4443, 3).

use wire::icmp::{self, ErrorKind};
use wire::ip::Ip;
use wire::ipv6;

use crate::udp::UdpError;

/// The error for the application, and whether it is a hard one: soft ones may pass, and a socket hears of them only if it
/// asked. As Linux's `icmp_err_convert` and `tab_unreach`, but hosts that are down or isolated are unreachable.
///
/// `None` for "too big", which needs more than its code, and for undefined codes.
pub(crate) fn error_of(is_v6: bool, kind: ErrorKind) -> Option<(UdpError, bool)> {
    use UdpError::*;
    let ErrorKind::Unreachable { code } = kind else {
        return match kind {
            ErrorKind::TimeExceeded { .. } => Some((HostUnreachable, false)),
            ErrorKind::ParameterProblem { .. } => Some((HeaderProblem, true)),
            _ => None,
        };
    };
    Some(match (is_v6, code) {
        (false, 0 | 11) => (NetworkUnreachable, false),
        (false, 1 | 5 | 12) => (HostUnreachable, false),
        (false, 2) => (ProtocolUnreachable, true),
        (false, 3) => (Refused, true),
        (false, 6 | 9) => (NetworkUnreachable, true),
        (false, 7 | 8 | 10 | 13..=15) => (HostUnreachable, true),
        (true, 0) => (NetworkUnreachable, false),
        (true, 1 | 5 | 6) => (Prohibited, true),
        (true, 2 | 3) => (HostUnreachable, false),
        (true, 4) => (Refused, true),
        _ => return None,
    })
}

/// Octets of the packet that the ICMP error in `ip` quotes, by the length field of its IP header.
pub(crate) fn quoted_len(ip: &Ip<'_>) -> Option<usize> {
    let quoted = ip.payload().get(icmp::HEADER_LEN..)?;
    match quoted.first()? >> 4 {
        4 => Some(usize::from(u16::from_be_bytes([*quoted.get(2)?, *quoted.get(3)?]))),
        _ => Some(ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([*quoted.get(4)?, *quoted.get(5)?]))),
    }
}

/// What the ICMP error in `ip` quotes of the payload of a datagram.
pub(crate) fn quoted_payload<'a>(ip: &Ip<'a>) -> Option<&'a [u8]> {
    let quoted = ip.payload().get(icmp::HEADER_LEN..)?;
    let header_len = match quoted.first()? >> 4 {
        4 => usize::from(quoted[0] & 0xf) * 4,
        _ => ipv6::HEADER_LEN,
    };
    quoted.get(header_len + wire::udp::HEADER_LEN..)
}

/// Whether a packet of `quoted_len` octets can have been too big for a link of `mtu` octets, zero if the router did not
/// tell, and can have been ours: we have sent none longer than `sent_len_max`.
pub(crate) fn is_plausible_too_big(quoted_len: usize, mtu: u32, sent_len_max: u16) -> bool {
    let exceeds = u32::try_from(quoted_len).is_ok_and(|len| len > mtu);
    exceeds && quoted_len <= usize::from(sent_len_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_unreachable_is_a_refusal_in_both_versions() {
        // RFC 1122, 3.2.2.1; RFC 4443, 3.1.
        assert_eq!(error_of(false, ErrorKind::Unreachable { code: 3 }), Some((UdpError::Refused, true)));
        assert_eq!(error_of(true, ErrorKind::Unreachable { code: 4 }), Some((UdpError::Refused, true)));
    }

    #[test]
    fn codes_that_tell_of_a_passing_state_are_soft() {
        // RFC 1122, 3.2.2.1: codes 0, 1 and 5 may be transient; 3.2.2.4: so may be time exceeded.
        for code in [0, 1, 5] {
            assert!(!error_of(false, ErrorKind::Unreachable { code }).unwrap().1);
        }
        assert!(!error_of(true, ErrorKind::TimeExceeded { code: 0 }).unwrap().1);
    }

    #[test]
    fn undefined_codes_mean_nothing() {
        assert_eq!(error_of(false, ErrorKind::Unreachable { code: 16 }), None);
        assert_eq!(error_of(true, ErrorKind::Unreachable { code: 8 }), None);
    }

    #[test]
    fn a_packet_that_fits_was_not_too_big_and_one_longer_than_any_was_not_ours() {
        assert!(is_plausible_too_big(1500, 1400, 1500));
        assert!(is_plausible_too_big(1500, 0, 1500));
        assert!(!is_plausible_too_big(1400, 1400, 1500));
        assert!(!is_plausible_too_big(1501, 1400, 1500));
    }
}
