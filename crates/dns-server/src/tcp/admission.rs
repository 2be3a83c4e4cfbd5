//! Limits on connections, in total and for each client (RFC 7766, 6.2).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clock::Duration;

/// Limits of DNS over TCP (RFC 7766, 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// A connection without a whole query for this long is closed. Longer suits clients that come back; shorter bounds
    /// what a slow one can hold.
    pub idle_timeout: Duration,
    /// Connections at a time; beyond it the newest is closed at once. Each may hold 192 KiB at worst.
    pub connections_max: usize,
    /// Connections at a time from one IPv4 address or one IPv6 network of 64 bits, so that one client cannot take them all.
    pub connections_per_client_max: usize,
}

/// Counts of DNS over TCP, all engines and the kernel's sockets together.
#[derive(Debug, Default)]
pub struct TcpCounters {
    accepted: AtomicU64,
    refused: AtomicU64,
    idle_closed: AtomicU64,
    open: AtomicU64,
}

impl TcpCounters {
    /// Name and value of each count.
    pub fn named(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("connections_accepted", read(&self.accepted)),
            ("connections_refused", read(&self.refused)),
            ("connections_closed_idle", read(&self.idle_closed)),
            ("connections_open", read(&self.open)),
        ]
    }
}

/// The open connections. All acceptors share it, and ask it once for each connection.
#[derive(Debug)]
pub struct Admission {
    limits: TcpLimits,
    counters: TcpCounters,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    /// Connections of each client that has any.
    clients: HashMap<IpAddr, usize>,
}

/// The right to be connected, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    client: IpAddr,
}

impl Admission {
    /// Without connections.
    pub fn new(limits: TcpLimits) -> Arc<Admission> {
        Arc::new(Admission { limits, counters: TcpCounters::default(), open: Mutex::default() })
    }

    /// The limits.
    pub fn limits(&self) -> &TcpLimits {
        &self.limits
    }

    /// What was counted.
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// Counts a connection that is closed as idle.
    pub fn on_idle_closed(&self) {
        self.counters.idle_closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Admits a connection of `address`; `None`: close it.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let client = network_of(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = open.clients.get(&client).copied().unwrap_or(0);
        if open.total >= self.limits.connections_max || of_client >= self.limits.connections_per_client_max {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        open.clients.insert(client, of_client + 1);
        open.total += 1;
        self.counters.open.store(open.total as u64, Ordering::Relaxed);
        Some(Permit { admission: Arc::clone(self), client })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.admission.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total -= 1;
        self.admission.counters.open.store(open.total as u64, Ordering::Relaxed);
        if let Entry::Occupied(mut of_client) = open.clients.entry(self.client) {
            *of_client.get_mut() -= 1;
            if *of_client.get() == 0 {
                of_client.remove();
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or the 64 bits of an IPv6 address that name its network (RFC 4291, 2.5.4).
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections_max: usize, connections_per_client_max: usize) -> Arc<Admission> {
        let idle_timeout = Duration::from_secs(10);
        Admission::new(TcpLimits { idle_timeout, connections_max, connections_per_client_max })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_client_takes_its_share_and_no_more() {
        let admission = admission(10, 2);
        let permits = ["2001:db8::1", "2001:db8::ffff"].map(|text| admission.admit(address(text)).unwrap());
        assert!(admission.admit(address("2001:db8::2")).is_none(), "the third of its network");
        assert!(admission.admit(address("2001:db8:0:1::2")).is_some());
        drop(permits);
        assert!(admission.admit(address("2001:db8::2")).is_some());
        assert_eq!(admission.counters().named().map(|(_, value)| value), [5, 1, 0, 0]);
    }

    #[test]
    fn all_together_take_no_more_than_there_are() {
        let admission = admission(2, 2);
        let permits = ["192.0.2.1", "192.0.2.2"].map(|text| admission.admit(address(text)).unwrap());
        assert!(admission.admit(address("192.0.2.3")).is_none());
        drop(permits);
        assert!(admission.admit(address("192.0.2.3")).is_some());
    }
}
