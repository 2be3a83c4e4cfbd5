//! The connection as a value.

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// States of RFC 9293, 3.3.2, in which a connection can go on in the kernel.
///
/// Not SYN-SENT and SYN-RECEIVED: the owner of such a connection aborts it and connects again if need be. Not TIME-WAIT: all that
/// is left is to answer a repeated FIN of the peer, and the old stack does that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Open in both directions.
    Established,
    /// The user sends no more. Our FIN is not acknowledged and perhaps not even sent.
    FinWait1,
    /// Our FIN is acknowledged.
    FinWait2,
    /// The peer's FIN has arrived.
    CloseWait,
    /// The user closed first, then the peer's FIN arrived. Ours is not acknowledged and perhaps not even sent.
    Closing,
    /// The peer's FIN arrived first. Ours is not acknowledged and perhaps not even sent.
    LastAck,
}

impl State {
    /// Whether the peer's FIN has arrived.
    pub const fn has_fin_received(self) -> bool {
        matches!(self, State::CloseWait | State::Closing | State::LastAck)
    }

    /// Whether the kernel must receive a segment from the peer to get into this state. We send it in the peer's name.
    pub const fn has_peer_to_speak(self) -> bool {
        self.has_fin_received() || matches!(self, State::FinWait2)
    }

    /// Whether the user sends no more.
    pub const fn is_write_closed(self) -> bool {
        matches!(self, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck)
    }
}

/// Timestamps (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timestamps {
    /// Our clock in the next segment, in milliseconds. The kernel takes even values: an odd one becomes one more.
    pub value: u32,
    /// The peer's clock in its latest segment.
    pub echo: u32,
}

/// A connection that both sides have established. Names are those of RFC 9293, 3.3.1, and where it has none, Linux's.
///
/// Made from a `stack::Detached` by copying the fields of the same names, [`SeqNum`]s as their numbers. What differs:
///
/// | here | there |
/// | --- | --- |
/// | `state` | the same, without those that are not [transferable] |
/// | - | `snd_nxt`: it follows from `snd_una`, `unacked` and `fin_sent` |
/// | - | `write_closed`, `fin_received`: they follow from `state` |
/// | - | `orphaned`: the caller closes the descriptor |
/// | - | `ecn`: the kernel has no way to set it, and continues without |
/// | - | `hop`: the kernel finds its own route |
/// | - | `options`: the caller sets them on the descriptor |
/// | `scope_id`, `ipv6_socket`, `reuse_address` | properties of the program's socket, which the stack does not know |
///
/// The local end is not checked: the caller must know that it may use it.
///
/// [`SeqNum`]: https://www.rfc-editor.org/rfc/rfc9293#section-3.4
/// [transferable]: State
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Established {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Index of the interface that link-local addresses belong to, else 0.
    pub scope_id: u32,
    /// The program's socket is an IPv6 socket, even if the addresses are of IPv4 (then they are mapped).
    pub ipv6_socket: bool,
    /// The socket has `SO_REUSEADDR`, as connections whose listener has it; then its port can be listened on again.
    pub reuse_address: bool,
    /// Its state.
    pub state: State,
    /// The first sequence number that the peer has not acknowledged. Behind our FIN in FIN-WAIT-2.
    pub snd_una: u32,
    /// The peer's window in octets.
    pub snd_wnd: u32,
    /// Sequence number of the segment that announced it.
    pub snd_wl1: u32,
    /// The largest window that the peer ever offered.
    pub max_window: u32,
    /// The next sequence number that we expect; behind the peer's FIN if that has arrived.
    pub rcv_nxt: u32,
    /// The window that we offered last, in octets from `rcv_wup` on.
    pub rcv_wnd: u32,
    /// `rcv_nxt` in our latest segment.
    pub rcv_wup: u32,
    /// The shift of windows that the peer announces; 0 without window scaling.
    pub snd_wscale: u8,
    /// The shift of windows that we announce.
    pub rcv_wscale: u8,
    /// The largest segment that the peer accepts, by its SYN.
    pub peer_mss: u16,
    /// Both sides agreed on SACK.
    pub sack_permitted: bool,
    /// Timestamps, if both sides agreed on them.
    pub timestamps: Option<Timestamps>,
    /// Octets sent and not acknowledged, from `snd_una` on.
    pub unacked: Vec<u8>,
    /// Octets that follow and were never sent.
    pub unsent: Vec<u8>,
    /// Octets received in order and not read.
    pub received: Vec<u8>,
    /// Our FIN was sent.
    pub fin_sent: bool,
    /// The user receives no more (`SHUT_RD`).
    pub read_closed: bool,
}

/// Why an [`Established`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// The two ends are not of one IP version, one is not a host's address, or a port is missing.
    #[error("the two ends are no pair of unicast addresses with ports")]
    Ends,
    /// A shift of more than 14 (RFC 7323, 2.3).
    #[error("a window scale is above 14")]
    Scale,
    /// The peer's segment size is below 88 octets.
    #[error("the peer's segment size is below 88")]
    SegmentSize,
    /// Windows that no scale allows, or that contradict each other.
    #[error("the windows cannot be")]
    Window,
    /// A FIN was sent in a state without one, or behind data that was not sent.
    #[error("the FIN does not fit the state and the queues")]
    Fin,
    /// More than 64 MiB in a queue.
    #[error("a queue is longer than 64 MiB")]
    Queue,
}

impl From<Invalid> for io::Error {
    fn from(invalid: Invalid) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, invalid)
    }
}

/// The largest window: 65535 octets shifted by 14 (RFC 7323, 2.3).
const WINDOW_MAX: u32 = 65_535 << 14;
const SCALE_MAX: u8 = 14;
const MSS_MIN: u16 = 88;
const QUEUE_MAX: usize = 64 << 20;

impl Established {
    /// Checks that the value is consistent: it may come from an untrusted program.
    pub fn check(&self) -> Result<(), Invalid> {
        let ends = [self.local, self.remote];
        let is_pair =
            self.local.is_ipv4() == self.remote.is_ipv4() && (self.local.is_ipv4() || self.ipv6_socket);
        if !is_pair || !ends.iter().all(|end| end.port() != 0 && is_of_a_host(end.ip())) {
            return Err(Invalid::Ends);
        }
        if self.snd_wscale > SCALE_MAX || self.rcv_wscale > SCALE_MAX {
            return Err(Invalid::Scale);
        }
        if self.peer_mss < MSS_MIN {
            return Err(Invalid::SegmentSize);
        }
        if [&self.unacked, &self.unsent, &self.received].iter().any(|queue| queue.len() > QUEUE_MAX) {
            return Err(Invalid::Queue);
        }
        self.check_windows()?;
        self.check_fin()
    }

    fn check_windows(&self) -> Result<(), Invalid> {
        let untold = self.rcv_nxt.wrapping_sub(self.rcv_wup);
        let edge = self.rcv_wup.wrapping_add(self.rcv_wnd);
        let possible = self.snd_wnd <= self.max_window
            && self.max_window <= WINDOW_MAX
            && self.rcv_wnd <= WINDOW_MAX
            && untold <= self.rcv_wnd.saturating_add(1) // The FIN that came may lie behind the window.
            && !is_after(self.snd_wl1, edge);
        if possible { Ok(()) } else { Err(Invalid::Window) }
    }

    fn check_fin(&self) -> Result<(), Invalid> {
        let possible = match self.state {
            State::Established | State::CloseWait => !self.fin_sent,
            State::FinWait2 => self.fin_sent && self.unacked.is_empty() && self.unsent.is_empty(),
            State::FinWait1 | State::Closing | State::LastAck => !self.fin_sent || self.unsent.is_empty(),
        };
        if possible { Ok(()) } else { Err(Invalid::Fin) }
    }

    /// The first sequence number of the send queue: `snd_una`, or the acknowledged FIN in front of it.
    pub(crate) fn send_queue_start(&self) -> u32 {
        self.snd_una.wrapping_sub(u32::from(self.state == State::FinWait2))
    }

    /// The end of the received data, without the peer's FIN.
    pub(crate) fn received_end(&self) -> u32 {
        self.rcv_nxt.wrapping_sub(u32::from(self.state.has_fin_received()))
    }

    /// The offered window as it was before the peer's FIN arrived: `rcv_wnd` and `rcv_wup`.
    pub(crate) fn window_before_fin(&self) -> (u32, u32) {
        match self.rcv_wup == self.rcv_nxt && self.state.has_fin_received() {
            true => (self.rcv_wnd + 1, self.rcv_wup.wrapping_sub(1)),
            false => (self.rcv_wnd, self.rcv_wup),
        }
    }

    /// Both ends as the program's socket shows them.
    pub(crate) fn socket_ends(&self) -> (SocketAddr, SocketAddr) {
        let mapped = |end: SocketAddr| match end {
            SocketAddr::V4(v4) if self.ipv6_socket => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            end => end,
        };
        (mapped(self.local), mapped(self.remote))
    }
}

fn is_of_a_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast || is_mapped)
}

/// Whether `a` is after `b` (RFC 9293, 3.4).
fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Established {
        Established {
            local: "192.0.2.1:80".parse().unwrap(),
            remote: "192.0.2.2:40000".parse().unwrap(),
            scope_id: 0,
            ipv6_socket: false,
            reuse_address: true,
            state: State::Established,
            snd_una: u32::MAX,
            snd_wnd: 1000,
            snd_wl1: 4,
            max_window: 1000,
            rcv_nxt: 5,
            rcv_wnd: 1000,
            rcv_wup: 4,
            snd_wscale: 7,
            rcv_wscale: 7,
            peer_mss: 1460,
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            unacked: vec![1, 2, 3],
            unsent: vec![4],
            received: vec![5],
            fin_sent: false,
            read_closed: false,
        }
    }

    fn with(change: impl FnOnce(&mut Established)) -> Result<(), Invalid> {
        let mut value = sample();
        change(&mut value);
        value.check()
    }

    #[test]
    fn a_usual_connection_can_be() {
        assert_eq!(sample().check(), Ok(()));
        assert_eq!(with(|it| it.ipv6_socket = true), Ok(()));
    }

    #[test]
    fn ends_that_are_no_pair_of_hosts_cannot_be() {
        for end in ["[2001:db8::1]:1", "192.0.2.1:0", "0.0.0.0:80", "224.0.0.1:80", "255.255.255.255:80"] {
            assert_eq!(with(|it| it.remote = end.parse().unwrap()), Err(Invalid::Ends), "{end}");
        }
        let v6 = |it: &mut Established| {
            it.local = "[2001:db8::1]:80".parse().unwrap();
            it.remote = "[2001:db8::2]:80".parse().unwrap();
        };
        assert_eq!(with(v6), Err(Invalid::Ends), "IPv6 needs a socket of IPv6");
        let mapped = |it: &mut Established| {
            it.local = "[::ffff:192.0.2.1]:80".parse().unwrap();
            it.remote = "[::ffff:192.0.2.2]:80".parse().unwrap();
            it.ipv6_socket = true;
        };
        assert_eq!(with(mapped), Err(Invalid::Ends));
    }

    #[test]
    fn windows_that_contradict_each_other_cannot_be() {
        assert_eq!(with(|it| it.snd_wnd = 1001), Err(Invalid::Window));
        assert_eq!(with(|it| it.rcv_wup = 6), Err(Invalid::Window));
        assert_eq!(with(|it| it.snd_wl1 = 1005), Err(Invalid::Window));
        assert_eq!(with(|it| it.rcv_wnd = u32::MAX), Err(Invalid::Window));
        assert_eq!(with(|it| it.max_window = u32::MAX), Err(Invalid::Window));
    }

    #[test]
    fn sizes_have_limits() {
        assert_eq!(with(|it| it.snd_wscale = 15), Err(Invalid::Scale));
        assert_eq!(with(|it| it.rcv_wscale = 15), Err(Invalid::Scale));
        assert_eq!(with(|it| it.peer_mss = 87), Err(Invalid::SegmentSize));
        assert_eq!(with(|it| it.unsent = vec![0; QUEUE_MAX + 1]), Err(Invalid::Queue));
    }

    #[test]
    fn a_fin_fits_the_state_and_follows_all_data() {
        let fin = |state, fin_sent, unsent: &[u8], unacked: &[u8]| {
            with(|it| {
                (it.state, it.fin_sent) = (state, fin_sent);
                (it.unsent, it.unacked) = (unsent.to_vec(), unacked.to_vec());
            })
        };
        assert_eq!(fin(State::Established, true, b"", b""), Err(Invalid::Fin));
        assert_eq!(fin(State::CloseWait, true, b"", b""), Err(Invalid::Fin));
        assert_eq!(fin(State::FinWait1, true, b"x", b""), Err(Invalid::Fin));
        assert_eq!(fin(State::FinWait1, false, b"x", b"y"), Ok(()));
        assert_eq!(fin(State::Closing, true, b"", b"y"), Ok(()));
        assert_eq!(fin(State::FinWait2, true, b"", b"y"), Err(Invalid::Fin));
        assert_eq!(fin(State::FinWait2, false, b"", b""), Err(Invalid::Fin));
        assert_eq!(fin(State::FinWait2, true, b"", b""), Ok(()));
    }

    #[test]
    fn a_fin_that_came_is_not_part_of_what_the_kernel_is_told_first() {
        let mut value = sample();
        value.state = State::CloseWait;
        value.rcv_wup = 5;
        assert_eq!(value.received_end(), 4);
        assert_eq!(value.window_before_fin(), (1001, 4));
        value.rcv_wup = 4;
        assert_eq!(value.window_before_fin(), (1000, 4), "it is not acknowledged yet");
    }

    #[test]
    fn it_survives_being_written_and_read() {
        let text = serde_json::to_string(&sample()).unwrap();
        assert_eq!(serde_json::from_str::<Established>(&text).unwrap(), sample());
    }
}
