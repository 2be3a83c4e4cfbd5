//! The cryptography, by `ring`: which algorithms count (the table of RFC 9904), signatures and digests.

use ring::digest;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};

const RSASHA1: u8 = 5;
const RSASHA1_NSEC3_SHA1: u8 = 7;
const RSASHA256: u8 = 8;
const RSASHA512: u8 = 10;
const ECDSAP256SHA256: u8 = 13;
const ECDSAP384SHA384: u8 = 14;
const ED25519: u8 = 15;

pub(super) const DIGEST_SHA1: u8 = 1;
const DIGEST_SHA256: u8 = 2;
const DIGEST_SHA384: u8 = 4;

/// Whether signatures of `algorithm` are checked. A zone with none of these is insecure (RFC 4035, 5.2). SHA-1 is the user's choice
/// (RFC 9905, 2). DSA and GOST must not be used (RFC 9904); Ed448 is not in `ring`.
pub(super) fn is_supported(algorithm: u8, sha1: bool) -> bool {
    match algorithm {
        RSASHA1 | RSASHA1_NSEC3_SHA1 => sha1,
        RSASHA256 | RSASHA512 | ECDSAP256SHA256 | ECDSAP384SHA384 | ED25519 => true,
        _ => false,
    }
}

/// Whether digests of `digest_type` are compared.
pub(super) fn is_digest_supported(digest_type: u8, sha1: bool) -> bool {
    match digest_type {
        DIGEST_SHA1 => sha1,
        DIGEST_SHA256 | DIGEST_SHA384 => true,
        _ => false,
    }
}

/// The digest of the parts, one after the other; `None` for a type that we do not know.
pub(super) fn digest(digest_type: u8, parts: &[&[u8]]) -> Option<digest::Digest> {
    let algorithm = match digest_type {
        DIGEST_SHA1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        DIGEST_SHA256 => &digest::SHA256,
        DIGEST_SHA384 => &digest::SHA384,
        _ => return None,
    };
    let mut context = digest::Context::new(algorithm);
    parts.iter().for_each(|part| context.update(part));
    Some(context.finish())
}

/// Whether `signature` over `data` was made with the private part of `key`, both in the form of their records.
pub(super) fn verify(algorithm: u8, key: &[u8], data: &[u8], signature: &[u8]) -> bool {
    match algorithm {
        RSASHA1 | RSASHA1_NSEC3_SHA1 => {
            verify_rsa(&signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, key, data, signature)
        }
        RSASHA256 => {
            verify_rsa(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, key, data, signature)
        }
        RSASHA512 => {
            verify_rsa(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, key, data, signature)
        }
        ECDSAP256SHA256 => verify_ecdsa(&signature::ECDSA_P256_SHA256_FIXED, key, data, signature),
        ECDSAP384SHA384 => verify_ecdsa(&signature::ECDSA_P384_SHA384_FIXED, key, data, signature),
        ED25519 => UnparsedPublicKey::new(&signature::ED25519, key).verify(data, signature).is_ok(),
        _ => false,
    }
}

/// RFC 3110, 2: the length of the exponent in one octet or, behind a zero, in two; the exponent; the modulus.
fn verify_rsa(parameters: &signature::RsaParameters, key: &[u8], data: &[u8], signature: &[u8]) -> bool {
    let split = match key {
        [0, high, low, rest @ ..] => rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low]))),
        [len, rest @ ..] => rest.split_at_checked(usize::from(*len)),
        [] => None,
    };
    let Some((exponent, modulus)) = split else { return false };
    let key = RsaPublicKeyComponents { n: without_zeros(modulus), e: without_zeros(exponent) };
    key.verify(parameters, data, signature).is_ok()
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|octet| **octet == 0).count();
    &number[zeros..]
}

/// RFC 6605, 4: the point without the octet that says that it is not compressed.
fn verify_ecdsa(
    parameters: &'static signature::EcdsaVerificationAlgorithm,
    key: &[u8],
    data: &[u8],
    signature: &[u8],
) -> bool {
    let point = [&[4], key].concat();
    UnparsedPublicKey::new(parameters, point).verify(data, signature).is_ok()
}
