//! The next hop on the way to a server, which may move: another machine takes its address over, or a network card is replaced.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use control::{Neighbour, look_for_neighbour, neighbour, route_to};
use wire::MacAddress;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows the kernel's tables until it is dropped. A thread does, as the kernel may keep who asks waiting.
pub(super) struct NextHop {
    mac: Arc<AtomicU64>,
    _end: Sender<()>,
}

impl NextHop {
    /// The next hop to `server` by an interface of this index, whose hardware address is `mac` now.
    pub(super) fn follow(interface: u32, server: IpAddr, mac: MacAddress) -> io::Result<NextHop> {
        let shared = Arc::new(AtomicU64::new(to_bits(mac)));
        let known = Arc::clone(&shared);
        let (end, ended) = channel();
        thread::Builder::new().name("next-hop".to_owned()).spawn(move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if let Some(mac) = look_up(interface, server) {
                    known.store(to_bits(mac), Ordering::Relaxed);
                }
            }
        })?;
        Ok(NextHop { mac: shared, _end: end })
    }

    /// Its hardware address, or the last one that was known.
    pub(super) fn mac(&self) -> MacAddress {
        let [.., a, b, c, d, e, f] = self.mac.load(Ordering::Relaxed).to_be_bytes();
        MacAddress([a, b, c, d, e, f])
    }
}

fn to_bits(MacAddress([a, b, c, d, e, f]): MacAddress) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// `None` while it is not known, or the way is by another interface. The kernel sees none of our packets: it is told that the neighbour is used, and so
/// looks whether it is still there.
fn look_up(interface: u32, server: IpAddr) -> Option<MacAddress> {
    let route = route_to(server).ok().filter(|route| route.interface == interface)?;
    let next = route.gateway.unwrap_or(server);
    let known = neighbour(interface, next).ok().flatten();
    if known.is_none_or(Neighbour::is_to_be_looked_for) {
        let _ = look_for_neighbour(interface, next); // The next look shows what came of it.
    }
    known.filter(|known| known.usable)?.mac.map(MacAddress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_known_address_stays_where_there_is_no_such_way() {
        let mac = MacAddress([2, 0xff, 1, 0, 0x80, 9]);
        let next_hop = NextHop::follow(u32::MAX, [127, 0, 0, 1].into(), mac).unwrap();
        thread::sleep(2 * PAUSE);
        assert_eq!(next_hop.mac(), mac);
    }
}
