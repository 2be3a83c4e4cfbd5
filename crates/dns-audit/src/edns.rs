//! Options of EDNS (RFC 6891, 6.1.2) that the audit asks with and looks for.

use std::net::IpAddr;

use dns_wire::Edns;

use crate::authority::Subnet;

/// Name server identifier (RFC 5001).
pub const NSID: u16 = 3;
/// Client subnet (RFC 7871).
pub const CLIENT_SUBNET: u16 = Edns::CLIENT_SUBNET;
/// Cookies (RFC 7873).
pub const COOKIE: u16 = 10;
/// Extended errors (RFC 8914).
pub const EXTENDED_ERROR: u16 = 15;
/// DO, in the TTL of the OPT record.
pub(crate) const DO: u32 = 1 << 15;

/// An option as octets.
pub(crate) fn option(code: u16, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat() // Options are short.
}

/// The options in the data of an OPT record, as far as they are whole.
pub(crate) fn options(mut data: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    while let Some((head, tail)) = data.split_first_chunk::<4>() {
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let Some((own, rest)) = tail.split_at_checked(len) else { break };
        options.push((u16::from_be_bytes([head[0], head[1]]), own.to_vec()));
        data = rest;
    }
    options
}

impl Subnet {
    /// Reads the option's data (RFC 7871, 6).
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Subnet> {
        let (&[0, family, source, scope], octets) = data.split_first_chunk::<4>()? else { return None };
        let address: IpAddr = match family {
            1 => IpAddr::from(filled::<4>(octets)?),
            2 => IpAddr::from(filled::<16>(octets)?),
            _ => return None,
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (source <= bits && scope <= bits).then_some(Subnet { address, source, scope })
    }

    /// The option's data.
    #[must_use]
    pub fn to_data(&self) -> Vec<u8> {
        let len = usize::from(self.source).div_ceil(8);
        let (family, octets) = match self.address {
            IpAddr::V4(address) => (1, address.octets().to_vec()),
            IpAddr::V6(address) => (2, address.octets().to_vec()),
        };
        [&[0, family, self.source, self.scope], &octets[..len.min(octets.len())]].concat()
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.source)
    }
}

fn filled<const LEN: usize>(octets: &[u8]) -> Option<[u8; LEN]> {
    let mut whole = [0; LEN];
    whole.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_read_as_it_was_written() {
        for (address, source) in [("198.51.100.0", 24), ("2001:db8:7::", 48), ("0.0.0.0", 0)] {
            let subnet = Subnet { address: address.parse().unwrap(), source, scope: 0 };
            assert_eq!(Subnet::parse(&subnet.to_data()), Some(subnet));
        }
        for bad in [&b"\0\x01\x21\0"[..], b"\0\x01\x18\0\x01\x02\x03\x04\x05", b"\0\x03\0\0", b"\0"] {
            assert_eq!(Subnet::parse(bad), None, "{bad:?}");
        }
    }
}
