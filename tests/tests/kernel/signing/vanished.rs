//! Keys whose files vanish: those in memory sign until the server ends, and nothing is signed without them after a restart.

use std::fs;
use std::path::PathBuf;

use super::*;

const UPDATES: &str = "allow-update = [\"127.0.0.1\"]\n";

fn keys_at_apex(zone: &SignedZone) -> Vec<String> {
    let mut keys = zone.at_apex("DNSKEY");
    keys.sort();
    keys
}

/// The zone's owner writes this serial; whether the server says that it has read it, and what it says.
fn reload_with(zone: &SignedZone, serial: u32) -> (bool, String) {
    let text = format!("@ 60 SOA ns h {serial} 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n");
    zone.server.directory.write("one.test.zone", &text).unwrap();
    reload(zone)
}

/// Has the zone read again; whether the server says that it has, and what it says.
fn reload(zone: &SignedZone) -> (bool, String) {
    let control = zone.server.directory.path().join("control.sock").display().to_string();
    let output = command(&["dns", "zone", "reload", ORIGIN, "--control", &control]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// The two files of the key of a tag, each with a place elsewhere.
fn files_of(zone: &SignedZone, tag: &Value) -> [(PathBuf, PathBuf); 2] {
    let stem = format!("Kone.test.+013+{:05}", tag.as_u64().unwrap());
    let file = |ending: &str| zone.server.directory.path().join(format!("{stem}.{ending}"));
    ["key", "private"].map(|ending| (file(ending), file(&format!("{ending}.away"))))
}

/// The records of a key stay. The server signs with it until it ends, and a start does not sign without it.
fn stays_when_its_files_vanish(zone: SignedZone, tag: &Value) {
    let keys = keys_at_apex(&zone);
    let files = files_of(&zone, tag);
    files.iter().for_each(|(file, away)| fs::rename(file, away).unwrap());
    let is_told = |zone: &SignedZone, serial: u32| {
        assert_eq!((keys_at_apex(zone), zone.serial()), (keys.clone(), serial));
        let zones = zones(zone);
        assert!(zones.contains(".key and .private are gone from"), "{zones}");
    };
    let (done, said) = reload_with(&zone, 1000);
    assert!(done && said.contains("warning: it is signed with the keys in memory"), "{said}");
    assert!(said.contains("are gone from"), "{said}");
    zone.wait_for("it is looked at", |_| zones(&zone).contains("are gone from"));
    is_told(&zone, 1000);
    assert_eq!(update(&zone, "by-memory"), "");
    is_told(&zone, 1001);
    let checked = command(&["dns", "check", "--config", &zone.config]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(text.contains("are gone from") && checked.status.code() == Some(1), "{text}");

    let zone = zone.restart();
    is_told(&zone, 1001);
    assert!(update(&zone, "after-a-start").contains("REFUSED"));
    is_told(&zone, 1001);

    files.iter().for_each(|(file, away)| fs::rename(away, file).unwrap());
    let (done, said) = reload(&zone);
    assert!(done && !said.contains("warning"), "{said}");
    assert_eq!(update(&zone, "by-files"), "");
    assert_eq!((keys_at_apex(&zone), zone.serial()), (keys, 1002));
}

#[test]
fn a_key_that_the_parent_trusts_stays_when_its_files_vanish_during_a_roll_over() {
    let zone = SignedZone::start(UPDATES);
    let old = zone.keys()[0]["tag"].clone();
    zone.roll();
    assert_eq!(keys_at_apex(&zone).len(), 2);
    stays_when_its_files_vanish(zone, &old);
}

#[test]
fn a_zone_signing_key_stays_when_its_files_vanish() {
    let zone = SignedZone::start_with_two_keys(UPDATES);
    let keys = zone.keys();
    let key = keys.iter().find(|key| word(key, "signs") == "zone").unwrap();
    stays_when_its_files_vanish(zone, &key["tag"]);
}

#[test]
fn a_key_that_has_left_and_the_key_of_another_signer_may_go() {
    let zone = SignedZone::start_with_two_keys("");
    let old = zone.keys().iter().find(|key| word(key, "signs") == "zone").unwrap()["tag"].clone();
    let rolled = command(&["dns", "key", "roll", ORIGIN, "--zsk", "--config", &zone.config]);
    assert!(rolled.status.success(), "{}", String::from_utf8_lossy(&rolled.stderr));
    zone.reload();
    zone.wait_until_seen();
    for (seconds, keys) in [(3 * HOUR, 3), (9 * DAY, 2)] {
        zone.let_pass(seconds);
        let state = if keys == 3 { "retired" } else { "removed" };
        zone.wait_for_keys(state, |all| word(of_tag(all, &old), "state") == state);
        zone.wait_for("the server follows", |_| keys_at_apex(&zone).len() == keys);
    }
    files_of(&zone, &old).iter().for_each(|(file, _)| fs::remove_file(file).unwrap());
    let (done, said) = reload_with(&zone, 1000);
    assert!(done && keys_at_apex(&zone).len() == 2, "{said}");
    let zone = zone.restart();
    assert_eq!((keys_at_apex(&zone).len(), zone.serial()), (2, 1000));

    let file = zone.server.directory.path().join("one.test.zone");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}@ 60 DNSKEY 256 3 8 AwEAAQ==\n")).unwrap();
    zone.reload();
    zone.wait_for("the key of another signer", |_| keys_at_apex(&zone).len() == 3);
    let (done, said) = reload_with(&zone, 2000);
    assert!(done && keys_at_apex(&zone).len() == 2, "{said}");
}
