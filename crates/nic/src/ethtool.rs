//! The family `ethtool` (linux/ethtool_netlink.h): numbers, features and receive-side scaling.

use std::collections::BTreeMap;

use crate::attributes::{self, Attributes};
use crate::genl::Family;
use crate::{Nic, NicError};

/// ETHTOOL_A_*_HEADER, and ETHTOOL_A_HEADER_DEV_NAME in it.
const HEADER: u16 = 1;
const DEVICE_NAME: u16 = 2;

const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const FEATURES_CHANGEABLE: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
/// What cannot be changed at all.
const FEATURES_FIXED: u16 = 5;

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

const SPREAD_GET: u8 = 38;
const SPREAD_FUNCTION: u16 = 3;
const SPREAD_TABLE: u16 = 4;
const SPREAD_KEY: u16 = 5;
const SPREAD_TRANSFORMATION: u16 = 6;
/// ETH_RSS_HASH_TOP.
const TOEPLITZ: u64 = 1;

/// A setting with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Descriptors of a receive queue.
    RxRing,
    /// Descriptors of a transmit queue.
    TxRing,
    /// Queues that only receive.
    RxQueues,
    /// Queues that only transmit.
    TxQueues,
    /// Queues that do both.
    CombinedQueues,
    /// Microseconds before an interrupt for what was received.
    RxDelay,
    /// Whether the driver chooses that delay itself (1) or not (0).
    AdaptiveRx,
}

/// Where a parameter is: the commands to read and to write it, its attribute and that of its largest value.
struct Place {
    get: u8,
    set: u8,
    current: u16,
    max: Option<u16>,
    is_octet: bool,
}

impl Parameter {
    fn place(self) -> Place {
        let number = |get, current, max| Place { get, set: get + 1, current, max, is_octet: false };
        match self {
            Parameter::RxRing => number(15, 6, Some(2)),
            Parameter::TxRing => number(15, 9, Some(5)),
            Parameter::RxQueues => number(17, 6, Some(2)),
            Parameter::TxQueues => number(17, 7, Some(3)),
            Parameter::CombinedQueues => number(17, 9, Some(5)),
            Parameter::RxDelay => number(19, 2, None),
            Parameter::AdaptiveRx => Place { is_octet: true, ..number(19, 11, None) },
        }
    }
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// As it is now.
    pub current: u32,
    /// The largest that the driver takes, if it says so.
    pub max: Option<u32>,
}

/// A feature, in most cases something that the NIC does for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// It works now.
    pub is_on: bool,
    /// The driver lets it be changed.
    pub is_changeable: bool,
}

/// How a NIC spreads flows over queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The queue of each share of the hash.
    pub table: Vec<u32>,
    /// The key of the hash.
    pub key: Vec<u8>,
    /// The driver says that the hash is the Toeplitz function, of fields as they are in the packet: not of both directions the same.
    pub is_toeplitz: bool,
}

impl Nic {
    /// Reads a parameter.
    ///
    /// # Errors
    /// `Absent` if the driver has none.
    pub fn parameter(&mut self, parameter: Parameter) -> Result<Value, NicError> {
        let place = parameter.place();
        let answer = self.ask_ethtool(place.get)?;
        let number = |kind| {
            let number = attributes::find(&answer, kind).and_then(attributes::number)?;
            u32::try_from(number).ok()
        };
        let max = place.max.and_then(number);
        let current = number(place.current).filter(|_| place.max.is_none() || max.is_some_and(|max| max > 0));
        Ok(Value { current: current.ok_or(NicError::Absent)?, max })
    }

    /// Writes a parameter.
    pub fn set_parameter(&mut self, parameter: Parameter, value: u32) -> Result<(), NicError> {
        let place = parameter.place();
        let request = self.request();
        let request = match u8::try_from(value) {
            Ok(octet) if place.is_octet => request.with(place.current, &[octet]),
            _ => request.with(place.current, &value.to_ne_bytes()),
        };
        let family = self.ethtool()?;
        self.socket.order(family, place.set, request)
    }

    /// All features, by the names that ethtool(8) has for them.
    pub fn features(&mut self) -> Result<BTreeMap<String, Feature>, NicError> {
        let answer = self.ask_ethtool(FEATURES_GET)?;
        let names = |kind| attributes::find(&answer, kind).map(bits).unwrap_or_default();
        let (changeable, active, fixed) =
            (names(FEATURES_CHANGEABLE), names(FEATURES_ACTIVE), names(FEATURES_FIXED));
        let all = changeable.iter().chain(&active).cloned();
        let feature = |name: String| {
            let is_changeable = changeable.contains(&name) && !fixed.contains(&name);
            let feature = Feature { is_on: active.contains(&name), is_changeable };
            (name, feature)
        };
        Ok(all.map(feature).collect())
    }

    /// Switches a feature on or off.
    pub fn set_feature(&mut self, name: &str, on: bool) -> Result<(), NicError> {
        let bit = Attributes::default().with_text(BIT_NAME, name);
        let bit = if on { bit.with(BIT_VALUE, &[]) } else { bit };
        let bits = Attributes::default().with_nested(BIT, bit);
        let set = Attributes::default().with_nested(BITSET_BITS, bits);
        let request = self.request().with_nested(FEATURES_WANTED, set);
        let family = self.ethtool()?;
        self.socket.order(family, FEATURES_SET, request)?;
        match self.features()?.get(name) {
            Some(feature) if feature.is_on == on => Ok(()),
            Some(_) => Err(NicError::Ignored),
            None => Err(NicError::Absent),
        }
    }

    /// How received flows are spread over queues.
    pub fn spread(&mut self) -> Result<Spread, NicError> {
        let answer = self.ask_ethtool(SPREAD_GET)?;
        let table = attributes::find(&answer, SPREAD_TABLE).ok_or(NicError::Absent)?;
        let queue = |octets: &[u8]| attributes::number(octets).and_then(|queue| u32::try_from(queue).ok());
        let key = attributes::find(&answer, SPREAD_KEY).unwrap_or_default().to_vec();
        let value = |kind| attributes::find(&answer, kind).and_then(attributes::number).unwrap_or(0);
        let is_toeplitz = value(SPREAD_FUNCTION) == TOEPLITZ && value(SPREAD_TRANSFORMATION) == 0;
        Ok(Spread { table: table.chunks(4).filter_map(queue).collect(), key, is_toeplitz })
    }

    fn ask_ethtool(&mut self, command: u8) -> Result<Vec<u8>, NicError> {
        let (family, request) = (self.ethtool()?, self.request());
        self.socket.ask(family, command, request)
    }

    fn ethtool(&self) -> Result<Family, NicError> {
        self.ethtool.as_ref().copied().map_err(|_| NicError::NoFamily("ethtool"))
    }

    fn request(&self) -> Attributes {
        let name = Attributes::default().with_text(DEVICE_NAME, &self.interface);
        Attributes::default().with_nested(HEADER, name)
    }
}

/// The names of the bits that are set. In a list with a mask those with a value are; in one without, all.
fn bits(set: &[u8]) -> Vec<String> {
    let is_list = attributes::find(set, BITSET_NOMASK).is_some();
    let bits = attributes::find(set, BITSET_BITS).map(attributes::parse);
    let names = bits.into_iter().flatten().filter_map(|(_, bit)| {
        let is_set = is_list || attributes::find(bit, BIT_VALUE).is_some();
        is_set.then(|| attributes::find(bit, BIT_NAME).map(attributes::text))?
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_features_and_no_rings() {
        let mut nic = Nic::open("lo").unwrap();
        let features = nic.features().unwrap();
        assert!(features["loopback"].is_on && !features["loopback"].is_changeable);
        assert!(nic.parameter(Parameter::RxRing).is_err());
        assert!(nic.spread().is_err());
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused_with_the_kernels_words() {
        let error = Nic::open("no-such-if").unwrap().features().unwrap_err();
        let NicError::Refused { error, .. } = error else { panic!("{error}") };
        assert_eq!(error.kind(), std::io::Error::from_raw_os_error(19).kind()); // ENODEV
    }

    #[test]
    fn bits_without_a_value_are_not_set() {
        let bit = |name, value: bool| {
            let bit = Attributes::default().with_text(BIT_NAME, name);
            if value { bit.with(BIT_VALUE, &[]) } else { bit }
        };
        let bits_of = |list: bool| {
            let both =
                Attributes::default().with_nested(BIT, bit("a", true)).with_nested(BIT, bit("b", false));
            let set =
                if list { Attributes::default().with(BITSET_NOMASK, &[]) } else { Attributes::default() };
            bits(&set.with_nested(BITSET_BITS, both).into_octets())
        };
        assert_eq!(bits_of(false), ["a"]);
        assert_eq!(bits_of(true), ["a", "b"]);
    }
}
