//! System calls on sockets, each a safe function. All the unsafe of this crate is here.
//!
//! Values and addresses are passed as octets that live as long as the call, with their own lengths; no pointer outlives one.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use transit::SeqNum;

/// Numbers of `enum` in Linux's `tcp_states.h`.
pub(crate) mod linux_state {
    pub(crate) const ESTABLISHED: u8 = 1;
    pub(crate) const FIN_WAIT1: u8 = 4;
    pub(crate) const FIN_WAIT2: u8 = 5;
}

/// The socket's queue that repair mode works on: numbers of `enum` in Linux's `uapi/linux/tcp.h`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    None = 0,
    Receive = 1,
    Send = 2,
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairWindow {
    pub(crate) snd_wl1: u32,
    pub(crate) snd_wnd: u32,
    pub(crate) max_window: u32,
    pub(crate) rcv_wnd: u32,
    pub(crate) rcv_wup: u32,
}

/// Which direction shutdown(2) shuts down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shutdown {
    Read = libc::SHUT_RD as isize,
    Write = libc::SHUT_WR as isize,
}

/// A TCP socket on its way to become a connection.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        socket.0
    }
}

/// Octets written to a queue at once: the kernel allocates that much memory in one piece.
const PIECE: usize = 16 << 10;

impl Socket {
    /// A socket of IPv6, for IPv4 as well if `mapped` says so, or of IPv4.
    pub(crate) fn new(ipv6: bool, mapped: bool) -> io::Result<Socket> {
        let socket = Socket(open(ipv6, libc::SOCK_STREAM, libc::IPPROTO_TCP)?);
        if ipv6 && mapped {
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
        }
        Ok(socket)
    }

    /// `TCP_REPAIR`, tcp(7).
    pub(crate) fn enter_repair(&self) -> io::Result<()> {
        self.set(libc::IPPROTO_TCP, libc::TCP_REPAIR, 1)
    }

    /// Ends repair mode. In ESTABLISHED the kernel probes the peer.
    pub(crate) fn leave_repair(&self) -> io::Result<()> {
        self.set(libc::IPPROTO_TCP, libc::TCP_REPAIR, 0)
    }

    /// bind(2).
    pub(crate) fn bind(&self, local: SocketAddr) -> io::Result<()> {
        let address = sockaddr(local);
        // SAFETY: the address is as long as said, and the kernel only reads it.
        check(unsafe { libc::bind(self.0.as_raw_fd(), address.as_ptr().cast(), address.len() as socklen_t) })
    }

    /// connect(2).
    pub(crate) fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        let address = sockaddr(remote);
        // SAFETY: the address is as long as said, and the kernel only reads it.
        check(unsafe {
            libc::connect(self.0.as_raw_fd(), address.as_ptr().cast(), address.len() as socklen_t)
        })
    }

    /// `TCP_REPAIR_QUEUE`: the queue that the next calls set, write or shut down.
    pub(crate) fn choose(&self, queue: Queue) -> io::Result<()> {
        self.set(libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, queue as c_int)
    }

    /// `TCP_QUEUE_SEQ`: where a queue begins, while it is empty.
    pub(crate) fn set_queue_start(&self, queue: Queue, start: SeqNum) -> io::Result<()> {
        self.choose(queue)?;
        self.set_octets(libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &start.0.to_ne_bytes())
    }

    /// Writes octets that count as received, or as sent.
    pub(crate) fn fill(&self, queue: Queue, octets: &[u8]) -> io::Result<()> {
        if octets.is_empty() {
            return Ok(());
        }
        self.choose(queue)?;
        self.send_all(octets)
    }

    /// Writes all of `octets`, which the buffer has space for.
    pub(crate) fn send_all(&self, octets: &[u8]) -> io::Result<()> {
        let mut rest = octets;
        while !rest.is_empty() {
            let sent = self.send(&rest[..rest.len().min(PIECE)])?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn send(&self, octets: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the octets are as many as said, and the kernel only reads them.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), octets.as_ptr().cast(), octets.len(), flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// `TCP_REPAIR_OPTIONS`: what both sides' SYNs agreed on.
    pub(crate) fn set_agreements(
        &self,
        mss: u16,
        scales: (u8, u8),
        sack_permitted: bool,
        timestamps: bool,
    ) -> io::Result<()> {
        const MSS: u32 = 2;
        const WINDOW_SCALE: u32 = 3;
        const SACK_PERMITTED: u32 = 4;
        const TIMESTAMPS: u32 = 8;
        let mut options = vec![(MSS, u32::from(mss))];
        options.push((WINDOW_SCALE, u32::from(scales.0) | u32::from(scales.1) << 16));
        options.extend(sack_permitted.then_some((SACK_PERMITTED, 0)));
        options.extend(timestamps.then_some((TIMESTAMPS, 0)));
        let numbers = options.iter().flat_map(|(code, value)| [*code, *value]);
        let octets: Vec<u8> = numbers.flat_map(u32::to_ne_bytes).collect();
        self.set_octets(libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, &octets)
    }

    /// `TCP_TIMESTAMP`: the value of our clock, an even number of milliseconds.
    pub(crate) fn set_clock(&self, value: u32) -> io::Result<()> {
        self.set_octets(libc::IPPROTO_TCP, libc::TCP_TIMESTAMP, &value.to_ne_bytes())
    }

    /// `TCP_REPAIR_WINDOW`.
    pub(crate) fn set_windows(&self, window: &RepairWindow) -> io::Result<()> {
        let RepairWindow { snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup } = *window;
        let octets: Vec<u8> =
            [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup].into_iter().flat_map(u32::to_ne_bytes).collect();
        self.set_octets(libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, &octets)
    }

    /// `SO_REUSEADDR`.
    pub(crate) fn set_reuse_address(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
    }

    /// Has both buffers be as large as these ranges allow, whatever the limits for programs are: first that to send, then that to
    /// receive, in octets. The kernel allocates up to twice as much.
    pub(crate) fn fit_buffers(&self, sizes: [RangeInclusive<usize>; 2]) -> io::Result<()> {
        let [send, receive] = sizes;
        self.fit(libc::SO_SNDBUF, libc::SO_SNDBUFFORCE, send)?;
        self.fit(libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, receive)?;
        self.unlock_buffers()
    }

    fn fit(&self, read: c_int, force: c_int, size: RangeInclusive<usize>) -> io::Result<()> {
        let mut present = [0; 4];
        self.get(libc::SOL_SOCKET, read, &mut present)?;
        // The kernel doubles the value that is set, and reports the doubled one.
        let present = c_int::from_ne_bytes(present) as usize / 2;
        let wanted = present.max(*size.start()).min(*size.end());
        if wanted == present {
            return Ok(());
        }
        self.set(libc::SOL_SOCKET, force, c_int::try_from(wanted).unwrap_or(c_int::MAX / 2))
    }

    /// `SO_BUF_LOCK`, Linux 5.14: buffers whose size was set can still grow. Before 5.14 they keep their size.
    fn unlock_buffers(&self) -> io::Result<()> {
        const SO_BUF_LOCK: c_int = 72;
        match self.set(libc::SOL_SOCKET, SO_BUF_LOCK, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            result => result,
        }
    }

    /// shutdown(2).
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        // SAFETY: no memory is involved.
        check(unsafe { libc::shutdown(self.0.as_raw_fd(), how as c_int) })
    }

    /// The state, by [`linux_state`]'s numbers: the first octet of `TCP_INFO`.
    pub(crate) fn state(&self) -> io::Result<u8> {
        let mut info = [0; 1];
        self.get(libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
        Ok(info[0])
    }

    fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        self.set_octets(level, name, &value.to_ne_bytes())
    }

    fn set_octets(&self, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
        let (value, len): (*const c_void, _) = (value.as_ptr().cast(), value.len() as socklen_t);
        // SAFETY: the value is as long as said, lives until the call returns, and the kernel only reads it.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, value, len) })
    }

    fn get(&self, level: c_int, name: c_int, value: &mut [u8]) -> io::Result<()> {
        let mut len = value.len() as socklen_t;
        let value: *mut c_void = value.as_mut_ptr().cast();
        // SAFETY: the kernel writes no more than `len` octets, which `value` has, before the call returns.
        check(unsafe { libc::getsockopt(self.0.as_raw_fd(), level, name, value, &raw mut len) })
    }
}

/// A socket that sends IP packets as they are, raw(7).
#[derive(Debug)]
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    pub(crate) fn new(ipv6: bool) -> io::Result<RawSocket> {
        open(ipv6, libc::SOCK_RAW, libc::IPPROTO_RAW).map(RawSocket)
    }

    /// What is sent has this mark, SO_MARK in socket(7).
    pub(crate) fn set_mark(&self, mark: u32) -> io::Result<()> {
        let (value, len) = ((&raw const mark).cast(), size_of_val(&mark) as socklen_t);
        // SAFETY: `value` is as long as said, and the kernel only reads it.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MARK, value, len) })
    }

    /// Sends a packet, with all its headers, towards `destination`.
    pub(crate) fn send(&self, packet: &[u8], destination: SocketAddr) -> io::Result<()> {
        let address = sockaddr(SocketAddr::new(destination.ip(), 0)); // A port would be a protocol.
        let (data, to) = (packet.as_ptr().cast(), address.as_ptr().cast());
        let fd = self.0.as_raw_fd();
        // SAFETY: packet and address are as long as said, and the kernel only reads them.
        let sent = unsafe { libc::sendto(fd, data, packet.len(), 0, to, address.len() as socklen_t) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn open(ipv6: bool, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    check(fd.min(0))?;
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(returned: c_int) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct sockaddr_in` or `struct sockaddr_in6`, as octets.
fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let mut octets = Vec::with_capacity(28);
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    octets.extend((family as u16).to_ne_bytes());
    octets.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            octets.extend(v4.ip().octets());
            octets.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            octets.extend([0; 4]); // Flow label.
            octets.extend(v6.ip().octets());
            octets.extend(v6.scope_id().to_ne_bytes());
        }
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_laid_out_as_in_c() {
        assert_eq!(sockaddr("192.0.2.1:80".parse().unwrap()).len(), size_of::<libc::sockaddr_in>());
        let v6 = sockaddr("[2001:db8::1%3]:80".parse().unwrap());
        assert_eq!(v6.len(), size_of::<libc::sockaddr_in6>());
        assert_eq!(v6[8..10], [0x20, 0x01]);
        assert_eq!(v6[24..], 3_u32.to_ne_bytes());
    }
}
