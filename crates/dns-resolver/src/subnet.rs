//! Answers for networks of clients (EDNS Client Subnet, RFC 7871): what servers of zones that the user names are told about who asks, and
//! their answers, each for the network that its scope says.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
pub use dns_wire::Subnet;
use dns_wire::{Name, NameBuf, Rtype};

use crate::cache::whole_secs;
use crate::resolver::Known;

/// Answers that are kept, of all names: the oldest leave first. Each has a few hundred octets.
const ANSWERS_MAX: usize = 20_000;
/// Octets of one; longer ones are not kept.
const ANSWER_OCTETS_MAX: usize = 2048;

/// What a name is for clients of a network.
#[derive(Debug)]
struct Kept {
    number: u64,
    known: Known,
    stored: Instant,
    expires: Instant,
}

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct ForNetwork {
    /// With the TTLs that are left.
    pub(crate) known: Known,
    /// Seconds that are left, and seconds in all.
    pub(crate) left: u32,
    pub(crate) whole: u32,
}

/// Answers that differ by network. They are served while they are fresh, and never after.
#[derive(Debug, Default)]
pub(crate) struct ByNetwork {
    names: BTreeMap<(NameBuf, Rtype), BTreeMap<Subnet, Kept>>,
    /// By age; some may have been replaced since.
    order: VecDeque<(u64, NameBuf, Rtype, Subnet)>,
    next_number: u64,
}

impl ByNetwork {
    /// Keeps what `name`, in lower case, is for a network.
    pub(crate) fn put(
        &mut self,
        name: NameBuf,
        rtype: Rtype,
        network: Subnet,
        known: Known,
        ttl: u32,
        now: Instant,
    ) {
        if ttl == 0 || known.octets() > ANSWER_OCTETS_MAX {
            return;
        }
        self.next_number += 1;
        let number = self.next_number;
        let expires = now + Duration::from_secs(ttl.into());
        let kept = Kept { number, known, stored: now, expires };
        self.names.entry((name.clone(), rtype)).or_default().insert(network, kept);
        self.order.push_back((number, name, rtype, network));
        while self.order.len() > ANSWERS_MAX {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((number, name, rtype, network)) = self.order.pop_front() else { return };
        let key = (name, rtype);
        let Some(networks) = self.names.get_mut(&key) else { return };
        if networks.get(&network).is_some_and(|kept| kept.number == number) {
            networks.remove(&network);
        }
        if networks.is_empty() {
            self.names.remove(&key);
        }
    }

    /// What is known for clients of `subnet`, by the longest network that they are in.
    pub(crate) fn get(
        &self,
        name: Name<'_>,
        rtype: Rtype,
        subnet: Subnet,
        now: Instant,
    ) -> Option<ForNetwork> {
        let networks = self.networks(name, rtype)?;
        let mut found = subnet.within().filter_map(|network| networks.get(&network));
        let kept = found.find(|kept| kept.expires > now)?;
        let (left, whole) =
            (whole_secs(kept.expires.since(now)), whole_secs(kept.expires.since(kept.stored)));
        Some(ForNetwork { known: kept.known.with_ttl(left), left, whole })
    }

    /// Whether there may be an answer for a network.
    pub(crate) fn has(&self, name: Name<'_>, rtype: Rtype) -> bool {
        self.networks(name, rtype).is_some()
    }

    fn networks(&self, name: Name<'_>, rtype: Rtype) -> Option<&BTreeMap<Subnet, Kept>> {
        if self.names.is_empty() {
            return None;
        }
        let mut name = NameBuf::from(name);
        name.make_lowercase();
        self.names.get(&(name, rtype))
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = ByNetwork { next_number: self.next_number, ..ByNetwork::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::message::{Rdatas, Rrset};

    fn subnet(text: &str, length: u8) -> Subnet {
        Subnet::new(text.parse().unwrap(), length)
    }

    #[test]
    fn the_longest_network_counts_and_the_oldest_answers_leave() {
        let mut answers = ByNetwork::default();
        let name = NameBuf::from_text(b"www.example.", None).unwrap();
        let known = |ttl| {
            Known::Records(Rrset::unsigned(name.clone(), Rtype::A, ttl, Rdatas::pack([&[1u8, 2, 3, 4][..]])))
        };
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        answers.put(name.clone(), Rtype::A, subnet("192.0.2.0", 16), known(60), 60, at(0));
        answers.put(name.clone(), Rtype::A, subnet("192.0.2.0", 24), known(30), 30, at(0));
        let left = |answers: &ByNetwork, text: &str, secs| {
            let upper = NameBuf::from_text(b"WWW.example.", None).unwrap();
            answers.get(upper.as_name(), Rtype::A, subnet(text, 24), at(secs)).map(|found| found.left)
        };
        assert_eq!(left(&answers, "192.0.2.9", 1), Some(29));
        assert_eq!(left(&answers, "192.0.3.9", 1), Some(59));
        assert_eq!(left(&answers, "192.0.2.9", 30), Some(30), "the longer one has ended");
        assert_eq!((left(&answers, "192.1.2.9", 1), left(&answers, "192.0.2.9", 60)), (None, None));
        for number in 0..ANSWERS_MAX as u32 {
            let network = Subnet::new(Ipv4Addr::from_bits(number << 8).into(), 24);
            answers.put(name.clone(), Rtype::A, network, known(60), 60, at(0));
        }
        assert_eq!(left(&answers, "192.0.3.9", 1), None);
        assert!(answers.names.values().map(BTreeMap::len).sum::<usize>() <= ANSWERS_MAX);
    }
}
