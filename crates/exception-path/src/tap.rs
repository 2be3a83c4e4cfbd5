//! TAP interfaces: Documentation/networking/tuntap.rst of the kernel.

use std::ffi::c_ulong;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use wire::MacAddress;

/// One queue of a TAP interface of this network namespace. The kernel spreads flows over the queues by where their frames came from.
///
/// The interface goes with its last queue, unless `ip tuntap add` made it before.
#[derive(Debug)]
pub struct TapInterface {
    queue: File,
}

/// Why there is no TAP interface.
#[derive(Debug, thiserror::Error)]
#[error("TAP interface {name}: {operation}: {source}")]
pub struct TapError {
    name: String,
    operation: &'static str,
    source: io::Error,
}

impl TapInterface {
    /// Makes the interface `name`, or takes the one that `ip tuntap add mode tap` has made. It gets the address `mac` and this MTU; up or down and
    /// IP addresses are the user's.
    pub fn open(name: &str, queues: u16, mac: MacAddress, mtu: u16) -> Result<Vec<TapInterface>, TapError> {
        let failed = |operation| move |source| TapError { name: name.to_owned(), operation, source };
        let request = Request::new(name).map_err(failed("its name"))?;
        let opened = (0..queues.max(1)).map(|_| request.open_queue(queues > 1));
        let taps: Vec<TapInterface> =
            opened.collect::<io::Result<_>>().map_err(failed("opening /dev/net/tun"))?;
        request.set_mac(mac).map_err(failed("setting its MAC address"))?;
        request.set_mtu(mtu).map_err(failed("setting its MTU"))?;
        Ok(taps)
    }

    /// Gives the kernel a frame, as if it had come from a wire. The error is the kernel's: the interface is down, or there is no memory.
    pub fn deliver(&self, frame: &[u8]) -> io::Result<()> {
        (&self.queue).write(frame).map(|_| ())
    }

    /// Takes a frame that the kernel sends; its length, or `None` if there is none. What does not fit into `room` is cut off.
    pub fn take(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.queue).read(room) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Readable when the kernel sends a frame.
impl AsFd for TapInterface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// The name of an interface, ready for ioctl(2): netdevice(7).
struct Request(libc::ifreq);

impl Request {
    fn new(name: &str) -> io::Result<Request> {
        // SAFETY: `ifreq` consists of integers, arrays and a union of such; all zeros is a value of each.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = request.ifr_name.len() - 1; // It ends with a zero.
        if name.is_empty() || name.len() > room || name.bytes().any(|octet| octet == 0 || octet == b'/') {
            return Err(io::Error::new(ErrorKind::InvalidInput, "1 to 15 octets without a slash"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(Request(request))
    }

    fn open_queue(&self, multi_queue: bool) -> io::Result<TapInterface> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let queue = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?;
        let several = if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut request = self.0;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | several) as libc::c_short;
        ioctl(queue.as_raw_fd(), libc::TUNSETIFF, &mut request)?;
        Ok(TapInterface { queue })
    }

    fn set_mac(&self, mac: MacAddress) -> io::Result<()> {
        let mut request = self.0;
        // SAFETY: as in `new`.
        let mut address: libc::sockaddr = unsafe { std::mem::zeroed() };
        address.sa_family = libc::ARPHRD_ETHER;
        for (to, from) in address.sa_data.iter_mut().zip(mac.0) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        ioctl(any_socket()?.as_raw_fd(), libc::SIOCSIFHWADDR, &mut request)
    }

    fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        let mut request = self.0;
        request.ifr_ifru.ifru_mtu = mtu.into();
        ioctl(any_socket()?.as_raw_fd(), libc::SIOCSIFMTU, &mut request)
    }
}

/// ioctl(2) on interfaces takes any socket.
fn any_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?)
}

fn ioctl(fd: RawFd, request: c_ulong, argument: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests above read and write one `ifreq`, which `argument` is for the time of the call.
    match unsafe { libc::ioctl(fd, request, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
