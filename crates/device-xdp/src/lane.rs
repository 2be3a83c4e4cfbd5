//! The bulk lane: a packet socket beside the rings, for packets that the kernel or the NIC cuts.
//!
//! In copy mode the kernel makes a packet of each frame anyway, and then each goes its way alone. A packet socket takes 64 KiB of a connection
//! at once, right from the buffers that they wait in, and a header that says how to cut them (packet(7), PACKET_VNET_HDR): the NIC cuts, or
//! the kernel if the NIC does not.
//!
//! Packets leave past traffic control, as those of AF_XDP do. On that way the kernel does not cut for a NIC that cannot (no TSO): it drops the
//! packet, and the call fails with ENOBUFS. If the first packet does, traffic control is not bypassed, where the kernel cuts. Then a
//! long queue there can let single frames, which go by the ring, overtake.
//!
//! Whoever has the socket can send on every interface of the network namespace. Nobody can receive by it: see [`Lane::open`].

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use device::SuperSegment;
use wire::super_segment::offload;

use crate::syscalls::{self, VirtioNetHeader};

/// Pieces of one packet: 64 KiB from chunks of 2 KiB, and the headers.
const PIECES_MAX: usize = 40;
/// Octets that may wait for the NIC.
const SEND_BUFFER: u32 = 4 << 20;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
/// Where the checksum is in a TCP header (RFC 9293, 3.1).
const CHECKSUM_OFFSET: u16 = 16;

#[derive(Debug)]
pub(crate) struct Lane {
    socket: OwnedFd,
    bypasses_queueing: bool,
    /// The driver has taken what came to it past traffic control.
    has_bypassed: bool,
}

impl Lane {
    /// Opens a socket that sends on an interface, for whoever gets it: needs CAP_NET_RAW. It never receives: it asks for no protocol,
    /// and a filter that nobody can remove drops what comes should its holder bind it to one.
    pub(crate) fn open(interface: u32) -> io::Result<Lane> {
        let socket = syscalls::packet_socket()?;
        let fd = socket.as_fd();
        syscalls::refuse_all_packets(fd)?;
        syscalls::use_virtio_headers(fd)?;
        syscalls::set_queueing_bypassed(fd, true)?;
        // Without CAP_NET_ADMIN it stays as long as the system makes buffers.
        let _ = syscalls::force_send_buffer(fd, SEND_BUFFER);
        syscalls::bind_packet_socket(fd, interface)?;
        Ok(Lane::adopt(socket))
    }

    /// A socket that another process has opened.
    pub(crate) fn adopt(socket: OwnedFd) -> Lane {
        Lane { socket, bypasses_queueing: true, has_bypassed: false }
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a packet, all of it or nothing.
    pub(crate) fn send(&mut self, packet: &mut SuperSegment<'_>) -> io::Result<()> {
        let header = virtio_header(packet).ok_or(io::ErrorKind::InvalidInput)?;
        let mut pieces = ArrayVec::<IoSlice<'_>, PIECES_MAX>::new();
        pieces.push(IoSlice::new(header.as_octets()));
        pieces.push(IoSlice::new(packet.headers));
        for piece in packet.payload {
            pieces.try_push(IoSlice::new(piece)).map_err(|_| io::ErrorKind::InvalidInput)?;
        }
        match syscalls::send_pieces(self.fd(), &pieces) {
            Ok(()) => {
                self.has_bypassed = true;
                Ok(())
            }
            // Its queue is full or stopped for now.
            Err(error) if is_dropped(&error) && self.bypasses_queueing && self.has_bypassed => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) if is_dropped(&error) && self.bypasses_queueing => {
                self.bypasses_queueing = false;
                syscalls::set_queueing_bypassed(self.fd(), false)?;
                syscalls::send_pieces(self.fd(), &pieces)
            }
            result => result,
        }
    }
}

fn is_dropped(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// How the packet is to be cut. Its checksum field is prepared for that.
fn virtio_header(packet: &mut SuperSegment<'_>) -> Option<VirtioNetHeader> {
    let (link_len, payload_len) = (packet.link_header_len().ok()?, packet.payload_len());
    let offload = offload(&mut packet.headers[link_len..], payload_len).ok()?;
    Some(VirtioNetHeader {
        flags: NEEDS_CHECKSUM,
        gso_type: if offload.is_ipv6 { TCP_V6 } else { TCP_V4 },
        header_len: (link_len + offload.len) as u16,
        gso_size: packet.segment_size,
        checksum_start: (link_len + offload.ip_len) as u16,
        checksum_offset: CHECKSUM_OFFSET,
    })
}
