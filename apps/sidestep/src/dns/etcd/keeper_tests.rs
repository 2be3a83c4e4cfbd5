//! What is served and kept of zones, whatever etcd tells and in whatever order.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use dns_transfer::Keys;
use dns_wire::{Name, Rtype};

use super::*;
use crate::dns::etcd::kept::prepare;
use crate::dns::version::Version;

/// A directory that goes at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sidestep-etcd-{}-{number}", std::process::id()));
        ["kept", "keys"].iter().for_each(|name| std::fs::create_dir_all(path.join(name)).unwrap());
        Scratch(path)
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.0.join("kept").join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server without sockets, and an etcd without a network.
struct Lab {
    keeper: Keeper,
    events: Receiver<Event>,
    states: SharedStates,
    /// What is published.
    served: BTreeMap<NameBuf, Version>,
    /// What etcd has.
    store: BTreeMap<String, String>,
    revision: u64,
}

impl Lab {
    /// `rest` are more options of `[etcd]`.
    fn new(directory: &Path, rest: &str) -> Lab {
        let text = format!("endpoints = [\"a\"]\nprefix = \"/dns\"\ndirectory = \"kept\"\n{rest}");
        let spec = EtcdSpec::resolve(&toml::from_str(&text).unwrap(), &Keys::default(), directory).unwrap();
        let prepared = prepare(&spec);
        let served = prepared
            .iter()
            .map(|zone| (NameBuf::from(zone.version.served.origin()), zone.version.clone()))
            .collect();
        let (sender, events) = channel();
        let states = SharedStates::default();
        let keeper = Keeper::new(Arc::new(spec), prepared, Files::default(), sender, states.clone());
        Lab { keeper, events, states, served, store: BTreeMap::new(), revision: 0 }
    }

    fn signing(directory: &Path) -> Lab {
        Lab::new(directory, "keys = \"keys\"\nnew-keys = true\n")
    }

    /// The same server after a restart, with the same etcd.
    fn restarted(self, directory: &Path, rest: &str) -> Lab {
        self.keeper.files.work_off();
        let Lab { store, revision, .. } = self;
        Lab { store, revision, ..Lab::new(directory, rest) }
    }

    fn take(&mut self, input: Input) {
        self.keeper.take(input);
        while let Ok(Event::Etcd(unpublished)) = self.events.try_recv() {
            for (origin, version) in unpublished.take() {
                match version {
                    Some(version) => drop(self.served.insert(origin, version)),
                    None => drop(self.served.remove(&origin)),
                }
            }
        }
    }

    /// One transaction, as the watch tells of it; an empty word in place of a value deletes the key.
    fn transact(&mut self, changes: &[(&str, Option<&str>)]) {
        self.begin(changes);
        self.take(Input::Publish(self.revision));
    }

    /// The same, before it is published.
    fn begin(&mut self, changes: &[(&str, Option<&str>)]) {
        self.revision += 1;
        let mut told = Vec::new();
        for (key, value) in changes {
            let key = format!("/dns/{key}");
            match value {
                Some(value) => drop(self.store.insert(key.clone(), (*value).to_owned())),
                None => drop(self.store.remove(&key)),
            }
            told.push(KeyChange {
                key: key.into_bytes(),
                value: value.map(|value| value.as_bytes().to_vec()),
            });
        }
        self.take(Input::Revision(Revision { revision: self.revision, changes: told }));
        for (key, value) in changes.iter().filter(|(key, _)| key.starts_with("zones/")) {
            let Some(value) = value else { continue };
            let zone = Pair { key: format!("/dns/{key}").into_bytes(), value: value.as_bytes().to_vec() };
            self.take(Input::Zone { revision: self.revision, zone });
            let records = self.pairs(&format!("/dns/records/{}/", key.strip_prefix("zones/").unwrap()));
            self.take(Input::Records(records));
            self.take(Input::End);
        }
    }

    fn put(&mut self, key: &str, value: &str) {
        self.transact(&[(key, Some(value))]);
    }

    /// All is read, as when a connection begins.
    fn read_all(&mut self) {
        let zones = self.pairs("/dns/zones/");
        self.take(Input::All { revision: self.revision });
        zones.into_iter().for_each(|zone| self.take(Input::Zones(vec![zone])));
        self.take(Input::Listed);
        let records = self.pairs("/dns/records/");
        self.take(Input::Records(records));
        self.take(Input::End);
        self.take(Input::Publish(self.revision));
    }

    fn pairs(&self, prefix: &str) -> Vec<Pair> {
        let below = self.store.iter().filter(|(key, _)| key.starts_with(prefix));
        let pair =
            |(key, value): (&String, &String)| Pair { key: key.clone().into(), value: value.clone().into() };
        below.map(pair).collect()
    }

    /// A zone with one address, and settings.
    fn put_zone(&mut self, zone: &str, settings: &str) {
        self.put(&format!("records/{zone}/@/NS"), "60 ns.example.");
        self.put(&format!("records/{zone}/www/A"), "60 192.0.2.1");
        self.put(&format!("zones/{zone}"), settings);
    }

    fn is_served(&self, zone: &str) -> bool {
        self.served.get(&name(zone)).is_some_and(|version| version.tree().is_some())
    }

    /// Whether it is answered by SERVFAIL.
    fn is_placeholder(&self, zone: &str) -> bool {
        self.served.get(&name(zone)).is_some_and(|version| version.tree().is_none())
    }

    fn is_signed(&self, zone: &str) -> bool {
        self.served[&name(zone)].tree().unwrap().is_signed()
    }

    /// The last octet of the address of `www`, and whether it is signed.
    fn www(&self, zone: &str) -> u8 {
        let tree = self.served[&name(zone)].tree().unwrap();
        let node = tree.find(name(&format!("www.{zone}")).as_name().as_bytes()).unwrap();
        node.rrset(Rtype::A).unwrap().records().next().unwrap()[3]
    }

    fn problem(&self, zone: &str) -> Option<String> {
        self.states.with(|states| states.etcd.get(&name(zone)).cloned()).flatten()
    }
}

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), Some(Name::ROOT)).unwrap()
}

const SIGNING: &str = "keys = \"keys\"\nnew-keys = true\n";

#[test]
fn zones_that_were_lost_at_once_and_are_back_stay_when_another_one_joins() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    ["aa.", "bb."].iter().for_each(|zone| lab.put_zone(zone, ""));
    let backup = lab.store.clone();
    lab.transact(&[("zones/aa.", None), ("zones/bb.", None)]);
    lab.store = backup;
    lab.read_all();
    lab.put_zone("cc.", "");
    assert!(["aa.", "bb.", "cc."].iter().all(|zone| lab.is_served(zone)));
    // Those that are put again by hand stay, too, and the others leave then.
    lab.transact(&[("zones/aa.", None), ("zones/bb.", None), ("zones/cc.", None)]);
    assert!(["aa.", "bb.", "cc."].iter().all(|zone| lab.is_served(zone)));
    let before = Arc::clone(&lab.served[&name("aa.")].served);
    lab.put("zones/aa.", "");
    assert!(Arc::ptr_eq(&before, &lab.served[&name("aa.")].served), "it has not been away");
    assert!(!lab.is_served("bb.") && !lab.is_served("cc."));
}

#[test]
fn that_etcd_has_lost_all_zones_is_a_problem_of_each_until_it_has_one_also_after_a_restart() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    ["aa.", "bb."].iter().for_each(|zone| lab.put_zone(zone, ""));
    lab.transact(&[("zones/aa.", None), ("zones/bb.", None)]);
    let are_lost = |lab: &Lab| {
        let is_lost = |zone: &&str| lab.problem(zone).is_some_and(|problem| problem.contains("has lost all"));
        ["aa.", "bb."].iter().filter(|zone| is_lost(zone)).count()
    };
    assert_eq!(are_lost(&lab), 2);
    let mut lab = lab.restarted(&scratch.0, "");
    assert_eq!(are_lost(&lab), 0, "nobody has asked etcd yet");
    lab.read_all();
    assert_eq!(are_lost(&lab), 2);
    lab.put("zones/aa.", "");
    assert_eq!((are_lost(&lab), lab.is_served("aa."), lab.is_served("bb.")), (0, true, false));
}

#[test]
fn a_signed_zone_stays_signed_over_wrong_settings_and_a_restart() {
    let scratch = Scratch::new();
    let mut lab = Lab::signing(&scratch.0);
    lab.put_zone("one.test.", "dnssec = true");
    assert!(lab.is_signed("one.test."));
    lab.put("zones/one.test.", "dnsec = true");
    lab.put("records/one.test./www/A", "60 192.0.2.2");
    assert!(lab.is_signed("one.test.") && lab.www("one.test.") == 2, "it follows by the settings of before");

    let mut lab = lab.restarted(&scratch.0, SIGNING);
    lab.read_all();
    lab.put("records/one.test./www/A", "60 192.0.2.3");
    assert!(
        lab.is_signed("one.test.") && lab.www("one.test.") == 2,
        "it stays, as nothing is known of how it is served"
    );
    assert!(lab.problem("one.test.").unwrap().contains("settings"));
    lab.put("zones/one.test.", "dnssec = true");
    assert!(lab.is_signed("one.test.") && lab.www("one.test.") == 3);
    assert_eq!(lab.problem("one.test."), None);
}

#[test]
fn a_zone_whose_settings_were_never_right_is_not_served_and_hides_the_zone_above() {
    let scratch = Scratch::new();
    let mut lab = Lab::signing(&scratch.0);
    lab.put_zone("one.test.", "dnsec = true");
    assert!(lab.is_placeholder("one.test.") && lab.problem("one.test.").unwrap().contains("settings"));
    lab.put("records/one.test./www/A", "60 192.0.2.2");
    assert!(lab.is_placeholder("one.test."));
    lab.put("zones/one.test.", "dnssec = true");
    assert!(lab.is_signed("one.test.") && lab.www("one.test.") == 2);
}

#[test]
fn a_zone_that_is_signed_no_longer_starts_without_etcd_as_it_was_last() {
    let scratch = Scratch::new();
    let mut lab = Lab::signing(&scratch.0);
    lab.put_zone("one.test.", "dnssec = true");
    assert!(scratch.kept("one.test.etcd-zone.signed").exists());
    lab.put("zones/one.test.", "");
    lab.put("records/one.test./www/A", "60 192.0.2.2");
    let lab = lab.restarted(&scratch.0, SIGNING);
    assert!(!lab.is_signed("one.test.") && lab.www("one.test.") == 2);
}

#[test]
fn a_signed_zone_whose_file_is_broken_does_not_start_unsigned() {
    let scratch = Scratch::new();
    let mut lab = Lab::signing(&scratch.0);
    lab.put_zone("one.test.", "dnssec = true");
    std::fs::write(scratch.kept("one.test.etcd-zone.signed"), "garbage").unwrap();
    let lab = lab.restarted(&scratch.0, SIGNING);
    assert!(!lab.is_served("one.test."));
}

#[test]
fn nothing_is_left_on_disk_of_a_zone_that_has_left() {
    let scratch = Scratch::new();
    let mut lab = Lab::signing(&scratch.0);
    lab.put_zone("one.test.", "dnssec = true");
    lab.put_zone("two.test.", "");
    lab.keeper.files.work_off();
    assert!(scratch.kept("one.test.etcd-zone").exists());
    lab.transact(&[("zones/one.test.", None)]);
    lab.keeper.files.work_off();
    let left: Vec<_> =
        std::fs::read_dir(scratch.0.join("kept")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["two.test.etcd-zone"]);
}

#[test]
fn a_zone_that_cannot_be_signed_is_served_once_it_need_not_be() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    lab.put_zone("one.test.", "dnssec = true");
    assert!(lab.is_placeholder("one.test.") && lab.problem("one.test.").is_some());
    lab.put("zones/one.test.", "");
    assert!(lab.is_served("one.test.") && !lab.is_signed("one.test."));
    assert_eq!(lab.problem("one.test."), None);
}

#[test]
fn a_zone_that_cannot_be_signed_gathers_nothing_however_often_it_changes() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    lab.put_zone("one.test.", "");
    lab.put("zones/one.test.", "dnssec = true");
    for number in 0..20 {
        lab.put("records/one.test./www/A", &format!("60 192.0.2.{number}"));
    }
    assert_eq!(lab.keeper.zones[&name("one.test.")].gathered(), 0);
    assert_eq!(lab.www("one.test."), 1, "it is served as it was");
    lab.put("zones/one.test.", "");
    assert_eq!(lab.www("one.test."), 19);
    let lab = lab.restarted(&scratch.0, "");
    assert_eq!(lab.www("one.test."), 19, "what is kept is all of it");
}

#[test]
fn what_came_is_published_as_a_whole_whatever_happens_in_between() {
    let scratch = Scratch::new();
    let mut lab = Lab::signing(&scratch.0);
    lab.put_zone("one.test.", "");
    lab.begin(&[("records/one.test./www/A", Some("60 192.0.2.2"))]);
    lab.take(Input::Renew { at_once: true });
    assert_eq!(lab.www("one.test."), 1, "more may belong to it");
    lab.take(Input::Connected(false));
    assert_eq!(lab.www("one.test."), 2, "nothing more comes");
}

#[test]
fn a_zone_of_which_nothing_is_right_hides_the_zone_above_and_says_why() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    lab.put("records/one.test./www/A", "192.0.2.1");
    lab.put("zones/one.test.", "");
    assert!(lab.is_placeholder("one.test.") && lab.problem("one.test.").unwrap().contains("expected a TTL"));
    lab.transact(&[("records/one.test./www/A", None)]);
    assert!(!lab.is_placeholder("one.test.") && lab.problem("one.test.").is_none());
    lab.put("records/one.test./www/A", "60 192.0.2.1");
    assert!(lab.is_served("one.test."));
}

#[test]
fn a_zone_of_another_source_is_not_taken_for_that_of_the_same_name_in_etcd() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    ["one.test.", "two.test."].iter().for_each(|zone| lab.put_zone(zone, ""));
    let is_from_etcd =
        |lab: &Lab, zone: &str| lab.states.with(|states| states.etcd_problem(&name(zone)).is_some());
    assert!(is_from_etcd(&lab, "one.test.") && is_from_etcd(&lab, "two.test."));
    let is_served = |lab: &Lab, zones: &[&str]| {
        let served: Vec<&Version> = zones.iter().map(|zone| &lab.served[&name(zone)]).collect();
        lab.states.with(|states| states.note_hidden(&lab.served, &served));
    };
    is_served(&lab, &["two.test."]);
    assert!(!is_from_etcd(&lab, "one.test.") && is_from_etcd(&lab, "two.test."));
    is_served(&lab, &["one.test.", "two.test."]);
    assert!(is_from_etcd(&lab, "one.test."));
}

#[test]
fn what_waits_to_be_published_is_the_last_of_each_zone_and_is_told_once() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    lab.put_zone("one.test.", "");
    let keeper = &mut lab.keeper;
    for number in 2..10 {
        let key = b"/dns/records/one.test./www/A".to_vec();
        let value = Some(format!("60 192.0.2.{number}").into_bytes());
        let revision = 10 + number;
        keeper.take(Input::Revision(Revision { revision, changes: vec![KeyChange { key, value }] }));
        keeper.take(Input::Publish(revision));
    }
    let events: Vec<Event> = lab.events.try_iter().collect();
    let [Event::Etcd(unpublished)] = &events[..] else { panic!("{} events", events.len()) };
    let changes = unpublished.take();
    let serial = changes[&name("one.test.")].as_ref().unwrap().tree().unwrap().serial();
    assert_eq!((changes.len(), serial), (1, 19));
}

#[test]
fn differences_do_not_gather_while_the_disk_is_slow() {
    let scratch = Scratch::new();
    let mut lab = Lab::new(&scratch.0, "");
    lab.put_zone("one.test.", "");
    lab.keeper.files.work_off();
    let gathered = |lab: &mut Lab, from: u32, to: u32| {
        (from..to).for_each(|number| {
            lab.put("records/one.test./www/A", &format!("60 192.0.{}.{}", number >> 8, number & 255))
        });
        lab.keeper.files.gathered(&name("one.test."))
    };
    assert_eq!(gathered(&mut lab, 0, 5), Some(5));
    assert_eq!(gathered(&mut lab, 5, 1500), None, "it is written as a whole");
    lab.keeper.files.work_off();
    assert_eq!(gathered(&mut lab, 1500, 1502), Some(2));
    let lab = lab.restarted(&scratch.0, "");
    assert_eq!(lab.www("one.test."), (1501u32 & 255) as u8);
}
