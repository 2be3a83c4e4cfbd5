//! Whether octets given in the generic form are RDATA of their type: enough that nothing behind the reader has to
//! expect a name that is cut short or a string that is not one.

use dns_wire::Name;

use super::bitmap::is_bitmap;
use super::gateway::is_gateway;
use super::schema::Field;
use super::svcb::check_params;

/// True if `octets` are made of `fields`.
pub(super) fn is_rdata(fields: &[Field], octets: &[u8]) -> bool {
    let rest = fields.iter().try_fold(octets, |rest, &field| behind(field, rest));
    rest == Some(&[])
}

/// What follows `field` at the start of `octets`; `None` if it is not there.
fn behind(field: Field, octets: &[u8]) -> Option<&[u8]> {
    let all_if = |is_valid: bool| is_valid.then_some(&[][..]);
    match field {
        Field::U8 | Field::Algorithm | Field::DsyncScheme => octets.get(1..),
        Field::U16 | Field::Type | Field::CertificateType => octets.get(2..),
        Field::U32 | Field::Duration | Field::Time | Field::Ipv4 => octets.get(4..),
        Field::U64 | Field::Ilnp64 => octets.get(8..),
        Field::Ipv6 => octets.get(16..),
        Field::Eui(length) => octets.get(length..),
        Field::Name => Name::split_from(octets).ok().map(|(_, rest)| rest),
        Field::String | Field::Salt => behind_string(octets),
        Field::StringOrNone => {
            if octets.is_empty() {
                Some(octets)
            } else {
                behind_string(octets)
            }
        }
        Field::Strings => behind_strings(octets),
        Field::Tag | Field::HashedOwner => behind_string(octets).filter(|_| octets[0] > 0),
        Field::Text | Field::Base64OrNone | Field::Base64OrHyphen => Some(&[]),
        Field::SomeText | Field::Base64 | Field::Hex | Field::Nsap => all_if(!octets.is_empty()),
        Field::Atma => all_if(octets.len() > 1),
        Field::Bitmap => all_if(is_bitmap(octets)),
        Field::OldBitmap => all_if(octets.len() <= 16),
        Field::Loc => all_if(octets.len() == 16 && octets[0] == 0),
        Field::Wks => all_if((5..=5 + 8192).contains(&octets.len())),
        Field::A6 => all_if(is_a6(octets)),
        Field::Apl => all_if(is_apl(octets)),
        Field::Ipseckey => all_if(octets.len() >= 3 && is_gateway(octets[1], &octets[3..], true)),
        Field::Amtrelay => all_if(octets.len() >= 2 && is_gateway(octets[1] & 0x7f, &octets[2..], false)),
        Field::Hip => all_if(is_hip(octets)),
        Field::SvcParams => all_if(check_params(octets).is_ok()),
    }
}

fn behind_string(octets: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = octets.split_first()?;
    rest.get(usize::from(length)..)
}

fn behind_strings(octets: &[u8]) -> Option<&[u8]> {
    let mut rest = behind_string(octets)?;
    while !rest.is_empty() {
        rest = behind_string(rest)?;
    }
    Some(rest)
}

fn is_a6(octets: &[u8]) -> bool {
    let Some((&prefix_bits, rest)) = octets.split_first() else { return false };
    let Some(suffix_octets) = 128u8.checked_sub(prefix_bits).map(|bits| usize::from(bits).div_ceil(8)) else {
        return false;
    };
    match rest.get(suffix_octets..) {
        Some(name) if prefix_bits > 0 => Name::from_wire(name).is_ok(),
        Some(rest) => rest.is_empty(),
        None => false,
    }
}

fn is_apl(mut octets: &[u8]) -> bool {
    while let [_, _, _, length, rest @ ..] = octets {
        let Some(rest) = rest.get(usize::from(length & 0x7f)..) else { return false };
        octets = rest;
    }
    octets.is_empty()
}

fn is_hip(octets: &[u8]) -> bool {
    let [tag_length, _, key_high, key_low, rest @ ..] = octets else { return false };
    let key_length = u16::from_be_bytes([*key_high, *key_low]);
    let Some(mut rest) = rest.get(usize::from(*tag_length) + usize::from(key_length)..) else { return false };
    while !rest.is_empty() {
        match Name::split_from(rest) {
            Ok((_, behind)) => rest = behind,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::schema::schema;
    use super::*;
    use dns_wire::Rtype;

    fn is(rtype: Rtype, octets: &[u8]) -> bool {
        is_rdata(schema(rtype).unwrap(), octets)
    }

    #[test]
    fn lengths_names_and_strings_are_checked() {
        assert!(is(Rtype::A, &[1, 2, 3, 4]));
        assert!(!is(Rtype::A, &[1, 2, 3]) && !is(Rtype::A, &[1, 2, 3, 4, 5]));
        assert!(is(Rtype::NS, b"\x01a\x00") && !is(Rtype::NS, b"\x01a") && !is(Rtype::NS, b"\xc0\x0c"));
        assert!(is(Rtype::TXT, b"\x01a\x00") && !is(Rtype::TXT, b"") && !is(Rtype::TXT, b"\x02a"));
        assert!(is(Rtype::CAA, b"\x00\x01a") && !is(Rtype::CAA, b"\x00\x00a"));
    }

    #[test]
    fn composed_fields_are_checked() {
        assert!(is(Rtype::IPSECKEY, &[10, 1, 2, 192, 0, 2, 38, 1]));
        assert!(!is(Rtype::IPSECKEY, &[10, 1, 2, 192, 0, 2]) && !is(Rtype::IPSECKEY, &[10, 4, 2]));
        assert!(is(Rtype::AMTRELAY, &[10, 0x80]) && !is(Rtype::AMTRELAY, &[10, 0x80, 1]));
        assert!(is(Rtype::APL, &[0, 1, 21, 0x83, 1, 2, 3]) && !is(Rtype::APL, &[0, 1, 21, 3, 1, 2]));
        assert!(is(Rtype::A6, b"\x80\x01p\x00") && !is(Rtype::A6, b"\x81\x00") && !is(Rtype::A6, b"\x00"));
        assert!(is(Rtype::HIP, &[1, 2, 0, 1, 7, 7, 0]) && !is(Rtype::HIP, &[1, 2, 0, 1, 7, 7, 1]));
        assert!(
            is(Rtype::SVCB, &[0, 1, 0, 0, 3, 0, 2, 0, 80]) && !is(Rtype::SVCB, &[0, 1, 0, 0, 3, 0, 1, 80])
        );
    }
}
