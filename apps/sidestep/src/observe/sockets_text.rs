//! A socket in the words of ss(8).

use std::fmt::Write as _;
use std::net::SocketAddr;

use observe::client::Answering;
use observe::report::{EngineReport, SocketReport, TcpReport};

/// The columns.
pub(super) const HEADING: &str =
    "Netid State      Recv-Q Send-Q Local Address:Port             Peer Address:Port              Process";

/// The line of columns, and for a connection the line of details.
pub(super) fn socket_lines(answering: &Answering, socket: &SocketReport) -> String {
    let peer = socket.remote.map_or_else(|| any_peer(socket.local), |remote| remote.to_string());
    let process = format!("{}/{} engine {}", answering.name, answering.pid, socket.engine);
    let SocketReport { protocol, state, recv_q, send_q, local, .. } = socket;
    let local = local.to_string();
    let mut text =
        format!("{protocol:<5} {state:<10} {recv_q:<6} {send_q:<6} {local:<30} {peer:<30} {process}\n");
    let details = details(socket);
    if !details.is_empty() {
        let _ = writeln!(text, "\t {details}");
    }
    text
}

/// What ss writes if there is no peer.
fn any_peer(local: SocketAddr) -> String {
    if local.is_ipv4() { "0.0.0.0:*".to_owned() } else { "[::]:*".to_owned() }
}

fn details(socket: &SocketReport) -> String {
    let mut words = Vec::new();
    words.extend(socket.tcp.iter().flat_map(tcp_words));
    words.extend(socket.id.iter().map(|id| format!("id:{id}")));
    words.extend(socket.half_open.map(|count| format!("half_open:{count}")));
    words.extend(socket.drops.filter(|drops| *drops > 0).map(|drops| format!("drops:{drops}")));
    words.join(" ")
}

/// ss's words in ss's order. Values that are zero because nothing has happened yet are left out.
fn tcp_words(tcp: &TcpReport) -> Vec<String> {
    let flags = [(tcp.ts, "ts"), (tcp.sack, "sack"), (tcp.ecn, "ecn"), (tcp.fastopen, "fastopen")];
    let mut words: Vec<String> =
        flags.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()).collect();
    words.push(tcp.congestion.clone());
    words.extend(tcp.wscale.map(|(send, receive)| format!("wscale:{send},{receive}")));
    words.push(format!("rto:{}", tcp.rto_ms));
    words.extend(some("backoff", tcp.backoff));
    if tcp.rtt_ms > 0.0 {
        words.push(format!("rtt:{}/{}", tcp.rtt_ms, tcp.rttvar_ms));
    }
    words.push(format!("ato:{} mss:{} pmtu:{}", tcp.ato_ms, tcp.mss, tcp.pmtu));
    words.push(format!("rcvmss:{} advmss:{} cwnd:{}", tcp.rcvmss, tcp.advmss, tcp.cwnd));
    words.extend(tcp.ssthresh.map(|ssthresh| format!("ssthresh:{ssthresh}")));
    words.extend(some("bytes_sent", tcp.bytes_sent));
    words.extend(some("bytes_retrans", tcp.bytes_retrans));
    words.extend(some("bytes_acked", tcp.bytes_acked));
    words.extend(some("bytes_received", tcp.bytes_received));
    words.extend(some("segs_out", tcp.segs_out));
    words.extend(some("segs_in", tcp.segs_in));
    words.extend(some("data_segs_out", tcp.data_segs_out));
    words.extend(some("data_segs_in", tcp.data_segs_in));
    words.extend(tcp.send_bps.map(|bps| format!("send {bps:.0}bps")));
    words.push(format!("lastsnd:{} lastrcv:{} lastack:{}", tcp.lastsnd_ms, tcp.lastrcv_ms, tcp.lastack_ms));
    words.extend(tcp.pacing_bps.map(|bps| format!("pacing_rate {bps:.0}bps")));
    words.extend(some("delivered", tcp.delivered));
    words.extend(some("unacked", tcp.unacked));
    if tcp.retrans > 0 || tcp.retrans_total > 0 {
        words.push(format!("retrans:{}/{}", tcp.retrans, tcp.retrans_total));
    }
    words.extend(some("lost", tcp.lost));
    words.extend(some("sacked", tcp.sacked));
    words.push(format!("rcv_space:{}", tcp.rcv_space));
    words.extend(some("notsent", tcp.notsent));
    if tcp.minrtt_ms > 0.0 {
        words.push(format!("minrtt:{}", tcp.minrtt_ms));
    }
    words.push(format!("snd_wnd:{} rcv_wnd:{}", tcp.snd_wnd, tcp.rcv_wnd));
    words
}

fn some(name: &str, value: impl Into<u64>) -> Option<String> {
    let value: u64 = value.into();
    (value > 0).then(|| format!("{name}:{value}"))
}

/// What an engine's stack holds beside its sockets.
pub(super) fn engine_line(answering: &Answering, engine: &EngineReport) -> String {
    let who = format!("# {}/{} engine {}", answering.name, answering.pid, engine.engine);
    match &engine.missing {
        Some(why) => format!("{who}: {why}"),
        None => format!(
            "{who}: {} connections, {} half-open, {} in TIME-WAIT; buffers: {} of {} KiB",
            engine.connections,
            engine.half_open,
            engine.time_wait,
            engine.buffer_memory.div_ceil(1024),
            engine.buffer_memory_max / 1024,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answering() -> Answering {
        Answering { pid: 7, name: "echo".to_owned(), engines: 1 }
    }

    fn socket(state: &str) -> SocketReport {
        SocketReport {
            engine: 0,
            protocol: "tcp".to_owned(),
            state: state.to_owned(),
            recv_q: 0,
            send_q: 128,
            local: "192.0.2.1:80".parse().unwrap(),
            remote: None,
            id: None,
            half_open: None,
            drops: None,
            tcp: None,
        }
    }

    #[test]
    fn a_listener_has_no_peer_and_tells_who_is_half_open() {
        let listener = SocketReport { half_open: Some(3), ..socket("LISTEN") };
        let text = socket_lines(&answering(), &listener);
        let words: Vec<&str> = text.split_whitespace().collect();
        let columns = ["tcp", "LISTEN", "0", "128", "192.0.2.1:80", "0.0.0.0:*"];
        assert_eq!(words[..6], columns);
        assert_eq!(words[6..], ["echo/7", "engine", "0", "half_open:3"]);
    }

    #[test]
    fn a_connection_is_told_in_the_words_of_ss() {
        let tcp = TcpReport {
            sack: true,
            congestion: "cubic".to_owned(),
            wscale: Some((7, 8)),
            rto_ms: 204.0,
            rtt_ms: 0.1,
            rttvar_ms: 0.05,
            ato_ms: 40.0,
            mss: 1448,
            pmtu: 1500,
            cwnd: 10,
            bytes_acked: 5,
            retrans_total: 1,
            send_bps: Some(1e9),
            ..TcpReport::default()
        };
        let open = SocketReport {
            remote: Some("[2001:db8::1]:9".parse().unwrap()),
            id: Some("0.0".to_owned()),
            tcp: Some(tcp),
            ..socket("ESTAB")
        };
        let text = socket_lines(&answering(), &open);
        let second = text.lines().nth(1).unwrap().trim();
        let wanted = "sack cubic wscale:7,8 rto:204 rtt:0.1/0.05 ato:40 mss:1448 pmtu:1500 rcvmss:0 advmss:0 \
                      cwnd:10 bytes_acked:5 send 1000000000bps lastsnd:0 lastrcv:0 lastack:0 retrans:0/1 \
                      rcv_space:0 snd_wnd:0 rcv_wnd:0 id:0.0";
        assert_eq!(second, wanted);
    }
}
