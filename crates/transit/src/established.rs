//! A connection as a value.

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{SeqNum, State, Timestamps};

/// A connection that both sides have established, with no owner. Names are those of RFC 9293, 3.3.1, and where it has none, Linux's.
///
/// ```text
///   send queue:                │ unacked            │ FIN │ unsent
///   sequence space:   ─────────┼────────────────────┼─────┼──────────▶    the FIN is behind `unsent` until it was sent
///                           snd_una                    snd_nxt
///
///   receive queue:    received │ FIN │ may come
///   sequence space:   ─────────┼─────┼───────────────────────▶
///                                 rcv_nxt          rcv_wup + rcv_wnd
/// ```
///
/// What had arrived out of order is not part of it: the peer sends it again (RFC 2018, 8). Neither is what was learned of the
/// path: round-trip time and congestion window begin anew, as after a pause. Urgent data is forgotten: an octet out of band that
/// nobody read is lost, one on its way out goes in line.
///
/// The local end is not checked: the caller must know that it may use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Established {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// One of [`State::is_transferable`].
    pub state: State,
    /// The first sequence number that the peer has not acknowledged. Behind our FIN in FIN-WAIT-2.
    pub snd_una: SeqNum,
    /// The peer's window in octets.
    pub snd_wnd: u32,
    /// Sequence number of the segment that announced it.
    pub snd_wl1: SeqNum,
    /// The largest window that the peer ever offered.
    pub max_window: u32,
    /// The next sequence number that we expect; behind the peer's FIN if that has arrived.
    pub rcv_nxt: SeqNum,
    /// The window that we offered last, in octets from `rcv_wup` on.
    pub rcv_wnd: u32,
    /// `rcv_nxt` in our latest segment.
    pub rcv_wup: SeqNum,
    /// The shift of windows that the peer announces; 0 without window scaling.
    pub snd_wscale: u8,
    /// The shift of windows that we announce.
    pub rcv_wscale: u8,
    /// The largest segment that the peer accepts, by its SYN.
    pub peer_mss: u16,
    /// Both sides agreed on SACK.
    pub sack_permitted: bool,
    /// Both sides agreed on ECN. The kernel has no way to set that, and continues without.
    pub ecn: bool,
    /// What the next segment would say, if both sides agreed on timestamps: our clock, in milliseconds, and the peer's as it told it
    /// last. The kernel takes even values of ours: an odd one becomes one more.
    pub timestamps: Option<Timestamps>,
    /// Octets sent and not acknowledged, from `snd_una` on.
    #[serde(skip)]
    pub unacked: Vec<u8>,
    /// Octets that follow and were never sent.
    #[serde(skip)]
    pub unsent: Vec<u8>,
    /// Octets received in order and not read.
    #[serde(skip)]
    pub received: Vec<u8>,
    /// Our FIN was sent; `unsent` is empty then.
    pub fin_sent: bool,
    /// The user receives no more (`SHUT_RD`).
    pub read_closed: bool,
    /// The user closed the socket: there are no more reads or writes. The caller closes the kernel's descriptor.
    pub orphaned: bool,
}

/// What the kernel's socket of a connection is to be, which no stack knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketKind {
    /// It is of IPv6, also if the addresses are of IPv4 (then they are mapped).
    pub is_ipv6: bool,
    /// It has `SO_REUSEADDR`, as connections whose listener has it; then its port can be listened on again.
    pub reuse_address: bool,
}

/// Why an [`Established`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// The two ends are not of one IP version, one is not a host's address, or a port is missing.
    #[error("the two ends are no pair of unicast addresses with ports")]
    Ends,
    /// Sequence numbers are not settled, or there is nothing left to do: see [`State::is_transferable`].
    #[error("the state is none of a connection that can move")]
    State,
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
        if self.local.is_ipv4() != self.remote.is_ipv4()
            || !ends.iter().all(|end| end.port() != 0 && is_of_a_host(end.ip()))
        {
            return Err(Invalid::Ends);
        }
        if !self.state.is_transferable() {
            return Err(Invalid::State);
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
        let untold = self.rcv_nxt.0.wrapping_sub(self.rcv_wup.0);
        let possible = self.snd_wnd <= self.max_window
            && self.max_window <= WINDOW_MAX
            && self.rcv_wnd <= WINDOW_MAX
            && untold <= self.rcv_wnd.saturating_add(1) // The FIN that came may lie behind the window.
            && !self.snd_wl1.is_after(self.rcv_wup + self.rcv_wnd);
        if possible { Ok(()) } else { Err(Invalid::Window) }
    }

    fn check_fin(&self) -> Result<(), Invalid> {
        let possible = match self.state {
            State::FinWait1 | State::Closing | State::LastAck => !self.fin_sent || self.unsent.is_empty(),
            State::FinWait2 => self.fin_sent && self.unacked.is_empty() && self.unsent.is_empty(),
            _ => !self.fin_sent,
        };
        if possible { Ok(()) } else { Err(Invalid::Fin) }
    }

    /// The next sequence number to send; behind our FIN if that was sent.
    pub fn snd_nxt(&self) -> SeqNum {
        let has_fin = self.fin_sent && self.state != State::FinWait2;
        self.snd_una + self.unacked.len() as u32 + u32::from(has_fin)
    }

    /// The first sequence number of the send queue: `snd_una`, or the acknowledged FIN in front of it.
    pub fn send_queue_start(&self) -> SeqNum {
        self.snd_una - u32::from(self.state == State::FinWait2)
    }

    /// The end of the received data, without the peer's FIN.
    pub fn received_end(&self) -> SeqNum {
        self.rcv_nxt - u32::from(self.state.has_fin_received())
    }

    /// The offered window as it was before the peer's FIN arrived: `rcv_wnd` and `rcv_wup`.
    pub fn window_before_fin(&self) -> (u32, SeqNum) {
        match self.rcv_wup == self.rcv_nxt && self.state.has_fin_received() {
            true => (self.rcv_wnd + 1, self.rcv_wup - 1),
            false => (self.rcv_wnd, self.rcv_wup),
        }
    }
}

fn is_of_a_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let is_mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast || is_mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Established {
        Established {
            local: "192.0.2.1:80".parse().unwrap(),
            remote: "192.0.2.2:40000".parse().unwrap(),
            state: State::Established,
            snd_una: SeqNum(u32::MAX),
            snd_wnd: 1000,
            snd_wl1: SeqNum(4),
            max_window: 1000,
            rcv_nxt: SeqNum(5),
            rcv_wnd: 1000,
            rcv_wup: SeqNum(4),
            snd_wscale: 7,
            rcv_wscale: 7,
            peer_mss: 1460,
            sack_permitted: true,
            ecn: false,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            unacked: vec![1, 2, 3],
            unsent: vec![4],
            received: vec![5],
            fin_sent: false,
            read_closed: false,
            orphaned: false,
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
    }

    #[test]
    fn ends_that_are_no_pair_of_hosts_cannot_be() {
        for end in ["[2001:db8::1]:1", "192.0.2.1:0", "0.0.0.0:80", "224.0.0.1:80", "255.255.255.255:80"] {
            assert_eq!(with(|it| it.remote = end.parse().unwrap()), Err(Invalid::Ends), "{end}");
        }
        let mapped = |it: &mut Established| {
            it.local = "[::ffff:192.0.2.1]:80".parse().unwrap();
            it.remote = "[::ffff:192.0.2.2]:80".parse().unwrap();
        };
        assert_eq!(with(mapped), Err(Invalid::Ends));
    }

    #[test]
    fn windows_that_contradict_each_other_cannot_be() {
        assert_eq!(with(|it| it.snd_wnd = 1001), Err(Invalid::Window));
        assert_eq!(with(|it| it.rcv_wup = SeqNum(6)), Err(Invalid::Window));
        assert_eq!(with(|it| it.snd_wl1 = SeqNum(1005)), Err(Invalid::Window));
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
        value.rcv_wup = SeqNum(5);
        assert_eq!(value.received_end(), SeqNum(4));
        assert_eq!(value.window_before_fin(), (1001, SeqNum(4)));
        value.rcv_wup = SeqNum(4);
        assert_eq!(value.window_before_fin(), (1000, SeqNum(4)), "it is not acknowledged yet");
    }

    #[test]
    fn only_a_connection_that_is_settled_and_not_over_can_be() {
        for state in [State::SynSent, State::SynReceived, State::TimeWait, State::Closed] {
            assert_eq!(with(|it| it.state = state), Err(Invalid::State));
        }
    }

    #[test]
    fn the_next_to_send_is_behind_what_was_sent() {
        let snd_nxt = |state, fin_sent, unacked: &[u8]| {
            Established { state, fin_sent, unacked: unacked.to_vec(), ..sample() }.snd_nxt()
        };
        assert_eq!(snd_nxt(State::Established, false, b"abc"), SeqNum(2));
        assert_eq!(snd_nxt(State::FinWait1, false, b"abc"), SeqNum(2));
        assert_eq!(snd_nxt(State::LastAck, true, b"abc"), SeqNum(3));
        assert_eq!(snd_nxt(State::FinWait2, true, b""), SeqNum(u32::MAX));
    }
}
