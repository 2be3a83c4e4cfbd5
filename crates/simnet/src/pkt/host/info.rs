//! `struct tcp_info` as code in scripts sees it: Linux's names, units and bits.

use clock::Duration;
use stack::tcp::TcpInfo;

use crate::pkt::symbols;

/// Linux's `TCP_INFINITE_SSTHRESH`.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// Each field and its value. Linux counts windows in segments, times mostly in microseconds.
pub(super) fn fields(info: &TcpInfo) -> Vec<(&'static str, i128)> {
    let mss = info.snd_mss.max(1);
    let ssthresh =
        if info.snd_ssthresh >= SSTHRESH_INFINITE { SSTHRESH_INFINITE } else { info.snd_ssthresh / mss };
    let segments = |octets: u64| octets.div_ceil(u64::from(mss));
    vec![
        ("tcpi_state", info.state.into()),
        ("tcpi_ca_state", info.ca_state.into()),
        ("tcpi_retransmits", info.retransmits.into()),
        ("tcpi_probes", info.probes.into()),
        ("tcpi_backoff", info.backoff.into()),
        ("tcpi_options", options(info)),
        ("tcpi_snd_wscale", info.snd_wscale.into()),
        ("tcpi_rcv_wscale", info.rcv_wscale.into()),
        ("tcpi_rto", micros(info.rto)),
        ("tcpi_ato", micros(info.ato)),
        ("tcpi_snd_mss", info.snd_mss.into()),
        ("tcpi_rcv_mss", info.rcv_mss.into()),
        ("tcpi_unacked", info.unacked.into()),
        ("tcpi_sacked", info.sacked.into()),
        ("tcpi_lost", info.lost.into()),
        ("tcpi_retrans", info.retrans.into()),
        ("tcpi_fackets", 0),
        ("tcpi_reordering", info.reordering.into()),
        ("tcpi_last_data_sent", millis(info.last_data_sent)),
        ("tcpi_last_ack_sent", 0),
        ("tcpi_last_data_recv", millis(info.last_data_recv)),
        ("tcpi_last_ack_recv", millis(info.last_ack_recv)),
        ("tcpi_pmtu", info.pmtu.into()),
        ("tcpi_rtt", micros(info.rtt)),
        ("tcpi_rttvar", micros(info.rttvar)),
        ("tcpi_snd_ssthresh", ssthresh.into()),
        ("tcpi_snd_cwnd", (info.snd_cwnd / mss).into()),
        ("tcpi_advmss", info.advmss.into()),
        ("tcpi_rcv_space", info.rcv_space.into()),
        ("tcpi_total_retrans", info.total_retrans.into()),
        ("tcpi_pacing_rate", info.pacing_rate.map_or(i128::from(u64::MAX), i128::from)),
        ("tcpi_bytes_acked", info.bytes_acked.into()),
        ("tcpi_bytes_received", info.bytes_received.into()),
        ("tcpi_bytes_retrans", info.bytes_retrans.into()),
        ("tcpi_segs_out", info.segs_out.into()),
        ("tcpi_segs_in", info.segs_in.into()),
        ("tcpi_data_segs_out", info.data_segs_out.into()),
        ("tcpi_data_segs_in", info.data_segs_in.into()),
        ("tcpi_busy_time", micros(info.busy_time)),
        ("tcpi_rwnd_limited", micros(info.rwnd_limited)),
        ("tcpi_sndbuf_limited", micros(info.sndbuf_limited)),
        ("tcpi_notsent_bytes", info.notsent_bytes.into()),
        ("tcpi_min_rtt", micros(info.min_rtt)),
        ("tcpi_delivered", segments(info.delivered).into()),
        ("tcpi_snd_wnd", info.snd_wnd.into()),
        ("tcpi_rcv_wnd", info.rcv_wnd.into()),
    ]
}

fn options(info: &TcpInfo) -> i128 {
    let bits = [
        (info.timestamps, symbols::TCPI_OPT_TIMESTAMPS),
        (info.sack, symbols::TCPI_OPT_SACK),
        (info.window_scaling, symbols::TCPI_OPT_WSCALE),
        (info.ecn, symbols::TCPI_OPT_ECN),
        (info.syn_data, symbols::TCPI_OPT_SYN_DATA),
    ];
    bits.into_iter().filter(|(is_on, _)| *is_on).map(|(_, bit)| i128::from(bit)).sum()
}

fn micros(span: Duration) -> i128 {
    span.as_micros() as i128
}

fn millis(span: Duration) -> i128 {
    span.as_millis() as i128
}
