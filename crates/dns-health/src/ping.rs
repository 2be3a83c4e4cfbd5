//! Echo requests and their replies, as a socket of the kernel's for pings takes and gives them (RFC 792; RFC 4443, 4): the kernel writes identifier and
//! checksum, and gives a socket the replies to its own identifier.

use std::net::IpAddr;

/// Octets of a request.
pub const REQUEST_LEN: usize = 16;

/// A request to an address; `token` tells its reply from others.
pub fn request(to: IpAddr, token: u64) -> [u8; REQUEST_LEN] {
    let mut request = [0; REQUEST_LEN];
    request[0] = if to.is_ipv4() { 8 } else { 128 };
    request[8..].copy_from_slice(&token.to_be_bytes());
    request
}

/// Whether octets are the reply to such a request.
pub fn is_reply(octets: &[u8], to: IpAddr, token: u64) -> bool {
    let kind = if to.is_ipv4() { 0 } else { 129 };
    octets.len() == REQUEST_LEN && octets[..2] == [kind, 0] && octets[8..] == token.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_with_the_same_token_counts() {
        for (to, reply) in [(IpAddr::from([192, 0, 2, 1]), 0), (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), 129)]
        {
            let mut octets = request(to, 7);
            assert!(!is_reply(&octets, to, 7), "a request");
            octets[0] = reply;
            assert!(is_reply(&octets, to, 7) && !is_reply(&octets, to, 8) && !is_reply(&octets[..15], to, 7));
        }
    }
}
