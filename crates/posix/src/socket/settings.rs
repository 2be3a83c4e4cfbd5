//! Settings of a socket that the stack does not use, and settings that the program made on a kernel socket.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};

use clock::Duration;
use stack::TcpOptions;

use crate::descriptors::internal::close;
use crate::socket::judge;
use crate::socket::option_table::{TABLE, VALUE_MAX, find};
use crate::socket::times::{TIMESTAMPING_NEW, Times};
use crate::socket::touched::Touched;

const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_INQ: i32 = 36;
const IP_CHECKSUM: i32 = 23;
const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
const IPV6_FLOWINFO_SEND: i32 = 33;
const IPV6_AUTOFLOWLABEL: i32 = 70;
const IPV6_ADDR_PREFERENCES: i32 = 72;
pub(crate) const IPV6_MINHOPCOUNT: i32 = 73;
const IPV6_RECVORIGDSTADDR: i32 = 74;
const IPV6_FREEBIND: i32 = 78;
const SO_TIMESTAMP_NEW: i32 = 63;
const SO_TIMESTAMPNS_NEW: i32 = 64;

/// Options without a line in the table that sockets are asked for; their connections have them, too.
const KEPT: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_TIMESTAMP_NEW),
    (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW),
    (libc::SOL_SOCKET, TIMESTAMPING_NEW),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK),
    (libc::SOL_SOCKET, libc::SO_SELECT_ERR_QUEUE),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::SOL_TCP, TCP_FASTOPEN_NO_COOKIE),
    (libc::SOL_TCP, TCP_INQ),
    (libc::SOL_IP, libc::IP_MTU_DISCOVER),
    (libc::SOL_IP, libc::IP_RECVTOS),
    (libc::SOL_IP, libc::IP_RECVTTL),
    (libc::SOL_IP, libc::IP_PKTINFO),
    (libc::SOL_IP, libc::IP_RECVERR),
    (libc::SOL_IP, libc::IP_FREEBIND),
    (libc::SOL_IP, libc::IP_TRANSPARENT),
    (libc::SOL_IP, libc::IP_MINTTL),
    (libc::SOL_IP, libc::IP_MULTICAST_LOOP),
    (libc::SOL_IP, libc::IP_MULTICAST_ALL),
    (libc::SOL_IP, libc::IP_RECVOPTS),
    (libc::SOL_IP, libc::IP_RETOPTS),
    (libc::SOL_IP, libc::IP_RECVORIGDSTADDR),
    (libc::SOL_IP, IP_BIND_ADDRESS_NO_PORT),
    (libc::SOL_IP, IP_CHECKSUM),
    (libc::SOL_IPV6, libc::IPV6_V6ONLY),
    (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::SOL_IPV6, libc::IPV6_MULTICAST_LOOP),
    (libc::SOL_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::SOL_IPV6, libc::IPV6_RECVTCLASS),
    (libc::SOL_IPV6, libc::IPV6_RECVERR),
    (libc::SOL_IPV6, libc::IPV6_DONTFRAG),
    (libc::SOL_IPV6, IPV6_FLOWINFO_SEND),
    (libc::SOL_IPV6, IPV6_AUTOFLOWLABEL),
    (libc::SOL_IPV6, IPV6_ADDR_PREFERENCES),
    (libc::SOL_IPV6, IPV6_MINHOPCOUNT),
    (libc::SOL_IPV6, IPV6_RECVORIGDSTADDR),
    (libc::SOL_IPV6, IPV6_FREEBIND),
    (libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS),
];

/// Options that are a socket's own: a connection that was accepted begins without them.
const OWN: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::SOL_TCP, libc::TCP_FASTOPEN),
    (libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS),
];

/// An option and its value.
type Kept = (i32, i32, Vec<u8>);

/// What a socket was set to that the stack has no use for, or that it would tell otherwise than the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    kept: Option<Arc<Vec<Kept>>>,
    /// `SO_TIMESTAMPING` wants to know when something was sent.
    pub(crate) stamps_sends: bool,
}

impl Settings {
    pub(crate) fn get(&self, level: i32, option: i32) -> Option<&[u8]> {
        let kept = self.kept.as_ref()?;
        kept.iter().find(|kept| (kept.0, kept.1) == (level, option)).map(|kept| &*kept.2)
    }

    pub(crate) fn set(&mut self, level: i32, option: i32, value: &[u8]) {
        self.forget(level, option);
        let kept = Arc::make_mut(self.kept.get_or_insert_default());
        kept.push((level, option, value.to_vec()));
        if level == libc::SOL_SOCKET && matches!(option, libc::SO_TIMESTAMPING | TIMESTAMPING_NEW) {
            self.stamps_sends = Times::wanted(|option| self.int(level, option)).of_sending;
        }
    }

    pub(crate) fn forget(&mut self, level: i32, option: i32) {
        if self.get(level, option).is_some() {
            let kept = Arc::make_mut(self.kept.get_or_insert_default());
            kept.retain(|kept| (kept.0, kept.1) != (level, option));
        }
    }

    fn time(&self, option: i32) -> Option<Duration> {
        time_of(self.get(libc::SOL_SOCKET, option)?)
    }

    /// An option that is an int; zero if it was not set.
    pub(crate) fn int(&self, level: i32, option: i32) -> i32 {
        let value = self.get(level, option).and_then(|value| value.first_chunk());
        value.map_or(0, |octets| i32::from_ne_bytes(*octets))
    }

    /// Whether an int of `SOL_SOCKET` was set to something.
    pub(crate) fn is_on(&self, option: i32) -> bool {
        self.int(libc::SOL_SOCKET, option) != 0
    }

    /// `SO_RCVTIMEO`, if one is set.
    pub(crate) fn receive_timeout(&self) -> Option<Duration> {
        self.time(libc::SO_RCVTIMEO)
    }

    /// `SO_SNDTIMEO`, if one is set.
    pub(crate) fn send_timeout(&self) -> Option<Duration> {
        self.time(libc::SO_SNDTIMEO)
    }

    /// What of a UDP socket of the kernel's holds for the stack's part of it.
    pub(crate) fn of_datagrams(fd: RawFd) -> Settings {
        let mut settings = Settings::default();
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            if let Some(value) = read(fd, libc::SOL_SOCKET, option) {
                settings.set(libc::SOL_SOCKET, option, &value);
            }
        }
        settings
    }

    /// Sets a socket of the kernel likewise.
    pub(crate) fn set_at_kernel(&self, fd: RawFd) {
        for (level, option, value) in self.kept.iter().flat_map(|kept| kept.iter()) {
            // What the kernel does not take from a connection, it does not need.
            let _ = syscall::setsockopt(fd, *level, *option, value);
        }
    }
}

/// A `struct timeval`; none if it is zero.
fn time_of(value: &[u8]) -> Option<Duration> {
    let seconds = i64::from_ne_bytes(*value.first_chunk()?);
    let micros = i64::from_ne_bytes(*value.get(8..)?.first_chunk()?);
    let time = Duration::from_secs(seconds as u64) + Duration::from_micros(micros as u64);
    Some(time).filter(|time| !time.is_zero())
}

pub(crate) fn timeout_of(fd: RawFd, option: i32) -> Option<Duration> {
    time_of(&read(fd, libc::SOL_SOCKET, option)?)
}

pub(crate) fn read(fd: RawFd, level: i32, option: i32) -> Option<Vec<u8>> {
    let mut value = [0; VALUE_MAX];
    let len = syscall::getsockopt(fd, level, option, &mut value).ok()?;
    Some(value[..len.min(VALUE_MAX)].to_vec())
}

/// All options that a socket of the kernel is asked for.
fn asked() -> impl Iterator<Item = (i32, i32)> {
    TABLE.iter().map(|row| (row.level, row.option)).chain(KEPT.iter().copied())
}

/// What a fresh socket has of them, in their order.
fn defaults(domain: i32) -> &'static [Option<Vec<u8>>] {
    static DEFAULTS: [OnceLock<Vec<Option<Vec<u8>>>>; 2] = [const { OnceLock::new() }; 2];
    DEFAULTS[usize::from(domain == libc::AF_INET6)].get_or_init(|| {
        let Ok(fresh) = judge::fresh(domain) else { return Vec::new() };
        let values = asked().map(|(level, option)| read(fresh.as_raw_fd(), level, option)).collect();
        close(fresh);
        values
    })
}

/// The options that were set at a socket of the kernel: those in which it differs from a fresh one.
pub(crate) fn options_of_shadow(fd: RawFd, domain: i32, touched: Touched) -> (TcpOptions, Settings) {
    let (mut options, mut settings) = (TcpOptions::default(), Settings::default());
    let of_interest =
        asked().zip(defaults(domain)).filter(|((level, option), _)| touched.has(*level, *option));
    for ((level, option), default) in of_interest {
        let Some(value) = read(fd, level, option).filter(|value| default.as_ref() != Some(value)) else {
            continue;
        };
        let row = find(level, option);
        row.into_iter().for_each(|row| (row.apply)(&mut options, &value));
        if row.is_none_or(|row| !row.tells(&options, &value)) {
            settings.set(level, option, &value);
        }
    }
    (options, settings)
}

/// The same of a listener: what its connections start with.
pub(crate) fn options_of_listener(fd: RawFd, domain: i32) -> (TcpOptions, Settings) {
    let (options, mut settings) = options_of_shadow(fd, domain, Touched::ANY);
    OWN.iter().for_each(|(level, option)| settings.forget(*level, *option));
    (options, settings)
}
