//! Reloads lose no query.

use lab::{Side, Zone};
use tests::{Load, VERSION_NAME, VersionedZone, reload_under_load};

use crate::{Setting, server_v4};

#[test]
fn over_a_hundred_reloads_every_query_is_answered_from_one_version() {
    let versioned = VersionedZone::new(1, 100);
    let zone = Zone { origin: "example.com".to_owned(), file: versioned.file() };
    let Some(mut setting) = Setting::new(&zone) else { return };
    let lab = &setting.lab;
    let load = Load::new(server_v4(), VERSION_NAME);
    let inside = |run: &(dyn Fn() -> tests::Tally + Sync)| lab.inside(Side::Client, run);
    let tally = reload_under_load(&mut setting.server.process, &versioned, &load, inside);
    assert_eq!((tally.answered, tally.lost, tally.wrong), (tally.sent, 0, 0), "{tally:?}");
    assert_eq!(tally.stepped_back, 0, "{tally:?}");
    assert!(tally.versions.into_keys().eq(1..=100), "each version has answered");
}
