//! `parent`: a key ends when the servers of the parent have its successor, and not before.

use std::time::Duration;

use serde_json::Value;

use super::fake_parent::{Behaviour, FakeParent};
use super::{DAY, HOUR, SignedZone, of_tag, word};

fn waits_for(key: &Value, text: &str) -> bool {
    key["waits-for"]
        .as_array()
        .is_some_and(|all| all.iter().any(|what| what.as_str().unwrap().contains(text)))
}

#[test]
fn a_key_waits_for_all_servers_of_the_parent_and_ends_when_caches_have_forgotten_its_ds() {
    const TTL: u32 = 3;
    let parents = [FakeParent::start(), FakeParent::start()];
    let servers = parents.each_ref().map(|parent| format!("\"{}\"", parent.address)).join(", ");
    let zone = SignedZone::start(&format!("parent = [{servers}]\n"));
    let first = zone.wait_for_keys("it is not to be told yet", |keys| word(&keys[0], "parent") == "not-told");
    let old = first[0]["tag"].clone();

    zone.let_pass(3 * HOUR);
    zone.wait_for_keys("the parent lacks it", |keys| {
        word(&keys[0], "parent") == "told" && waits_for(&keys[0], "it has no DS record")
    });
    let of_old = zone.ds();
    parents.iter().for_each(|parent| parent.set(Behaviour::Ds(TTL, of_old.clone())));
    zone.reload();
    zone.wait_for_keys("the parent has it", |keys| word(&keys[0], "parent") == "has-ds");

    zone.roll();
    zone.let_pass(30 * DAY);
    let keys = zone.wait_for_keys("the parent is told of the new key, and has another one", |keys| {
        keys.len() == 2 && waits_for(of_tag(keys, &old), "and should have that of")
    });
    let new = keys.iter().find(|key| key["tag"] != old).unwrap()["tag"].clone();
    assert_eq!(word(of_tag(&keys, &new), "parent"), "told");
    let of_new = zone.ds();
    assert_ne!(of_new, of_old);
    parents[0].set(Behaviour::Ds(60, of_new.clone()));
    for (behaviour, said) in [(Behaviour::Lame, "not an authority"), (Behaviour::Deaf, "it gives no answer")]
    {
        parents[1].set(behaviour);
        zone.reload();
        let keys = zone.wait_for_keys(said, |keys| waits_for(of_tag(keys, &old), said));
        assert_eq!(word(of_tag(&keys, &old), "state"), "signing");
    }
    let log = zone.server.process.output();
    assert!(log.contains("its keys wait for the server"), "{log}");

    // The TTL that was seen before the crash counts: one that was never seen would take two days.
    let zone = zone.restart();
    parents[1].set(Behaviour::Ds(60, of_new));
    zone.reload();
    zone.wait_for_keys("the old key ends", |keys| word(of_tag(keys, &old), "state") == "removed");
    zone.wait_for_keys("its record goes", |_| zone.at_apex("DNSKEY").len() == 1);
    zone.wait_for_keys("the parent has the new one", |keys| word(of_tag(keys, &new), "parent") == "has-ds");
}

#[test]
fn a_ds_record_that_was_never_seen_is_waited_for_two_days() {
    let parent = FakeParent::start();
    let zone = SignedZone::start(&format!("parent = [\"{}\"]\n", parent.address));
    let old = zone.wait_for_keys("it has a key", |_| true)[0]["tag"].clone();
    zone.let_pass(3 * HOUR);
    zone.roll();
    zone.let_pass(30 * DAY);
    zone.wait_for_keys("the new key is told to the parent", |keys| {
        keys.len() == 2 && keys.iter().any(|key| word(key, "parent") == "told")
    });
    parent.set(Behaviour::Ds(60, zone.ds()));
    zone.reload();
    let keys = zone.wait_for_keys("its end is known", |keys| of_tag(keys, &old)["next"][0] == "Inactive");
    let end = of_tag(&keys, &old)["next"][1].as_str().unwrap();
    let left = humantime::parse_rfc3339(end).unwrap().duration_since(std::time::SystemTime::now()).unwrap();
    let two_days = Duration::from_secs(2 * DAY);
    assert!(left <= two_days && left > two_days - super::PATIENCE, "{left:?}");
}
