//! What has to be in a zone: the writer's own view, which no server has a part in.
//!
//! What a name has follows from its number and its generation. So the model of a million records is a list of numbers, and the sum of
//! the weights of all records is kept for every version.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use dns_wire::Rtype;
use simnet::net::Random;

use crate::records::{Data, Entry, weight};

/// Addresses whose exclusive or is the serial of their version.
pub(crate) const GROUP: usize = 16;
/// Names that have the serial of their version as text; first, last and in the middle of the canonical order.
const MARKS: [&str; 3] = ["0-mark", "mark.d500", "zz-mark"];
/// Nodes below the apex, under which the names are.
const BRANCHES: u64 = 997;
/// TTL of what marks a version.
const MARK_TTL: u32 = 5;

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    DeleteName(String),
    DeleteSet(String, Rtype),
    Delete(Entry),
    Add(Entry),
}

/// A zone of one version.
pub(crate) struct Model {
    /// Absolute.
    pub(crate) origin: String,
    pub(crate) serial: u32,
    generations: Vec<u32>,
    group: [u32; GROUP],
    sum: u64,
    chance: Random,
}

/// What turns a version of a model into the next one.
pub(crate) struct Transaction {
    pub(crate) changes: Vec<Change>,
    pub(crate) serial: u32,
    /// The sum of the version that it makes.
    pub(crate) sum: u64,
    numbers: BTreeSet<usize>,
    group: [u32; GROUP],
}

impl Model {
    /// At least so many records.
    pub(crate) fn new(origin: &str, serial: u32, records: usize, seed: u64) -> Model {
        let mut chance = Random::new(seed);
        let group = group_for(serial, std::array::from_fn(|_| chance.bits() as u32), 0);
        let mut model =
            Model { origin: origin.to_owned(), serial, generations: Vec::new(), group, sum: 0, chance };
        let mut count = 0;
        while count < records {
            count += model.entries_of(model.generations.len(), 0).len();
            model.generations.push(0);
        }
        model.sum = model.entries().map(|entry| weight(&entry.key())).fold(0, u64::wrapping_add);
        model
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// All records but the SOA.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let names = self.generations.iter().enumerate();
        let named = names.flat_map(|(number, &generation)| self.entries_of(number, generation));
        self.fixed().into_iter().chain(self.marks(self.serial, &self.group)).chain(named)
    }

    /// The zone as a file. `timers` are REFRESH, RETRY and EXPIRE.
    pub(crate) fn write(&self, to: &mut impl Write, timers: &str) -> io::Result<()> {
        let (origin, serial) = (&self.origin, self.serial);
        writeln!(to, "{origin} 60 IN SOA ns.{origin} host.{origin} {serial} {timers} 60")?;
        self.entries().try_for_each(|entry| writeln!(to, "{} {} IN {}", entry.owner, entry.ttl, entry.data))
    }

    /// Changes of up to `most` names.
    pub(crate) fn draw(&mut self, most: u64) -> Transaction {
        let count = self.chance.magnitude(1, most);
        let names = self.generations.len() as u64;
        let numbers: BTreeSet<usize> = (0..count).map(|_| self.chance.below(names) as usize).collect();
        let serial = next(self.serial);
        let mut group = self.group;
        for _ in 0..2 {
            let at = self.chance.below(GROUP as u64) as usize;
            group[at] = self.chance.bits() as u32;
        }
        let last = self.chance.below(GROUP as u64) as usize;
        let group = group_for(serial, group, last);
        let by_sets = self.chance.one_in(2);

        let mut changes = Vec::new();
        let (mut before, mut after) = (self.marks(self.serial, &self.group), self.marks(serial, &group));
        sets(&before, &after, &mut changes);
        for &number in &numbers {
            let generation = self.generations[number];
            let (old, new) = (self.entries_of(number, generation), self.entries_of(number, generation + 1));
            if by_sets {
                names_anew(&old, &new, &mut changes);
            } else {
                differences(&old, &new, &mut changes);
            }
            before.extend(old);
            after.extend(new);
        }
        let total =
            |entries: &[Entry]| entries.iter().map(|entry| weight(&entry.key())).fold(0, u64::wrapping_add);
        let sum = self.sum.wrapping_sub(total(&before)).wrapping_add(total(&after));
        Transaction { changes, serial, sum, numbers, group }
    }

    /// The server has carried it out.
    pub(crate) fn apply(&mut self, transaction: Transaction) {
        transaction.numbers.iter().for_each(|&number| self.generations[number] += 1);
        (self.serial, self.group, self.sum) = (transaction.serial, transaction.group, transaction.sum);
    }

    fn fixed(&self) -> Vec<Entry> {
        let ns = format!("ns.{}", self.origin);
        vec![
            Entry { owner: self.origin.clone(), ttl: 3600, data: Data::Ns(ns.clone()) },
            Entry { owner: ns, ttl: 3600, data: Data::A(Ipv4Addr::LOCALHOST) },
        ]
    }

    fn marks(&self, serial: u32, group: &[u32; GROUP]) -> Vec<Entry> {
        let text = mark_names(&self.origin).map(|owner| Entry {
            owner,
            ttl: MARK_TTL,
            data: Data::Txt(serial.to_string()),
        });
        let addresses = group.iter().enumerate().map(|(at, &address)| Entry {
            owner: group_name(&self.origin, at),
            ttl: MARK_TTL,
            data: Data::A(address.into()),
        });
        text.into_iter().chain(addresses).collect()
    }

    /// What name `number` has in a generation; nothing in one of six but the first.
    fn entries_of(&self, number: usize, generation: u32) -> Vec<Entry> {
        let mut chance = Random::new((number as u64) << 32 | u64::from(generation));
        let origin = &self.origin;
        if generation > 0 && chance.one_in(6) {
            return Vec::new();
        }
        let ttl = 60 * chance.between(1, 4) as u32;
        let spread = Random::new(number as u64).bits() & 0xff_ffff;
        let owner = format!("h{spread:06x}-{number}.d{}.{origin}", number as u64 % BRANCHES);
        let entry = |owner: &str, data| Entry { owner: owner.to_owned(), ttl, data };
        match number % 16 {
            0..8 => addresses(&owner, ttl, &mut chance),
            8 => {
                let mut both = addresses(&owner, ttl, &mut chance);
                both.push(entry(&owner, Data::Aaaa(v6(&mut chance))));
                both
            }
            9 => (0..chance.between(1, 3))
                .map(|at| entry(&owner, Data::Txt(format!("{at} {:016x}", chance.bits()))))
                .collect(),
            10 => {
                let mut entries = addresses(&owner, ttl, &mut chance);
                entries.push(entry(&owner, Data::Mx(10, format!("ns.{origin}"))));
                entries.push(entry(&owner, Data::Mx(20, format!("mx{}.example.", chance.below(1000)))));
                entries
            }
            11 => vec![entry(&owner, Data::Aaaa(v6(&mut chance)))],
            // A zone cut with glue, or two names below each other.
            12 => {
                let below = format!("ns1.{owner}");
                let mut entries = addresses(&below, ttl, &mut chance);
                if chance.one_in(2) {
                    entries.extend(addresses(&owner, ttl, &mut chance));
                } else {
                    entries.push(entry(&owner, Data::Ns(below)));
                    entries.push(entry(&owner, Data::Ns(format!("ns{}.example.", chance.below(1000)))));
                }
                entries
            }
            13 if chance.one_in(2) => {
                vec![entry(&owner, Data::Cname(format!("h{}.d7.{origin}", chance.below(1000))))]
            }
            14 => vec![entry(&format!("*.w{number}.{origin}"), Data::Txt(format!("{:x}", chance.bits())))],
            15 => addresses(&format!("a.b.{owner}"), ttl, &mut chance),
            _ => addresses(&owner, ttl, &mut chance),
        }
    }
}

/// The serial behind another one; servers leave out 0.
fn next(serial: u32) -> u32 {
    serial.wrapping_add(1).max(1)
}

pub(crate) fn mark_names(origin: &str) -> [String; MARKS.len()] {
    MARKS.map(|mark| format!("{mark}.{origin}"))
}

pub(crate) fn group_name(origin: &str, at: usize) -> String {
    format!("group-{at}.d{}.{origin}", at as u64 * 61 % BRANCHES)
}

/// The addresses with another one at `last`, so that all make the serial.
fn group_for(serial: u32, mut group: [u32; GROUP], last: usize) -> [u32; GROUP] {
    group[last] ^= group.iter().fold(serial, |all, address| all ^ address);
    group
}

fn addresses(owner: &str, ttl: u32, chance: &mut Random) -> Vec<Entry> {
    let (count, first) = (chance.between(1, 3) as u32, chance.bits() as u32);
    let data = (0..count).map(|at| Data::A(first.wrapping_add(at).into()));
    data.map(|data| Entry { owner: owner.to_owned(), ttl, data }).collect()
}

fn v6(chance: &mut Random) -> Ipv6Addr {
    (u128::from(chance.bits()) << 64 | u128::from(chance.bits())).into()
}

/// Changes by sets: each of `before` goes as a whole.
fn sets(before: &[Entry], after: &[Entry], changes: &mut Vec<Change>) {
    for (old, new) in before.iter().zip(after).filter(|(old, new)| old != new) {
        changes.push(Change::DeleteSet(old.owner.clone(), old.data.rtype()));
        changes.push(Change::Add(new.clone()));
    }
}

/// Changes by names: each goes with all that it has.
fn names_anew(before: &[Entry], after: &[Entry], changes: &mut Vec<Change>) {
    let owners: BTreeSet<&String> = before.iter().map(|entry| &entry.owner).collect();
    changes.extend(owners.into_iter().cloned().map(Change::DeleteName));
    changes.extend(after.iter().cloned().map(Change::Add));
}

/// Changes by records.
fn differences(before: &[Entry], after: &[Entry], changes: &mut Vec<Change>) {
    changes.extend(before.iter().filter(|entry| !after.contains(entry)).cloned().map(Change::Delete));
    changes.extend(after.iter().filter(|entry| !before.contains(entry)).cloned().map(Change::Add));
}
