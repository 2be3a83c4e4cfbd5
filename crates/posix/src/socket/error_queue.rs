//! Entries of error queues (`MSG_ERRQUEUE`): completed sends with `MSG_ZEROCOPY`, times, ICMP errors.

use std::net::{IpAddr, SocketAddr};

use crate::address::encode;
use crate::socket::control_messages::ControlWriter;

/// The source of an error: `ee_origin` of `struct sock_extended_err`.
#[derive(Clone, Copy)]
pub(crate) enum ErrorOrigin {
    Icmp = 2,
    Icmp6 = 3,
    Timestamping = 4,
    ZeroCopy = 5,
}

/// `struct sock_extended_err`.
pub(crate) struct ExtendedError {
    pub(crate) errno: i32,
    pub(crate) origin: ErrorOrigin,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) info: u32,
    pub(crate) data: u32,
}

impl ExtendedError {
    /// As a control message for a socket of `domain`, with the address that reported it.
    pub(crate) fn put(&self, out: &mut ControlWriter<'_>, domain: i32, offender: Option<IpAddr>) {
        let head = [self.origin as u8, self.kind, self.code, 0];
        let words = [self.errno.to_ne_bytes(), head, self.info.to_ne_bytes(), self.data.to_ne_bytes()];
        let (name, len) = match offender {
            Some(ip) => encode(SocketAddr::new(ip, 0), domain),
            None => ([0; _], if domain == libc::AF_INET { 16 } else { 28 }),
        };
        let value = [&words.concat(), &name[..len]].concat();
        match domain {
            libc::AF_INET => out.put(libc::SOL_IP, libc::IP_RECVERR, &value),
            _ => out.put(libc::SOL_IPV6, libc::IPV6_RECVERR, &value),
        }
    }
}

/// Sends with `MSG_ZEROCOPY`. The octets are copied at once, so that each is done when the call returns; what is to be told of them
/// is one range, as none can be overtaken.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopySends {
    /// The number that the next one has.
    pub(crate) next: u32,
    /// The first that was not told of.
    untold: u32,
}

impl ZeroCopySends {
    /// Whether there are some to be told of.
    pub(crate) fn is_due(&self) -> bool {
        self.next != self.untold
    }

    /// The first and the last of those that were not told of.
    pub(crate) fn take(&mut self) -> Option<(u32, u32)> {
        let range = self.is_due().then(|| (self.untold, self.next.wrapping_sub(1)));
        self.untold = self.next;
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_are_told_once_in_one_range() {
        let mut sends = ZeroCopySends { next: u32::MAX, untold: u32::MAX };
        assert_eq!(sends.take(), None);
        sends.next = sends.next.wrapping_add(1);
        assert_eq!(sends.take(), Some((u32::MAX, u32::MAX)), "numbers come round");
        sends.next += 3;
        assert_eq!((sends.is_due(), sends.take(), sends.take()), (true, Some((0, 2)), None));
    }
}
