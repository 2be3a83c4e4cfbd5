//! Which addresses are valid for which purpose.

use core::net::{IpAddr, SocketAddr};

/// Whether it is one host's: what comes from another is forged, and what goes to another is not for a connection
/// (RFC 1122, 3.2.1.3).
#[inline]
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Whether packets on a wire may have it as source and as destination. A packet that claims to come from this host itself (RFC 1122,
/// 3.2.1.3 (g); RFC 4291, 2.5.3), or over IPv6 from an IPv4 address (RFC 4038, 4.2), has a forged source.
#[inline]
pub(crate) fn is_on_wires(address: IpAddr) -> bool {
    let is_never = match address {
        IpAddr::V4(address) => address.octets()[0] == 0 || address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback() || address.to_ipv4_mapped().is_some(),
    };
    is_unicast(address) && !is_never
}

/// An address of IPv4 that was mapped into IPv6 as what it is, and without flow label and scope.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_nobody_are_not_one_host() {
        for (address, expected) in [
            ("192.0.2.255", true),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
            ("224.0.0.1", false),
            ("fe80::1", true),
            ("::", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_unicast(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn this_host_is_on_no_wire() {
        for (address, expected) in [
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("fe80::1", true),
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("0.1.2.3", false),
            ("224.0.0.1", false),
            ("::1", false),
            ("::ffff:192.0.2.1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_on_wires(address.parse().unwrap()), expected, "{address}");
        }
    }
}
