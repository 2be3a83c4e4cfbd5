//! Where a load may go: to networks of one's own, unless the user says that the server is theirs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::bail;

pub(crate) fn check(address: IpAddr, is_owned: bool) -> anyhow::Result<()> {
    let address = address.to_canonical();
    if address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        bail!("{address} is no address of one server");
    }
    let is_own = match address {
        IpAddr::V4(address) => is_own_v4(address),
        IpAddr::V6(address) => is_own_v6(address),
    };
    if !is_own && !is_owned {
        bail!(
            "{address} is a public address: if the server and all networks before it are yours, say --yes-i-own-it"
        );
    }
    Ok(())
}

fn is_own_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    let is_shared = a == 100 && b & 0xc0 == 64; // RFC 6598.
    let is_for_tests = a == 198 && b & 0xfe == 18; // RFC 2544.
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_for_tests
}

fn is_own_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_documentation = [first, second] == [0x2001, 0xdb8] || (first, second >> 12) == (0x3fff, 0); // RFC 3849, 9637.
    address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local() || is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_have_to_be_owned() {
        let allowed = |address: &str, owned| check(address.parse().unwrap(), owned).is_ok();
        for own in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.1.1",
            "172.31.0.1",
            "198.18.0.1",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "3fff:fff::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(allowed(own, false), "{own}");
        }
        for public in ["8.8.8.8", "172.32.0.1", "198.20.0.1", "100.128.0.1", "2606:4700::1", "::ffff:8.8.8.8"]
        {
            assert!(!allowed(public, false) && allowed(public, true), "{public}");
        }
        for nobodys in ["0.0.0.0", "::", "224.0.0.251", "255.255.255.255", "ff02::fb"] {
            assert!(!allowed(nobodys, true), "{nobodys}");
        }
    }
}
