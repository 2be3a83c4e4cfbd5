//! `tcp_info` in the words of ss(8).

use clock::Duration;
use serde::{Deserialize, Serialize};
use stack::tcp::TcpInfo;

/// All information about a TCP connection. Windows and flights are in segments where ss has segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpReport {
    /// Timestamps are on.
    pub ts: bool,
    /// SACK is on.
    pub sack: bool,
    /// ECN is on.
    pub ecn: bool,
    /// Data in our SYN was acknowledged.
    pub fastopen: bool,
    /// Congestion control.
    pub congestion: String,
    /// State of loss recovery: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// The peer's window shift and ours, if windows are scaled.
    pub wscale: Option<(u8, u8)>,
    /// Retransmission timeout.
    pub rto_ms: f64,
    /// How often it was doubled.
    pub backoff: u8,
    /// Smoothed round-trip time.
    pub rtt_ms: f64,
    /// Its variation.
    pub rttvar_ms: f64,
    /// Minimum round-trip time.
    pub minrtt_ms: f64,
    /// Delay of acknowledgements.
    pub ato_ms: f64,
    /// Octets of a full segment.
    pub mss: u32,
    /// Path MTU.
    pub pmtu: u32,
    /// Octets of the peer's full segments.
    pub rcvmss: u32,
    /// Segment size announced.
    pub advmss: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Congestion window in octets.
    pub cwnd_bytes: u32,
    /// Slow-start threshold in segments, once there was congestion.
    pub ssthresh: Option<u32>,
    /// Octets sent, including retransmissions.
    pub bytes_sent: u64,
    /// Octets retransmitted.
    pub bytes_retrans: u64,
    /// Octets acknowledged.
    pub bytes_acked: u64,
    /// Octets received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Those sent with data.
    pub data_segs_out: u32,
    /// Those received with data.
    pub data_segs_in: u32,
    /// Bits a second that window and round-trip time allow.
    pub send_bps: Option<f64>,
    /// Time since data was sent.
    pub lastsnd_ms: u64,
    /// Time since data was received.
    pub lastrcv_ms: u64,
    /// Time since an acknowledgement was received.
    pub lastack_ms: u64,
    /// Bits a second of the pacer.
    pub pacing_bps: Option<f64>,
    /// Segments delivered.
    pub delivered: u64,
    /// Segments in flight or lost.
    pub unacked: u32,
    /// Segments retransmitted and not yet acknowledged.
    pub retrans: u32,
    /// Segments retransmitted so far.
    pub retrans_total: u32,
    /// Segments marked lost.
    pub lost: u32,
    /// Segments selectively acknowledged.
    pub sacked: u32,
    /// Timeouts since the last acknowledgement of new data.
    pub retransmits: u32,
    /// Probes of a closed window or a silent peer since the last answer.
    pub probes: u8,
    /// Receive buffer in octets.
    pub rcv_space: u32,
    /// Octets queued and never sent.
    pub notsent: u32,
    /// The peer's window in octets.
    pub snd_wnd: u32,
    /// The window that we offer in octets.
    pub rcv_wnd: u32,
}

impl From<&TcpInfo> for TcpReport {
    fn from(info: &TcpInfo) -> TcpReport {
        let mss = info.snd_mss.max(1);
        let rtt = info.rtt.as_secs_f64();
        TcpReport {
            ts: info.timestamps,
            sack: info.sack,
            ecn: info.ecn,
            fastopen: info.syn_data,
            congestion: info.congestion.to_owned(),
            ca_state: info.ca_state,
            wscale: info.window_scaling.then_some((info.snd_wscale, info.rcv_wscale)),
            rto_ms: millis(info.rto),
            backoff: info.backoff,
            rtt_ms: millis(info.rtt),
            rttvar_ms: millis(info.rttvar),
            minrtt_ms: millis(info.min_rtt),
            ato_ms: millis(info.ato),
            mss: info.snd_mss,
            pmtu: info.pmtu,
            rcvmss: info.rcv_mss,
            advmss: info.advmss,
            cwnd: info.snd_cwnd / mss,
            cwnd_bytes: info.snd_cwnd,
            ssthresh: (info.snd_ssthresh != u32::MAX).then_some(info.snd_ssthresh / mss),
            bytes_sent: info.bytes_sent,
            bytes_retrans: info.bytes_retrans,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            segs_out: info.segs_out,
            segs_in: info.segs_in,
            data_segs_out: info.data_segs_out,
            data_segs_in: info.data_segs_in,
            send_bps: (rtt > 0.0).then(|| f64::from(info.snd_cwnd) * 8.0 / rtt),
            lastsnd_ms: info.last_data_sent.as_millis(),
            lastrcv_ms: info.last_data_recv.as_millis(),
            lastack_ms: info.last_ack_recv.as_millis(),
            pacing_bps: info.pacing_rate.map(|rate| rate as f64 * 8.0),
            delivered: info.delivered.div_ceil(mss.into()),
            unacked: info.unacked,
            retrans: info.retrans,
            retrans_total: info.total_retrans,
            lost: info.lost,
            sacked: info.sacked,
            retransmits: info.retransmits,
            probes: info.probes,
            rcv_space: info.rcv_space,
            notsent: info.notsent_bytes,
            snd_wnd: info.snd_wnd,
            rcv_wnd: info.rcv_wnd,
        }
    }
}

/// With a resolution of a microsecond, as round-trip times have.
fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1000.0
}
