//! Zones in which updates have left much behind are built anew, beside the thread that changes them.
//!
//! ```text
//!   updates    | 1 2 3 | 4 5 6 7 ... 900 | 901 902 |
//!   a thread           | builds 3 anew   | makes 900 of it by the differences that came meanwhile |
//!   published                                                                                     ^ 902
//! ```
//!
//! A thread never holds updates up: what comes while it works is told to the next one, until so little is left that it is applied at once.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use dns_auth::ServedZone;
use dns_auth::compile::{compile_anew, compile_changed, compile_views};
use dns_transfer::Difference;
use dns_transfer::difference::apply;
use dns_wire::NameBuf;

use super::events::Event;
use super::version::Version;

/// Differences that are applied at once, while updates wait: some milliseconds.
const AT_ONCE_MAX: usize = 64;

/// The zone that is built anew, if there is one. Others wait, so that the memory is that of one more zone.
#[derive(Default)]
pub(crate) struct Rebuilds {
    under_way: Option<Rebuild>,
    /// How many have begun.
    begun: u64,
}

struct Rebuild {
    number: u64,
    origin: NameBuf,
    /// What is served: where the differences lead to.
    latest: Arc<ServedZone>,
    /// Those that the thread does not know.
    differences: Vec<Arc<Difference>>,
}

/// What a thread has made of a zone.
pub(crate) struct Rebuilt {
    number: u64,
    pub(crate) origin: NameBuf,
    /// `None` if a difference does not fit.
    served: Option<Arc<ServedZone>>,
}

impl Rebuilds {
    /// A zone has another version, to which `differences` have led. Begins to build it anew if that is due.
    pub(crate) fn follow(
        &mut self,
        (before, after): (&Arc<ServedZone>, &Arc<ServedZone>),
        differences: &[Arc<Difference>],
        events: &Sender<Event>,
    ) {
        let has_much_left = after.tree().is_ok_and(|tree| tree.has_much_left());
        if let Some(rebuild) = &mut self.under_way {
            if Arc::ptr_eq(&rebuild.latest, before) && has_much_left {
                rebuild.latest = Arc::clone(after);
                rebuild.differences.extend_from_slice(differences);
            } else if rebuild.origin.as_name() == after.origin() {
                self.under_way = None; // It is another zone by now, or was built anew at once.
            }
        } else if has_much_left {
            let (number, origin) = (self.begun, NameBuf::from(after.origin()));
            let (of, sender) = (Arc::clone(after), events.clone());
            if let Err(error) = spawn(number, &origin, sender, move || compile_anew(&of).map(Arc::new)) {
                return log::warn!("zone {origin} is not built anew: starting a thread: {error}");
            }
            self.begun += 1;
            self.under_way =
                Some(Rebuild { number, origin, latest: Arc::clone(after), differences: Vec::new() });
        }
    }

    /// A thread has ended: what is to be served in place of `held`, or nothing if another thread goes on, or the zone has changed otherwise.
    pub(crate) fn finish(
        &mut self,
        rebuilt: Rebuilt,
        held: Option<&Version>,
        events: &Sender<Event>,
    ) -> Option<Version> {
        let mut rebuild = self.under_way.take_if(|rebuild| rebuild.number == rebuilt.number)?;
        let (held, served) = (held?, rebuilt.served?);
        if !Arc::ptr_eq(&rebuild.latest, &held.served) {
            return None;
        }
        let differences = mem::take(&mut rebuild.differences);
        if differences.len() > AT_ONCE_MAX {
            let catch_up = move || follow_all(served, &differences);
            spawn(rebuild.number, &rebuild.origin, events.clone(), catch_up).ok()?;
            self.under_way = Some(rebuild);
            return None;
        }
        let served = with_lines_of(&held.served, follow_all(served, &differences)?);
        held.signing.iter().for_each(|signing| signing.sign_online(&served));
        Some(Version { served, ..held.clone() })
    }
}

fn spawn(
    number: u64,
    origin: &NameBuf,
    events: Sender<Event>,
    work: impl FnOnce() -> Option<Arc<ServedZone>> + Send + 'static,
) -> io::Result<()> {
    let origin = origin.clone();
    let work = move || {
        let served = work();
        // A server that ends needs no zones.
        let _ = events.send(Event::Rebuilt(Box::new(Rebuilt { number, origin, served })));
    };
    thread::Builder::new().name("rebuild".to_owned()).spawn(work).map(drop)
}

/// The version that differences lead to.
fn follow_all(served: Arc<ServedZone>, differences: &[Arc<Difference>]) -> Option<Arc<ServedZone>> {
    differences.iter().try_fold(served, |served, difference| {
        let changed = apply(served.tree().ok()?, std::slice::from_ref(difference)).ok()?;
        Some(Arc::new(compile_changed(&served, changed)))
    })
}

/// The same version with the views that `held` has: pools may have changed meanwhile.
fn with_lines_of(held: &ServedZone, served: Arc<ServedZone>) -> Arc<ServedZone> {
    let data = |zone: &ServedZone| zone.lines().map(|lines| Arc::clone(lines.data()));
    match (data(held), data(&served)) {
        (None, None) => served,
        (Some(wanted), Some(own)) if Arc::ptr_eq(&wanted, &own) => served,
        (wanted, _) => Arc::new(compile_views(&served, &wanted.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use dns_auth::compile::compile;
    use dns_transfer::History;
    use dns_wire::Rtype;
    use dns_zone::{ZoneBuilder, ZoneEditor};

    use super::*;
    use crate::dns::signing::Signing;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    fn soa(serial: u32) -> Vec<u8> {
        [&[0, 0][..], &serial.to_be_bytes(), &[0, 0, 0, 1].repeat(4)].concat()
    }

    fn first() -> Version {
        let origin = name("t.");
        let mut builder = ZoneBuilder::new(origin.as_name(), 1);
        builder.add(origin.as_name(), 60, Rtype::SOA, &soa(0)).unwrap();
        Version::first(compile(builder.finish().unwrap()))
    }

    /// The next version: one host more, and the one of 100 versions before less.
    fn next(held: &Version) -> (Version, Arc<Difference>) {
        let tree = held.tree().unwrap();
        let (serial, origin) = (tree.serial(), name("t."));
        let host = |number: u32| name(&format!("h{number}.t."));
        let address = |number: u32| number.to_be_bytes();
        let mut editor = ZoneEditor::new(tree);
        editor.remove(origin.as_name(), Rtype::SOA, &soa(serial)).unwrap();
        editor.add(origin.as_name(), 60, Rtype::SOA, &soa(serial + 1)).unwrap();
        editor.add(host(serial).as_name(), 60, Rtype::A, &address(serial)).unwrap();
        if let Some(old) = serial.checked_sub(100) {
            editor.remove(host(old).as_name(), Rtype::A, &address(old)).unwrap();
        }
        let changed = editor.finish().unwrap();
        let difference = Arc::new(Difference::between(tree, &changed.zone, usize::MAX).unwrap());
        let served = compile_changed(&held.served, changed);
        (held.next(served, std::slice::from_ref(&difference)), difference)
    }

    struct Server {
        held: Version,
        rebuilds: Rebuilds,
        sender: Sender<Event>,
        events: Receiver<Event>,
    }

    impl Server {
        fn new() -> Server {
            let (sender, events) = channel();
            Server { held: first(), rebuilds: Rebuilds::default(), sender, events }
        }

        fn update(&mut self) {
            let (version, difference) = next(&self.held);
            self.rebuilds.follow((&self.held.served, &version.served), &[difference], &self.sender);
            self.held = version;
        }

        fn update_until_a_rebuild_begins(&mut self) {
            while self.rebuilds.under_way.is_none() {
                self.update();
            }
        }

        /// Waits for a thread; whether its zone took the place of what was served.
        fn wait(&mut self) -> bool {
            let Ok(Event::Rebuilt(rebuilt)) = self.events.recv() else {
                unreachable!("nothing else is sent")
            };
            let version = self.rebuilds.finish(*rebuilt, Some(&self.held), &self.sender);
            version.map(|version| self.held = version).is_some()
        }
    }

    fn records(version: &Version) -> Vec<(Vec<u8>, u16, Vec<u8>)> {
        let sets = version.tree().unwrap().nodes().flat_map(|node| {
            let owner = node.name().to_vec();
            node.rrsets().map(move |set| (owner.clone(), set))
        });
        let of = |(owner, set): (Vec<u8>, dns_zone::Rrset<'_>)| {
            set.records().map(|data| (owner.clone(), set.rtype().0, data.to_vec())).collect::<Vec<_>>()
        };
        let mut records: Vec<_> = sets.flat_map(of).collect();
        records.sort();
        records
    }

    #[test]
    fn a_zone_that_is_built_anew_has_the_updates_that_came_meanwhile() {
        for meanwhile in [0, 1, 5 * AT_ONCE_MAX] {
            let mut server = Server::new();
            server.update_until_a_rebuild_begins();
            (0..meanwhile).for_each(|_| server.update());
            let before = records(&server.held);
            let memory = server.held.tree().unwrap().memory();
            let rounds = (1..).find(|_| server.wait()).unwrap();
            assert_eq!(rounds, if meanwhile > AT_ONCE_MAX { 2 } else { 1 }, "{meanwhile}");
            let tree = server.held.tree().unwrap();
            assert!(records(&server.held) == before, "{meanwhile}");
            assert!(!tree.has_much_left() && tree.memory() < memory, "{} of {memory}", tree.memory());
            let serial = tree.serial();
            assert!(server.held.history.between(serial - 1, serial).is_some());
            assert!(server.rebuilds.under_way.is_none());
        }
    }

    #[test]
    fn a_zone_that_is_signed_here_is_so_when_it_is_built_anew() {
        let mut server = Server::new();
        server.update_until_a_rebuild_begins();
        let signing = Arc::new(Signing::without_keys(server.held.tree().unwrap().clone()));
        server.held.signing = Some(Arc::clone(&signing));
        assert!(server.wait());
        assert!(server.held.signing.is_some_and(|held| Arc::ptr_eq(&held, &signing)));
    }

    #[test]
    fn a_zone_that_has_changed_by_other_means_stays_as_it_is() {
        let mut server = Server::new();
        server.update_until_a_rebuild_begins();
        server.held = Version { history: Arc::new(History::default()), ..first() }; // A reload.
        assert!(!server.wait() && server.held.tree().unwrap().serial() == 0);
        server.update_until_a_rebuild_begins();
        server.held = first();
        server.update();
        assert!(server.rebuilds.under_way.is_none());
        assert!(!server.wait() && server.held.tree().unwrap().serial() == 1);
    }
}
