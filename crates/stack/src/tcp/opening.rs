//! Opening connections.

use std::sync::Arc;

use clock::Instant;
use wire::IpVersion;
use wire::tcp::flag;

use crate::buffer::ByteQueue;
use crate::config::{EcnMode, TcpOptions};
use crate::flow_table::FlowKey;
use crate::path::{LinkId, PathId};
use crate::path_mtu::PathMtu;
use crate::rtt::RttEstimator;
use crate::segment::{FastOpenCookie, Segment, SegmentOptions, Timestamps};
use crate::seq::SeqNum;
use crate::slab::Handle;
use crate::tcp::connection::{
    Connection, Events, Fate, Flags, Origin, Sender, Shared, State, Tally, micros, millis,
};
use crate::tcp::handshake::Agreement;
use crate::tcp::receiver::Receiver;
use crate::tcp::timers::Timers;
use crate::tcp::transfer::Rest;

/// Segment size to assume before the peer said one.
const MSS_DEFAULT: u16 = 536;

impl Connection {
    /// A connection without sequence numbers. `on` is the path it uses, acquired for it, and that path's link.
    pub(crate) fn new(
        handle: Handle<Connection>,
        key: FlowKey,
        on: (PathId, LinkId),
        origin: Origin,
        options: Arc<TcpOptions>,
        shared: &mut Shared,
        now: Instant,
    ) -> Connection {
        let (path, link) = on;
        let path_mtu = path_mtu_of(&key, link, shared, now);
        let mut connection = Connection {
            key,
            index: handle.index(),
            generation: handle.generation() as u16,
            path,
            link,
            state: if origin == Origin::Active { State::SynSent } else { State::SynReceived },
            origin,
            flags: Flags {
                sack: shared.config.sack,
                timestamps: shared.config.timestamps,
                ..Flags::default()
            },
            events: Events::NONE,
            error: None,
            soft_error: None,
            send: Sender::new(),
            receive: Receiver::new(&options, now),
            transfer: None,
            rest: Rest::NEW,
            rtt: RttEstimator::new(shared.config.rto_min),
            path_mtu,
            timers: Timers::new(),
            options,
            rare: None,
            timestamp_offset: 0,
            handshakes: 0,
            handshake_timeouts: 0,
            handshake_sent_at: micros(now),
            tally: Tally { last_received_ms: millis(now), last_ack_ms: millis(now), ..Tally::default() },
            token: 0,
            listener: None,
        };
        if connection.options.receive_low_water > 1 {
            connection.follow_low_water();
        }
        connection
    }

    /// An active open: the SYN is due (RFC 9293, 3.10.1).
    pub(crate) fn open(&mut self, iss: SeqNum, timestamp_offset: u32, shared: &mut Shared) {
        self.start_sequence(iss);
        self.timestamp_offset = timestamp_offset;
        self.flags.ecn = shared.config.ecn == EcnMode::Active;
        self.flags.handshake_due = true;
        self.send.peer_mss = self.mss_to_announce(shared);
    }

    fn start_sequence(&mut self, iss: SeqNum) {
        self.send.iss = iss;
        self.send.snd_una = iss;
        self.send.snd_nxt = iss;
        self.send.small_end = iss;
    }

    /// Takes over what a SYN and our SYN-ACK agreed on. The state is SYN-RECEIVED; the ACK is yet to be applied.
    pub(crate) fn adopt(&mut self, agreement: Agreement, shared: &mut Shared, now: Instant) {
        self.start_sequence(agreement.iss);
        self.send.snd_nxt = agreement.iss + 1;
        self.timestamp_offset = agreement.timestamp_offset;
        self.receive.on_syn(agreement.irs, agreement.window);
        let options = SegmentOptions {
            mss: Some(agreement.peer_mss),
            window_scale: agreement.scales.map(|(theirs, _)| theirs),
            sack_permitted: agreement.sack,
            timestamps: agreement.ts_recent.map(|value| Timestamps { value, echo: 0 }),
            ..SegmentOptions::default()
        };
        self.negotiate(&options, shared, now);
        if let Some((_, ours)) = agreement.scales {
            self.receive.scale = ours;
        }
        self.flags.ecn = agreement.ecn;
    }

    /// RFC 7413, 4.2.2: the SYN's data is taken, and a SYN-ACK for both goes out.
    pub(crate) fn begin_fast(&mut self, segment: &Segment<'_>, shared: &mut Shared, now: Instant) -> Fate {
        self.flags.fast_open_child = true;
        self.flags.fast_open_pending = true;
        self.flags.handshake_due = true;
        self.send.snd_wnd = u32::from(segment.window);
        self.send.max_window = self.send.snd_wnd;
        self.send.snd_wl1 = segment.seq;
        self.send.snd_wl2 = self.send.iss;
        let seq = segment.payload_seq();
        let fin = segment.has(flag::FIN);
        let received = self.receive.accept(seq, segment.payload, fin, &mut shared.buffers);
        self.tally.bytes_received += u64::from(received.in_order);
        self.tally.last_received_ms = millis(now);
        if received.in_order > 0 {
            self.raise(Events::READABLE);
        }
        Fate::Alive
    }

    /// The Fast Open option for our SYN: a cookie, or an empty one that asks for one. `peer_mss` is what the server said when
    /// it gave the cookie, so that the data of the SYN fits (RFC 7413, 4.1.3).
    pub(crate) fn try_fast_open(&mut self, cookie: FastOpenCookie, peer_mss: Option<u16>) {
        self.flags.fast_open_tried = true;
        self.send.peer_mss = peer_mss.map_or(self.send.peer_mss, |mss| mss.min(self.send.peer_mss));
        self.rare().fast_open = Some(cookie);
    }
}

/// What is known of the path to `key`'s peer.
fn path_mtu_of(key: &FlowKey, link: LinkId, shared: &mut Shared, now: Instant) -> PathMtu {
    let mtu = shared.paths.link(link).mtu;
    let version = if key.is_v6() { IpVersion::V6 } else { IpVersion::V4 };
    let mut path_mtu = match version {
        IpVersion::V4 => PathMtu::with_floor(mtu, shared.config.path_mtu_min),
        IpVersion::V6 => PathMtu::new(mtu, version),
    };
    if let Some(cached) = shared.path_mtus.get(key.remote().ip(), now) {
        path_mtu.start_at(cached);
    }
    path_mtu
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender {
            iss: SeqNum(0),
            snd_una: SeqNum(0),
            snd_nxt: SeqNum(0),
            snd_wnd: 0,
            max_window: 0,
            snd_wl1: SeqNum(0),
            snd_wl2: SeqNum(0),
            small_end: SeqNum(0),
            queue: ByteQueue::new(),
            scale: 0,
            mss: MSS_DEFAULT,
            peer_mss: MSS_DEFAULT,
            probes: 0,
            probe_backoff: 0,
        }
    }
}
