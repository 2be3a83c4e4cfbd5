//! Control messages of UDP sockets.

use std::net::IpAddr;
use std::os::fd::RawFd;

use stack::udp::{Received, UdpSend};

/// Octets of a `cmsghdr`: a size and two ints.
const HEADER_LEN: usize = 16;

/// An option of the shadow that is an int.
pub(crate) fn udp_int(fd: RawFd, level: i32, option: i32) -> Option<i32> {
    let mut value = [0; 4];
    let len = syscall::getsockopt(fd, level, option, &mut value).ok()?;
    (len == 4).then(|| i32::from_ne_bytes(value))
}

/// Writes what the program asked to be told of a datagram; returns the length, and whether something found no room.
pub(crate) fn udp_control(fd: RawFd, domain: i32, received: &Received, control: &mut [u8]) -> (usize, bool) {
    let on = |level, option| udp_int(fd, level, option).is_some_and(|value| value != 0);
    let mut out = Writer { control, at: 0, cut: false };
    match received.local.ip() {
        IpAddr::V4(local) if domain == libc::AF_INET => {
            if on(libc::SOL_IP, libc::IP_PKTINFO) {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&interface_index(fd).to_ne_bytes());
                info[4..8].copy_from_slice(&local.octets());
                info[8..].copy_from_slice(&local.octets());
                out.put(libc::SOL_IP, libc::IP_PKTINFO, &info);
            }
            if on(libc::SOL_IP, libc::IP_RECVTTL) {
                out.put(libc::SOL_IP, libc::IP_TTL, &i32::from(received.hop_limit).to_ne_bytes());
            }
            if on(libc::SOL_IP, libc::IP_RECVTOS) {
                out.put(libc::SOL_IP, libc::IP_TOS, &[received.traffic_class]);
            }
        }
        local => {
            if on(libc::SOL_IPV6, libc::IPV6_RECVPKTINFO) {
                let ip = match local {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                info[16..].copy_from_slice(&interface_index(fd).to_ne_bytes());
                out.put(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
            }
            if on(libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT) {
                let limit = i32::from(received.hop_limit).to_ne_bytes();
                out.put(libc::SOL_IPV6, libc::IPV6_HOPLIMIT, &limit);
            }
            if on(libc::SOL_IPV6, libc::IPV6_RECVTCLASS) {
                let class = i32::from(received.traffic_class).to_ne_bytes();
                out.put(libc::SOL_IPV6, libc::IPV6_TCLASS, &class);
            }
        }
    }
    if let Some(len) = received.segment_len {
        out.put(libc::SOL_UDP, libc::UDP_GRO, &i32::from(len).to_ne_bytes());
    }
    (out.at, out.cut)
}

/// The interface that a socket is bound to; else the program learns none.
fn interface_index(fd: RawFd) -> u32 {
    const BIND_TO_IFINDEX: i32 = 62;
    udp_int(fd, libc::SOL_SOCKET, BIND_TO_IFINDEX).map_or(0, |index| index as u32)
}

struct Writer<'c> {
    control: &'c mut [u8],
    at: usize,
    cut: bool,
}

impl Writer<'_> {
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let len = HEADER_LEN + data.len();
        let Some(room) = self.control.get_mut(self.at..self.at + len) else {
            self.cut = true;
            return;
        };
        room[..8].copy_from_slice(&len.to_ne_bytes());
        room[8..12].copy_from_slice(&level.to_ne_bytes());
        room[12..16].copy_from_slice(&kind.to_ne_bytes());
        room[16..].copy_from_slice(data);
        self.at = (self.at + len.next_multiple_of(8)).min(self.control.len());
    }
}

/// Applies the control messages of a datagram that is to leave; `None` if there is one that the kernel knows better.
pub(crate) fn apply_udp_control(mut control: &[u8], send: &mut UdpSend) -> Option<()> {
    while control.len() >= HEADER_LEN {
        let len = usize::from_ne_bytes(*control.first_chunk()?);
        let level = i32::from_ne_bytes(*control.get(8..)?.first_chunk()?);
        let kind = i32::from_ne_bytes(*control.get(12..)?.first_chunk()?);
        let data = control.get(HEADER_LEN..len)?;
        apply_one(level, kind, data, send)?;
        control = control.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
    Some(())
}

fn apply_one(level: i32, kind: i32, data: &[u8], send: &mut UdpSend) -> Option<()> {
    let int = || Some(i32::from_ne_bytes(*data.first_chunk()?));
    match (level, kind) {
        (libc::SOL_UDP, libc::UDP_SEGMENT) => {
            send.segment_len = Some(u16::from_ne_bytes(*data.first_chunk()?))
        }
        (libc::SOL_IP, libc::IP_TOS) => send.traffic_class = Some(*data.first()?),
        (libc::SOL_IP, libc::IP_TTL) => send.hop_limit = u8::try_from(int()?).ok(),
        (libc::SOL_IPV6, libc::IPV6_TCLASS) => send.traffic_class = u8::try_from(int()?).ok(),
        (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) => send.hop_limit = u8::try_from(int()?).ok(),
        (libc::SOL_IP, libc::IP_PKTINFO) => {
            let source: [u8; 4] = *data.get(4..)?.first_chunk()?;
            send.from = Some(source).filter(|it| *it != [0; 4]).map(IpAddr::from).or(send.from);
        }
        (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
            let source: [u8; 16] = *data.first_chunk()?;
            let source = Some(source).filter(|it| *it != [0; 16]).map(IpAddr::from);
            send.from = source.map(|ip| ip.to_canonical()).or(send.from);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_laid_out_as_in_c() {
        let mut room = [0; 64];
        let mut out = Writer { control: &mut room, at: 0, cut: false };
        out.put(libc::SOL_UDP, libc::UDP_SEGMENT, &1200u16.to_ne_bytes());
        out.put(libc::SOL_IP, libc::IP_TOS, &[2]);
        let len = out.at;
        assert_eq!((len, out.cut), (48, false));
        let mut send = UdpSend::default();
        assert_eq!(apply_udp_control(&room[..len], &mut send), Some(()));
        assert_eq!((send.segment_len, send.traffic_class), (Some(1200), Some(2)));
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let mut room = [0; 20];
        let mut out = Writer { control: &mut room, at: 0, cut: false };
        out.put(libc::SOL_IP, libc::IP_PKTINFO, &[0; 12]);
        assert!(out.cut && out.at == 0);
    }
}
