//! Configuration of a stack and its sockets.

use clock::Duration;

use crate::congestion::Algorithm;

/// Settings of a whole stack, which is one engine's. Defaults are Linux's where Linux has the setting; its name stands at the
/// end of the line.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Connections that may exist, half-open ones and TIME-WAIT aside. Tables for them are reserved at start: some 16 octets
    /// each.
    pub connections_max: u32,
    /// Half-open connections that may exist, over all listeners; beyond them SYN cookies go out (`tcp_max_syn_backlog`).
    pub half_open_max: u32,
    /// Half-open connections that a listener may have even if its backlog is shorter, as Linux does not. Unlike those that have a cookie only, they can be
    /// moved.
    pub half_open_min: u32,
    /// Connections in TIME-WAIT, 64 octets each; the oldest makes room (`tcp_max_tw_buckets`).
    pub time_wait_max: u32,
    /// Whether a RST does not end TIME-WAIT (RFC 1337, 3; `tcp_rfc1337`). If one does, it has exactly the next sequence number: so a peer whose SYN looks
    /// old, as several behind one address translator do, need not wait for the end of TIME-WAIT.
    pub time_wait_ignores_resets: bool,
    /// Connections that no socket holds any more and that still have something to say; one more is reset when it is closed
    /// (`tcp_max_orphans`).
    pub orphans_max: u32,
    /// Octets of data that all sockets together may queue.
    pub buffer_memory: usize,
    /// What sockets start with.
    pub tcp: TcpOptions,
    /// Explicit congestion notification (`tcp_ecn`).
    pub ecn: EcnMode,
    /// When SYN cookies are sent (`tcp_syncookies`).
    pub syn_cookies: SynCookies,
    /// Offer and accept timestamps (`tcp_timestamps`).
    pub timestamps: bool,
    /// Offer and accept selective acknowledgements (`tcp_sack`).
    pub sack: bool,
    /// Offer and accept window scaling (`tcp_window_scaling`).
    pub window_scaling: bool,
    /// Serve Fast Open to listeners that ask for it (`tcp_fastopen`).
    pub fast_open_server: bool,
    /// Use Fast Open for connections that ask for it (`tcp_fastopen`).
    pub fast_open_client: bool,
    /// How long a connection stays in TIME-WAIT.
    pub time_wait: Duration,
    /// How long a flow must have been in TIME-WAIT before connecting takes it over, if timestamps tell old segments from new ones
    /// (`tcp_tw_reuse` and `tcp_tw_reuse_delay`, which on Linux are for loopback alone by default); `None`: it never does. For hosts
    /// whose ports another process chooses. A port that the program chose waits for nothing ([`Connect::is_bound`](crate::Connect)).
    pub time_wait_reuse: Option<Duration>,
    /// Whether the congestion window shrinks while a connection idles longer than its timeout (`tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// How long a closed socket waits in FIN-WAIT-2 for its peer's FIN (`tcp_fin_timeout`).
    pub fin_timeout: Duration,
    /// Times a SYN is sent again before connecting fails (`tcp_syn_retries`).
    pub syn_retries: u8,
    /// Times a SYN-ACK is sent again before a half-open connection is forgotten (`tcp_synack_retries`).
    pub syn_ack_retries: u8,
    /// Retransmissions of one segment before the path is suspected (`tcp_retries1`; R1 of RFC 9293, 3.8.3).
    pub retries_suspect: u8,
    /// Retransmissions of one segment before the connection ends (`tcp_retries2`; R2 of RFC 9293, 3.8.3).
    pub retries_max: u8,
    /// The same for a connection that no socket holds any more (`tcp_orphan_retries`, where 0 stands for 8).
    pub orphan_retries: u8,
    /// Least retransmission timeout (`TCP_RTO_MIN`).
    pub rto_min: Duration,
    /// Longest delay of an acknowledgement. RFC 9293, 3.8.6.3: below 500 ms.
    pub delayed_ack_max: Duration,
    /// Longest time that an acknowledgement which need not be delayed waits for data to ride on. For applications that answer between
    /// two turns: [`Stack::send_held_acks`](crate::Stack::send_held_acks) says that they will not. With zero, the default, it leaves
    /// in the same turn.
    pub ack_hold_max: Duration,
    /// Least time between ACKs in answer to segments without data that are outside the window, per connection, also in
    /// TIME-WAIT (`tcp_invalid_ratelimit`).
    pub out_of_window_ack_interval: Duration,
    /// Challenge ACKs a second of the whole stack (RFC 5961, 7; `tcp_challenge_ack_limit`). Without limit by default: a
    /// stranger could count what others use up of one and so guess their sequence numbers (CVE-2016-5696). What limits them
    /// is `out_of_window_ack_interval`, connection by connection.
    pub challenge_acks_per_second: u32,
    /// Probe for a larger path MTU (`tcp_mtu_probing`).
    pub path_mtu_probing: PathMtuProbing,
    /// The smallest MTU that an ICMP error may tell for IPv4 (`min_pmtu`).
    pub path_mtu_min: u16,
    /// Segments for connections that have just left which wait for [`Stack::next_late_segment`](crate::Stack::next_late_segment), a
    /// packet's memory each; more are ignored, and with 0, the default, all are.
    pub late_segments_max: usize,
    /// Flows whose segments may be of a connection of another stack, and wait for [`Stack::next_stray`](crate::Stack::next_stray) or were
    /// asked for a moment ago. What exceeds them is dropped, and asked for when it is sent again. With 0, the default, nobody is asked, and all
    /// senders are reset at once.
    pub strays_max: usize,
    /// Records of the trace ring, rounded up to a power of two; 32 octets each.
    pub trace_records: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            connections_max: 1 << 20,
            half_open_max: 4096,
            half_open_min: 0,
            time_wait_max: 1 << 18,
            time_wait_ignores_resets: false,
            orphans_max: 1 << 16,
            buffer_memory: 256 << 20,
            tcp: TcpOptions::default(),
            ecn: EcnMode::default(),
            syn_cookies: SynCookies::default(),
            timestamps: true,
            sack: true,
            window_scaling: true,
            fast_open_server: true,
            fast_open_client: true,
            time_wait: Duration::from_secs(60),
            time_wait_reuse: None,
            slow_start_after_idle: true,
            fin_timeout: Duration::from_secs(60),
            syn_retries: 6,
            syn_ack_retries: 5,
            retries_suspect: 3,
            retries_max: 15,
            orphan_retries: 8,
            rto_min: Duration::from_millis(200),
            delayed_ack_max: Duration::from_millis(40),
            ack_hold_max: Duration::ZERO,
            out_of_window_ack_interval: Duration::from_millis(500),
            challenge_acks_per_second: u32::MAX,
            path_mtu_probing: PathMtuProbing::default(),
            path_mtu_min: 552,
            late_segments_max: 0,
            strays_max: 0,
            trace_records: 4096,
        }
    }
}

/// When explicit congestion notification is used (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Never.
    Off,
    /// If the peer asks for it.
    #[default]
    Passive,
    /// Asked for on outgoing connections as well.
    Active,
}

/// When SYN cookies are sent (RFC 4987, 3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynCookies {
    /// Never: SYNs beyond the limits are dropped.
    Never,
    /// When there are too many half-open connections.
    #[default]
    UnderPressure,
    /// For every SYN; for tests.
    Always,
}

/// When the stack probes the path MTU by itself (RFC 4821).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMtuProbing {
    /// Never: only ICMP lowers it.
    Off,
    /// After a black hole is suspected.
    #[default]
    OnBlackHole,
    /// Always.
    Always,
}

/// Options of one TCP socket; the name of the socket option stands at the end of the line. Accepted connections start with
/// their listener's.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpOptions {
    /// Send small segments at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Hold back what does not fill a segment, for 200 ms at most (`TCP_CORK`).
    pub cork: bool,
    /// Probe an idle connection (`SO_KEEPALIVE`).
    pub keepalive: bool,
    /// Idle time before the first probe (`TCP_KEEPIDLE`).
    pub keepalive_idle: Duration,
    /// Time between probes (`TCP_KEEPINTVL`).
    pub keepalive_interval: Duration,
    /// Probes without answer that end the connection (`TCP_KEEPCNT`).
    pub keepalive_probes: u8,
    /// How long data may stay unacknowledged, or a zero window last; `None` counts retransmissions instead
    /// (`TCP_USER_TIMEOUT`, RFC 5482).
    pub user_timeout: Option<Duration>,
    /// What close does with data that is not acknowledged: `Some(0)` resets the connection (`SO_LINGER`). Waiting is up to
    /// the caller.
    pub linger: Option<Duration>,
    /// Congestion controller (`TCP_CONGESTION`).
    pub congestion: Algorithm,
    /// Largest segment to announce and to send (`TCP_MAXSEG`); `None` takes what the path allows.
    pub mss_max: Option<u16>,
    /// A listener reports a connection when its first data has arrived, or after this many SYN-ACKs (`TCP_DEFER_ACCEPT`).
    pub defer_accept: Option<u8>,
    /// Urgent octets stay in the stream (`SO_OOBINLINE`).
    pub urgent_inline: bool,
    /// Octets that may be queued and held back: no more are taken, and the socket is writable from half as many on
    /// (`TCP_NOTSENT_LOWAT`).
    pub not_sent_low_water: u32,
    /// Octets of the receive buffer; `None` lets it grow as needed (`SO_RCVBUF`).
    pub receive_buffer: Option<u32>,
    /// What it grows from by itself (half of the second number of `tcp_rmem`).
    pub receive_buffer_initial: u32,
    /// What it grows to at most (the third number). The window scale that we offer follows it.
    pub receive_buffer_max: u32,
    /// Octets of the send buffer; `None` lets it grow as needed (`SO_SNDBUF`).
    pub send_buffer: Option<u32>,
    /// Limit of the advertised window (`TCP_WINDOW_CLAMP`).
    pub window_clamp: Option<u32>,
    /// IPv4 TTL or IPv6 hop limit (`IP_TTL`).
    pub hop_limit: u8,
    /// IPv4 TOS or IPv6 traffic class without its ECN bits (`IP_TOS`).
    pub traffic_class: u8,
    /// SYN retransmissions; `None` takes the stack's (`TCP_SYNCNT`).
    pub syn_retries: Option<u8>,
    /// Time in FIN-WAIT-2; `None` takes the stack's (`TCP_LINGER2`).
    pub fin_timeout: Option<Duration>,
    /// A closed socket does not wait in FIN-WAIT-2: when its FIN is acknowledged, the connection is reset (`TCP_LINGER2` below
    /// zero).
    pub no_fin_wait_2: bool,
    /// Octets that make a socket readable (`SO_RCVLOWAT`); fewer do if the window has no room for more.
    pub receive_low_water: u32,
    /// Most octets a second (`SO_MAX_PACING_RATE`).
    pub pacing_rate_max: Option<u64>,
    /// Pending Fast Open connections that a listener takes; zero refuses Fast Open (`TCP_FASTOPEN`).
    pub fast_open_queue: u16,
    /// A listener keeps the headers of the SYNs that its connections began with (`TCP_SAVE_SYN`).
    pub save_syn: bool,
    /// Whether connecting may send data in the SYN (`TCP_FASTOPEN_CONNECT`, `MSG_FASTOPEN`).
    pub fast_open_connect: bool,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions {
            no_delay: false,
            cork: false,
            keepalive: false,
            keepalive_idle: Duration::from_secs(7200),
            keepalive_interval: Duration::from_secs(75),
            keepalive_probes: 9,
            user_timeout: None,
            linger: None,
            congestion: Algorithm::default(),
            mss_max: None,
            defer_accept: None,
            urgent_inline: false,
            not_sent_low_water: u32::MAX,
            receive_buffer: None,
            receive_buffer_initial: 64 << 10,
            receive_buffer_max: 6 << 20,
            send_buffer: None,
            window_clamp: None,
            hop_limit: 64,
            traffic_class: 0,
            syn_retries: None,
            fin_timeout: None,
            no_fin_wait_2: false,
            receive_low_water: 1,
            pacing_rate_max: None,
            fast_open_queue: 0,
            save_syn: false,
            fast_open_connect: false,
        }
    }
}
