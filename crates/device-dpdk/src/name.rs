//! How users name a port.

use std::fmt;
use std::str::FromStr;

use crate::DpdkError;

/// A port as EAL's options name it: `net_memif0,role=client,socket=/run/memif.sock` for a virtual one, `0000:03:00.0` for a NIC by its PCI address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortName {
    device: String,
    arguments: String,
}

impl PortName {
    /// The name that DPDK gives the port.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// A virtual port is made by EAL; a NIC is there.
    pub fn is_virtual(&self) -> bool {
        !self.device.contains(':')
    }

    /// The option of EAL that brings the port, and its value.
    pub fn eal_option(&self) -> [String; 2] {
        let option = if self.is_virtual() { "--vdev" } else { "--allow" };
        [option.to_owned(), self.to_string()]
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = if self.arguments.is_empty() { "" } else { "," };
        write!(f, "{}{comma}{}", self.device, self.arguments)
    }
}

impl FromStr for PortName {
    type Err = DpdkError;

    fn from_str(text: &str) -> Result<PortName, DpdkError> {
        let (device, arguments) = text.split_once(',').unwrap_or((text, ""));
        let is_word = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b':' | b'.' | b'-');
        if device.is_empty() || device.starts_with('-') || !device.bytes().all(is_word) || text.contains('\0')
        {
            return Err(DpdkError::Name(text.to_owned()));
        }
        Ok(PortName { device: device.to_owned(), arguments: arguments.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> PortName {
        text.parse().unwrap()
    }

    #[test]
    fn a_virtual_port_is_made_and_a_nic_is_allowed() {
        let memif = parsed("net_memif0,role=client,id=1");
        assert_eq!(memif.device(), "net_memif0");
        assert_eq!(memif.eal_option(), ["--vdev", "net_memif0,role=client,id=1"]);
        let nic = parsed("0000:03:00.0");
        assert_eq!((nic.is_virtual(), nic.eal_option()), (false, ["--allow".into(), "0000:03:00.0".into()]));
    }

    #[test]
    fn what_would_be_another_option_of_eal_is_no_name() {
        for text in ["", "-l", "--vdev", ",role=client", "net memif", "net_memif0,\0"] {
            assert!(text.parse::<PortName>().is_err(), "{text:?}");
        }
    }
}
