//! What the stack takes for one segment, without devices: two stacks in one thread that hand each other their packets.
//!
//! `segments WHAT COUNT` does WHAT (`transact`: a request and a response of 64 octets; `bulk`: a full segment; `pairs`: the
//! same with an acknowledgement for every second; `connect`: open, use once, close) COUNT times and prints nanoseconds for
//! each, both sides together; without arguments it does all of them. `scripts/instructions.sh` runs it under callgrind.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::{Arrival, Config, Connect, ConnectionId, Hop, ListenerId, Stack, TcpOptions};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Connections that take turns in `transact`.
const CONNECTIONS: usize = 64;

/// Does something so many times.
type Act = fn(&mut Hosts, u64);

const ACTS: [(&str, Act); 4] = [
    ("transact", Hosts::transact),
    ("bulk", Hosts::bulk),
    ("pairs", Hosts::pairs),
    ("connect", Hosts::connect_and_close),
];

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let act = arguments.first().and_then(|wanted| ACTS.iter().find(|(what, _)| what == wanted));
    let count = arguments.get(1).and_then(|count| count.parse().ok());
    match (arguments.len(), act, count) {
        (0, ..) => ACTS.iter().for_each(|(what, act)| measure(what, *act, 1_000_000)),
        (2, Some((what, act)), Some(count)) => measure(what, *act, count),
        _ => {
            eprintln!("usage: segments [transact|bulk|pairs|connect COUNT]");
            std::process::exit(2);
        }
    }
}

fn measure(what: &str, act: Act, count: u64) {
    let mut hosts = Hosts::new();
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
        let connect =
            Connect { local, remote: SERVER, is_bound: false, hop: Hop::default(), options, data: b"" };
        let client = self.client.tcp_connect(&connect, self.now).expect("the port is free");
        self.settle();
        (client, self.server.tcp_accept(self.listener).expect("the handshake is complete"))
    }

    /// Lets packets go to and fro until there are none.
    fn settle(&mut self) {
        let mut before = None;
        while before != Some(self.segments) {
            before = Some(self.segments);
            self.fly_to_server();
            self.fly_to_client();
        }
    }

    /// A turn of the server behind the client's flight.
    fn carry_to_server(&mut self) {
        self.fly_to_server();
        self.server.on_timeout(self.now);
    }

    /// A turn of the client behind the server's flight.
    fn carry_to_client(&mut self) {
        self.fly_to_client();
        self.client.on_timeout(self.now);
    }

    fn fly_to_server(&mut self) {
        self.now += Duration::from_micros(1);
        while let Some(len) = self.client_transmits() {
            self.server_receives(len);
        }
        while self.server.poll_event().is_some() {}
    }

    fn fly_to_client(&mut self) {
        self.now += Duration::from_micros(1);
        while let Some(len) = self.server_transmits() {
            self.client_receives(len);
        }
        while self.client.poll_event().is_some() {}
    }

    // Functions of their own, for callgrind to count by: in `pairs`, segments go one way and acknowledgements the other.

    #[inline(never)]
    fn client_transmits(&mut self) -> Option<usize> {
        self.client.poll_transmit(self.now, &mut self.room).map(|sent| sent.len)
    }

    #[inline(never)]
    fn server_receives(&mut self, len: usize) {
        self.segments += 1;
        let _ = self.server.on_packet(&self.room[..len], &Arrival::default(), self.now);
    }

    #[inline(never)]
    fn server_transmits(&mut self) -> Option<usize> {
        self.server.poll_transmit(self.now, &mut self.room).map(|sent| sent.len)
    }

    #[inline(never)]
    fn client_receives(&mut self, len: usize) {
        self.segments += 1;
        let _ = self.client.on_packet(&self.room[..len], &Arrival::default(), self.now);
    }

    fn transact(&mut self, count: u64) {
        let pairs: Vec<_> = (0..CONNECTIONS).map(|_| self.connect()).collect();
        let mut octets = [0; 64];
        for at in 0..count {
            let (client, server) = pairs[at as usize % CONNECTIONS];
            let _ = self.client.send(client, &octets, self.now);
            self.carry_to_server();
            let _ = self.server.recv(server, &mut octets, self.now);
            let _ = self.server.send(server, &octets, self.now);
            self.carry_to_client();
            let _ = self.client.recv(client, &mut octets, self.now);
        }
    }

    fn bulk(&mut self, count: u64) {
        self.stream(65_536, count);
    }

    fn pairs(&mut self, count: u64) {
        self.stream(2 * 1448, count);
    }

    /// Sends `count` full segments in flights of `flight` octets.
    fn stream(&mut self, flight: usize, count: u64) {
        let (client, server) = self.connect();
        let data = vec![7; flight];
        let mut room = vec![0; 65_536];
        let mut received = 0;
        while received < count * 1448 {
            let _ = self.client.send(client, &data, self.now);
            self.carry_to_server();
            while let Ok(octets) = self.server.recv(server, &mut room, self.now) {
                received += octets as u64;
            }
            self.carry_to_client();
        }
    }

    fn connect_and_close(&mut self, count: u64) {
        let mut octets = [0; 64];
        for _ in 0..count {
            let (client, server) = self.connect();
            let _ = self.client.send(client, &octets, self.now);
            self.carry_to_server();
            let _ = self.server.recv(server, &mut octets, self.now);
            let _ = self.server.send(server, &octets, self.now);
            self.server.close(server, self.now);
            self.carry_to_client();
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
