//! Addresses that are given by weight and health.
//!
//! A pool says of some names how many of their addresses an answer has, how often each, and which ones are not to be given now. From that come
//! *shares*: a few sets of addresses, each for a range of draws. An answer draws a number and gives the set of its range, so that a set can be
//! compiled and signed in advance.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use dns_wire::Rtype;

/// How the addresses of some names are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The addresses of an answer at most, for each type; `None` for all.
    pub answers: Option<usize>,
    /// How often each address is given, in proportion to the others. Those that are not here have 1; those with 0 are given only where no other one
    /// can be.
    pub weights: BTreeMap<IpAddr, u32>,
    /// Those that are not to be given now.
    pub down: BTreeSet<IpAddr>,
}

/// The types of records that pools are about.
pub const ADDRESS_TYPES: [Rtype; 2] = [Rtype::A, Rtype::AAAA];

/// The address in the data of a record of one of [`ADDRESS_TYPES`].
pub fn address_in(rdata: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(rdata).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(rdata).ok().map(IpAddr::from))
}

/// Some members of a list, by their places there in rising order, for the draws from `from` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) from: u32,
    pub(crate) members: Vec<usize>,
}

impl Pool {
    /// The weight of an address, 0 if it is not to be given.
    pub fn weight(&self, address: IpAddr) -> u32 {
        if self.down.contains(&address) { 0 } else { self.weights.get(&address).copied().unwrap_or(1) }
    }

    /// The shares of addresses; none if all of them are down.
    pub(crate) fn shares(&self, addresses: impl Iterator<Item = Option<IpAddr>>) -> Vec<Share> {
        let addresses: Vec<Option<IpAddr>> = addresses.collect();
        let weights = |weight: &dyn Fn(IpAddr) -> u32| {
            addresses.iter().map(|address| address.map_or(1, weight)).collect::<Vec<u32>>()
        };
        let mut wanted = weights(&|address| self.weight(address));
        if wanted.iter().all(|weight| *weight == 0) {
            // Those with weight 0 stand by for this.
            wanted = weights(&|address| u32::from(!self.down.contains(&address)));
        }
        shares(&wanted, self.answers.unwrap_or(usize::MAX))
    }
}

/// Draws that there are.
const DRAWS: u128 = 1 << 32;

/// Sets of `count` members each, or of all that have a weight if that are fewer. Each member is in as many draws as its weight wants: `count` times its
/// part of the sum, and in all if that is more than one ("systematic sampling with probability proportional to size").
///
/// The members lie one behind the other on a line, each as long as its probability; the set of a draw are those at which the line is met by the draw and
/// by each whole number behind it. There are no more sets than members.
fn shares(weights: &[u32], count: usize) -> Vec<Share> {
    let mut left: Vec<usize> = (0..weights.len()).filter(|place| weights[*place] > 0).collect();
    if left.is_empty() {
        return Vec::new();
    }
    let mut open = count.min(left.len());
    let always = take_certain(weights, &mut left, &mut open);
    let sum: u128 = left.iter().map(|place| u128::from(weights[*place])).sum();
    let mut end = 0;
    let lengths: Vec<(usize, u128, u128)> = left
        .iter()
        .scan(0, |before, place| {
            let start = end;
            *before += u128::from(weights[*place]);
            end = *before * open as u128 * DRAWS / sum;
            Some((*place, start, end))
        })
        .collect();
    let mut bounds: BTreeSet<u32> = lengths.iter().map(|(_, start, _)| (start % DRAWS) as u32).collect();
    bounds.insert(0);
    let share = |from: u32| {
        let is_met = |(_, start, end): &&(usize, u128, u128)| {
            let number = start.saturating_sub(from.into()).div_ceil(DRAWS);
            number * DRAWS + u128::from(from) < *end
        };
        let met = lengths.iter().filter(is_met).map(|(place, ..)| *place);
        let mut members: Vec<usize> = always.iter().copied().chain(met).collect();
        members.sort_unstable();
        Share { from, members }
    };
    let mut shares: Vec<Share> = bounds.into_iter().map(share).collect();
    shares.dedup_by(|next, share| next.members == share.members);
    shares
}

/// Takes out of `left` the places of those that each of the `open` sets has to have.
fn take_certain(weights: &[u32], left: &mut Vec<usize>, open: &mut usize) -> Vec<usize> {
    let mut certain = Vec::new();
    loop {
        let sum: u128 = left.iter().map(|place| u128::from(weights[*place])).sum();
        let is_certain = |place: &usize| u128::from(weights[*place]) * *open as u128 >= sum;
        let found: Vec<usize> = left.iter().copied().filter(is_certain).collect();
        if found.is_empty() {
            return certain;
        }
        left.retain(|place| !found.contains(place));
        *open -= found.len(); // No more than that can have so large a part of the sum.
        certain.extend(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each member, the part of all draws that give it, in thousandths.
    fn parts(weights: &[u32], count: usize) -> Vec<u64> {
        let shares = shares(weights, count);
        let ends = shares.iter().skip(1).map(|share| u64::from(share.from)).chain([1 << 32]);
        let mut parts = vec![0; weights.len()];
        for (share, end) in shares.iter().zip(ends) {
            assert_eq!(share.members.len(), count.min(weights.iter().filter(|weight| **weight > 0).count()));
            share.members.iter().for_each(|place| parts[*place] += end - u64::from(share.from));
        }
        parts.into_iter().map(|part| (part * 1000 + (1 << 31)) >> 32).collect()
    }

    #[test]
    fn one_member_is_given_as_often_as_its_weight_says() {
        assert_eq!(parts(&[1, 1], 1), [500, 500]);
        assert_eq!(parts(&[3, 1], 1), [750, 250]);
        assert_eq!(parts(&[99, 1], 1), [990, 10]);
        assert_eq!(parts(&[5, 0, 5], 1), [500, 0, 500]);
        assert_eq!(parts(&[u32::MAX; 3], 1), [333, 333, 333]);
    }

    #[test]
    fn who_has_no_weight_stands_by_until_all_others_are_down() {
        let addresses: [IpAddr; 3] = [1, 2, 3].map(|last| [192, 0, 2, last].into());
        let given = |down: &[IpAddr]| {
            let weights = BTreeMap::from([(addresses[1], 0), (addresses[2], 0)]);
            let pool = Pool { answers: Some(1), weights, down: down.iter().copied().collect() };
            let shares = pool.shares(addresses.iter().copied().map(Some));
            shares.into_iter().map(|share| share.members).collect::<Vec<_>>()
        };
        assert_eq!(given(&[]), [[0]]);
        assert_eq!(given(&addresses[..1]), [[1], [2]]);
        assert_eq!(given(&addresses[..2]), [[2]]);
        assert!(given(&addresses).is_empty());
    }

    #[test]
    fn several_members_are_given_as_often_as_their_weights_say_or_always() {
        assert_eq!(parts(&[1, 1, 1, 1], 2), [500, 500, 500, 500]);
        assert_eq!(parts(&[3, 2, 2, 1], 2), [750, 500, 500, 250]);
        assert_eq!(parts(&[10, 1, 1], 2), [1000, 500, 500]);
        assert_eq!(parts(&[1, 2, 3], 3), [1000, 1000, 1000]);
        assert_eq!(parts(&[1, 2, 3], 9), [1000, 1000, 1000]);
    }

    #[test]
    fn there_are_no_more_sets_than_members_and_none_without() {
        assert_eq!(shares(&[7, 5, 2, 2], 2).len(), 4);
        assert_eq!(shares(&[1, 2, 3], 3), [Share { from: 0, members: vec![0, 1, 2] }]);
        assert_eq!((shares(&[0, 0], 1).len(), shares(&[], 1).len()), (0, 0));
    }

    #[test]
    fn an_address_that_is_down_has_no_weight() {
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let pool = Pool { down: [one].into(), weights: [(one, 9)].into(), ..Pool::default() };
        let addresses = || [Some(one), Some(other)].into_iter();
        assert_eq!(pool.shares(addresses()), [Share { from: 0, members: vec![1] }]);
        let all = Pool { down: [one, other].into(), ..Pool::default() };
        assert_eq!(all.shares(addresses()), []);
    }
}
