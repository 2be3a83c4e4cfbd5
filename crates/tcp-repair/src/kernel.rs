//! The steps of moving a connection to the kernel, in their order.
//!
//! Sequence numbers are set while the socket is closed. Connecting in repair mode sends nothing and leaves the socket ESTABLISHED. Data
//! that is written to its queues counts as received, or as sent. Options and windows follow. See `tcp_sendmsg_locked`,
//! `tcp_repair_options_est` and `tcp_repair_set_window` in Linux's net/ipv4/tcp.c.
//!
//! There is no option for closing states. shutdown(2) puts our FIN into the send queue: in repair mode with that queue
//! chosen it counts as sent. The peer's FIN has to arrive, so we send one in its name.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use transit::{Established, SocketKind, State};

use crate::socket::{Queue, RepairWindow, Shutdown, Socket, linux_state};
use crate::stand_in::StandIn;

/// How long to wait for the effect of a segment in the peer's name before sending it again, in milliseconds.
const PAUSES_MS: [u64; 5] = [0, 1, 2, 4, 8];

/// Octets that any socket's buffers may take, by the kernel's defaults (tcp_wmem and tcp_rmem, tcp(7)).
const SEND_BUFFER_MAX: usize = 4 << 20;
const RECEIVE_BUFFER_MAX: usize = 6 << 20;

/// Makes the kernel's socket of a connection at once: [`prepare`] and [`Prepared::start`]. For callers that keep the
/// connection's packets from the kernel until this is called, and let them through afterwards.
pub fn make_kernel_socket(established: Established, kind: SocketKind) -> io::Result<OwnedFd> {
    prepare(established, kind, |_, _| ())?.start()
}

/// A connection that the kernel has and does not serve on its own yet. Dropping it removes it without a packet.
#[derive(Debug)]
pub struct Prepared {
    socket: Socket,
    established: Established,
    kind: SocketKind,
    stand_in: Option<StandIn>,
}

/// Moves a connection to the kernel, in the network namespace of the calling thread. Needs `CAP_NET_ADMIN`, and
/// `CAP_NET_RAW` if a segment in the peer's name is needed.
///
/// In that case ([`State::has_peer_to_speak`]) this and [`Prepared::start`] may wait for the kernel, 15 ms at most.
///
/// When this returns, the kernel answers packets of the connection as its own; no packet may reach it earlier.
/// If the peer's FIN had arrived, it is acknowledged once more.
///
/// The kernel may still have an earlier connection of the same ends in TIME-WAIT, and refuse this one: then `make_way` is to end that.
///
/// Fails with `InvalidInput` if [`Established::check`] does, with `EADDRINUSE` or `EADDRNOTAVAIL` if the kernel has this
/// very connection or has lost the local address, and otherwise as the system calls do.
pub fn prepare(
    established: Established,
    kind: SocketKind,
    make_way: impl FnOnce(SocketAddr, SocketAddr),
) -> io::Result<Prepared> {
    established.check()?;
    let [local, remote] = [established.local, established.remote].map(|end| socket_end(end, kind));
    let socket = Socket::new(local.is_ipv6(), local.ip().to_canonical().is_ipv4())?;
    make_room(&socket, &established)?;
    socket.enter_repair()?; // From here on the port may be bound though others have it.
    socket.bind(local)?;
    socket.set_queue_start(Queue::Send, established.send_queue_start())?;
    let unread = established.received.len() as u32;
    socket.set_queue_start(Queue::Receive, established.received_end() - unread)?;
    match socket.connect(remote) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            make_way(established.local, established.remote);
            socket.connect(remote)?;
        }
        connected => connected?,
    }
    set_agreements(&socket, &established)?;
    socket.fill(Queue::Receive, &established.received)?;
    socket.fill(Queue::Send, &established.unacked)?;
    set_windows(&socket, &established)?;
    let stand_in = match established.state.has_peer_to_speak() {
        true => Some(StandIn::new(&established)?),
        false => None,
    };
    let prepared = Prepared { socket, established, kind, stand_in };
    prepared.close_as_far_as_told()?;
    prepared.socket.choose(Queue::None)?;
    Ok(prepared)
}

/// An end as a socket of this kind has it.
fn socket_end(end: SocketAddr, kind: SocketKind) -> SocketAddr {
    match end {
        SocketAddr::V4(v4) if kind.is_ipv6 => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        end => end,
    }
}

/// Buffers that hold the queues and the promised window. They can still grow.
fn make_room(socket: &Socket, established: &Established) -> io::Result<()> {
    let sending = established.unacked.len() + established.unsent.len();
    // Twice for the kernel's own overhead with small segments, on top of its own doubling.
    let receiving = 2 * established.received.len() + established.rcv_wnd as usize;
    socket.fit_buffers([2 * sending + (64 << 10)..=usize::MAX, receiving..=usize::MAX])
}

/// Once the queues are filled, a buffer is no larger than any socket's may be, or what is to be read needs: a program cannot fill more
/// than it has brought. What the peer was promised beyond that may find no room, and is sent again.
fn take_room_back(socket: &Socket, established: &Established) -> io::Result<()> {
    let receiving = (RECEIVE_BUFFER_MAX / 2).max(established.received.len());
    socket.fit_buffers([0..=SEND_BUFFER_MAX / 2, 0..=receiving])
}

/// Kernel memory, in octets, that a connection with so many octets to send and to read may take beyond what any socket may.
pub fn extra_memory(sending: usize, unread: usize) -> usize {
    (2 * sending).saturating_sub(SEND_BUFFER_MAX) + (2 * unread).saturating_sub(RECEIVE_BUFFER_MAX)
}

fn set_agreements(socket: &Socket, established: &Established) -> io::Result<()> {
    let scales = (established.snd_wscale, established.rcv_wscale);
    let has_timestamps = established.timestamps.is_some();
    socket.set_agreements(established.peer_mss, scales, established.sack_permitted, has_timestamps)?;
    match established.timestamps {
        // The lowest bit chooses between milliseconds and microseconds (Linux 6.7).
        Some(timestamps) => socket.set_clock(timestamps.value.wrapping_add(timestamps.value & 1)),
        None => Ok(()),
    }
}

fn set_windows(socket: &Socket, established: &Established) -> io::Result<()> {
    let (rcv_wnd, rcv_wup) = established.window_before_fin();
    socket.set_windows(&RepairWindow {
        snd_wl1: established.snd_wl1.0,
        snd_wnd: established.snd_wnd,
        max_window: established.max_window,
        rcv_wnd,
        rcv_wup: rcv_wup.0,
    })
}

impl Prepared {
    /// Ends repair mode: the kernel probes the peer, sends what was not sent yet, and continues as with any connection.
    ///
    /// Fails if the connection has ended meanwhile, for instance by a reset from the peer.
    pub fn start(self) -> io::Result<OwnedFd> {
        let Established { state, fin_sent, .. } = self.established;
        self.socket.leave_repair()?;
        if self.kind.reuse_address {
            self.socket.set_reuse_address()?;
        }
        self.socket.send_all(&self.established.unsent)?;
        take_room_back(&self.socket, &self.established)?;
        if state.is_write_closed() && !fin_sent {
            self.socket.shutdown(Shutdown::Write)?;
            if state == State::Closing {
                self.receive_fin()?;
            }
        }
        if self.established.read_closed {
            self.socket.shutdown(Shutdown::Read)?;
        }
        Ok(self.socket.into())
    }

    /// Puts the FINs that were sent and received in place, in their original order.
    fn close_as_far_as_told(&self) -> io::Result<()> {
        let Established { state, fin_sent, .. } = self.established;
        match state {
            State::CloseWait => self.receive_fin(),
            State::LastAck => {
                self.receive_fin()?;
                if fin_sent { self.count_fin_as_sent() } else { Ok(()) }
            }
            State::FinWait1 | State::FinWait2 | State::Closing => {
                if !fin_sent {
                    return Ok(()); // Unsent data goes first.
                }
                self.count_fin_as_sent()?;
                match state {
                    State::Closing => self.receive_fin(),
                    State::FinWait2 => self.receive_acknowledgement(),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn count_fin_as_sent(&self) -> io::Result<()> {
        self.socket.choose(Queue::Send)?;
        self.socket.shutdown(Shutdown::Write)
    }

    fn receive_fin(&self) -> io::Result<()> {
        let is_there = |state| {
            !matches!(state, linux_state::ESTABLISHED | linux_state::FIN_WAIT1 | linux_state::FIN_WAIT2)
        };
        self.hear(StandIn::send_fin, "the FIN in the peer's name did not arrive", is_there)
    }

    /// The peer acknowledged our FIN long ago; the kernel has to receive that again.
    fn receive_acknowledgement(&self) -> io::Result<()> {
        let is_there = |state| state != linux_state::FIN_WAIT1;
        self.hear(StandIn::send_acknowledgement, "the ACK in the peer's name did not arrive", is_there)
    }

    /// Sends the kernel a segment in the peer's name.
    ///
    /// A packet to an address of the same host has arrived when the call returns, unless the processor is behind with its
    /// softirqs, or a firewall has dropped it. For a firewall that tracks connections, a FIN of an unknown connection is invalid,
    /// while an acknowledgement makes the connection known (`tcp_new` in Linux's net/netfilter/nf_conntrack_proto_tcp.c). So a segment
    /// that does not arrive at once is sent again behind an acknowledgement.
    fn hear(
        &self,
        say: impl Fn(&StandIn, &Established) -> io::Result<()>,
        otherwise: &str,
        is_there: impl Fn(u8) -> bool,
    ) -> io::Result<()> {
        let stand_in =
            self.stand_in.as_ref().ok_or_else(|| io::Error::other("nobody speaks for the peer"))?;
        // The error may come from a firewall on the way out (EPERM).
        let mut said = say(stand_in, &self.established);
        for pause_ms in PAUSES_MS {
            if is_there(self.socket.state()?) {
                return Ok(());
            }
            let known = stand_in.send_acknowledgement(&self.established);
            said = known.and_then(|()| say(stand_in, &self.established));
            sleep(Duration::from_millis(pause_ms));
        }
        match is_there(self.socket.state()?) {
            true => Ok(()),
            false => said.and_then(|()| Err(io::Error::new(io::ErrorKind::TimedOut, otherwise))),
        }
    }
}
