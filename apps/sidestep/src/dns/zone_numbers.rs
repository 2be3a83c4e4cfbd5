//! The numbers under which responders count the queries of zones.

use std::collections::HashMap;

use dns_auth::{Catalog, ZONE_COUNTERS};
use dns_wire::NameBuf;

/// Each zone that was ever counted alone keeps its number, so that its count goes on when it comes back.
#[derive(Debug, Default)]
pub(crate) struct ZoneNumbers(HashMap<NameBuf, u16>);

impl ZoneNumbers {
    /// The same catalog, in which the first `alone_max` zones are counted alone, and all others together. So are zones that come when all numbers have
    /// been given away.
    pub(crate) fn count(&mut self, catalog: &Catalog, alone_max: usize) -> Catalog {
        let mut left = alone_max;
        catalog.counted_by(|origin| {
            let number = if left > 0 { self.of(NameBuf::from(origin)) } else { 0 };
            left = left.saturating_sub(1);
            number
        })
    }

    fn of(&mut self, origin: NameBuf) -> u16 {
        let next = self.0.len() + 1;
        if next < ZONE_COUNTERS {
            return *self.0.entry(origin).or_insert(next as u16);
        }
        self.0.get(&origin).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dns_auth::{ServedZone, Unavailable};

    use super::*;

    fn catalog(origins: &[String]) -> Catalog {
        let zone = |origin: &String| {
            let origin = NameBuf::from_text(origin.as_bytes(), None).unwrap();
            Arc::new(ServedZone::unavailable(origin, Unavailable::NotReady))
        };
        Catalog::new(origins.iter().map(zone), 1)
    }

    fn numbers(catalog: &Catalog) -> Vec<u16> {
        (0..catalog.zone_count() as u32).map(|number| catalog.counter(number)).collect()
    }

    #[test]
    fn a_zone_keeps_its_number_and_no_other_one_gets_it() {
        let mut given = ZoneNumbers::default();
        let mut count = |origins: &[&str], max| {
            let origins: Vec<String> = origins.iter().map(ToString::to_string).collect();
            numbers(&given.count(&catalog(&origins), max))
        };
        assert_eq!(count(&["a.", "b.", "c."], 2), [1, 2, 0]);
        assert_eq!(count(&["c.", "b."], 2), [3, 2]);
        assert_eq!(count(&["d.", "A.", "b."], 3), [4, 1, 2]);
        assert_eq!(count(&["d.", "a."], 0), [0, 0]);
    }

    #[test]
    fn zones_that_come_when_all_numbers_are_given_away_are_counted_together() {
        let mut given = ZoneNumbers::default();
        let origins: Vec<String> = (0..ZONE_COUNTERS + 5).map(|number| format!("z{number}.")).collect();
        let all = numbers(&given.count(&catalog(&origins), usize::MAX));
        assert_eq!(all.iter().filter(|number| **number == 0).count(), 6);
        assert_eq!(numbers(&given.count(&catalog(&origins[..3]), 10)), [1, 2, 3]);
    }
}
