//! getsockopt(2) and setsockopt(2) of whole numbers: each option of the lists below by itself, on connections, on UDP sockets, and
//! on listeners whose connections inherit it.

use std::os::fd::RawFd;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP, SOL_SOCKET};

use crate::scene::Scene;
use crate::sys::{self, Result};
use crate::table::{Check, Done, Family, V6_WAYS, Variant, WAYS};

/// An option that is a number.
#[derive(Clone, Copy)]
struct Number {
    name: &'static str,
    level: i32,
    option: i32,
    /// Something to set.
    value: i32,
    /// Something that many take for too much or too little.
    odd: i32,
    /// Whether its first value is the same on every machine and at every time.
    has_default: bool,
}

const fn number(name: &'static str, level: i32, option: i32, value: i32, odd: i32) -> Number {
    Number { name, level, option, value, odd, has_default: true }
}

/// One whose first value depends on more than us.
const fn varying(name: &'static str, level: i32, option: i32, value: i32, odd: i32) -> Number {
    Number { name, level, option, value, odd, has_default: false }
}

const OF_SOCKETS: &[Number] = &[
    number("SO_KEEPALIVE", SOL_SOCKET, libc::SO_KEEPALIVE, 1, -1),
    number("SO_BROADCAST", SOL_SOCKET, libc::SO_BROADCAST, 1, 7),
    number("SO_OOBINLINE", SOL_SOCKET, libc::SO_OOBINLINE, 1, 7),
    number("SO_REUSEADDR", SOL_SOCKET, libc::SO_REUSEADDR, 1, 7),
    number("SO_REUSEPORT", SOL_SOCKET, libc::SO_REUSEPORT, 1, 7),
    number("SO_DONTROUTE", SOL_SOCKET, libc::SO_DONTROUTE, 1, -1),
    number("SO_PRIORITY", SOL_SOCKET, libc::SO_PRIORITY, 5, -1),
    number("SO_RCVLOWAT", SOL_SOCKET, libc::SO_RCVLOWAT, 9, -1),
    number("SO_SNDLOWAT", SOL_SOCKET, libc::SO_SNDLOWAT, 9, -1),
    varying("SO_SNDBUF", SOL_SOCKET, libc::SO_SNDBUF, 30_000, 1),
    varying("SO_RCVBUF", SOL_SOCKET, libc::SO_RCVBUF, 30_000, 1),
    number("SO_TIMESTAMP", SOL_SOCKET, libc::SO_TIMESTAMP, 1, 7),
    number("SO_TIMESTAMPNS", SOL_SOCKET, libc::SO_TIMESTAMPNS, 1, 7),
    number("SO_PASSCRED", SOL_SOCKET, libc::SO_PASSCRED, 1, 7),
    number("SO_MARK", SOL_SOCKET, libc::SO_MARK, 0, -1),
    number("SO_RXQ_OVFL", SOL_SOCKET, libc::SO_RXQ_OVFL, 1, 7),
    number("SO_PEEK_OFF", SOL_SOCKET, libc::SO_PEEK_OFF, -1, -5),
    number("SO_BUSY_POLL", SOL_SOCKET, libc::SO_BUSY_POLL, 0, -1),
    number("SO_ZEROCOPY", SOL_SOCKET, libc::SO_ZEROCOPY, 1, 2),
    number("SO_NO_CHECK", SOL_SOCKET, libc::SO_NO_CHECK, 1, 7),
    number("SO_ERROR", SOL_SOCKET, libc::SO_ERROR, 0, 1),
    number("SO_TYPE", SOL_SOCKET, libc::SO_TYPE, 1, 2),
    number("SO_PROTOCOL", SOL_SOCKET, libc::SO_PROTOCOL, 6, 17),
    number("SO_DOMAIN", SOL_SOCKET, libc::SO_DOMAIN, 2, 10),
    number("SO_ACCEPTCONN", SOL_SOCKET, libc::SO_ACCEPTCONN, 0, 1),
    number("SO_INCOMING_CPU", SOL_SOCKET, libc::SO_INCOMING_CPU, 1, -2).without_default(),
    number("SO_MAX_PACING_RATE", SOL_SOCKET, libc::SO_MAX_PACING_RATE, 1 << 30, -1),
    number("SO_SELECT_ERR_QUEUE", SOL_SOCKET, libc::SO_SELECT_ERR_QUEUE, 1, 7),
    number("SO_LOCK_FILTER", SOL_SOCKET, libc::SO_LOCK_FILTER, 0, 1),
    number("SO_DETACH_FILTER", SOL_SOCKET, libc::SO_DETACH_FILTER, 0, 1),
    number("SO_BSDCOMPAT", SOL_SOCKET, libc::SO_BSDCOMPAT, 1, 7),
    number("SO_UNKNOWN", SOL_SOCKET, 9999, 1, 7),
];

const OF_TCP: &[Number] = &[
    number("TCP_NODELAY", IPPROTO_TCP, libc::TCP_NODELAY, 1, -1),
    number("TCP_CORK", IPPROTO_TCP, libc::TCP_CORK, 1, -1),
    varying("TCP_MAXSEG", IPPROTO_TCP, libc::TCP_MAXSEG, 1000, 40_000),
    number("TCP_KEEPIDLE", IPPROTO_TCP, libc::TCP_KEEPIDLE, 100, 40_000),
    number("TCP_KEEPINTVL", IPPROTO_TCP, libc::TCP_KEEPINTVL, 50, 40_000),
    number("TCP_KEEPCNT", IPPROTO_TCP, libc::TCP_KEEPCNT, 5, 128),
    number("TCP_SYNCNT", IPPROTO_TCP, libc::TCP_SYNCNT, 4, 128),
    number("TCP_LINGER2", IPPROTO_TCP, libc::TCP_LINGER2, 20, 200),
    number("TCP_DEFER_ACCEPT", IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 3, -1),
    number("TCP_WINDOW_CLAMP", IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, 20_000, 1).without_default(),
    number("TCP_QUICKACK", IPPROTO_TCP, libc::TCP_QUICKACK, 0, 2).without_default(),
    number("TCP_USER_TIMEOUT", IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 5000, -1),
    number("TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 1, 2),
    number("TCP_THIN_DUPACK", IPPROTO_TCP, libc::TCP_THIN_DUPACK, 1, 2),
    number("TCP_FASTOPEN", IPPROTO_TCP, libc::TCP_FASTOPEN, 5, -1),
    number("TCP_FASTOPEN_CONNECT", IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1, 7),
    number("TCP_FASTOPEN_NO_COOKIE", IPPROTO_TCP, 34, 1, 7),
    number("TCP_NOTSENT_LOWAT", IPPROTO_TCP, 25, 9000, -1),
    number("TCP_SAVE_SYN", IPPROTO_TCP, 27, 1, 7),
    number("TCP_INQ", IPPROTO_TCP, 36, 1, 2),
    number("TCP_UNKNOWN", IPPROTO_TCP, 999, 1, 7),
];

const OF_IPV4: &[Number] = &[
    number("IP_TOS", IPPROTO_IP, libc::IP_TOS, 0x2E, 0x1FF),
    number("IP_TTL", IPPROTO_IP, libc::IP_TTL, 33, 256),
    number("IP_MTU_DISCOVER", IPPROTO_IP, libc::IP_MTU_DISCOVER, 2, 9),
    number("IP_RECVTOS", IPPROTO_IP, libc::IP_RECVTOS, 1, 7),
    number("IP_RECVTTL", IPPROTO_IP, libc::IP_RECVTTL, 1, 7),
    number("IP_PKTINFO", IPPROTO_IP, libc::IP_PKTINFO, 1, 7),
    number("IP_RECVERR", IPPROTO_IP, libc::IP_RECVERR, 1, 7),
    number("IP_FREEBIND", IPPROTO_IP, libc::IP_FREEBIND, 1, 7),
    number("IP_TRANSPARENT", IPPROTO_IP, libc::IP_TRANSPARENT, 0, 7),
    number("IP_MINTTL", IPPROTO_IP, libc::IP_MINTTL, 1, 256),
    number("IP_MULTICAST_TTL", IPPROTO_IP, libc::IP_MULTICAST_TTL, 9, 256),
    number("IP_MULTICAST_LOOP", IPPROTO_IP, libc::IP_MULTICAST_LOOP, 0, 7),
    number("IP_MULTICAST_ALL", IPPROTO_IP, libc::IP_MULTICAST_ALL, 0, 7),
    number("IP_RECVOPTS", IPPROTO_IP, libc::IP_RECVOPTS, 1, 7),
    number("IP_RETOPTS", IPPROTO_IP, libc::IP_RETOPTS, 1, 7),
    number("IP_BIND_ADDRESS_NO_PORT", IPPROTO_IP, 24, 1, 2),
    number("IP_RECVORIGDSTADDR", IPPROTO_IP, libc::IP_RECVORIGDSTADDR, 1, 7),
    number("IP_NODEFRAG", IPPROTO_IP, 22, 1, 7),
    number("IP_CHECKSUM", IPPROTO_IP, 23, 1, 7),
    number("IP_RECVFRAGSIZE", IPPROTO_IP, 25, 1, 2),
    number("IP_MTU", IPPROTO_IP, libc::IP_MTU, 1500, 1),
    number("IP_HDRINCL", IPPROTO_IP, libc::IP_HDRINCL, 1, 7),
    number("IP_UNKNOWN", IPPROTO_IP, 200, 1, 7),
];

const OF_IPV6: &[Number] = &[
    number("IPV6_V6ONLY", IPPROTO_IPV6, libc::IPV6_V6ONLY, 1, 7),
    number("IPV6_UNICAST_HOPS", IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 33, 256),
    number("IPV6_MULTICAST_HOPS", IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, 9, 256),
    number("IPV6_MULTICAST_LOOP", IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 0, 7),
    number("IPV6_MTU_DISCOVER", IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, 2, 9),
    number("IPV6_TCLASS", IPPROTO_IPV6, libc::IPV6_TCLASS, 0x2E, 256),
    number("IPV6_RECVPKTINFO", IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1, 7),
    number("IPV6_RECVHOPLIMIT", IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1, 7),
    number("IPV6_RECVTCLASS", IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1, 7),
    number("IPV6_RECVERR", IPPROTO_IPV6, libc::IPV6_RECVERR, 1, 7),
    number("IPV6_MTU", IPPROTO_IPV6, libc::IPV6_MTU, 1400, 1),
    number("IPV6_DONTFRAG", IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1, 7),
    number("IPV6_AUTOFLOWLABEL", IPPROTO_IPV6, 70, 0, 7),
    number("IPV6_ADDR_PREFERENCES", IPPROTO_IPV6, 72, 2, 0x7FFF),
    number("IPV6_MINHOPCOUNT", IPPROTO_IPV6, 73, 1, 256),
    number("IPV6_FREEBIND", IPPROTO_IPV6, 78, 1, 7),
    number("IPV6_RECVORIGDSTADDR", IPPROTO_IPV6, 74, 1, 7),
    number("IPV6_FLOWINFO_SEND", IPPROTO_IPV6, 33, 1, 7),
    number("IPV6_ADDRFORM", IPPROTO_IPV6, libc::IPV6_ADDRFORM, 2, 7),
    number("IPV6_UNKNOWN", IPPROTO_IPV6, 200, 1, 7),
];

const OF_UDP: &[Number] = &[
    number("UDP_CORK", IPPROTO_UDP, libc::UDP_CORK, 1, 7),
    number("UDP_ENCAP", IPPROTO_UDP, libc::UDP_ENCAP, 0, 99),
    number("UDP_NO_CHECK6_TX", IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, 1, 7),
    number("UDP_NO_CHECK6_RX", IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1, 7),
    number("UDP_SEGMENT", IPPROTO_UDP, libc::UDP_SEGMENT, 1000, 70_000),
    number("UDP_GRO", IPPROTO_UDP, libc::UDP_GRO, 1, 7),
    number("UDP_UNKNOWN", IPPROTO_UDP, 200, 1, 7),
];

impl Number {
    const fn without_default(self) -> Number {
        Number { has_default: false, ..self }
    }

    fn get(self, fd: RawFd) -> Result<i32> {
        sys::getsockopt_int(fd, self.level, self.option)
    }

    fn set(self, fd: RawFd, value: i32) -> Result<()> {
        sys::setsockopt_int(fd, self.level, self.option, value)
    }

    /// All that can be done with it.
    fn look(self, s: &mut Scene, fd: RawFd) {
        if self.has_default {
            s.see("at first", self.get(fd));
        }
        s.see(&format!("set {}", self.value), self.set(fd, self.value));
        s.see("now", self.get(fd));
        s.see(&format!("set {}", self.odd), self.set(fd, self.odd));
        s.see("now", self.get(fd));
        let short = [self.value.to_ne_bytes()[0]];
        s.see("set one octet", sys::setsockopt(fd, self.level, self.option, &short));
        s.see("set nothing", sys::setsockopt(fd, self.level, self.option, &[]));
        s.see("now", self.get(fd));
        let len = |value: Vec<u8>| value.len();
        s.see("length with room for 64", sys::getsockopt(fd, self.level, self.option, 64).map(len));
        s.see("length with room for 2", sys::getsockopt(fd, self.level, self.option, 2).map(len));
    }
}

pub(crate) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for (list, ways) in [(OF_SOCKETS, WAYS), (OF_TCP, WAYS), (OF_IPV4, WAYS), (OF_IPV6, V6_WAYS)] {
        checks.extend(list.iter().map(|&number| of_connections(number, ways)));
        // What SO_INCOMING_CPU says of a connection is where its packets come in.
        let inherit = list.iter().filter(|number| number.name != "SO_INCOMING_CPU");
        checks.extend(inherit.map(|&number| inherited(number, &ways[..1])));
    }
    for (list, ways) in [(OF_SOCKETS, WAYS), (OF_IPV4, WAYS), (OF_IPV6, V6_WAYS), (OF_UDP, WAYS)] {
        checks.extend(list.iter().map(|&number| of_datagrams(number, &ways[..1])));
    }
    checks
}

/// On a connection, which works as before afterwards.
fn of_connections(number: Number, variants: &'static [Variant]) -> Check {
    let run = move |s: &mut Scene| -> Done {
        let pair = s.pair()?;
        number.look(s, pair.fd);
        Ok(())
    };
    Check { name: format!("options.tcp.{}", number.name), variants, alone: false, run: Box::new(run) }
}

/// Set on a listener and seen on what it accepts.
fn inherited(number: Number, variants: &'static [Variant]) -> Check {
    let run = move |s: &mut Scene| -> Done {
        let mut set = Ok(());
        let (listener, port) = s.listener_with(4, |fd| {
            set = number.set(fd, number.value);
            Ok(())
        })?;
        s.see("set", set);
        let mut peer = s.peer()?;
        let other = peer.tcp()?;
        peer.connect_start(other, port)?;
        // Some want data before anybody accepts.
        peer.send(other, b"data")?;
        let fd = sys::accept(listener)?;
        s.say_where(fd);
        s.see("accepted", number.get(fd));
        s.see("listener", number.get(listener));
        Ok(())
    };
    Check { name: format!("options.inherited.{}", number.name), variants, alone: false, run: Box::new(run) }
}

/// On a UDP socket.
fn of_datagrams(number: Number, variants: &'static [Variant]) -> Check {
    let run = move |s: &mut Scene| -> Done {
        debug_assert!(number.level != IPPROTO_IPV6 || s.variant.family == Family::V6);
        let (fd, _) = s.udp_bound()?;
        number.look(s, fd);
        Ok(())
    };
    Check { name: format!("options.udp.{}", number.name), variants, alone: false, run: Box::new(run) }
}
