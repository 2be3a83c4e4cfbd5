//! What metrics say of zones: of all together, whatever their number, and of some alone.

use dns_wire::NameBuf;
use observe::report::{Count, with_labels};

/// A zone as it is served just now.
pub(super) struct Seen {
    pub(super) origin: NameBuf,
    /// Its serial and how many records it has; `None` if it is answered with SERVFAIL.
    pub(super) version: Option<(u32, u64)>,
    pub(super) is_secondary: bool,
    /// It is not what its file, its keys, its primaries or the configuration say.
    pub(super) has_problem: bool,
    /// When the first of its signatures ends, in seconds since 1970.
    pub(super) signed_until: Option<u64>,
    /// When it expires, or has expired, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// How many queries were for it, if that is counted.
    pub(super) queries: Option<u64>,
}

impl Seen {
    /// Whether, and if not why, it is served.
    fn state(&self) -> State {
        match (&self.version, self.is_secondary, self.expires_at) {
            (Some(_), ..) => State::Served,
            (None, false, _) => State::Failed,
            (None, true, None) => State::Waiting,
            (None, true, Some(_)) => State::Expired,
        }
    }

    fn queries(&self, counts: &mut Vec<Count>) {
        let name = || with_labels("zone_queries", &[("zone", &self.origin)]);
        counts.extend(self.queries.map(|queries| (name(), queries)));
    }

    fn counts(&self, counts: &mut Vec<Count>) {
        self.queries(counts);
        let mut add = |name: &str, value| {
            counts.push((with_labels(&format!("zone_{name}"), &[("zone", &self.origin)]), value))
        };
        add("is_served", self.version.is_some().into());
        add("has_problem", self.has_problem.into());
        if let Some(at) = self.expires_at {
            add("expires_at", at);
        }
        let Some((serial, records)) = self.version else { return };
        add("serial", serial.into());
        add("records", records);
        if let Some(until) = self.signed_until {
            add("signed_until", until);
        }
    }
}

/// What becomes of queries for a zone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// They are answered.
    Served,
    /// SERVFAIL: its file or its keys cannot be used.
    Failed,
    /// SERVFAIL: no primary has given it yet.
    Waiting,
    /// SERVFAIL: no primary has confirmed it for too long.
    Expired,
}

impl State {
    const ALL: [(State, &str); 4] = [
        (State::Served, "served"),
        (State::Failed, "failed"),
        (State::Waiting, "waiting"),
        (State::Expired, "expired"),
    ];
}

/// The counts of all `zones` together, and of at most `alone_max` of them alone: of those with problems first, then in their order. Queries that
/// were counted for a zone alone are told in any case: the sum of those for others does not have them.
pub(super) fn counts(zones: &[Seen], alone_max: usize) -> Vec<Count> {
    let number = |is_meant: &dyn Fn(&Seen) -> bool| zones.iter().filter(|zone| is_meant(zone)).count() as u64;
    let mut counts: Vec<Count> = [
        ("zones", zones.len() as u64),
        ("zones_unavailable", number(&|zone| zone.version.is_none())),
        ("zones_with_problem", number(&|zone| zone.has_problem)),
        ("zones_secondary", number(&|zone| zone.is_secondary)),
        ("zones_signed", number(&|zone| zone.signed_until.is_some())),
        ("zones_without_metrics", zones.len().saturating_sub(alone_max) as u64),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let of_state = |(state, name)| {
        (format!("zones_in_state{{state=\"{name}\"}}"), number(&|zone| zone.state() == state))
    };
    counts.extend(State::ALL.map(of_state));
    let first_end = zones.iter().filter_map(|zone| zone.signed_until).min();
    counts.extend(first_end.map(|until| ("zones_signed_until_min".to_owned(), until)));
    let first_expiry = zones.iter().filter_map(|zone| zone.expires_at).min();
    counts.extend(first_expiry.map(|at| ("zones_expires_at_min".to_owned(), at)));
    let (bad, good): (Vec<&Seen>, Vec<&Seen>) =
        zones.iter().partition(|zone| zone.has_problem || zone.version.is_none());
    for (number, zone) in bad.into_iter().chain(good).enumerate() {
        if number < alone_max { zone.counts(&mut counts) } else { zone.queries(&mut counts) }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(origin: &str) -> Seen {
        Seen {
            origin: NameBuf::from_text(origin.as_bytes(), None).unwrap(),
            version: Some((7, 3)),
            is_secondary: false,
            has_problem: false,
            signed_until: None,
            expires_at: None,
            queries: None,
        }
    }

    fn value(counts: &[Count], name: &str) -> Option<u64> {
        counts.iter().find(|(own, _)| own == name).map(|(_, value)| *value)
    }

    #[test]
    fn sums_are_over_all_zones_also_over_those_that_have_no_metrics_of_their_own() {
        let mut zones: Vec<Seen> = (0..500).map(|number| zone(&format!("z{number}."))).collect();
        zones[400].signed_until = Some(1000);
        zones[401].signed_until = Some(900);
        zones[450] = Seen { version: None, has_problem: true, ..zone("bad.") };
        let secondary = |expires_at| Seen { is_secondary: true, expires_at, ..zone("s.") };
        zones[460] = secondary(Some(5000));
        zones[461] = Seen { version: None, has_problem: true, ..secondary(Some(4000)) };
        zones[462] = Seen { version: None, ..secondary(None) };
        let counts = counts(&zones, 2);
        let value = |name: &str| value(&counts, name);
        assert_eq!((value("zones"), value("zones_unavailable")), (Some(500), Some(3)));
        assert_eq!((value("zones_with_problem"), value("zones_secondary")), (Some(2), Some(3)));
        assert_eq!((value("zones_signed"), value("zones_signed_until_min")), (Some(2), Some(900)));
        assert_eq!((value("zones_expires_at_min"), value("zones_without_metrics")), (Some(4000), Some(498)));
        let in_state = |name: &str| value(&format!("zones_in_state{{state=\"{name}\"}}"));
        let states = ["served", "failed", "waiting", "expired"].map(in_state);
        assert_eq!(states, [Some(497), Some(1), Some(1), Some(1)]);
    }

    #[test]
    fn a_quotation_mark_in_the_name_of_a_zone_does_not_end_its_label() {
        let counts = counts(&[zone(r#"a\"b."#)], 1);
        assert_eq!(value(&counts, r#"zone_serial{zone="a\\\"b."}"#), Some(7));
    }

    #[test]
    fn zones_that_work_badly_have_metrics_of_their_own_before_the_others() {
        let mut zones: Vec<Seen> = ["a.", "b.", "c.", "d."].map(zone).into();
        zones[3].has_problem = true;
        zones[2].version = None;
        let with_metrics = |max| -> Vec<String> {
            let counts = counts(&zones, max);
            let names = counts.iter().filter_map(|(name, _)| name.strip_prefix("zone_is_served"));
            names.map(str::to_owned).collect()
        };
        assert_eq!(with_metrics(3), ["{zone=\"c.\"}", "{zone=\"d.\"}", "{zone=\"a.\"}"]);
        assert_eq!(with_metrics(0), [""; 0]);
        assert_eq!(with_metrics(9).len(), 4);
    }

    #[test]
    fn queries_that_were_counted_for_a_zone_are_told_also_when_a_bad_zone_takes_its_place() {
        let mut zones: Vec<Seen> = ["a.", "b.", "c."].map(zone).into();
        zones[0].queries = Some(3);
        zones[1].has_problem = true;
        let counts = counts(&zones, 1);
        assert_eq!(value(&counts, "zone_is_served{zone=\"b.\"}"), Some(1));
        assert_eq!(value(&counts, "zone_is_served{zone=\"a.\"}"), None);
        assert_eq!(value(&counts, "zone_queries{zone=\"a.\"}"), Some(3));
        assert_eq!(value(&counts, "zone_queries{zone=\"c.\"}"), None, "it is among the others");
    }

    #[test]
    fn nothing_is_said_of_signatures_and_expiry_where_there_are_none() {
        let counts = counts(&[zone("a.")], 100);
        assert_eq!(
            (value(&counts, "zones_signed_until_min"), value(&counts, "zones_expires_at_min")),
            (None, None)
        );
        assert_eq!(value(&counts, "zone_serial{zone=\"a.\"}"), Some(7));
    }
}
