//! Control messages of UDP sockets, for receiving and sending.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use stack::udp::{Received, UdpSend};

use crate::address::encode;
use crate::socket::control_messages::{ControlWriter, messages};
use crate::socket::times::Times;

const IPV6_RECVORIGDSTADDR: i32 = 74;

/// An option of the shadow that is an int.
pub(crate) fn udp_int(fd: RawFd, level: i32, option: i32) -> Option<i32> {
    let mut value = [0; 4];
    let len = syscall::getsockopt(fd, level, option, &mut value).ok()?;
    (len == 4).then(|| i32::from_ne_bytes(value))
}

/// What the program wants to be told of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) times: Times,
    drops: bool,
    v4: OfIp,
    v6: OfIp,
}

/// The same of one version of IP; and what it says for datagrams that leave.
#[derive(Clone, Copy, Debug, Default)]
struct OfIp {
    information: bool,
    hop_limit: bool,
    traffic_class: bool,
    destination: bool,
    sent_hop_limit: u8,
    sent_traffic_class: u8,
}

impl Asked {
    /// As the shadow was set.
    pub(crate) fn of_shadow(fd: RawFd) -> Asked {
        let int = |level, option| udp_int(fd, level, option).unwrap_or(0);
        let v4 = |option| int(libc::SOL_IP, option);
        let v6 = |option| int(libc::SOL_IPV6, option);
        Asked {
            times: Times::wanted(|option| int(libc::SOL_SOCKET, option)),
            drops: int(libc::SOL_SOCKET, libc::SO_RXQ_OVFL) != 0,
            v4: OfIp {
                information: v4(libc::IP_PKTINFO) != 0,
                hop_limit: v4(libc::IP_RECVTTL) != 0,
                traffic_class: v4(libc::IP_RECVTOS) != 0,
                destination: v4(libc::IP_RECVORIGDSTADDR) != 0,
                sent_hop_limit: v4(libc::IP_TTL) as u8,
                sent_traffic_class: v4(libc::IP_TOS) as u8,
            },
            v6: OfIp {
                information: v6(libc::IPV6_RECVPKTINFO) != 0,
                hop_limit: v6(libc::IPV6_RECVHOPLIMIT) != 0,
                traffic_class: v6(libc::IPV6_RECVTCLASS) != 0,
                destination: v6(IPV6_RECVORIGDSTADDR) != 0,
                sent_hop_limit: v6(libc::IPV6_UNICAST_HOPS) as u8,
                sent_traffic_class: v6(libc::IPV6_TCLASS) as u8,
            },
        }
    }

    /// Says what a datagram to `remote` is to have, if no control message says otherwise.
    pub(crate) fn apply(&self, remote: IpAddr, send: &mut UdpSend) {
        let of = if remote.is_ipv4() { &self.v4 } else { &self.v6 };
        send.hop_limit = Some(of.sent_hop_limit).filter(|limit| *limit != 0);
        send.traffic_class = Some(of.sent_traffic_class);
    }

    /// Writes the control messages of a datagram, in Linux's order. `came` is only called if times are wanted.
    pub(crate) fn put(
        &self,
        out: &mut ControlWriter<'_>,
        domain: i32,
        (received, interface): (&Received, u32),
        came: impl FnOnce() -> std::time::Duration,
        drops: u64,
    ) {
        if self.times.is_any() {
            self.times.put(out, came());
        }
        if self.drops && drops > 0 {
            out.put(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &(drops as u32).to_ne_bytes());
        }
        if let Some(len) = received.segment_len {
            out.put_int(libc::SOL_UDP, libc::UDP_GRO, len.into());
        }
        if domain == libc::AF_INET6 && self.v6.information {
            let ip = match received.local.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let information = [&ip.octets()[..], &interface.to_ne_bytes()].concat();
            out.put(libc::SOL_IPV6, libc::IPV6_PKTINFO, &information);
        }
        match received.local {
            SocketAddr::V4(_) => self.v4.put_v4(out, received, interface),
            SocketAddr::V6(_) => self.v6.put_v6(out, received),
        }
    }
}

impl OfIp {
    fn put_v4(&self, out: &mut ControlWriter<'_>, received: &Received, interface: u32) {
        let (name, len) = encode(received.local, libc::AF_INET);
        let local = &name[4..8];
        if self.information {
            out.put(libc::SOL_IP, libc::IP_PKTINFO, &[&interface.to_ne_bytes()[..], local, local].concat());
        }
        if self.hop_limit {
            out.put_int(libc::SOL_IP, libc::IP_TTL, received.hop_limit.into());
        }
        if self.traffic_class {
            out.put(libc::SOL_IP, libc::IP_TOS, &[received.traffic_class]);
        }
        if self.destination {
            out.put(libc::SOL_IP, libc::IP_ORIGDSTADDR, &name[..len]);
        }
    }

    fn put_v6(&self, out: &mut ControlWriter<'_>, received: &Received) {
        if self.hop_limit {
            out.put_int(libc::SOL_IPV6, libc::IPV6_HOPLIMIT, received.hop_limit.into());
        }
        if self.traffic_class {
            out.put_int(libc::SOL_IPV6, libc::IPV6_TCLASS, received.traffic_class.into());
        }
        if self.destination {
            let (name, len) = encode(received.local, libc::AF_INET6);
            out.put(libc::SOL_IPV6, IPV6_RECVORIGDSTADDR, &name[..len]);
        }
    }
}

/// Applies the control messages of a datagram that is to leave by where `send` says and by an interface; `None` if there is one that
/// the kernel knows better, be it only how wrong it is.
pub(crate) fn apply_udp_control(control: &[u8], send: &mut UdpSend, interface: u32) -> Option<()> {
    for message in messages(control) {
        let (level, kind, data) = message?;
        apply_one(level, kind, data, send, interface)?;
    }
    Some(())
}

fn apply_one(level: i32, kind: i32, data: &[u8], send: &mut UdpSend, interface: u32) -> Option<()> {
    let int = || data.try_into().ok().map(i32::from_ne_bytes);
    let octet = || int().and_then(|value| u8::try_from(value).ok());
    let is_v4 = send.to?.is_ipv4();
    match (level, kind) {
        (libc::SOL_UDP, libc::UDP_SEGMENT) => {
            send.segment_len = Some(u16::from_ne_bytes(data.try_into().ok()?));
        }
        (libc::SOL_IP, libc::IP_TOS) if is_v4 => {
            send.traffic_class = Some(if let [class] = data { *class } else { octet()? });
        }
        (libc::SOL_IP, libc::IP_TTL) if is_v4 => send.hop_limit = Some(octet().filter(|limit| *limit != 0)?),
        (libc::SOL_IPV6, libc::IPV6_TCLASS) if !is_v4 => send.traffic_class = Some(octet()?),
        (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) if !is_v4 => {
            send.hop_limit = Some(octet().filter(|limit| *limit != 0)?);
        }
        (libc::SOL_IP, libc::IP_PKTINFO) => {
            let information: [u8; 12] = data.try_into().ok()?;
            let source: [u8; 4] = *information[4..].first_chunk()?;
            is_the_way(send, source.into(), *information.first_chunk()?, interface)?;
        }
        (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
            let information: [u8; 20] = data.try_into().ok()?;
            let source: [u8; 16] = *information.first_chunk()?;
            is_the_way(send, source.into(), *information.last_chunk()?, interface)?;
        }
        _ => return None,
    }
    Some(())
}

/// Whether a source and an interface, if any are asked for, are those that datagrams came to and by: others the kernel judges.
fn is_the_way(send: &UdpSend, source: IpAddr, wanted: [u8; 4], interface: u32) -> Option<()> {
    let source = source.to_canonical();
    let wanted = u32::from_ne_bytes(wanted);
    let is_source = source.is_unspecified() || send.from == Some(source);
    (is_source && (wanted == 0 || wanted == interface)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stack::Hop;

    fn to_v4() -> UdpSend {
        UdpSend {
            to: Some("192.0.2.2:9".parse().unwrap()),
            from: Some("192.0.2.1".parse().unwrap()),
            hop: Some(Hop::default()),
            ..UdpSend::default()
        }
    }

    fn applied(level: i32, kind: i32, data: &[u8]) -> Option<UdpSend> {
        let mut room = [0; 64];
        let mut out = ControlWriter::new(Some(&mut room));
        out.put(level, kind, data);
        let (len, _) = out.finish();
        let mut send = to_v4();
        apply_udp_control(&room[..len], &mut send, 5).map(|()| send)
    }

    #[test]
    fn what_a_control_message_says_holds_for_its_datagram() {
        let segment = applied(libc::SOL_UDP, libc::UDP_SEGMENT, &1200u16.to_ne_bytes());
        assert_eq!(segment.unwrap().segment_len, Some(1200));
        assert_eq!(applied(libc::SOL_IP, libc::IP_TOS, &[8]).unwrap().traffic_class, Some(8));
        assert_eq!(applied(libc::SOL_IP, libc::IP_TTL, &7i32.to_ne_bytes()).unwrap().hop_limit, Some(7));
    }

    #[test]
    fn what_is_wrong_the_kernel_judges() {
        for (level, kind, value) in [
            (libc::SOL_UDP, libc::UDP_SEGMENT, 1200),
            (libc::SOL_IP, libc::IP_TTL, 0),
            (libc::SOL_IP, libc::IP_TTL, 256),
            (libc::SOL_IPV6, libc::IPV6_HOPLIMIT, 7),
            (libc::SOL_IP, 999, 1),
        ] {
            assert_eq!(applied(level, kind, &i32::to_ne_bytes(value)), None, "{level} {kind} {value}");
        }
    }

    #[test]
    fn only_the_address_that_was_asked_is_a_source() {
        let information = |source: [u8; 4], wanted: u32| [wanted.to_ne_bytes(), source, [0; 4]].concat();
        let told = |source, wanted| applied(libc::SOL_IP, libc::IP_PKTINFO, &information(source, wanted));
        assert!(told([192, 0, 2, 1], 0).is_some() && told([0; 4], 5).is_some());
        assert!(told([192, 0, 2, 77], 0).is_none() && told([192, 0, 2, 1], 6).is_none());
    }
}
