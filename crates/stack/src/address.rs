//! What an address may be used for.

use core::net::{IpAddr, SocketAddr};

/// Whether it is one host's: what comes from another is forged, and what goes to another is not for a connection
/// (RFC 1122, 3.2.1.3).
#[inline]
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
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
}
