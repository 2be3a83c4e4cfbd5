//! What a query says about the network of its client, and what its answer says back (EDNS client subnet, RFC 7871, as an authority).

use std::net::IpAddr;

use dns_wire::{Edns, Subnet};

/// The option of an answer, in wire format: that of the query, with a scope.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Echo {
    octets: [u8; OPTION_LEN_MAX],
    len: u8,
    /// Bits in front of those that a scope counts: IPv6 addresses that stand for IPv4 have 96. `None` if nothing is known of the client, so that no
    /// scope but 0 is right.
    ahead: Option<u8>,
}

/// Code and length, then family, source length and scope, then an address.
const HEAD_LEN: usize = 4;
const SCOPE: usize = HEAD_LEN + 3;
const OPTION_LEN_MAX: usize = HEAD_LEN + 4 + 16;

/// What an option says.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// An address of the client's network; `None` if the client is to be taken for who sent the query.
    pub(crate) address: Option<IpAddr>,
    /// What the answer says, with scope 0: whatever its client, it is the same.
    pub(crate) echo: Echo,
}

impl Located {
    /// Reads the data of an option; `None` if it is malformed: an unknown family, octets that are too few or too many, bits beyond its length, or a
    /// scope, which queries do not have (RFC 7871, 6 and 7.2.1).
    pub(crate) fn read(data: &[u8]) -> Option<Located> {
        // BIND's dig says so that a client is nowhere, without a family.
        const NOWHERE: [u8; 4] = [0; 4];
        let address = match Subnet::read(data) {
            Some((subnet, 0)) => Some(subnet.address()).filter(|_| subnet.length() > 0),
            None if *data == NOWHERE => None,
            _ => return None,
        };
        let len = HEAD_LEN + data.len();
        let mut octets = [0; OPTION_LEN_MAX];
        octets[..2].copy_from_slice(&Edns::CLIENT_SUBNET.to_be_bytes());
        octets[2..HEAD_LEN].copy_from_slice(&(data.len() as u16).to_be_bytes());
        octets[HEAD_LEN..len].copy_from_slice(data);
        let is_mapped = |address: IpAddr| address.is_ipv6() && address.to_canonical().is_ipv4();
        let ahead = address.map(|address| if is_mapped(address) { 96 } else { 0 });
        Some(Located { address, echo: Echo { octets, len: len as u8, ahead } })
    }
}

impl Echo {
    /// The answer is for all clients that share so many bits.
    #[inline(always)]
    pub(crate) fn set_scope(&mut self, length: u8) {
        self.octets[SCOPE] = self.ahead.map_or(0, |ahead| ahead + length);
    }

    /// The option.
    #[inline(always)]
    pub(crate) fn option(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_comes_back_with_a_scope() {
        let mut located = Located::read(&[0, 1, 24, 0, 192, 0, 2]).unwrap();
        assert_eq!(located.address, Some([192, 0, 2, 0].into()));
        located.echo.set_scope(16);
        assert_eq!(located.echo.option(), [0, 8, 0, 7, 0, 1, 24, 16, 192, 0, 2]);
        let mapped = [&[0, 2, 104, 0][..], &[0; 10], &[255, 255, 192]].concat();
        let mut located = Located::read(&mapped).unwrap();
        located.echo.set_scope(5);
        assert_eq!(located.echo.option()[SCOPE], 101);
    }

    #[test]
    fn a_client_that_is_nowhere_gets_no_scope() {
        for data in [[0, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]] {
            let mut located = Located::read(&data).unwrap();
            located.echo.set_scope(16);
            assert_eq!((located.address, &located.echo.option()[4..]), (None, &data[..]));
        }
    }

    #[test]
    fn malformed_options_are_none() {
        for data in [
            &[][..],
            &[0, 1, 24],
            &[0, 1, 24, 0, 192, 0],
            &[0, 1, 24, 0, 192, 0, 2, 0],
            &[0, 1, 23, 0, 192, 0, 3],
            &[0, 1, 24, 24, 192, 0, 2],
            &[0, 1, 33, 0, 192, 0, 2, 1, 0],
            &[0, 2, 129, 0],
            &[0, 3, 0, 0],
            &[0, 0, 8, 0, 1],
            &[0, 0, 0, 1],
        ] {
            assert!(Located::read(data).is_none(), "{data:?}");
        }
    }
}
