//! Prefixes of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// The first bits of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    pub(crate) family: Family,
    /// The bits, from the highest one on; those beyond the length are zero.
    pub(crate) bits: u128,
    pub(crate) length: u8,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Why a text or an address is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// Not of the form.
    #[error("{0:?} is not a prefix such as 192.0.2.0/24 or 2001:db8::/32")]
    Form(String),
    /// More bits than its address has.
    #[error("{text:?}: {length} bits are too many, expected 0 to {max}")]
    Length {
        /// The prefix.
        text: String,
        /// Its length.
        length: u64,
        /// Bits of an address.
        max: u8,
    },
    /// Bits beyond its length.
    #[error("{text:?} has bits beyond its length: {meant} was meant, or a longer prefix")]
    HostBits {
        /// The prefix.
        text: String,
        /// The prefix without them.
        meant: Prefix,
    },
}

impl Family {
    /// Bits of an address.
    pub(crate) const fn width(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

/// Family and bits of an address, from the highest one on.
pub(crate) fn bits_of(address: IpAddr) -> (Family, u128) {
    match address.to_canonical() {
        IpAddr::V4(address) => (Family::V4, u128::from(address.to_bits()) << 96),
        IpAddr::V6(address) => (Family::V6, address.to_bits()),
    }
}

/// The first `length` bits set.
pub(crate) fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl Prefix {
    /// The first `length` bits of an address, or all that it has. IPv6 addresses that stand for IPv4 are taken for those (RFC 4291, 2.5.5.2), if
    /// the length goes so far.
    pub fn new(address: IpAddr, length: u8) -> Prefix {
        let (address, length) = match address {
            IpAddr::V6(mapped) if length >= 96 => match mapped.to_ipv4_mapped() {
                Some(own) => (IpAddr::V4(own), length - 96),
                None => (address, length),
            },
            _ => (address, length),
        };
        let (family, bits) = match address {
            IpAddr::V4(own) => (Family::V4, u128::from(own.to_bits()) << 96),
            IpAddr::V6(own) => (Family::V6, own.to_bits()),
        };
        let length = length.min(family.width());
        Prefix { family, bits: bits & mask(length), length }
    }

    /// Its first address.
    pub fn address(self) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::from_bits((self.bits >> 96) as u32).into(),
            Family::V6 => Ipv6Addr::from_bits(self.bits).into(),
        }
    }

    /// How many bits it has.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether an address begins with it.
    pub fn contains(self, address: IpAddr) -> bool {
        let (family, bits) = bits_of(address);
        family == self.family && bits & mask(self.length) == self.bits
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.length)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// An address alone is a prefix of all of its bits.
    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let form = || PrefixError::Form(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) if length.bytes().all(|octet| octet.is_ascii_digit()) => {
                (address, Some(length.parse::<u64>().map_err(|_| form())?))
            }
            Some(_) => return Err(form()),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(max.into());
        if length > max.into() {
            return Err(PrefixError::Length { text: text.to_owned(), length, max });
        }
        let prefix = Prefix::new(address, length as u8); // Not above 128.
        if prefix.bits != bits_of(address).1 {
            return Err(PrefixError::HostBits { text: text.to_owned(), meant: prefix });
        }
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_and_written() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().unwrap().to_string(), "192.0.2.1/32");
        assert_eq!("::ffff:192.0.2.0/120".parse::<Prefix>().unwrap().to_string(), "192.0.2.0/24");
    }

    #[test]
    fn errors_say_what_was_expected() {
        let error = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(error("192.0.2.0/33"), "\"192.0.2.0/33\": 33 bits are too many, expected 0 to 32");
        assert_eq!(
            error("192.0.2.1/24"),
            "\"192.0.2.1/24\" has bits beyond its length: 192.0.2.0/24 was meant, or a longer prefix"
        );
        for text in ["", "192.0.2/24", "x", "192.0.2.0/", "192.0.2.0/+1", "::/-1", "192.0.2.0/24 "] {
            assert!(error(text).contains("is not a prefix"), "{text}");
        }
    }
}
