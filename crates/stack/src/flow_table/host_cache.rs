//! A cache of facts about hosts.

use core::net::IpAddr;

use super::FlowTable;
use super::recency_list::RecencyList;

/// Values by the address of a host, for a bounded number of hosts; the one used longest ago goes first.
#[derive(Debug)]
pub(crate) struct HostCache<T> {
    index: FlowTable,
    order: RecencyList,
    entries: Vec<(IpAddr, T)>,
}

impl<T> HostCache<T> {
    /// An empty cache of at most `hosts_max` hosts, indexed under the secret `key`.
    pub(crate) fn new(hosts_max: u32, key: [u64; 2]) -> HostCache<T> {
        HostCache {
            index: FlowTable::new(hosts_max as usize, key),
            order: RecencyList::new(hosts_max),
            entries: Vec::new(),
        }
    }

    /// What is known about `host`; not a use of it.
    pub(crate) fn get(&self, host: IpAddr) -> Option<&T> {
        self.find(host).map(|slot| &self.entries[slot as usize].1)
    }

    /// What is known about `host`, now the host used last.
    pub(crate) fn get_mut(&mut self, host: IpAddr) -> Option<&mut T> {
        let slot = self.find(host)?;
        self.order.touch(slot);
        Some(&mut self.entries[slot as usize].1)
    }

    /// What is known about `host`, now the host used last, or else `new`; `None` if there is no room for any host.
    pub(crate) fn get_or_insert(&mut self, host: IpAddr, new: T) -> Option<&mut T> {
        if self.find(host).is_some() {
            return self.get_mut(host);
        }
        let slot = self.order.take().or_else(|| self.recycle())?;
        match self.entries.get_mut(slot as usize) {
            Some(place) => *place = (host, new),
            None => self.entries.push((host, new)),
        }
        self.index.insert(self.index.hash_of_address(host), slot);
        Some(&mut self.entries[slot as usize].1)
    }

    /// Forgets `host`.
    pub(crate) fn remove(&mut self, host: IpAddr) {
        if let Some(slot) = self.find(host) {
            self.index.remove(self.index.hash_of_address(host), slot);
            self.order.give_back(slot);
        }
    }

    fn find(&self, host: IpAddr) -> Option<u32> {
        self.index.find(self.index.hash_of_address(host), |slot| self.entries[slot as usize].0 == host)
    }

    fn recycle(&mut self) -> Option<u32> {
        let slot = self.order.oldest()?;
        self.index.remove(self.index.hash_of_address(self.entries[slot as usize].0), slot);
        self.order.touch(slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn host(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn the_host_used_longest_ago_makes_room() {
        let mut cache = HostCache::new(2, [1, 2]);
        cache.get_or_insert(host(1), 1);
        cache.get_or_insert(host(2), 2);
        assert_eq!(cache.get_mut(host(1)), Some(&mut 1));
        assert_eq!(cache.get_or_insert(host(3), 3), Some(&mut 3));
        assert_eq!([1, 2, 3].map(|last| cache.get(host(last)).copied()), [Some(1), None, Some(3)]);
        cache.remove(host(3));
        cache.get_or_insert(host(4), 4);
        assert_eq!([1, 3, 4].map(|last| cache.get(host(last)).copied()), [Some(1), None, Some(4)]);
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let mut cache = HostCache::new(0, [1, 2]);
        assert_eq!(cache.get_or_insert(host(1), 1), None);
        assert_eq!(cache.get(host(1)), None);
    }
}
