//! Records that carry a gateway or servers beside a key: IPSECKEY, AMTRELAY, HIP.

use super::encoding::Decoder;
use super::error::Parsed;
use super::field::RdataReader;
use super::number::decimal;

impl RdataReader<'_, '_> {
    /// Precedence, gateway type, algorithm, gateway, key (RFC 4025, 3.1).
    pub(super) fn ipseckey(&mut self) -> Parsed<()> {
        const ALGORITHM: &str = "an algorithm from 0 to 255";
        self.u8("a precedence from 0 to 255")?;
        let gateway_type = self.small_number(3, "a gateway type from 0 to 3")?;
        self.out.push(gateway_type);
        self.u8(ALGORITHM)?;
        self.gateway(gateway_type)?;
        self.base64(0)
    }

    /// Precedence, discovery bit and relay type in one octet, relay (RFC 8777, 4.3).
    pub(super) fn amtrelay(&mut self) -> Parsed<()> {
        self.u8("a precedence from 0 to 255")?;
        let discovery = self.small_number(1, "a discovery bit, 0 or 1")?;
        let relay_type = self.small_number(3, "a relay type from 0 to 3")?;
        self.out.push(discovery << 7 | relay_type);
        self.gateway(relay_type)
    }

    /// Algorithm, identity tag in hex, key in base64, servers. On the wire the lengths of tag and key come first,
    /// and the algorithm is between them (RFC 8005, 5 and 6).
    pub(super) fn hip(&mut self) -> Parsed<()> {
        const TAG: &str = "a host identity tag of up to 255 octets in hex";
        const KEY: &str = "a key of up to 65535 octets in base64";
        let algorithm = self.small_number(255, "an algorithm from 0 to 255")?;
        let start = self.out.len();
        self.out.extend_from_slice(&[0, algorithm, 0, 0]);

        let tag_length = self.encoded_word(Decoder::base16(), TAG, 255)?;
        let key_length = self.encoded_word(Decoder::base64(), KEY, 65535)?;
        self.out[start] = tag_length as u8;
        self.out[start + 2..start + 4].copy_from_slice(&key_length.to_be_bytes());

        while let Some(token) = self.lexer.token()? {
            self.push_name(&token)?;
        }
        Ok(())
    }

    /// A gateway of type 0 is a dot, 1 an IPv4 address, 2 an IPv6 address, 3 a name.
    fn gateway(&mut self, gateway_type: u8) -> Parsed<()> {
        const NONE: &str = "a dot for no gateway";
        match gateway_type {
            0 => {
                let token = self.lexer.require_word(NONE)?;
                token.expect((token.text == b".").then_some(()), NONE)
            }
            1 => self.ipv4(),
            2 => self.ipv6(),
            _ => self.name(),
        }
    }

    fn small_number(&mut self, max: u8, expected: &'static str) -> Parsed<u8> {
        let token = self.lexer.require_word(expected)?;
        token.expect(decimal(token.text, max.into()), expected).map(|number| number as u8)
    }

    /// Appends the octets of one token, which are at least one, and returns their number.
    fn encoded_word(&mut self, mut decoder: Decoder, expected: &'static str, max: u16) -> Parsed<u16> {
        let start = self.out.len();
        let token = self.lexer.require_word(expected)?;
        let decoded = decoder.push(token.text, self.out).and_then(|()| decoder.finish());
        let length = decoded.and_then(|()| u16::try_from(self.out.len() - start).ok());
        token.expect(length.filter(|length| (1..=max).contains(length)), expected)
    }
}

/// True if a gateway of this type, and whatever follows it, fill `octets`.
pub(super) fn is_gateway(gateway_type: u8, octets: &[u8], may_go_on: bool) -> bool {
    let length = match gateway_type {
        0 => 0,
        1 => 4,
        2 => 16,
        3 => match dns_wire::Name::split_from(octets) {
            Ok((name, _)) => name.len(),
            Err(_) => return false,
        },
        _ => return false,
    };
    octets.len() == length || (may_go_on && octets.len() > length)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{rdata, refusal};

    #[test]
    fn ipsec_keys_have_four_kinds_of_gateway() {
        assert_eq!(rdata("IPSECKEY", "10 1 2 192.0.2.38 AQ=="), [10, 1, 2, 192, 0, 2, 38, 1]);
        assert_eq!(rdata("IPSECKEY", "10 0 2 . AQ=="), [10, 0, 2, 1]);
        assert_eq!(rdata("IPSECKEY", "10 3 2 gw. AQ=="), b"\x0a\x03\x02\x02gw\x00\x01");
        assert_eq!(rdata("IPSECKEY", "10 2 0 ::").len(), 19);
        assert_eq!(refusal("IPSECKEY", "10 0 2 gw AQ=="), "expected a dot for no gateway, found \"gw\"");
        assert!(refusal("IPSECKEY", "10 4 2 gw AQ==").starts_with("expected a gateway type"));
    }

    #[test]
    fn relays_have_a_discovery_bit() {
        assert_eq!(rdata("AMTRELAY", "10 1 1 203.0.113.15"), [10, 0x81, 203, 0, 113, 15]);
        assert_eq!(rdata("AMTRELAY", "10 0 0 ."), [10, 0]);
        assert!(refusal("AMTRELAY", "10 2 0 .").starts_with("expected a discovery bit"));
    }

    #[test]
    fn host_identities_have_servers() {
        let octets = rdata("HIP", "2 200100107B1A AwEA rvs1. rvs2");
        assert_eq!(
            octets,
            b"\x06\x02\x00\x03\x20\x01\x00\x10\x7b\x1a\x03\x01\x00\x04rvs1\x00\x04rvs2\x07example\x00"
        );
        assert!(refusal("HIP", "2 20 ").starts_with("expected a key"));
    }
}
