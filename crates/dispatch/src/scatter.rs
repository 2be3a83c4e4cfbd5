//! Whose a received frame is.

use std::net::{IpAddr, SocketAddr};

use wire::ethernet::Ethernet;
use wire::icmp::IcmpError;
use wire::ip::Ip;
use wire::protocol;

/// Who gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The dispatcher's own engine.
    Own,
    /// The worker of this number.
    Worker(usize),
}

/// Assigns flows to places, by a keyed hash that is the same in both directions of a flow: the packet that an ICMP error quotes finds
/// the engine that sent it.
#[derive(Clone, Debug)]
pub struct Scatter {
    key: u64,
    /// Number of workers, at least one.
    workers: u64,
    /// Of 2^32 UDP flows, how many are the dispatcher's own.
    own: u64,
}

impl Scatter {
    /// Spreads flows evenly over `workers`; `own_percent` of those of UDP are the dispatcher's. TCP is always the workers', so that a
    /// connection whose packets change the queue stays where it is. Dispatchers with the same `key` agree; it should not be guessable,
    /// or clients could choose ports that all go to one worker.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn new(workers: usize, own_percent: u8, key: u64) -> Scatter {
        assert!(workers > 0, "frames go to workers");
        let own = (u64::from(own_percent.min(100)) << 32) / 100;
        Scatter { key: key | 1, workers: workers as u64, own }
    }

    /// Whose an Ethernet frame is. What belongs to no flow that can be read (fragments, other protocols) is the dispatcher's own.
    pub fn place(&self, frame: &[u8]) -> Place {
        let Ok(ethernet) = Ethernet::parse(frame) else { return Place::Own };
        let Ok(ip) = Ip::in_frame(&ethernet) else { return Place::Own };
        match (ip.protocol(), ip.payload()) {
            (transport @ (protocol::UDP | protocol::TCP), &[a, b, c, d, ..]) if !ip.is_fragment() => {
                let source = self.end(ip.source(), u16::from_be_bytes([a, b]));
                let destination = self.end(ip.destination(), u16::from_be_bytes([c, d]));
                self.place_of(transport, source, destination)
            }
            (protocol::ICMP | protocol::ICMPV6, _) => self.place_of_error(&ip),
            _ => Place::Own,
        }
    }

    /// An ICMP error belongs to whoever sent the packet that it quotes.
    fn place_of_error(&self, ip: &Ip<'_>) -> Place {
        let Ok(IcmpError { flow, .. }) = IcmpError::parse(ip) else { return Place::Own };
        let end = |address: SocketAddr| self.end(address.ip(), address.port());
        self.place_of(flow.protocol, end(flow.source), end(flow.destination))
    }

    fn place_of(&self, transport: u8, source: u64, destination: u64) -> Place {
        // The sum is the same in both directions.
        let hash = fold(source.wrapping_add(destination) ^ self.key, MULTIPLIER);
        let (for_share, for_worker) = (hash & u64::from(u32::MAX), hash >> 32);
        if transport == protocol::UDP && for_share < self.own {
            return Place::Own;
        }
        Place::Worker(((for_worker * self.workers) >> 32) as usize)
    }

    /// One end of a flow, mixed with the key.
    fn end(&self, address: IpAddr, port: u16) -> u64 {
        let port = u64::from(port);
        match address {
            IpAddr::V4(address) => fold(u64::from(address.to_bits()) << 16 | port, self.key),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                let high = fold((bits >> 64) as u64 ^ port, self.key);
                fold(bits as u64 ^ high, MULTIPLIER)
            }
        }
    }
}

/// Odd, with its bits well spread: the golden ratio of 2^64.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies to 128 bits and adds the halves without carry, so that every bit of the input reaches every bit of the result.
fn fold(value: u64, by: u64) -> u64 {
    let product = u128::from(value ^ MULTIPLIER.rotate_left(17)) * u128::from(by);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use wire::{Endpoints, Envelope, write_udp};

    use super::*;

    const KEY: u64 = 0x0123_4567_89ab_cdef;
    const PROTOCOL_AT: usize = 14 + 9;

    fn udp(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let endpoints = Endpoints::new(source, destination).unwrap();
        let mut frame = vec![0; 128];
        let len = write_udp(&mut frame, &Envelope::untagged(endpoints), b"question").unwrap();
        frame.truncate(len);
        frame
    }

    /// TCP as far as ports go.
    fn tcp(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let mut frame = udp(source, destination);
        match source {
            SocketAddr::V4(_) => frame[PROTOCOL_AT] = protocol::TCP,
            SocketAddr::V6(_) => frame[14 + 6] = protocol::TCP,
        }
        frame
    }

    /// An ICMP error from a router to `to`, about `packet`, which is an Ethernet frame with IPv4.
    fn error_about(packet: &[u8], to: std::net::Ipv4Addr) -> Vec<u8> {
        let router = SocketAddr::new([198, 51, 100, 1].into(), 0);
        let mut frame = udp(router, SocketAddr::new(to.into(), 0));
        let quoted = &packet[14..packet.len().min(14 + 28)];
        frame.truncate(14 + 20);
        frame.extend([3, 3, 0, 0, 0, 0, 0, 0]);
        frame.extend(quoted);
        let sum = wire::checksum::checksum(&frame[34..]);
        frame[36..38].copy_from_slice(&sum.to_be_bytes());
        frame[PROTOCOL_AT] = protocol::ICMP;
        let total = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[24..26].fill(0);
        let sum = wire::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn end() -> impl Strategy<Value = SocketAddr> {
        (any::<[u8; 4]>(), 1..u16::MAX).prop_map(|(address, port)| SocketAddr::new(address.into(), port))
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(16), ..ProptestConfig::default() })]

        #[test]
        fn both_directions_of_a_flow_and_errors_about_it_have_one_place(
            client in end(),
            server in end(),
            workers in 1..9usize,
            own in 0..101u8,
        ) {
            let scatter = Scatter::new(workers, own, KEY);
            for packet in [udp, tcp] {
                let place = scatter.place(&packet(client, server));
                prop_assert_eq!(scatter.place(&packet(server, client)), place);
                let IpAddr::V4(address) = server.ip() else { unreachable!() };
                let sent = packet(server, client);
                prop_assert_eq!(scatter.place(&error_about(&sent, address)), place);
            }
        }

        #[test]
        fn no_input_makes_it_panic_or_name_a_worker_that_is_not_there(
            frame in prop::collection::vec(any::<u8>(), 0..100),
            workers in 1..9usize,
        ) {
            let place = Scatter::new(workers, 50, KEY).place(&frame);
            prop_assert!(matches!(place, Place::Own) || matches!(place, Place::Worker(number) if number < workers));
        }
    }

    #[test]
    fn tcp_is_never_the_dispatchers_own() {
        let scatter = Scatter::new(3, 100, KEY);
        let server = "[2001:db8::53]:53".parse().unwrap();
        for port in 1..2000 {
            let client = SocketAddr::new([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), port);
            assert_eq!(scatter.place(&udp(client, server)), Place::Own);
            assert_ne!(scatter.place(&tcp(client, server)), Place::Own);
        }
    }

    #[test]
    fn clients_of_one_port_and_ports_of_one_client_spread_evenly() {
        let scatter = Scatter::new(8, 20, KEY);
        let server = "192.0.2.53:53".parse().unwrap();
        let address = |number: u16| std::net::Ipv4Addr::from_bits(0x0a00_0000 | u32::from(number));
        let by_address = |number| SocketAddr::new(address(number).into(), 1024);
        let by_port = |number| SocketAddr::new([203, 0, 113, 7].into(), 1024 + number);
        for client in [&by_address as &dyn Fn(u16) -> SocketAddr, &by_port] {
            let mut counts = [0; 9];
            for number in 0..20_000 {
                match scatter.place(&udp(client(number), server)) {
                    Place::Own => counts[8] += 1,
                    Place::Worker(number) => counts[number] += 1,
                }
            }
            assert!((3700..4300).contains(&counts[8]), "{counts:?}");
            assert!(counts[..8].iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
        }
    }
}
