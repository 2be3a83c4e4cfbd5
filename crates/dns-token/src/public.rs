//! Public keys as tokens have them (PKCS #11, 2.3.3 and 2.1.2) and as DNSKEY records do (RFC 3110, 6605).

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};

/// The octets of OBJECT IDENTIFIERs in DER. Other curves, such as secp256k1, have points and signatures of the same lengths.
const P256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];

/// Octets of the modulus of an RSA key: 1024 to 4096 bits (RFC 5702, 2).
const MODULUS_LEN: std::ops::RangeInclusive<usize> = 128..=512;

/// A public key for DNSSEC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// The number of its algorithm.
    pub algorithm: u8,
    /// The key as a DNSKEY record has it.
    pub octets: Vec<u8>,
}

impl PublicKey {
    pub(crate) const RSASHA256: u8 = 8;
    pub(crate) const ECDSAP256SHA256: u8 = 13;
    pub(crate) const ECDSAP384SHA384: u8 = 14;

    /// One on a curve: CKA_EC_PARAMS and CKA_EC_POINT. `None` if the curve is not one of DNSSEC.
    pub(crate) fn on_curve(parameters: &[u8], point: &[u8]) -> Option<PublicKey> {
        let (algorithm, len) = match parameters {
            P256 => (PublicKey::ECDSAP256SHA256, 64),
            P384 => (PublicKey::ECDSAP384SHA384, 96),
            _ => return None,
        };
        // An OCTET STRING with the point; some modules leave the frame out. The point is written in full.
        let framed = [4, len as u8 + 1];
        let bare = point.strip_prefix(&framed[..]).unwrap_or(point);
        let octets = bare.strip_prefix(&[4]).filter(|octets| octets.len() == len)?;
        Some(PublicKey { algorithm, octets: octets.to_vec() })
    }

    /// One of RSA: CKA_MODULUS and CKA_PUBLIC_EXPONENT.
    pub(crate) fn of_rsa(modulus: &[u8], exponent: &[u8]) -> Option<PublicKey> {
        let [modulus, exponent] = [modulus, exponent].map(without_zeros);
        // An exponent of more than 255 octets has a length of three (RFC 3110, 2); nobody has one.
        let len = u8::try_from(exponent.len()).ok().filter(|len| *len > 0)?;
        if !MODULUS_LEN.contains(&modulus.len()) {
            return None;
        }
        let octets = [&[len], exponent, modulus].concat();
        Some(PublicKey { algorithm: PublicKey::RSASHA256, octets })
    }

    /// Whether a signature of these octets is one of this key.
    pub(crate) fn verifies(&self, octets: &[u8], signature: &[u8]) -> bool {
        let on_curve = |algorithm| {
            let point = [&[4], &*self.octets].concat();
            UnparsedPublicKey::new(algorithm, point).verify(octets, signature).is_ok()
        };
        match self.algorithm {
            PublicKey::ECDSAP256SHA256 => on_curve(&signature::ECDSA_P256_SHA256_FIXED),
            PublicKey::ECDSAP384SHA384 => on_curve(&signature::ECDSA_P384_SHA384_FIXED),
            _ => {
                let Some((len, rest)) = self.octets.split_first() else { return false };
                let Some((e, n)) = rest.split_at_checked(usize::from(*len)) else { return false };
                let algorithm = &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY;
                RsaPublicKeyComponents { n, e }.verify(algorithm, octets, signature).is_ok()
            }
        }
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let first = number.iter().position(|octet| *octet != 0).unwrap_or(number.len());
    &number[first..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_known_by_its_name_and_not_by_the_length_of_its_points() {
        let point = [&[4, 65, 4][..], &[7; 64]].concat();
        let key = PublicKey { algorithm: 13, octets: vec![7; 64] };
        assert_eq!(PublicKey::on_curve(P256, &point), Some(key.clone()));
        assert_eq!(PublicKey::on_curve(P256, &point[2..]), Some(key), "without its frame");
        let secp256k1 = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a];
        assert_eq!(PublicKey::on_curve(&secp256k1, &point), None);
        assert_eq!(PublicKey::on_curve(P384, &point), None);
        assert_eq!(PublicKey::on_curve(P256, &[&[4, 33, 2][..], &[7; 32]].concat()), None, "compressed");
    }

    #[test]
    fn a_key_of_rsa_has_its_exponent_first() {
        let modulus = [&[0][..], &[9; 256]].concat();
        let key = PublicKey::of_rsa(&modulus, &[0, 1, 0, 1]).unwrap();
        assert_eq!((key.algorithm, key.octets), (8, [&[3, 1, 0, 1][..], &[9; 256]].concat()));
        assert_eq!(PublicKey::of_rsa(&[9; 64], &[3]), None, "512 bits");
        assert_eq!(PublicKey::of_rsa(&[9; 256], &[0]), None);
    }
}
