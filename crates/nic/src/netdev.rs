//! What a driver can do of XDP, by its own word: the family `netdev`, since Linux 6.3 (linux/netdev.h).

use crate::attributes::{self, Attributes};
use crate::{Nic, NicError};

/// NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, NETDEV_A_DEV_XDP_FEATURES.
const GET: u8 = 1;
const INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;

/// `enum netdev_xdp_act`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// The driver runs XDP programs, and takes ABORTED, DROP, PASS and TX.
    pub basic: bool,
    /// It takes REDIRECT, which AF_XDP needs.
    pub redirect: bool,
    /// Frames can be redirected to it.
    pub transmit: bool,
    /// AF_XDP without a copy.
    pub zero_copy: bool,
}

impl Nic {
    /// What the driver says of XDP; `index` is the interface's.
    ///
    /// # Errors
    /// `NoFamily` before Linux 6.3.
    pub fn xdp_features(&mut self, index: u32) -> Result<XdpFeatures, NicError> {
        let family = *self.netdev.as_ref().map_err(|_| NicError::NoFamily("netdev"))?;
        let request = Attributes::default().with(INDEX, &index.to_ne_bytes());
        let answer = self.socket.ask(family, GET, request)?;
        let bits = attributes::find(&answer, XDP_FEATURES).and_then(attributes::number);
        Ok(features(bits.ok_or(NicError::Absent)?))
    }
}

fn features(bits: u64) -> XdpFeatures {
    XdpFeatures {
        basic: bits & 1 != 0,
        redirect: bits & 2 != 0,
        transmit: bits & 4 != 0,
        zero_copy: bits & 8 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_says_that_it_has_no_xdp_of_its_own() {
        match Nic::open("lo").unwrap().xdp_features(1) {
            Ok(features) => assert_eq!(features, XdpFeatures::default()),
            Err(error) => assert!(matches!(error, NicError::NoFamily("netdev")), "{error}"),
        }
    }

    #[test]
    fn bits_are_those_of_the_kernel() {
        let veth = features(0b10_0111);
        assert!(veth.basic && veth.redirect && veth.transmit && !veth.zero_copy);
        assert!(features(8).zero_copy);
    }
}
