//! One UDP socket in batches, with datagrams as octets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use device::BURST;

use crate::address::PacketInfo;
use crate::message::Batch;
use crate::socket::UdpSocket;
use crate::{Config, OpenError};

/// A UDP socket that receives and sends up to 64 datagrams by one system call.
///
/// A socket at `0.0.0.0` or `[::]` remembers for each datagram which address it was sent to, and an answer leaves from there
/// (IP_PKTINFO).
pub struct Datagrams {
    socket: UdpSocket,
    batch: Box<Batch>,
    /// One after the other: room for [`BURST`] payloads of `payload_max` octets.
    rooms: Box<[u8]>,
    payload_max: usize,
    /// Datagrams that the last call received.
    count: usize,
}

/// The other end of a datagram, and the address of ours that it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it came from, and where the answer goes.
    pub address: SocketAddr,
    local: Option<PacketInfo>,
}

impl Datagrams {
    /// Opens a socket at `address`; `config` has the other options, of which `listen` and `frames` do not count.
    pub fn open(address: SocketAddr, config: &Config) -> Result<Datagrams, OpenError> {
        let payload_max = usize::from(config.payload_max);
        Ok(Datagrams {
            socket: UdpSocket::open(address, config)?,
            batch: Batch::new(),
            rooms: vec![0; payload_max * BURST].into(),
            payload_max,
            count: 0,
        })
    }

    /// The address that it is bound to, with the port that the kernel chose if none was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Receives what has come, up to 64 datagrams, without waiting. Returns how many [`Datagrams::received`] has now; fewer than 64 mean
    /// that there were no more. An error that the kernel keeps of an earlier datagram (ICMP) is passed over.
    pub fn receive(&mut self) -> usize {
        // An error concerns an earlier datagram, and the kernel reports it once; a socket has as many as datagrams were sent.
        for _ in 0..BURST {
            let rooms = self.rooms.chunks_exact_mut(self.payload_max);
            match self.batch.receive(self.socket.as_fd(), rooms) {
                Ok(count) => {
                    self.count = count;
                    return count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        self.count = 0;
        0
    }

    /// Datagram `index` of the last [`Datagrams::receive`]: who sent it, and its octets. What was longer than `payload_max` is cut.
    /// `None` if there is none, or its sender cannot be answered.
    #[must_use]
    pub fn received(&self, index: usize) -> Option<(Peer, &[u8])> {
        if index >= self.count {
            return None;
        }
        let received = self.batch.received(index);
        let peer = Peer {
            address: received.source?,
            local: received.local.map(|info| PacketInfo { interface: info.link(), ..info }),
        };
        Some((peer, &self.rooms[index * self.payload_max..][..received.len]))
    }

    /// Sends datagrams, without waiting. Those that the kernel does not take, for want of room or of a route, are lost.
    pub fn send(&mut self, datagrams: &[(Peer, Vec<u8>)]) {
        let mut rest = datagrams;
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(BURST)];
            for (index, (peer, octets)) in some.iter().enumerate() {
                self.batch.stage(index, 0..octets.len(), peer.address, peer.local);
            }
            let octets = some.iter().map(|(_, octets)| &octets[..]);
            match self.batch.send(self.socket.as_fd(), octets) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => rest = &rest[1..],
            }
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
