//! Detects neighbours that have moved to another hardware address. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::mirror::Mirror;

/// Neighbours that are kept after the kernel has forgotten them; beyond this number they are forgotten here, too.
const REMEMBERED_MAX: usize = 1 << 14;

/// Flows to one hardware address must go to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourMove {
    /// The old address.
    pub old: [u8; 6],
    /// The new address.
    pub new: [u8; 6],
}

/// Remembers where each neighbour was last seen, even while the kernel looks for it again.
#[derive(Debug, Default)]
pub struct NeighbourWatch {
    seen: BTreeMap<(u32, IpAddr), [u8; 6]>,
    /// Moves that were not reported yet.
    pending: Vec<NeighbourMove>,
}

impl NeighbourWatch {
    /// The neighbours on `interfaces` that have moved since the last call.
    ///
    /// Flows are identified by the hardware address that they are sent to. While another neighbour is known at the old address (two
    /// addresses of one router, of which one moved), it is impossible to say which flows belong to which, and nothing is reported. A
    /// neighbour that the kernel has not heard from for a while does not count: it is most likely another address of the one that moved.
    pub fn compare(&mut self, mirror: &Mirror, interfaces: &BTreeSet<u32>) -> Vec<NeighbourMove> {
        let here: Vec<_> = mirror.neighbours().filter(|((index, _), _)| interfaces.contains(index)).collect();
        for (key, neighbour) in &here {
            if let Some(new) = neighbour.mac.filter(|_| neighbour.usable)
                && let Some(old) = self.seen.insert(*key, new).filter(|old| *old != new)
            {
                self.note_move(old, new);
            }
        }
        if self.seen.len() > REMEMBERED_MAX {
            self.seen.retain(|key, _| here.iter().any(|(other, _)| other == key));
        }
        let is_taken = |mac: [u8; 6]| here.iter().any(|(_, other)| other.confirmed && other.mac == Some(mac));
        self.pending.extract_if(.., |moved| !is_taken(moved.old)).collect()
    }

    /// Redirects unreported moves to `old` to `new`.
    fn note_move(&mut self, old: [u8; 6], new: [u8; 6]) {
        self.pending.iter_mut().filter(|moved| moved.new == old).for_each(|moved| moved.new = new);
        self.pending.push(NeighbourMove { old, new });
        self.pending.retain(|moved| moved.old != moved.new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::Neighbour;

    const HERE: u32 = 2;

    fn mirror(neighbours: &[(u32, &str, Option<u8>)]) -> Mirror {
        let mut mirror = Mirror::default();
        for &(index, address, mac) in neighbours {
            let usable = mac.is_some();
            let neighbour =
                Neighbour { mac: mac.map(|octet| [octet; 6]), usable, confirmed: usable, cared_for: false };
            mirror.set_neighbour(index, address.parse().unwrap(), neighbour);
        }
        mirror
    }

    fn compare(watch: &mut NeighbourWatch, neighbours: &[(u32, &str, Option<u8>)]) -> Vec<(u8, u8)> {
        let moves = watch.compare(&mirror(neighbours), &BTreeSet::from([HERE]));
        moves.into_iter().map(|moved| (moved.old[0], moved.new[0])).collect()
    }

    #[test]
    fn a_neighbour_that_moves_is_told_once() {
        let mut watch = NeighbourWatch::default();
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(1))]), []);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(3))]), [(1, 3)]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(3))]), []);
    }

    #[test]
    fn it_is_remembered_while_the_kernel_looks_for_it() {
        let mut watch = NeighbourWatch::default();
        compare(&mut watch, &[(HERE, "192.0.2.1", Some(1))]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", None)]), []);
        assert_eq!(compare(&mut watch, &[]), []);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(3))]), [(1, 3)]);
    }

    #[test]
    fn while_another_neighbour_is_still_there_nothing_is_told() {
        let mut watch = NeighbourWatch::default();
        compare(&mut watch, &[(HERE, "192.0.2.1", Some(1)), (HERE, "2001:db8::1", Some(1))]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(3)), (HERE, "2001:db8::1", Some(1))]), []);
    }

    #[test]
    fn the_move_is_told_when_nobody_is_known_to_be_there_any_more() {
        let (moved, other) = ((HERE, "192.0.2.1", Some(3)), "2001:db8::1");
        let mut watch = NeighbourWatch::default();
        compare(&mut watch, &[(HERE, "192.0.2.1", Some(1)), (HERE, other, Some(1))]);
        assert_eq!(compare(&mut watch, &[moved, (HERE, other, Some(1))]), []);
        let mut stale = mirror(&[moved]);
        let neighbour = Neighbour { mac: Some([1; 6]), usable: true, confirmed: false, cared_for: false };
        stale.set_neighbour(HERE, other.parse().unwrap(), neighbour);
        let told = watch.compare(&stale, &BTreeSet::from([HERE]));
        assert_eq!(told, [NeighbourMove { old: [1; 6], new: [3; 6] }]);
        assert_eq!(
            compare(&mut watch, &[moved, (HERE, other, Some(3))]),
            [(1, 3)],
            "now the other has moved"
        );
    }

    #[test]
    fn a_move_that_is_not_told_yet_follows_the_next_one() {
        let mut watch = NeighbourWatch::default();
        let other = (HERE, "2001:db8::1", Some(1));
        compare(&mut watch, &[(HERE, "192.0.2.1", Some(1)), other]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(3)), other]), []);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(4)), other]), [(3, 4)]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(4))]), [(1, 4)]);
    }

    #[test]
    fn a_neighbour_that_is_back_has_not_moved() {
        let mut watch = NeighbourWatch::default();
        let other = (HERE, "2001:db8::1", Some(1));
        compare(&mut watch, &[(HERE, "192.0.2.1", Some(1)), other]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(3)), other]), []);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(1)), other]), [(3, 1)]);
        assert_eq!(compare(&mut watch, &[(HERE, "192.0.2.1", Some(1))]), []);
    }

    #[test]
    fn neighbours_on_other_interfaces_do_not_matter() {
        let mut watch = NeighbourWatch::default();
        compare(&mut watch, &[(7, "192.0.2.1", Some(1))]);
        assert_eq!(compare(&mut watch, &[(7, "192.0.2.1", Some(3))]), []);
    }
}
