//! A history takes no more memory than it says, whatever it is made of: owners are up to 255 octets, and most are a few.

use std::sync::Arc;

use allocator::Counting;
use dns_transfer::{Difference, History};
use dns_wire::{NameBuf, Rtype};
use dns_zone::{Zone, ZoneBuilder};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the list of a history takes besides its differences.
const LIST_MAX: usize = 32 << 10;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

/// Version `serial`, with so many addresses that no other version has.
fn version(serial: u32, hosts: usize) -> Zone {
    let origin = name("example.");
    let mut builder = ZoneBuilder::new(origin.as_name(), 3);
    let soa = [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
    builder.add(origin.as_name(), 60, Rtype::SOA, &soa).unwrap();
    for host in 0..hosts {
        let owner = name(&format!("h{host}.example."));
        builder.add(owner.as_name(), 60, Rtype::A, &serial.to_be_bytes()).unwrap();
    }
    builder.finish().unwrap()
}

/// Octets that a history holds after `count` versions more, and how many differences lead to the last one from the oldest that is known.
fn held(count: u32, hosts: usize) -> (usize, u32) {
    let before = Counting::octets_held();
    let (mut history, mut old) = (History::default(), version(1, hosts));
    for serial in 2..2 + count {
        let new = version(serial, hosts);
        let difference = Difference::between(&old, &new, usize::MAX).unwrap();
        history = history.with(&[Arc::new(difference)]);
        old = new;
    }
    let known = (1..=count).filter(|from| history.between(*from, count + 1).is_some()).count();
    drop(old);
    ((Counting::octets_held() - before).try_into().unwrap(), known as u32)
}

#[test]
fn many_small_records_take_what_a_history_may_take_and_most_of_it_is_used() {
    let (octets, known) = held(100, 2000);
    assert!(known < 100, "older versions are forgotten");
    assert!(octets <= History::OCTETS_MAX + LIST_MAX, "{octets} octets for {known} versions");
    assert!(octets >= History::OCTETS_MAX * 3 / 4, "{octets} octets for {known} versions");
}

#[test]
fn many_small_differences_take_little_besides_their_octets() {
    let (octets, known) = held(1200, 1);
    assert_eq!(known, 1000);
    let of_records = 4 * (9 + 10) + 2 * 22 + 2 * 3 + 2 * 4;
    assert!(octets <= 1000 * (of_records + 64) + LIST_MAX, "{octets} octets");
}
