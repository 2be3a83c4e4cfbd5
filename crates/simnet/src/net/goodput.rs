//! How much of a bottleneck flows get: what congestion control is for.

use std::net::{Ipv4Addr, SocketAddr};

use clock::{Duration, Instant};
use stack::congestion::Algorithm;
use stack::{Config, TcpOptions};

use super::application::{Plan, Step};
use super::host::Host;
use super::link::{Faults, LinkSettings};
use super::our_host::{OurHost, OurSettings};
use super::simulation::Simulation;
use super::traffic::{Connection, Opening};
use super::violation::Violation;

/// A path with one narrow link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    /// Octets a second of packets with their headers.
    pub rate: u64,
    /// Round-trip time of an empty path.
    pub rtt: Duration,
    /// Octets that its queue holds.
    pub buffer: u64,
    /// Packets in a million that are lost by chance, towards the receiver.
    pub loss: u32,
}

impl Bottleneck {
    /// Octets in flight that fill the path without its queue.
    pub fn bandwidth_delay_product(&self) -> u64 {
        self.rate * self.rtt.as_micros() / 1_000_000
    }
}

const MTU: u16 = 1500;
/// Of it: IPv4, TCP and timestamps.
const HEADERS: u16 = 52;

/// Share of what `bottleneck` can carry that each of `flows` got between `from` and `to`. They begin half a second after each
/// other.
pub fn shares(
    bottleneck: &Bottleneck,
    flows: &[Algorithm],
    from: Duration,
    to: Duration,
) -> Result<Vec<f64>, Violation> {
    let mut simulation = simulation(bottleneck, flows);
    simulation.run(from)?;
    let before = received(&simulation, flows.len());
    simulation.run(to)?;
    let after = received(&simulation, flows.len());
    let payload_rate = bottleneck.rate as f64 * f64::from(MTU - HEADERS) / f64::from(MTU);
    let most = payload_rate * (to - from).as_secs_f64();
    Ok(before.iter().zip(&after).map(|(before, after)| (after - before) as f64 / most).collect())
}

/// Jain's index of fairness: 1 if all `shares` are equal, 1/n if one of n has everything.
pub fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Octets that each flow's receiver has read.
fn received(simulation: &Simulation, flows: usize) -> Vec<u64> {
    let of = |flow| simulation.ends(flow)[1].map_or(0, |receiver| receiver.received());
    (0..flows).map(of).collect()
}

fn simulation(bottleneck: &Bottleneck, flows: &[Algorithm]) -> Simulation {
    let start = Instant::ZERO;
    let host = |secret: u64| -> (Box<dyn Host>, u16, Duration) {
        let options = |algorithm: &Algorithm| TcpOptions { congestion: *algorithm, ..TcpOptions::default() };
        let config = Config { connections_max: 16, trace_records: 16, ..Config::default() };
        let options = flows.iter().map(options).collect();
        let settings = OurSettings { config, options, mtu: MTU, secret, tso: false };
        (Box::new(OurHost::new(&settings, start)), MTU, Duration::ZERO)
    };
    let back = LinkSettings { delay: bottleneck.rtt / 2, ..LinkSettings::default() };
    let there = LinkSettings {
        rate: bottleneck.rate,
        queue: bottleneck.buffer,
        faults: Faults { loss: bottleneck.loss, ..Faults::default() },
        ..back.clone()
    };
    let mut simulation = Simulation::new([host(1), host(2)], [there, back], start, 1);
    let server = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 2).into(), 80);
    simulation.listen(server);
    for flow in 0..flows.len() as u16 {
        simulation.add(endless(SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 40_000 + flow), server));
    }
    simulation
}

/// A connection from `client` with more data than it will ever send.
fn endless(client: SocketAddr, server: SocketAddr) -> Connection {
    let number = client.port() - 40_000;
    let mut plans = [Plan::new(vec![Step::Send(u64::MAX)]), Plan::new(vec![])];
    for plan in &mut plans {
        (plan.write_max, plan.read_max) = (1 << 16, 1 << 16);
    }
    Connection {
        client,
        server,
        begins: Duration::from_millis(500) * u32::from(number),
        opening: Opening::Client,
        plans,
        key: number.into(),
        early_data: false,
        may_hang: true,
        may_repeat: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_shares_and_least_when_one_has_all() {
        assert_eq!(fairness(&[0.5, 0.5]), 1.0);
        assert_eq!(fairness(&[1.0, 0.0]), 0.5);
    }
}
