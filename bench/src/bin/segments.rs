//! What the stack takes for one segment, without devices: two stacks in one thread that hand each other their packets.
//!
//! `segments WHAT COUNT` does WHAT (`transact`: a request and a response of 64 octets; `bulk`: a full segment; `connect`: open,
//! use once, close) COUNT times and prints nanoseconds for each, both sides together. `scripts/instructions.sh` runs it under
//! callgrind.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::{Arrival, Config, Connect, ConnectionId, Hop, ListenerId, Stack, TcpOptions};
use wire::ChecksumPolicy;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Connections that take turns in `transact`.
const CONNECTIONS: usize = 64;

struct Hosts {
    client: Stack,
    server: Stack,
    listener: ListenerId,
    now: Instant,
    room: [u8; 1514],
    segments: u64,
    next_port: u16,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(count)) = (arguments.next(), arguments.next().and_then(|count| count.parse().ok())) else {
        eprintln!("usage: segments transact|bulk|connect COUNT");
        std::process::exit(2);
    };
    let mut hosts = Hosts::new();
    let act: fn(&mut Hosts, u64) = match what.as_str() {
        "transact" => Hosts::transact,
        "bulk" => Hosts::bulk,
        "connect" => Hosts::connect_and_close,
        _ => {
            eprintln!("segments: {what} is none of transact, bulk, connect");
            std::process::exit(2);
        }
    };
    let start = std::time::Instant::now();
    act(&mut hosts, count);
    let nanos = start.elapsed().as_nanos() as f64;
    let (each, segments) = (nanos / count as f64, hosts.segments as f64 / count as f64);
    println!("{what}: {each:.0} ns each for both sides, {segments:.2} segments each");
}

impl Hosts {
    fn new() -> Hosts {
        let now = Instant::from_nanos(1_000_000_000);
        let config = Config { connections_max: 1 << 16, ..Config::default() };
        let mut server = Stack::new(config.clone(), [1; 32], now);
        let options = Arc::new(TcpOptions { no_delay: true, ..TcpOptions::default() });
        let listener = server.tcp_listen(SERVER, false, 4096, options).expect("nobody listens yet");
        let client = Stack::new(config, [2; 32], now);
        Hosts { client, server, listener, now, room: [0; 1514], segments: 0, next_port: 1024 }
    }

    fn connect(&mut self) -> (ConnectionId, ConnectionId) {
        self.next_port = self.next_port.wrapping_add(1).max(1024);
        let options = Arc::new(TcpOptions { no_delay: true, ..TcpOptions::default() });
        let local = SocketAddr::new(CLIENT, self.next_port);
        let connect = Connect { local, remote: SERVER, hop: Hop::default(), options, data: b"" };
        let client = self.client.tcp_connect(&connect, self.now).expect("the port is free");
        self.settle();
        (client, self.server.tcp_accept(self.listener).expect("the handshake is complete"))
    }

    /// Lets packets go to and fro until there are none.
    fn settle(&mut self) {
        let arrival = Arrival { checksums: ChecksumPolicy::default(), ..Arrival::default() };
        let room = &mut self.room;
        loop {
            let before = self.segments;
            self.now += Duration::from_micros(1);
            while let Some(sent) = self.client.poll_transmit(self.now, room) {
                self.segments += 1;
                let _ = self.server.on_packet(&room[..sent.len], &arrival, self.now);
            }
            while let Some(sent) = self.server.poll_transmit(self.now, room) {
                self.segments += 1;
                let _ = self.client.on_packet(&room[..sent.len], &arrival, self.now);
            }
            while self.client.poll_event().is_some() {}
            while self.server.poll_event().is_some() {}
            if self.segments == before {
                return;
            }
        }
    }

    /// Carries one flight from one side to the other.
    fn carry(&mut self, to_server: bool) {
        let arrival = Arrival::default();
        let room = &mut self.room;
        self.now += Duration::from_micros(1);
        let (from, to) =
            if to_server { (&mut self.client, &mut self.server) } else { (&mut self.server, &mut self.client) };
        while let Some(sent) = from.poll_transmit(self.now, room) {
            self.segments += 1;
            let _ = to.on_packet(&room[..sent.len], &arrival, self.now);
        }
        while to.poll_event().is_some() {}
        to.on_timeout(self.now);
    }

    fn transact(&mut self, count: u64) {
        let pairs: Vec<_> = (0..CONNECTIONS).map(|_| self.connect()).collect();
        let mut octets = [0; 64];
        for at in 0..count {
            let (client, server) = pairs[at as usize % CONNECTIONS];
            let _ = self.client.send(client, &octets, self.now);
            self.carry(true);
            let _ = self.server.recv(server, &mut octets, self.now);
            let _ = self.server.send(server, &octets, self.now);
            self.carry(false);
            let _ = self.client.recv(client, &mut octets, self.now);
        }
    }

    fn bulk(&mut self, count: u64) {
        let (client, server) = self.connect();
        let data = vec![7; 65_536];
        let mut room = vec![0; 65_536];
        let mut received = 0;
        while received < count * 1448 {
            let _ = self.client.send(client, &data, self.now);
            self.carry(true);
            while let Ok(octets) = self.server.recv(server, &mut room, self.now) {
                received += octets as u64;
            }
            self.carry(false);
        }
    }

    fn connect_and_close(&mut self, count: u64) {
        let mut octets = [0; 64];
        for _ in 0..count {
            let (client, server) = self.connect();
            let _ = self.client.send(client, &octets, self.now);
            self.carry(true);
            let _ = self.server.recv(server, &mut octets, self.now);
            let _ = self.server.send(server, &octets, self.now);
            self.server.close(server, self.now);
            self.carry(false);
            let _ = self.client.recv(client, &mut octets, self.now);
            self.client.close(client, self.now);
            self.settle();
            if self.server.population().2 > 30_000 {
                self.now += Duration::from_secs(61);
                self.server.on_timeout(self.now);
            }
        }
    }
}
