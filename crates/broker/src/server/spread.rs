//! How an interface spreads connections over its queues, as far as it says so and is believed.
//!
//! A process with some of the queues may connect from those ports whose answers come by them (`steering::SourcePorts`). What an interface says may not
//! be so: rules of its own, or a virtual switch, may have packets come otherwise. Their segments are dropped then, and the client says that it had no answer
//! ([`crate::protocol::Request::Unanswered`]). After some of these the interface is not believed any more.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use device_xdp::{HashedFields, tcp_hashed_fields};
use nic::Nic;
use steering::rss::{IndirectionTable, KEY_LEN, Toeplitz};

/// Connections whose answers came by other queues, after which an interface is not believed.
const MISDIRECTED_MAX: u32 = 3;
/// How often it is read what an interface says, once somebody has wanted to know. The driver may have to ask the device.
const READ_EVERY: Duration = Duration::from_secs(1);

/// What an interface says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceSpread {
    /// The key of the Toeplitz function, of at least [`KEY_LEN`] octets.
    pub(super) key: Vec<u8>,
    pub(super) table: IndirectionTable,
    /// Whether ports are hashed besides addresses, of TCP over IPv4 and over IPv6; `None`: it is not said, or something else is hashed.
    pub(super) hashes_ports: [Option<bool>; 2],
}

impl DeviceSpread {
    /// Asks the driver. `None`: it does not say, or it is not understood.
    pub(super) fn of(interface: &str) -> Option<DeviceSpread> {
        let said = Nic::open(interface).ok()?.spread().ok().filter(|said| said.is_toeplitz)?;
        let queue = |queue: u32| u16::try_from(queue).ok();
        let table: Vec<u16> = said.table.into_iter().map(queue).collect::<Option<_>>()?;
        let hashes_ports = [false, true].map(|is_v6| match tcp_hashed_fields(interface, is_v6) {
            Ok(HashedFields::AddressesAndPorts) => Some(true),
            Ok(HashedFields::Addresses) => Some(false),
            Ok(HashedFields::Other) | Err(_) => None,
        });
        let spread = DeviceSpread { key: said.key, table: IndirectionTable::new(&table)?, hashes_ports };
        (spread.key.len() >= KEY_LEN).then_some(spread)
    }

    /// Whether ports are hashed.
    pub(super) fn hashes_ports_of(&self, is_ipv4: bool) -> Option<bool> {
        self.hashes_ports[usize::from(!is_ipv4)]
    }

    /// The queue by which a segment from `remote` to `local` comes.
    fn queue(&self, remote: SocketAddr, local: SocketAddr) -> Option<u16> {
        let toeplitz = Toeplitz::new(self.key.first_chunk()?);
        let hash = match self.hashes_ports_of(local.is_ipv4())? {
            true => toeplitz.hash_ports(remote, local),
            false => toeplitz.hash_addresses(remote.ip(), local.ip()),
        };
        Some(self.table.queue(hash))
    }
}

/// What an interface said when it was last asked, and what came of it.
#[derive(Debug, Default)]
pub(super) struct SpreadWatch {
    /// `None`: nobody wanted to know.
    said: Option<Option<DeviceSpread>>,
    read_at: Instant,
    misdirected: u32,
}

impl SpreadWatch {
    /// What the interface says, if it is believed. It is asked when somebody first wants to know.
    pub(super) fn believed(
        &mut self,
        read: impl FnOnce() -> Option<DeviceSpread>,
        now: Instant,
    ) -> Option<&DeviceSpread> {
        let is_doubted = self.is_doubted();
        let said = self.said.get_or_insert_with(|| {
            self.read_at = now;
            read()
        });
        said.as_ref().filter(|_| !is_doubted)
    }

    /// Asks anew if somebody relies on it, and it is time; returns whether it is another than before. That one is believed.
    pub(super) fn follow(&mut self, read: impl FnOnce() -> Option<DeviceSpread>, now: Instant) -> bool {
        self.said.is_some() && now >= self.read_at + READ_EVERY && self.read_again(read, now)
    }

    fn read_again(&mut self, read: impl FnOnce() -> Option<DeviceSpread>, now: Instant) -> bool {
        let said = read();
        self.read_at = now;
        let is_other = self.said.as_ref() != Some(&said);
        if is_other {
            (self.said, self.misdirected) = (Some(said), 0);
        }
        is_other
    }

    /// Whether an answer that came by another queue says something of the interface: it says that it would come by one of these.
    pub(super) fn promises(&self, (local, remote): (SocketAddr, SocketAddr), queues: &BTreeSet<u16>) -> bool {
        let said = self.said.as_ref().and_then(Option::as_ref);
        said.and_then(|said| said.queue(remote, local)).is_some_and(|queue| queues.contains(&queue))
    }

    /// The answer to a connection came by another queue than was promised.
    pub(super) fn on_misdirected(
        &mut self,
        read: impl FnOnce() -> Option<DeviceSpread>,
        now: Instant,
    ) -> Misdirected {
        if self.read_again(read, now) {
            return Misdirected::Changed;
        }
        self.misdirected += 1;
        if self.misdirected == MISDIRECTED_MAX { Misdirected::Doubted } else { Misdirected::Noted }
    }

    /// Whether the interface is not believed.
    pub(super) fn is_doubted(&self) -> bool {
        self.misdirected >= MISDIRECTED_MAX
    }
}

/// What follows from an answer that came by another queue than was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misdirected {
    /// The interface says something else by now.
    Changed,
    /// From here on it is not believed.
    Doubted,
    /// Nothing yet; or it is not believed anyway.
    Noted,
}

#[cfg(test)]
mod tests {
    use steering::rss::MICROSOFT_KEY;

    use super::*;

    fn spread(queues: u16) -> DeviceSpread {
        let table = IndirectionTable::even(queues);
        DeviceSpread { key: MICROSOFT_KEY.to_vec(), table, hashes_ports: [Some(true), None] }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn loopback_says_nothing() {
        assert_eq!(DeviceSpread::of("lo"), None);
    }

    #[test]
    fn an_interface_is_asked_when_somebody_wants_to_know_and_then_once_a_second() {
        let mut watch = SpreadWatch::default();
        assert!(!watch.follow(|| panic!("nobody wants to know"), at(5000)));
        assert_eq!(watch.believed(|| Some(spread(2)), at(5000)), Some(&spread(2)));
        assert_eq!(watch.believed(|| panic!("it is known"), at(5500)), Some(&spread(2)));
        assert!(!watch.follow(|| panic!("it was read a moment ago"), at(5999)));
        assert!(!watch.follow(|| Some(spread(2)), at(6000)), "it is the same");
        assert!(watch.follow(|| Some(spread(4)), at(7000)));
        assert_eq!(watch.believed(|| panic!("it is known"), at(7000)), Some(&spread(4)));
        assert!(watch.follow(|| None, at(8000)));
        assert_eq!(watch.believed(|| panic!("it is known"), at(8000)), None);
    }

    #[test]
    fn after_three_answers_by_other_queues_it_is_believed_again_only_when_it_says_something_else() {
        let mut watch = SpreadWatch::default();
        watch.believed(|| Some(spread(2)), at(0));
        let mut miss = |queues, millis| watch.on_misdirected(|| Some(spread(queues)), at(millis));
        assert_eq!((miss(2, 1), miss(2, 2)), (Misdirected::Noted, Misdirected::Noted));
        assert_eq!(miss(4, 3), Misdirected::Changed, "that was why");
        let outcomes = [4, 5, 6, 7].map(|millis| miss(4, millis));
        assert_eq!(
            outcomes,
            [Misdirected::Noted, Misdirected::Noted, Misdirected::Doubted, Misdirected::Noted]
        );
        assert!(watch.is_doubted() && watch.believed(|| None, at(8)).is_none());
        assert!(!watch.follow(|| Some(spread(4)), at(2000)) && watch.is_doubted());
        assert!(watch.follow(|| Some(spread(8)), at(3000)) && !watch.is_doubted());
    }

    #[test]
    fn an_answer_is_promised_to_the_queue_that_its_hash_chooses() {
        let mut watch = SpreadWatch::default();
        let (local, remote) = ("192.0.2.1:40000".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
        let queues = |queues: &[u16]| queues.iter().copied().collect::<BTreeSet<u16>>();
        assert!(!watch.promises((local, remote), &queues(&[0, 1])), "nothing was said");
        watch.believed(|| Some(spread(2)), at(0));
        let hash = Toeplitz::new(&MICROSOFT_KEY).hash_ports(remote, local);
        let own = (hash % 2) as u16;
        assert!(watch.promises((local, remote), &queues(&[own])));
        assert!(!watch.promises((local, remote), &queues(&[1 - own])));
        let v6 = ("[2001:db8::1]:1".parse().unwrap(), "[2001:db8::2]:2".parse().unwrap());
        assert!(!watch.promises(v6, &queues(&[0, 1])), "of IPv6 it is not said what is hashed");
    }
}
