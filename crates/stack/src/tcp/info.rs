//! The state of a connection, as in Linux's `struct tcp_info`.

use clock::{Duration, Instant};

use crate::congestion::CongestionControl;
use crate::tcp::connection::{Connection, State, since_millis};

/// `tcp_max_reordering`.
const REORDERING_MAX: u32 = 300;

/// Fields of `struct tcp_info`, by its names without the prefix. Counts of segments are of full ones where Linux counts
/// segments and we count octets.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpInfo {
    /// Number of Linux's state (`TCP_ESTABLISHED` is 1).
    pub state: u8,
    /// State of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Retransmission timeouts since `snd_una` moved.
    pub retransmits: u32,
    /// Probes of a closed window or a silent peer since an answer came.
    pub probes: u8,
    /// Doublings of the timeout.
    pub backoff: u8,
    /// Timestamps are on.
    pub timestamps: bool,
    /// SACK is on.
    pub sack: bool,
    /// Window scaling is on.
    pub window_scaling: bool,
    /// ECN is on.
    pub ecn: bool,
    /// Data in our SYN was acknowledged.
    pub syn_data: bool,
    /// The peer's shift.
    pub snd_wscale: u8,
    /// Our shift.
    pub rcv_wscale: u8,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Delay of acknowledgements.
    pub ato: Duration,
    /// Payload of a full segment.
    pub snd_mss: u32,
    /// Payload of the peer's full segments.
    pub rcv_mss: u32,
    /// Full segments in flight or lost.
    pub unacked: u32,
    /// Full segments selectively acknowledged.
    pub sacked: u32,
    /// Full segments marked lost.
    pub lost: u32,
    /// Full segments sent again and not acknowledged.
    pub retrans: u32,
    /// Full segments by which one was overtaken on the way, at least three as on Linux.
    pub reordering: u32,
    /// Time since data was sent.
    pub last_data_sent: Duration,
    /// Time since data was received.
    pub last_data_recv: Duration,
    /// Time since an acknowledgement was received.
    pub last_ack_recv: Duration,
    /// Path MTU.
    pub pmtu: u32,
    /// Slow-start threshold in octets; `u32::MAX` before the first congestion.
    pub snd_ssthresh: u32,
    /// Congestion window in octets.
    pub snd_cwnd: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Its deviation, as Linux reports it: not the lower bound that the timeout uses.
    pub rttvar: Duration,
    /// Segment size that our link takes, without the options that each segment has.
    pub advmss: u32,
    /// Receive buffer.
    pub rcv_space: u32,
    /// Segments sent again.
    pub total_retrans: u32,
    /// Pacing rate in octets a second.
    pub pacing_rate: Option<u64>,
    /// Octets acknowledged.
    pub bytes_acked: u64,
    /// Octets received in order.
    pub bytes_received: u64,
    /// Octets sent, also those sent again.
    pub bytes_sent: u64,
    /// Octets sent again.
    pub bytes_retrans: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments with data sent.
    pub data_segs_out: u32,
    /// Segments with data received.
    pub data_segs_in: u32,
    /// Time with data queued.
    pub busy_time: Duration,
    /// The part of it in which the peer's window was the limit.
    pub rwnd_limited: Duration,
    /// The part of it in which the send buffer was.
    pub sndbuf_limited: Duration,
    /// Octets queued and not sent.
    pub notsent_bytes: u32,
    /// Least round-trip time.
    pub min_rtt: Duration,
    /// Octets delivered.
    pub delivered: u64,
    /// The peer's window in octets.
    pub snd_wnd: u32,
    /// The window that we offer in octets.
    pub rcv_wnd: u32,
    /// Octets received and not read.
    pub unread: u32,
    /// Octets in the send queue, sent or not.
    pub send_queue: u32,
    /// Controller, by the name that `TCP_CONGESTION` has.
    pub congestion: &'static str,
}

impl Connection {
    /// What there is to know at `now`.
    pub(crate) fn info(&self, now: Instant) -> TcpInfo {
        let mss = u32::from(self.send.mss);
        let segments = |octets: u32| octets.div_ceil(mss);
        let transfer = self.transfer.as_deref();
        let recovery = transfer.map(|transfer| &transfer.recovery);
        let controller = transfer.map(|transfer| &transfer.controller);
        let times = self.send_times(now);
        TcpInfo {
            state: linux_number(self.state),
            ca_state: recovery.map_or(0, |recovery| recovery.state() as u8),
            retransmits: recovery.map_or(0, |recovery| recovery.timeouts()),
            probes: self.send.probes,
            backoff: self.rtt.backoff(),
            timestamps: self.flags.timestamps,
            sack: self.flags.sack,
            window_scaling: self.send.scale > 0 || self.receive.scale > 0,
            ecn: self.flags.ecn,
            syn_data: self.flags.data_in_syn,
            snd_wscale: self.send.scale,
            rcv_wscale: self.receive.scale,
            rto: self.rtt.rto(),
            ato: Duration::from_millis(40),
            snd_mss: mss,
            rcv_mss: self.receive.segment_size.into(),
            unacked: segments(self.send.snd_nxt.since(self.send.snd_una)),
            sacked: segments(recovery.map_or(0, |recovery| recovery.sacked())),
            lost: segments(recovery.map_or(0, |recovery| recovery.lost())),
            retrans: segments(recovery.map_or(0, |recovery| recovery.retransmitted())),
            reordering: segments(recovery.map_or(0, |recovery| recovery.reordering()))
                .clamp(3, REORDERING_MAX),
            last_data_sent: since_millis(self.tally.last_sent_ms, now),
            last_data_recv: since_millis(self.tally.last_received_ms, now),
            last_ack_recv: since_millis(self.tally.last_ack_ms, now),
            pmtu: self.path_mtu.mtu().into(),
            snd_ssthresh: controller.map_or(self.rest.ssthresh, |controller| controller.ssthresh()),
            snd_cwnd: self.cwnd(),
            rtt: self.rtt.srtt(),
            rttvar: self.rtt.deviation(),
            advmss: self.mss_taken().into(),
            rcv_space: self.receive.limit,
            total_retrans: self.tally.retransmits_total,
            pacing_rate: controller.and_then(|controller| controller.pacing_rate()),
            bytes_acked: self.tally.bytes_acked,
            bytes_received: self.tally.bytes_received,
            bytes_sent: self.tally.bytes_acked
                + u64::from(self.send.snd_nxt.since(self.send.snd_una))
                + u64::from(self.tally.bytes_retrans),
            bytes_retrans: self.tally.bytes_retrans.into(),
            segs_out: self.tally.segs_out,
            segs_in: self.tally.segs_in,
            data_segs_out: self.tally.data_segs_out,
            data_segs_in: self.tally.data_segs_in,
            busy_time: times.busy,
            rwnd_limited: times.rwnd_limited,
            sndbuf_limited: times.sndbuf_limited,
            notsent_bytes: self.unsent_len(),
            min_rtt: self.rtt.min_rtt(),
            delivered: self.tally.bytes_acked + u64::from(recovery.map_or(0, |recovery| recovery.sacked())),
            snd_wnd: self.send.snd_wnd,
            rcv_wnd: self.receive.offered(),
            unread: self.receive.queue.len() as u32,
            send_queue: self.send.queue.len() as u32,
            congestion: self.options.congestion.name(),
        }
    }
}

/// Numbers of `enum` in Linux's `tcp_states.h`.
fn linux_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}
