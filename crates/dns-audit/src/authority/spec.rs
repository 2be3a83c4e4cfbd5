//! [`Spec`]: a label that says what the authority answers for it, and when. The authority keeps nothing else about a name.
//!
//! ```text
//!   0a1b2c3d4e5f6 - 7 - 1j5k0v2m8 - t2 - z30x80 - e24 . probe.example.net.
//!   run nonce       |   start       |    |        `-- ECS scope of 24 bits
//!                   number          TTL  silent from 3.0 s to 8.0 s after the start
//! ```
//!
//! Times within a label are in tenths of a second since the start. Letters are lower case; what asks may change their case.

use std::fmt;
use std::str::FromStr;

/// Who a name belongs to: 64 bits that nobody can guess. The log is read by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

/// Digits of a nonce: 64 bits, five a digit.
const NONCE_LEN: usize = 13;
/// The digits (those of RFC 4648, 7, in lower case).
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// Tenths of a second, the unit of the times in a label.
const TENTH_MS: u64 = 100;
/// Behaviours of one label.
const PHASES_MAX: usize = 6;

/// What is wrong with the answers to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// No answer.
    Silent,
    /// SERVFAIL.
    ServFail,
    /// REFUSED.
    Refused,
    /// NXDOMAIN.
    NxDomain,
    /// No records of any type.
    NoData,
    /// An answer after so many milliseconds.
    Slow(u16),
}

/// A behaviour, and when it holds, in tenths of a second since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What happens.
    pub behaviour: Behaviour,
    /// From when on.
    pub from: u32,
    /// Until when; `None` is for ever.
    pub until: Option<u32>,
}

/// How the signatures of a name's records are, in a signed zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signature {
    /// They are valid.
    #[default]
    Good,
    /// One octet is wrong.
    Bogus,
    /// They ended three days ago.
    Expired,
}

/// What the servers do for a name: see [`super::Condition`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// All do the same, at once.
    #[default]
    Alike,
    /// Each one has its delay and its outage.
    Apart,
    /// Each one has its delay and its loss.
    Lossy,
}

/// A label of the audit zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The run that it belongs to.
    pub nonce: Nonce,
    /// Which of the run's names it is.
    pub number: u32,
    /// What times count from: milliseconds since 1970.
    pub start_ms: u64,
    /// TTL of the records, and of their absence.
    pub ttl: u32,
    /// What happens when; the first that holds counts.
    pub phases: Vec<Phase>,
    /// What happens where.
    pub servers: Servers,
    /// Octets that a TXT record is filled up to; 0 does not fill it.
    pub size: u16,
    /// Scope of answers to queries with a client subnet (RFC 7871, 7.2.1); `None` leaves the option out.
    pub scope: Option<u8>,
    /// How it is signed.
    pub signature: Signature,
    /// The address is a private one.
    pub is_private: bool,
}

impl Nonce {
    /// Reads the digits of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Nonce> {
        (text.len() == NONCE_LEN).then(|| base32(text)).flatten().map(Nonce)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base32(self.0, NONCE_LEN))
    }
}

fn to_base32(mut value: u64, len_min: usize) -> String {
    let mut digits = Vec::new();
    while value > 0 || digits.len() < len_min.max(1) {
        digits.push(char::from(DIGITS[(value & 31) as usize]));
        value >>= 5;
    }
    digits.iter().rev().collect()
}

fn base32(text: &str) -> Option<u64> {
    let digit = |octet: u8| DIGITS.iter().position(|own| *own == octet).map(|place| place as u64);
    let add =
        |value: u64, octet: u8| value.checked_mul(32).and_then(|value| value.checked_add(digit(octet)?));
    (!text.is_empty()).then(|| text.bytes().try_fold(0, add)).flatten()
}

impl Phase {
    /// One that holds always.
    #[must_use]
    pub fn always(behaviour: Behaviour) -> Phase {
        Phase { behaviour, from: 0, until: None }
    }

    fn parse(letter: char, rest: &str) -> Option<Phase> {
        let mut numbers = numbers(rest)?.into_iter();
        let behaviour = match letter {
            'z' => Behaviour::Silent,
            'f' => Behaviour::ServFail,
            'r' => Behaviour::Refused,
            'x' => Behaviour::NxDomain,
            'n' => Behaviour::NoData,
            'w' => Behaviour::Slow(numbers.next()?.try_into().ok()?),
            _ => return None,
        };
        let (from, until) = (numbers.next().unwrap_or(0), numbers.next());
        numbers.next().is_none().then_some(Phase { behaviour, from, until })
    }

    /// Whether it holds so long after the start.
    fn holds(&self, tenths: u64) -> bool {
        u64::from(self.from) <= tenths && self.until.is_none_or(|until| tenths < u64::from(until))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.behaviour {
            Behaviour::Silent => 'z',
            Behaviour::ServFail => 'f',
            Behaviour::Refused => 'r',
            Behaviour::NxDomain => 'x',
            Behaviour::NoData => 'n',
            Behaviour::Slow(_) => 'w',
        };
        let delay = match self.behaviour {
            Behaviour::Slow(ms) => Some(u32::from(ms)),
            _ => None,
        };
        let is_whole = self.from == 0 && self.until.is_none();
        let from = (!is_whole).then_some(self.from);
        write!(f, "{letter}{}", joined(delay.into_iter().chain(from).chain(self.until)))
    }
}

/// Numbers with an `x` between them.
fn numbers(text: &str) -> Option<Vec<u32>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split('x').map(decimal).collect()
}

fn joined(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join("x")
}

/// Digits alone: no sign.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let is_number = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

impl Spec {
    /// A name with good answers of this TTL.
    #[must_use]
    pub fn new(nonce: Nonce, number: u32, start_ms: u64, ttl: u32) -> Spec {
        Spec {
            nonce,
            number,
            start_ms,
            ttl,
            phases: Vec::new(),
            servers: Servers::Alike,
            size: 0,
            scope: None,
            signature: Signature::Good,
            is_private: false,
        }
    }

    /// Reads a label, whatever the case of its letters; `None` if it is none of these.
    #[must_use]
    pub fn parse(label: &[u8]) -> Option<Spec> {
        let text = std::str::from_utf8(label).ok()?.to_ascii_lowercase();
        let mut fields = text.split('-');
        let nonce = Nonce::parse(fields.next()?)?;
        let number = u32::try_from(base32(fields.next()?)?).ok()?;
        let start_ms = base32(fields.next()?)?;
        let mut spec = Spec::new(nonce, number, start_ms, 0);
        for field in fields {
            let letter = field.chars().next()?;
            spec.set(letter, field.get(letter.len_utf8()..)?)?;
        }
        Some(spec)
    }

    fn set(&mut self, letter: char, rest: &str) -> Option<()> {
        match letter {
            't' => self.ttl = decimal(rest)?,
            'b' => self.size = decimal(rest)?,
            'e' => self.scope = Some(decimal(rest).filter(|scope| *scope <= 128)?),
            'p' => self.is_private = true,
            's' if rest.is_empty() => self.servers = Servers::Apart,
            'l' if rest.is_empty() => self.servers = Servers::Lossy,
            'g' => {
                self.signature = match rest {
                    "b" => Signature::Bogus,
                    "e" => Signature::Expired,
                    _ => return None,
                }
            }
            _ if self.phases.len() < PHASES_MAX => self.phases.push(Phase::parse(letter, rest)?),
            _ => return None,
        }
        Some(())
    }

    /// Tenths of a second since the start.
    #[must_use]
    pub fn tenths(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.start_ms) / TENTH_MS
    }

    /// What happens to a query at `now_ms`, whichever server it comes to.
    #[must_use]
    pub fn behaviour(&self, now_ms: u64) -> Option<Behaviour> {
        let tenths = self.tenths(now_ms);
        self.phases.iter().find(|phase| phase.holds(tenths)).map(|phase| phase.behaviour)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, start) = (to_base32(self.number.into(), 1), to_base32(self.start_ms, 1));
        write!(f, "{}-{number}-{start}-t{}", self.nonce, self.ttl)?;
        self.phases.iter().try_for_each(|phase| write!(f, "-{phase}"))?;
        f.write_str(match self.servers {
            Servers::Alike => "",
            Servers::Apart => "-s",
            Servers::Lossy => "-l",
        })?;
        if self.size > 0 {
            write!(f, "-b{}", self.size)?;
        }
        if let Some(scope) = self.scope {
            write!(f, "-e{scope}")?;
        }
        match self.signature {
            Signature::Good => {}
            Signature::Bogus => f.write_str("-gb")?,
            Signature::Expired => f.write_str("-ge")?,
        }
        f.write_str(if self.is_private { "-p" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn behaviour() -> impl Strategy<Value = Behaviour> {
        prop_oneof![
            Just(Behaviour::Silent),
            Just(Behaviour::ServFail),
            Just(Behaviour::Refused),
            Just(Behaviour::NxDomain),
            Just(Behaviour::NoData),
            any::<u16>().prop_map(Behaviour::Slow),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(19), ..ProptestConfig::default() })]

        #[test]
        fn a_label_is_read_as_it_was_written_in_any_case(
            nonce: u64, number: u32, start_ms: u64, ttl: u32,
            phases in prop::collection::vec((behaviour(), any::<u32>(), any::<Option<u32>>()), 0..PHASES_MAX),
            servers in prop_oneof![Just(Servers::Alike), Just(Servers::Apart), Just(Servers::Lossy)], size: u16, scope in prop::option::of(0u8..=128),
            signature in prop_oneof![Just(Signature::Good), Just(Signature::Bogus), Just(Signature::Expired)],
            is_private: bool, upper: bool,
        ) {
            let phases = phases.into_iter().map(|(behaviour, from, until)| Phase { behaviour, from, until });
            let phases = phases.collect();
            let (nonce, own) = (Nonce(nonce), start_ms);
            let spec = Spec { nonce, number, start_ms: own, ttl, phases, servers, size, scope, signature, is_private };
            let text = spec.to_string();
            let text = if upper { text.to_ascii_uppercase() } else { text };
            prop_assert_eq!(Spec::parse(text.as_bytes()), Some(spec));
        }

        #[test]
        fn no_label_makes_the_reader_panic(label in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Spec::parse(&label);
            let fields = [b"0000000000000-1-1-".as_slice(), &label].concat();
            let _ = Spec::parse(&fields);
        }
    }

    #[test]
    fn labels_that_say_something_else_are_none() {
        let good = "0000000000007-1-1j5k0v2m8-t2-z30x80";
        assert!(Spec::parse(good.as_bytes()).is_some());
        for bad in [
            "www",
            "0000000000007-1",
            "000000000007-1-1",
            "0000000000007-1-1-z1x2x3",
            "0000000000007-1-1-t+2",
            "0000000000007-1-1-q",
            "0000000000007-1-1-",
            "0000000000007-1-1-l25",
            "0000000000007-1-1-w70000",
        ] {
            assert_eq!(Spec::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_behaviour_holds_from_its_start_to_its_end() {
        let phases = vec![Phase { behaviour: Behaviour::Silent, from: 30, until: Some(80) }];
        let spec = Spec { phases, ..Spec::new(Nonce(7), 1, 1000, 2) };
        let at = |now_ms| spec.behaviour(now_ms);
        assert_eq!(
            [at(0), at(3999), at(4000), at(8999), at(9000)],
            [None, None, Some(Behaviour::Silent), Some(Behaviour::Silent), None]
        );
    }
}
