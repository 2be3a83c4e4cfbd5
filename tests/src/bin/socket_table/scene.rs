//! What a check has: a way to say what it sees, addresses, sockets ready for use, and the peer.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libc::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_STREAM};

use crate::pair::Pair;
use crate::peer::Peer;
use crate::show::{Show, epoll_names, poll_names};
use crate::sys::{self, Errno, Result};
use crate::table::{Family, Variant, Way};

/// Where checks run.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// The peer's Unix socket.
    pub(crate) peer: PathBuf,
    /// Addresses of the program, one of each family.
    pub(crate) local: Vec<IpAddr>,
    /// Addresses of the peer.
    pub(crate) remote: Vec<IpAddr>,
    /// How long to wait, after a socket was first asked for what there is, for whoever takes sockets from the kernel: until this
    /// process has a queue of an interface.
    pub(crate) settle: Duration,
}

/// What one check has.
pub(crate) struct Scene {
    out: File,
    stage: Stage,
    /// Family and direction.
    pub(crate) variant: Variant,
}

/// Patience for what comes over the wire.
pub(crate) const SOON_MS: i32 = 10_000;

impl Scene {
    /// Says what it sees to `out`.
    pub(crate) fn new(out: File, stage: Stage, variant: Variant) -> Scene {
        Scene { out, stage, variant }
    }

    /// For a check whose connections the program makes itself: these can be accelerated from the first one on only if the
    /// process has a queue already, and it gets one by listening.
    pub(crate) fn prepare(&self) -> Result<()> {
        if self.variant.way == Way::Connected && !self.stage.settle.is_zero() {
            self.listener()?;
        }
        Ok(())
    }

    /// Writes a line. Lines that begin with `#` are not compared.
    pub(crate) fn say(&mut self, line: &str) {
        // In one piece, since children say things too.
        let _ = self.out.write_all(format!("{line}\n").as_bytes()); // Nobody listens: nobody to tell.
    }

    /// Says what was seen.
    pub(crate) fn see(&mut self, what: &str, seen: impl Show) {
        self.say(&format!("{what}: {}", seen.show()));
    }

    /// Says which events poll(2) gave.
    pub(crate) fn see_poll(&mut self, what: &str, seen: Result<i16>) {
        self.see(what, seen.map(poll_names));
    }

    /// Says which events epoll_wait(2) gave, with their data, in their order.
    pub(crate) fn see_epoll(&mut self, what: &str, seen: Result<Vec<(u32, u64)>>) {
        let show = |(events, data): &(u32, u64)| format!("{} of {data}", epoll_names(*events));
        self.see(what, seen.map(|events| events.iter().map(show).collect::<Vec<String>>()));
    }

    /// Says whether what began at `start` took at least and less than so many milliseconds.
    pub(crate) fn see_time(&mut self, what: &str, start: Instant, range_ms: std::ops::Range<u64>) {
        let took = start.elapsed();
        let class = if took < Duration::from_millis(range_ms.start) {
            format!("less than {} ms", range_ms.start)
        } else if took < Duration::from_millis(range_ms.end) {
            format!("{} to {} ms", range_ms.start, range_ms.end)
        } else {
            format!("more than {} ms", range_ms.end)
        };
        self.see(what, class);
    }

    /// `AF_INET` or `AF_INET6`.
    pub(crate) fn domain(&self) -> i32 {
        match self.variant.family {
            Family::V4 => AF_INET,
            Family::V6 => AF_INET6,
        }
    }

    /// `IPPROTO_IP` or `IPPROTO_IPV6`.
    pub(crate) fn ip_level(&self) -> i32 {
        match self.variant.family {
            Family::V4 => libc::IPPROTO_IP,
            Family::V6 => libc::IPPROTO_IPV6,
        }
    }

    /// Whether the addresses are IPv6.
    pub(crate) fn is_v6(&self) -> bool {
        self.variant.family == Family::V6
    }

    fn of_family(&self, ips: &[IpAddr], family: Family) -> IpAddr {
        let of = |ip: &&IpAddr| ip.is_ipv6() == (family == Family::V6);
        ips.iter().copied().find(|ip| of(&ip)).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// The program's address.
    pub(crate) fn local_ip(&self) -> IpAddr {
        self.of_family(&self.stage.local, self.variant.family)
    }

    /// The peer's address.
    pub(crate) fn remote_ip(&self) -> IpAddr {
        self.of_family(&self.stage.remote, self.variant.family)
    }

    /// The program's address and a port, as `sockaddr`.
    pub(crate) fn local(&self, port: u16) -> Vec<u8> {
        sys::name_of(SocketAddr::new(self.local_ip(), port))
    }

    /// The peer's address and a port, as `sockaddr`.
    pub(crate) fn remote(&self, port: u16) -> Vec<u8> {
        sys::name_of(SocketAddr::new(self.remote_ip(), port))
    }

    /// All addresses and a port, as `sockaddr`.
    pub(crate) fn any(&self, port: u16) -> Vec<u8> {
        sys::name_of(SocketAddr::new(self.any_ip(), port))
    }

    /// The address that means all.
    pub(crate) fn any_ip(&self) -> IpAddr {
        match self.variant.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// The loopback address and a port, as `sockaddr`.
    pub(crate) fn loopback(&self, port: u16) -> Vec<u8> {
        let ip = match self.variant.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        sys::name_of(SocketAddr::new(ip, port))
    }

    /// How an address looks to a reader: whose it is. Ports differ from run to run.
    pub(crate) fn whose(&self, address: Option<SocketAddr>) -> String {
        let Some(address) = address else { return "no address".to_owned() };
        let mapped = matches!(address.ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        let ip = address.ip().to_canonical();
        let owner = if self.stage.local.contains(&ip) {
            "local"
        } else if self.stage.remote.contains(&ip) {
            "remote"
        } else if ip.is_unspecified() {
            "any"
        } else if ip.is_loopback() {
            "loopback"
        } else {
            "another"
        };
        let port = if address.port() == 0 { " without port" } else { "" };
        format!("{owner}{}{port}", if mapped { " mapped" } else { "" })
    }

    /// A new conversation with the peer, which has sockets of its own.
    pub(crate) fn peer(&self) -> Result<Peer> {
        self.peer_of(self.variant.family)
    }

    /// As [`Scene::peer`], with the addresses of `family`.
    pub(crate) fn peer_of(&self, family: Family) -> Result<Peer> {
        let (there, here) =
            (self.of_family(&self.stage.remote, family), self.of_family(&self.stage.local, family));
        Peer::new(&self.stage.peer, there, here)
    }

    /// A TCP socket.
    pub(crate) fn tcp(&self) -> Result<RawFd> {
        sys::socket(self.domain(), SOCK_STREAM, 0)
    }

    /// A UDP socket.
    pub(crate) fn udp(&self) -> Result<RawFd> {
        sys::socket(self.domain(), SOCK_DGRAM, 0)
    }

    /// A UDP socket at a port of the program's address, in use.
    pub(crate) fn udp_bound(&mut self) -> Result<(RawFd, u16)> {
        let (fd, port) = self.udp_untouched()?;
        self.say_where_datagrams_come(fd, port)?;
        Ok((fd, port))
    }

    /// The same, to which nothing has come yet.
    pub(crate) fn udp_untouched(&self) -> Result<(RawFd, u16)> {
        let fd = self.udp()?;
        sys::bind(fd, &self.local(0))?;
        self.settle(fd)?;
        Ok((fd, port_of(fd)?))
    }

    /// Says, in a line that is not compared, whether a datagram from the peer comes to the kernel. On the kernel nobody asks.
    fn say_where_datagrams_come(&mut self, fd: RawFd, port: u16) -> Result<()> {
        if self.stage.settle.is_zero() {
            return Ok(());
        }
        let mut peer = self.peer()?;
        let (other, _) = peer.udp()?;
        peer.sendto(other, port, b"where")?;
        sys::poll_one(fd, libc::POLLIN, SOON_MS)?;
        let of_kernel = sys::kernel_has_data(fd);
        sys::recv(fd, 16, libc::MSG_DONTWAIT)?;
        self.say(if of_kernel { "# datagrams on the kernel" } else { "# datagrams on the stack" });
        Ok(())
    }

    /// Asks a socket for what there is, as every server does first of all, and lets it become accelerated if it may.
    pub(crate) fn settle(&self, fd: RawFd) -> Result<()> {
        /// Time from when a process has a queue until it gets packets: the broker's thread has to put the queue into the map of the
        /// steering program, which no program can see.
        const CLAIM: Duration = Duration::from_millis(100);
        let deadline = Instant::now() + self.stage.settle;
        sys::poll_one(fd, libc::POLLIN, 0)?;
        while Instant::now() < deadline {
            if has_queue() {
                std::thread::sleep(CLAIM);
                sys::poll_one(fd, libc::POLLIN, 0)?;
                self.await_broker()?;
                sys::poll_one(fd, libc::POLLIN, 0)?;
                break;
            }
            sys::poll_one(fd, libc::POLLIN, 5)?;
        }
        Ok(())
    }

    /// Waits until the broker has come to all that the process has asked of it, however busy the machine is: the claim of another listener is asked for
    /// behind that, and waited for.
    fn await_broker(&self) -> Result<()> {
        let other = self.tcp()?;
        sys::bind(other, &self.local(0))?;
        sys::listen(other, 1)?;
        sys::poll_one(other, libc::POLLIN, 0)?;
        sys::close(other)
    }

    /// A listener at a port of the program's address, in use.
    pub(crate) fn listener(&self) -> Result<(RawFd, u16)> {
        self.listener_with(16, |_| Ok(()))
    }

    /// As [`Scene::listener`], after `prepare` has set what it wants.
    pub(crate) fn listener_with(
        &self,
        backlog: i32,
        prepare: impl FnOnce(RawFd) -> Result<()>,
    ) -> Result<(RawFd, u16)> {
        let fd = self.tcp()?;
        prepare(fd)?;
        sys::bind(fd, &self.local(0))?;
        sys::listen(fd, backlog)?;
        self.settle(fd)?;
        Ok((fd, port_of(fd)?))
    }

    /// The same at a port that the program has named, and keeps whether it listens or not.
    pub(crate) fn listener_at_free_port(&self) -> Result<(RawFd, u16)> {
        let first = self.tcp()?;
        sys::bind(first, &self.local(0))?;
        let port = port_of(first)?;
        sys::close(first)?;
        let fd = self.tcp()?;
        sys::bind(fd, &self.local(port))?;
        sys::listen(fd, 16)?;
        self.settle(fd)?;
        Ok((fd, port))
    }

    /// A connection with the peer, from the direction of the variant.
    pub(crate) fn pair(&mut self) -> Result<Pair> {
        self.pair_with(|_| Ok(()))
    }

    /// As [`Scene::pair`], after `prepare` has set what it wants on the socket that listens or connects.
    pub(crate) fn pair_with(&mut self, prepare: impl FnOnce(RawFd) -> Result<()>) -> Result<Pair> {
        let pair = match self.variant.way {
            Way::Accepted => {
                let (listener, port) = self.listener_with(16, prepare)?;
                self.accept_from_peer(listener, port)?
            }
            Way::Connected => {
                let mut peer = self.peer()?;
                let (listener, port) = peer.tcp_listener(16)?;
                let fd = self.tcp()?;
                prepare(fd)?;
                sys::connect(fd, &self.remote(port))?;
                let (other, _) = peer.accept(listener)?;
                Pair { fd, peer, other }
            }
        };
        self.say_where(pair.fd);
        Ok(pair)
    }

    /// The next connection of a listener, made by a new peer.
    pub(crate) fn accept_from_peer(&self, listener: RawFd, port: u16) -> Result<Pair> {
        let mut peer = self.peer()?;
        let other = peer.tcp()?;
        peer.connect_start(other, port)?;
        sys::poll_one(listener, libc::POLLIN, SOON_MS)?;
        let fd = sys::accept(listener)?;
        peer.connected(other)?;
        Ok(Pair { fd, peer, other })
    }

    /// Says, in a line that is not compared, whether the kernel knows who the peer of a connection is.
    pub(crate) fn say_where(&mut self, fd: RawFd) {
        let of_kernel = sys::kernel_knows_peer(fd);
        self.say(if of_kernel { "# on the kernel" } else { "# on the stack" });
    }

    /// A port of the peer that takes no connection and does not answer: its backlog is full.
    pub(crate) fn silent_port(&self) -> Result<(Peer, u16)> {
        let mut peer = self.peer()?;
        let port = peer.silent_port()?;
        Ok((peer, port))
    }
}

/// Whether this process has an AF_XDP socket.
fn has_queue() -> bool {
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers = descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.any(|fd: RawFd| sys::kernel_family(fd) == Some(libc::AF_XDP))
}

/// The port that a socket is bound to.
pub(crate) fn port_of(fd: RawFd) -> Result<u16> {
    let name = sys::getsockname(fd, sys::FULL)?;
    name.address().map(|address| address.port()).ok_or(Errno(libc::EAFNOSUPPORT))
}
