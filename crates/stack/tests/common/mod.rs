//! Two hosts and a wire that loses nothing: half a millisecond each way.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::tcp::{RecvError, SendError};
use stack::{
    Arrival, Config, Connect, ConnectionId, Hop, Link, LinkId, ListenerId, Payload, Stack, TcpOptions,
};
use wire::super_segment::{Headers, parts};

pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
pub const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 40_000);

const DELAY: Duration = Duration::from_micros(500);

pub struct Host {
    pub stack: Stack,
    /// Octets of room for a packet.
    pub room: usize,
    /// The super-segments that it has sent: headers, length of the payload, size of the segments.
    pub super_segments: Vec<(Vec<u8>, usize, u16)>,
    outbox: Vec<Vec<u8>>,
}

pub struct Pair {
    pub client: Host,
    pub server: Host,
    pub now: Instant,
    wire: VecDeque<(Instant, bool, Vec<u8>)>,
    /// Which of the client's next packets are lost.
    lost: Range<usize>,
}

impl Host {
    fn new(config: Config, secret: u8) -> Host {
        let stack = Stack::new(config, [secret; 32], Instant::ZERO);
        Host { stack, room: 1500, super_segments: Vec::new(), outbox: Vec::new() }
    }

    /// Its link cuts packets of up to `tso_max` octets.
    pub fn cut(&mut self, tso_max: u16) {
        self.stack.set_link(LinkId(0), Link { tso_max, ..Link::default() }, Instant::ZERO);
    }

    pub fn listen(&mut self, local: SocketAddr, backlog: u32) -> ListenerId {
        self.stack.tcp_listen(local, false, backlog, Arc::default()).unwrap()
    }

    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr) -> ConnectionId {
        let options = Arc::new(TcpOptions::default());
        let connect = Connect { local, remote, is_bound: false, hop: Hop::default(), options, data: b"" };
        self.stack.tcp_connect(&connect, Instant::from_nanos(1_000_000)).unwrap()
    }

    /// Everything that there is to read.
    pub fn recv(&mut self, id: ConnectionId, now: Instant) -> Result<Vec<u8>, RecvError> {
        let mut all = Vec::new();
        let mut part = [0; 10_000];
        loop {
            match self.stack.recv(id, &mut part, now) {
                Ok(0) => return Ok(all),
                Ok(count) => all.extend(&part[..count]),
                Err(RecvError::WouldBlock) if !all.is_empty() => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    pub fn transmit(&mut self, now: Instant) {
        let mut room = vec![0; self.room];
        while let Some(transmit) = self.stack.poll_transmit(now, &mut room[..]) {
            let packet = &room[..transmit.len];
            match &transmit.payload {
                None => self.outbox.push(packet.to_vec()),
                Some(payload) => self.transmit_cut(packet, payload),
            }
        }
    }

    fn transmit_cut(&mut self, packet: &[u8], payload: &Payload) {
        let octets: Vec<u8> = self.stack.payload(payload).flatten().copied().collect();
        self.super_segments.push((packet.to_vec(), octets.len(), payload.segment_size));
        let headers = Headers::parse(packet).unwrap();
        for part in parts(octets.len(), payload.segment_size.into()) {
            let mut segment = vec![0; packet.len() + part.len];
            let octets = &octets[part.offset..part.offset + part.len];
            headers.write_segment(&mut segment, part, |out| out.copy_from_slice(octets)).unwrap();
            self.outbox.push(segment);
        }
    }
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(Config::default(), Config::default())
    }

    pub fn with(client: Config, server: Config) -> Pair {
        let now = Instant::from_nanos(1_000_000);
        Pair {
            client: Host::new(client, 1),
            server: Host::new(server, 2),
            now,
            wire: VecDeque::new(),
            lost: 0..0,
        }
    }

    /// A connection from the client to the server, accepted.
    pub fn connected(&mut self) -> (ConnectionId, ConnectionId) {
        let listener = self.server.listen(SERVER, 16);
        let client = self.client.connect(CLIENT, SERVER);
        self.run();
        (client, self.server.stack.tcp_accept(listener).expect("the handshake is complete"))
    }

    /// The server forgets all its connections and listeners.
    pub fn forget_server(&mut self) {
        self.server = Host::new(Config::default(), 3);
    }

    /// Lets packets travel, and timers within the next second expire, until nothing moves any more.
    pub fn run(&mut self) {
        self.run_for(Duration::from_millis(250));
    }

    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.flush();
            let timers = [self.client.stack.poll_timeout(), self.server.stack.poll_timeout()];
            let packet = self.wire.front().map(|(at, _, _)| *at);
            let Some(next) = timers.into_iter().flatten().chain(packet).min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.deliver();
            self.client.stack.on_timeout(self.now);
            self.server.stack.on_timeout(self.now);
        }
    }

    /// Loses these of the next packets that the client sends, counted from zero.
    pub fn lose_next(&mut self, places: Range<usize>) {
        self.lost = places;
    }

    fn flush(&mut self) {
        for (to_server, host) in [(true, &mut self.client), (false, &mut self.server)] {
            host.transmit(self.now);
            for packet in host.outbox.drain(..) {
                let is_lost = to_server && self.lost.contains(&0);
                if to_server {
                    self.lost = self.lost.start.saturating_sub(1)..self.lost.end.saturating_sub(1);
                }
                if !is_lost {
                    self.wire.push_back((self.now + DELAY, to_server, packet));
                }
            }
        }
    }

    fn deliver(&mut self) {
        while self.wire.front().is_some_and(|(at, _, _)| *at <= self.now) {
            let (_, to_server, packet) = self.wire.pop_front().expect("there is one");
            let host = if to_server { &mut self.server } else { &mut self.client };
            host.stack
                .on_packet(&packet, &Arrival::default(), self.now)
                .expect("a packet of our own is well-formed");
        }
    }

    /// Sends all of `request` one way and `response` the other; what arrived at server and client.
    pub fn exchange(
        &mut self,
        client: ConnectionId,
        server: ConnectionId,
        request: &[u8],
        response: &[u8],
    ) -> (Vec<u8>, Vec<u8>) {
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        let (mut sent, mut answered) = (0, 0);
        for _ in 0..10_000 {
            sent += send_some(&mut self.client, client, &request[sent..], self.now);
            answered += send_some(&mut self.server, server, &response[answered..], self.now);
            self.run_for(Duration::from_millis(1));
            at_server.extend(self.server.recv(server, self.now).unwrap_or_default());
            at_client.extend(self.client.recv(client, self.now).unwrap_or_default());
            if at_server.len() >= request.len() && at_client.len() >= response.len() {
                break;
            }
        }
        (at_server, at_client)
    }
}

fn send_some(host: &mut Host, id: ConnectionId, data: &[u8], now: Instant) -> usize {
    match host.stack.send(id, data, now) {
        Ok(count) => count,
        Err(SendError::WouldBlock) => 0,
        Err(error) => panic!("{error:?}"),
    }
}

/// Octets that tell where they belong.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}
