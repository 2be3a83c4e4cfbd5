//! A whole interface as a [`Device`], by a packet socket (packet(7)): for programs between two wires, not for speed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use clock::Instant;
use device::{Burst, Capabilities, Device, DeviceCounters, ForeignFrames};
use frame::{Frame, Pool, Region};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{Domain, Socket, Type};

use crate::option::{bind_to_interface, ignore_outgoing, receive_for_others};

/// Octets of a frame: an Ethernet frame of 9000 octets of payload with two tags fits.
const FRAME_SIZE: u16 = 9216;
/// Octets that wait in the socket's buffers, at most, each way.
const SOCKET_BUFFER: usize = 16 << 20;

/// Every frame that arrives at an interface, for any address. Frames that are sent leave by it unchanged.
///
/// The kernel receives the same frames, too. Offloads at the other end must be off; otherwise frames arrive that are
/// longer than the wire's MTU and whose checksums are not filled in.
pub struct PacketSocket {
    interface: String,
    socket: Socket,
    pool: Pool,
    foreign: ForeignFrames,
    counters: DeviceCounters,
}

impl PacketSocket {
    /// Opens the interface with `frames` frames of its own. Needs CAP_NET_RAW.
    pub fn open(interface: &str, frames: usize) -> io::Result<PacketSocket> {
        // Bound to no protocol yet, so nothing arrives before bind.
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
        let index = name_to_index(&socket, interface)?;
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER)?;
        rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER)?;
        ignore_outgoing(socket.as_fd())?;
        receive_for_others(socket.as_fd(), index)?;
        bind_to_interface(socket.as_fd(), index)?;
        let pool = Pool::new(Region::anonymous(usize::from(FRAME_SIZE) * frames)?, FRAME_SIZE, 0);
        let (foreign, counters) = (ForeignFrames::default(), DeviceCounters::default());
        Ok(PacketSocket { interface: interface.to_owned(), socket, pool, foreign, counters })
    }
}

impl Device for PacketSocket {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            description: format!("{}, packet socket", self.interface),
            mtu: FRAME_SIZE - 22,
            tso_max: 0,
            queues: 1,
            ..Capabilities::default()
        }
    }

    fn rx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let before = burst.len();
        while !burst.is_full() {
            let Some(mut frame) = self.pool.alloc() else { break };
            let room = frame.bytes_and_tailroom_mut();
            // With TRUNC the length is that of the packet, even if it did not fit.
            match recv(&self.socket, room, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((filled, len)) if filled == len => {
                    frame.set_len(len);
                    burst.push(frame);
                }
                Ok(_) => {
                    self.counters.rx_dropped_invalid += 1;
                    self.pool.release(frame);
                }
                Err(_) => {
                    self.pool.release(frame); // Nothing waits, or the interface is down: later.
                    break;
                }
            }
        }
        let count = burst.len() - before;
        self.counters.rx_frames += count as u64;
        count
    }

    /// A frame that the system refuses, for instance because it is too long for the interface, is counted as `tx_dropped`.
    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let takeable = self.foreign.room_for(&self.pool, burst);
        let mut sent = 0;
        while sent < takeable {
            match send(&self.socket, burst[sent].bytes(), SendFlags::DONTWAIT) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) => break,
                Err(_) => self.counters.tx_dropped += 1,
            }
            sent += 1;
        }
        self.counters.tx_frames += sent as u64;
        burst.drain(..sent).for_each(|frame| self.foreign.retire(&mut self.pool, frame));
        sent
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.foreign.take()
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        fds.push(self.socket.as_fd());
    }

    /// Always true: a socket with waiting frames is readable, so poll(2) returns at once.
    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
