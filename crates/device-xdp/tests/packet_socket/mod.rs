//! Whole frames, as no UDP socket would send them: packet(7).

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

pub(crate) struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// A socket on one interface of the calling thread's namespace.
    pub(crate) fn open(interface: &str) -> PacketSocket {
        let name = CString::new(interface).unwrap();
        let everything = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers but `name`, which is terminated; results are checked.
        let (fd, index) = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            (libc::socket(libc::AF_PACKET, kind, i32::from(everything)), libc::if_nametoindex(name.as_ptr()))
        };
        assert!(fd >= 0 && index > 0, "root may open packet sockets");
        // SAFETY: all zeroes is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = everything;
        address.sll_ifindex = index as i32;
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_ll of `size` octets that outlives the call.
        let bound = unsafe { libc::bind(fd, (&raw const address).cast(), size) };
        assert_eq!(bound, 0);
        // SAFETY: `fd` is fresh and ours.
        PacketSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) } }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: `frame` is readable for its length.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize);
    }

    /// Waits up to a minute until `wanted` UDP packets from port 53 have come, then a little for one too many.
    pub(crate) fn echoes(&self, wanted: usize) -> usize {
        let mut deadline = Instant::now() + Duration::from_secs(60);
        let mut count = 0;
        while Instant::now() < deadline {
            let Some(frame) = self.receive() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            // The source port stands just before the length of a datagram of six octets.
            if frame.windows(6).any(|octets| octets == [0, 53, 0x0f, 0xa0, 0, 14]) {
                count += 1;
            }
            if count == wanted {
                deadline = deadline.min(Instant::now() + Duration::from_millis(200));
            }
        }
        count
    }

    /// A frame that has come, if any has.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 16];
        // SAFETY: `frame` is writable for its length.
        let len = unsafe { libc::recv(self.fd.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(len).ok()?);
        Some(frame)
    }
}
