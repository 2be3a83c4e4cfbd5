//! DNS64 (RFC 6147): IPv6 addresses for what has only IPv4 addresses, for clients behind a NAT64 translator.
//!
//! ```text
//! AAAA? ─▶ some: as they are
//!      └─▶ none ─▶ A? ─▶ 192.0.2.1 becomes 64:ff9b::192.0.2.1
//!                    └─▶ none: the first answer
//! PTR? of 64:ff9b::192.0.2.1 ─▶ an alias for 1.2.0.192.in-addr.arpa., and what that has
//! ```
//!
//! What is made here is unsigned, so a client that validates by itself (CD) gets none of it (RFC 6147, 5.5).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use dns_wire::{Name, NameBuf, Rtype};

use crate::iterator::task::Outcome;
use crate::message::{Question, Rdatas, Rrset};

/// The octet that is always zero (RFC 6052, 2.2).
const ZERO: usize = 8;
/// 64:ff9b::/96 (RFC 6052, 2.1).
const WELL_KNOWN: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
/// TTL of an address where the denial of the others had no SOA record, in seconds (RFC 6147, 5.1.7).
const TTL_MAX: u32 = 600;
/// TTL of an alias that is made here, in seconds.
const ALIAS_TTL: u32 = 600;

/// The prefix of the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dns64 {
    prefix: Ipv6Addr,
    /// Octets of it.
    len: usize,
}

/// What becomes of an answer on its way to a client.
#[derive(Clone, Debug, Default)]
pub(crate) enum Translation {
    /// It is passed on as it is.
    #[default]
    None,
    /// IPv4 addresses become IPv6 addresses; without any, this is the answer.
    Addresses(Box<Outcome>),
    /// It stands behind an alias.
    Alias(Box<Rrset>),
}

impl Dns64 {
    /// `None` for a length other than 32, 40, 48, 56, 64 or 96 bits, and for bits behind the prefix or in octet 8 (RFC 6052, 2.2).
    pub fn new(prefix: Ipv6Addr, bits: u8) -> Option<Dns64> {
        let len = usize::from(bits / 8);
        let octets = prefix.octets();
        let is_right = matches!(bits, 32 | 40 | 48 | 56 | 64 | 96)
            && octets[len..].iter().all(|octet| *octet == 0)
            && octets[ZERO] == 0;
        is_right.then_some(Dns64 { prefix, len })
    }

    /// The address behind the translator.
    fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.prefix.octets();
        for (place, octet) in self.places().zip(address.octets()) {
            octets[place] = octet;
        }
        octets.into()
    }

    /// The IPv4 address in an address behind the translator.
    fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = address.octets();
        let mut found = [0; 4];
        for (place, octet) in self.places().zip(&mut found) {
            *octet = octets[place];
        }
        (self.embed(found.into()) == address).then(|| found.into())
    }

    /// Where the octets of an IPv4 address are.
    fn places(self) -> impl Iterator<Item = usize> {
        (self.len..).filter(|place| *place != ZERO)
    }

    /// The well-known prefix is for addresses that are unique in the world (RFC 6052, 3.1).
    fn may_embed(self, address: Ipv4Addr) -> bool {
        let is_local = address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_unspecified()
            || address.is_broadcast();
        self.prefix != WELL_KNOWN || !is_local
    }

    /// For a question for the reverse name of an address behind the translator: the question that has the answer, and the alias in front of
    /// it (RFC 6147, 5.3.1).
    pub(crate) fn reverse(self, question: &Question) -> Option<(Question, Translation)> {
        if question.is_unchecked {
            return None;
        }
        let address = self.extract(reverse_address(question.name.as_name())?)?;
        let [a, b, c, d] = address.octets();
        let target = format!("{d}.{c}.{b}.{a}.in-addr.arpa.");
        let target = NameBuf::from_text(target.as_bytes(), None).ok()?;
        let rdatas = Rdatas::pack([target.as_name().as_bytes()]);
        let alias = Rrset::unsigned(question.name.clone(), Rtype::CNAME, ALIAS_TTL, rdatas);
        let question = Question { name: target, ..question.clone() };
        Some((question, Translation::Alias(alias.into())))
    }

    /// The question for IPv4 addresses, if `outcome` has no address for a client that asked `question`.
    pub(crate) fn fall_back(self, question: &Question, outcome: &Outcome) -> Option<(Question, Translation)> {
        let is_empty = match outcome {
            Outcome::NoData(..) => true,
            Outcome::Failed(ede) => !ede.is_bogus(),
            Outcome::Answer(chain) => {
                chain.last().is_some_and(|set| set.rtype == Rtype::AAAA && set.rdatas.iter().all(is_mapped))
            }
            Outcome::NoName(..) | Outcome::TooLong(_) => false,
        };
        let is_wanted = question.rtype == Rtype::AAAA && !question.is_unchecked && is_empty;
        is_wanted.then(|| {
            let question = Question { rtype: Rtype::A, ..question.clone() };
            (question, Translation::Addresses(outcome.clone().into()))
        })
    }

    /// What a client gets in place of `outcome`.
    pub(crate) fn apply(self, translation: &Translation, outcome: &Outcome) -> Outcome {
        match translation {
            Translation::None => without_mapped(outcome),
            Translation::Addresses(denial) => {
                self.addresses(denial, outcome).unwrap_or_else(|| (**denial).clone())
            }
            Translation::Alias(alias) => behind(alias, outcome),
        }
    }

    fn addresses(self, denial: &Outcome, outcome: &Outcome) -> Option<Outcome> {
        let Outcome::Answer(chain) = outcome else { return None };
        let (last, aliases) = chain.split_last()?;
        let address = |rdata: &[u8]| Some(Ipv4Addr::from(*rdata.first_chunk::<4>()?));
        let known = last.rdatas.iter().filter_map(address).filter(|address| self.may_embed(*address));
        let embedded: Vec<[u8; 16]> = known.map(|address| self.embed(address).octets()).collect();
        if last.rtype != Rtype::A || embedded.is_empty() {
            return None;
        }
        let ttl_max = match denial {
            Outcome::NoData(_, Some(soa)) => soa.ttl,
            _ => TTL_MAX,
        };
        let rdatas = Rdatas::pack(embedded.iter().map(|octets| &octets[..]));
        let set = Rrset::unsigned(last.owner.clone(), Rtype::AAAA, last.ttl.min(ttl_max), rdatas);
        Some(Outcome::Answer(aliases.iter().cloned().chain([set]).collect()))
    }
}

/// The same outcome; of several IPv6 addresses those that are ones to connect to (RFC 6147, 5.1.4).
fn without_mapped(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    if let Outcome::Answer(chain) = &mut outcome
        && let Some(last) = chain.last_mut().filter(|set| set.rtype == Rtype::AAAA)
        && last.rdatas.iter().any(is_mapped)
        && !last.rdatas.iter().all(is_mapped)
    {
        let rdatas = Rdatas::pack(last.rdatas.iter().filter(|rdata| !is_mapped(rdata)));
        *last = Rrset::unsigned(last.owner.clone(), Rtype::AAAA, last.ttl, rdatas);
    }
    outcome
}

/// The same outcome, behind an alias.
fn behind(alias: &Rrset, outcome: &Outcome) -> Outcome {
    let chain = |chain: &[Rrset]| [std::slice::from_ref(alias), chain].concat();
    match outcome {
        Outcome::Answer(sets) => Outcome::Answer(chain(sets)),
        Outcome::NoData(sets, soa) => Outcome::NoData(chain(sets), soa.as_ref().map(Arc::clone)),
        Outcome::NoName(sets, soa) => Outcome::NoName(chain(sets), soa.as_ref().map(Arc::clone)),
        Outcome::TooLong(_) | Outcome::Failed(_) => outcome.clone(),
    }
}

/// ::ffff:0:0/96 is no address to connect to (RFC 6147, 5.1.4).
fn is_mapped(rdata: &[u8]) -> bool {
    rdata.first_chunk::<16>().is_none_or(|octets| Ipv6Addr::from(*octets).to_ipv4_mapped().is_some())
}

/// The address of a name below `ip6.arpa.` with all 32 digits.
fn reverse_address(name: Name<'_>) -> Option<Ipv6Addr> {
    const DIGITS: usize = 32;
    const SUFFIX: &[u8] = b"\x03ip6\x04arpa\0";
    let octets = name.as_bytes();
    if octets.len() != 2 * DIGITS + SUFFIX.len() || !octets.ends_with(SUFFIX) {
        return None;
    }
    let digits = octets[..2 * DIGITS].chunks(2).rev();
    digits
        .map(|label| (label[0] == 1).then(|| char::from(label[1]).to_digit(16)).flatten())
        .try_fold(0_u128, |address, digit| Some(address << 4 | u128::from(digit?)))
        .map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 33);

    fn dns64(text: &str) -> Dns64 {
        let (prefix, bits) = text.split_once('/').unwrap();
        Dns64::new(prefix.parse().unwrap(), bits.parse().unwrap()).unwrap()
    }

    /// The table of RFC 6052, 2.4.
    #[test]
    fn addresses_are_embedded_behind_prefixes_of_every_length() {
        for (prefix, expected) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let dns64 = dns64(prefix);
            let expected: Ipv6Addr = expected.parse().unwrap();
            assert_eq!(
                (dns64.embed(ADDRESS), dns64.extract(expected)),
                (expected, Some(ADDRESS)),
                "{prefix}"
            );
            assert_eq!(dns64.extract("2001:db9::1".parse().unwrap()), None);
        }
    }

    #[test]
    fn a_prefix_has_one_of_six_lengths_and_nothing_behind_it() {
        for (prefix, bits) in
            [("2001:db8::", 33), ("2001:db8::", 128), ("2001:db8::1", 96), ("::100:0:0:0", 96)]
        {
            assert_eq!(Dns64::new(prefix.parse().unwrap(), bits), None, "{prefix}/{bits}");
        }
    }

    #[test]
    fn the_well_known_prefix_embeds_no_private_address() {
        let private = Ipv4Addr::new(10, 0, 0, 1);
        assert!(!dns64("64:ff9b::/96").may_embed(private) && dns64("64:ff9b::/96").may_embed(ADDRESS));
        assert!(dns64("2001:db8::/96").may_embed(private));
    }

    #[test]
    fn reverse_names_have_32_digits() {
        let name = |text: &str| NameBuf::from_text(text.as_bytes(), None).unwrap();
        let digits = "1.2.3.4".to_owned() + &".0".repeat(28);
        let whole = name(&format!("{digits}.ip6.arpa."));
        assert_eq!(reverse_address(whole.as_name()), Some("::4321".parse().unwrap()));
        for other in ["1.2.ip6.arpa.", &format!("g{}.ip6.arpa.", &digits[1..]), "www.example."] {
            assert_eq!(reverse_address(name(other).as_name()), None, "{other}");
        }
    }
}
