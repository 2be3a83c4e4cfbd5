//! recvmmsg(2) and sendmmsg(2) on up to [`BURST`] buffers.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use device::BURST;

use crate::address::{Control, Name, PacketInfo, read_name, write_name};

/// The arrays that both calls need, allocated once.
///
/// The pointers in `headers` are written anew before each call and mean nothing after it.
pub(crate) struct Batch {
    headers: [libc::mmsghdr; BURST],
    parts: [libc::iovec; BURST],
    names: [Name; BURST],
    controls: [Control; BURST],
    /// Where the payload of each staged buffer lies in it.
    payloads: [Range<usize>; BURST],
}

// SAFETY: the raw pointers in `headers` and `parts` are the only reason why this is not `Send`; they are never
// dereferenced by us and are overwritten before the kernel sees them.
unsafe impl Send for Batch {}

/// What the kernel reports about one received datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Octets of payload in the buffer.
    pub(crate) len: usize,
    /// The datagram was longer than the buffer.
    pub(crate) truncated: bool,
    /// The sender.
    pub(crate) source: Option<SocketAddr>,
    /// The address that the datagram was sent to; only on sockets that requested it.
    pub(crate) local: Option<PacketInfo>,
}

impl Batch {
    pub(crate) fn new() -> Box<Batch> {
        Box::new(Batch {
            // SAFETY: `mmsghdr` and `iovec` are C structures of numbers and pointers, for which all zeros are valid.
            headers: unsafe { mem::zeroed() },
            // SAFETY: as above.
            parts: unsafe { mem::zeroed() },
            names: [Name::default(); BURST],
            controls: [Control::default(); BURST],
            payloads: [const { 0..0 }; BURST],
        })
    }

    /// Receives up to one datagram per buffer, without waiting. Returns how many came.
    pub(crate) fn receive<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a mut [u8]>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for buffer in buffers.take(BURST) {
            self.point(count, libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() });
            let header = &mut self.headers[count].msg_hdr;
            header.msg_namelen = size_of::<Name>() as u32;
            header.msg_controllen = Control::SIZE as _;
            count += 1;
        }
        // SAFETY: the first `count` headers were pointed to live memory just now: names, control buffers and parts are of
        // `self`, which is borrowed exclusively; `buffers` are borrowed so for 'a, which outlives this call. Lengths are those of the buffers.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// What the last [`Batch::receive`] brought into buffer `index`.
    pub(crate) fn received(&self, index: usize) -> Received {
        let header = &self.headers[index];
        Received {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            source: read_name(&self.names[index], header.msg_hdr.msg_namelen),
            local: self.controls[index].read(header.msg_hdr.msg_controllen as _),
        }
    }

    /// Notes for the next [`Batch::send`] where the payload of the buffer at `index` lies, its destination, and its source
    /// address; `None` for the address that the socket is bound to.
    pub(crate) fn stage(
        &mut self,
        index: usize,
        payload: Range<usize>,
        destination: SocketAddr,
        source: Option<PacketInfo>,
    ) {
        let header = &mut self.headers[index].msg_hdr;
        header.msg_namelen = write_name(&mut self.names[index], destination);
        header.msg_controllen = source.map_or(0, |info| self.controls[index].write(info)) as _;
        self.payloads[index] = payload;
    }

    /// Sends the payloads in `buffers`, which were staged before, without waiting. Returns how many the kernel took, in order. An
    /// error concerns the first.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for buffer in buffers.take(BURST) {
            let payload = &buffer[self.payloads[count].clone()];
            let base = payload.as_ptr().cast_mut().cast(); // sendmmsg(2) only reads.
            self.point(count, libc::iovec { iov_base: base, iov_len: payload.len() });
            count += 1;
        }
        // SAFETY: as in `receive`; the kernel only reads, and `buffers` are borrowed for the call. Lengths of names and
        // control messages are those that `stage` or the kernel wrote, at most the buffers' own.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Makes header `index` describe one message in `part`; the lengths of name and control message stay.
    fn point(&mut self, index: usize, part: libc::iovec) {
        self.parts[index] = part;
        let header = &mut self.headers[index].msg_hdr;
        header.msg_name = self.names[index].as_mut_ptr().cast();
        header.msg_iov = &raw mut self.parts[index];
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut self.controls[index]).cast();
        header.msg_flags = 0;
    }
}
