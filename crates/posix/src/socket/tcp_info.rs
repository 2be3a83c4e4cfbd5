//! `struct tcp_info` as Linux 6.x lays it out.

use std::sync::OnceLock;

use clock::Duration;
use stack::tcp::TcpInfo;

use crate::socket::judge;

/// Octets of the structure as far as we know it; behind `tcpi_rehash` all is zero.
const LEN_MAX: usize = 280;

/// Octets of the structure as this kernel has it.
fn len() -> usize {
    static LEN: OnceLock<usize> = OnceLock::new();
    *LEN.get_or_init(|| {
        let mut room = [0; LEN_MAX];
        judge::get(libc::AF_INET, libc::SOL_TCP, libc::TCP_INFO, &mut room).unwrap_or(LEN_MAX)
    })
}

const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALING: u8 = 4;
const ECN: u8 = 8;
const SYN_DATA: u8 = 32;

/// The structure of a connection.
pub(crate) fn linux_tcp_info(info: &TcpInfo) -> LinuxTcpInfo {
    let mut out = LinuxTcpInfo { octets: [0; LEN_MAX], at: 0 };
    let options = [
        (info.timestamps, TIMESTAMPS),
        (info.sack, SACK),
        (info.window_scaling, WINDOW_SCALING),
        (info.ecn, ECN),
        (info.syn_data, SYN_DATA),
    ];
    let options = options.into_iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
    let scales = info.snd_wscale & 0xf | info.rcv_wscale << 4;
    out.put(&[
        state_told(info.state),
        info.ca_state,
        info.retransmits.min(255) as u8,
        info.probes,
        info.backoff,
        options,
    ]);
    out.put(&[scales, 0]);
    for value in [micros(info.rto), micros(info.ato), info.snd_mss, info.rcv_mss] {
        out.u32(value);
    }
    for value in [info.unacked, info.sacked, info.lost, info.retrans, 0] {
        out.u32(value); // The last is `tcpi_fackets`, which Linux no longer fills in.
    }
    for time in [info.last_data_sent, Duration::ZERO, info.last_data_recv, info.last_ack_recv] {
        out.u32((time.as_nanos() / 1_000_000).try_into().unwrap_or(u32::MAX));
    }
    let mss = info.snd_mss.max(1);
    let ssthresh = if info.snd_ssthresh == u32::MAX { 0x7fff_ffff } else { info.snd_ssthresh / mss };
    for value in [info.pmtu, info.rcv_wnd, micros(info.rtt), micros(info.rttvar), ssthresh] {
        out.u32(value);
    }
    let cwnd = info.snd_cwnd.div_ceil(mss);
    for value in [cwnd, info.advmss, info.reordering, 0, info.rcv_space, info.total_retrans] {
        out.u32(value); // The fourth is the receiver's rtt.
    }
    for value in [info.pacing_rate.unwrap_or(u64::MAX), u64::MAX, info.bytes_acked, info.bytes_received] {
        out.put(&value.to_ne_bytes());
    }
    for value in [info.segs_out, info.segs_in, info.notsent_bytes, micros(info.min_rtt)] {
        out.u32(value);
    }
    for value in [info.data_segs_in, info.data_segs_out] {
        out.u32(value);
    }
    out.put(&[0; 8]); // Delivery rate.
    for time in [info.busy_time, info.rwnd_limited, info.sndbuf_limited] {
        out.put(&time.as_micros().to_ne_bytes());
    }
    out.u32(delivered(info));
    out.u32(0);
    out.put(&info.bytes_sent.to_ne_bytes());
    out.put(&info.bytes_retrans.to_ne_bytes());
    out.put(&[0; 12]); // D-SACKs, reordering seen, out-of-order packets.
    out.u32(info.snd_wnd);
    out.u32(info.rcv_wnd);
    out
}

/// Linux gives a connection in TIME-WAIT away, and the socket that had it is closed.
fn state_told(state: u8) -> u8 {
    const TIME_WAIT: u8 = 6;
    const CLOSE: u8 = 7;
    if state == TIME_WAIT { CLOSE } else { state }
}

/// Segments that arrived: all that were sent, but for those on the way and those that were sent again for others.
fn delivered(info: &TcpInfo) -> u32 {
    let arrived = info.data_segs_out.saturating_sub(info.total_retrans);
    arrived.saturating_sub(info.unacked) + info.sacked
}

fn micros(span: Duration) -> u32 {
    span.as_micros().try_into().unwrap_or(u32::MAX)
}

/// The structure, in the order in which it is written.
pub(crate) struct LinuxTcpInfo {
    octets: [u8; LEN_MAX],
    at: usize,
}

impl LinuxTcpInfo {
    /// As much as this kernel has.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets[..len().min(LEN_MAX)]
    }

    fn put(&mut self, value: &[u8]) {
        self.octets[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }
}
