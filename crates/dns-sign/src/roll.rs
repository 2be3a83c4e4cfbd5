//! New keys in place of old ones, without a moment in which somebody cannot validate (RFC 7583).

use dns_wire::Rtype;
use dns_zone::Zone;

use crate::key::{Algorithm, Key, Role, State, Times};
use crate::key_set::KeySet;
use crate::signature::key_of;
use crate::wanted::KEY_TTL;

/// All secondaries have a version after so many seconds.
const PROPAGATION: u64 = 3600;

/// After so many seconds everybody who asks for the keys gets those of now.
const KEYS_SEEN: u64 = KEY_TTL as u64 + PROPAGATION;

/// After so many seconds nobody has signatures of a key any more that has ended to sign: the longest TTL of a zone, and what it takes to
/// sign and to send it.
const SIGNATURES_GONE: u64 = 8 * 86_400;

/// A version may follow the times of its keys so much later: less than what propagation has room for.
const PROMPT: u64 = 300;

/// Which keys the version that is served shows.
struct Served<'z> {
    /// The data of its DNSKEY records.
    dnskeys: Vec<&'z [u8]>,
    /// Algorithm and tag of the keys that have signed its SOA record, as they have all that is not for the parent.
    signers: Vec<(u8, u16)>,
}

impl<'z> Served<'z> {
    fn of(zone: &'z Zone) -> Served<'z> {
        let dnskeys = zone.apex().rrset(Rtype::DNSKEY).into_iter().flat_map(|set| set.records());
        let signatures = zone.apex().rrsets().find(|set| set.covered() == Some(Rtype::SOA));
        let signatures = signatures.into_iter().flat_map(|set| set.records());
        Served { dnskeys: dnskeys.collect(), signers: signatures.filter_map(key_of).collect() }
    }

    fn publishes(&self, key: &Key) -> bool {
        self.dnskeys.contains(&key.dnskey())
    }

    fn is_signed_by(&self, key: &Key) -> bool {
        self.signers.contains(&(key.algorithm(), key.tag()))
    }

    /// Whether all who have asked of late can check what this key signs.
    fn relies_on(&self, key: &Key) -> bool {
        self.publishes(key) && self.is_signed_by(key)
    }
}

impl Times {
    /// Those of a key that ends to sign at `end` instead: it stays in the DNSKEY set for as long behind that as it would have. An algorithm that ends
    /// leaves the set first, and has times of its own.
    fn ending_at(self, end: u64) -> Times {
        match (self.inactive, self.delete) {
            (Some(inactive), delete) if inactive < end && delete.is_none_or(|delete| delete > inactive) => {
                Times { inactive: Some(end), delete: delete.map(|delete| delete + (end - inactive)), ..self }
            }
            _ => self,
        }
    }

    fn without_end(self) -> Times {
        Times { inactive: None, delete: None, ..self }
    }

    /// Those of a zone's first key.
    pub fn first(now: u64) -> Times {
        Times { sync_publish: Some(now + KEYS_SEEN), ..Times::beginning(now) }
    }

    /// Those of a key that is used at once.
    fn beginning(now: u64) -> Times {
        Times { created: Some(now), publish: Some(now), activate: Some(now), ..Times::default() }
    }

    /// Those of a key and of the one that takes its place.
    ///
    /// A zone-signing key is published before it signs (RFC 7583, 3.2.1). A key-signing key signs beside the old one, until the parent
    /// has its DS record and [`retired`](KeySet::retired) ends the old one (3.3.1): an end that the old one has already, as BIND writes it for a key of
    /// a limited lifetime, might come before that.
    #[must_use]
    pub fn roll(self, role: Role, now: u64) -> (Times, Times) {
        let seen = Some(now + KEYS_SEEN);
        match role {
            Role::ZoneSigning => {
                let delete = Some(now + KEYS_SEEN + SIGNATURES_GONE);
                (Times { inactive: seen, delete, ..self }, Times { activate: seen, ..Times::beginning(now) })
            }
            Role::KeySigning => (Times { sync_delete: seen, ..self.without_end() }, Times::first(now)),
        }
    }
}

/// Why a key cannot be retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Needed {
    /// There is no such key.
    #[error("there is no such key")]
    Unknown,
    /// It is a zone-signing key: its end is known since it was rolled.
    #[error("it is a zone-signing key, which ends by itself when it is rolled")]
    ZoneSigning,
    /// No other key-signing key has been there for long enough.
    #[error(
        "no other key-signing key has been told to the parent: roll it first, and wait until the parent has the new DS record"
    )]
    Only,
}

impl KeySet {
    /// The key-signing key that signs now and has an end, and when, if no other one follows it.
    pub fn ends_alone(&self, now: u64) -> Option<(&Key, u64)> {
        let end = |key: &Key| key.times.inactive.into_iter().chain(key.times.delete).min();
        let mut live = self.keys().iter().filter(|key| {
            key.role() == Role::KeySigning && !matches!(key.times.state(now), State::Retired | State::Removed)
        });
        let (only, None) = (live.next()?, live.next()) else { return None };
        end(only).map(|end| (only, end))
    }

    /// Whether the key-signing key of this tag may end now, as far as the keys tell: only the parent knows its DS records.
    ///
    /// # Errors
    /// Why not.
    pub fn may_retire(&self, tag: u16, now: u64) -> Result<(), Needed> {
        let key = self.keys().iter().find(|key| key.tag() == tag).ok_or(Needed::Unknown)?;
        if key.role() == Role::ZoneSigning {
            return Err(Needed::ZoneSigning);
        }
        let active = self.at(now).map_err(|_| Needed::Only)?;
        let follows = |other: &&Key| (other.tag(), other.algorithm()) != (tag, key.algorithm());
        if active.synced.iter().any(follows) { Ok(()) } else { Err(Needed::Only) }
    }

    /// The keys that end with a key-signing key that no DS record of the parent leads to any more, and their new times.
    ///
    /// Another one of its algorithm goes on: then it ends alone. If it signed all, it stays in the DNSKEY set until nobody has its signatures
    /// any more: those of the other key have been there since that one came. Without another one the algorithm ends with it: its keys leave
    /// the DNSKEY set, and their signatures stay for as long as caches may have that set (RFC 6781, 4.1.4).
    #[must_use]
    pub fn retired<'k>(&'k self, old: &'k Key, now: u64) -> Vec<(&'k Key, Times)> {
        let is_other = |other: &&Key| (other.tag(), other.algorithm()) != (old.tag(), old.algorithm());
        let signing =
            |other: &&Key| other.role() == Role::KeySigning && other.times.state(now) == State::Signing;
        let others = || self.keys().iter().filter(is_other).filter(signing);
        if others().any(|other| other.algorithm() == old.algorithm()) {
            let alone_since = others().filter_map(|other| other.times.activate).max().unwrap_or(0);
            let gone = if self.signs_all(old, now) { alone_since + SIGNATURES_GONE } else { now };
            return vec![(old, Times { inactive: Some(now), delete: Some(now.max(gone)), ..old.times })];
        }
        let of_algorithm = self.keys().iter().filter(|key| key.algorithm() == old.algorithm());
        let end = |key: &'k Key| {
            let inactive = key.times.inactive.filter(|time| *time <= now).unwrap_or(now + KEYS_SEEN);
            (key, Times { inactive: Some(inactive), delete: Some(now), ..key.times })
        };
        of_algorithm.filter(|key| key.times.state(now) != State::Removed).map(end).collect()
    }

    /// The keys that come or go later than their times say, and their new times: the server was down, or looked late, when they were to change.
    /// `served` is the version that everybody has until now.
    ///
    /// A zone-signing key signs when caches can have it: not before it was in a served version for that long (RFC 7583, 3.2.1). Until then the old
    /// one signs. The parent is told of a key-signing key when caches can have that one, and leaves the old one as much later (3.3.1). An old key
    /// whose signatures were served until now stays in the DNSKEY set as if it had ended now. The last key-signing key does not end.
    #[must_use]
    pub fn late(&self, served: &Zone, now: u64) -> Vec<(&Key, Times)> {
        let served = Served::of(served);
        let mut late: Vec<(&Key, Times)> = self.keys().iter().map(|key| (key, key.times)).collect();
        keep_the_last(&mut late, &served, now);
        if served.dnskeys.is_empty() {
            return Vec::new(); // A zone's first keys sign at once.
        }
        let is_shown = |key: &Key| matches!(key.times.state(now), State::Published | State::Signing);
        for new in self.keys().iter().filter(|key| is_shown(key) && !served.publishes(key)) {
            match new.role() {
                Role::ZoneSigning => wait_to_sign(&mut late, new, &served, now + KEYS_SEEN),
                Role::KeySigning => wait_to_tell(&mut late, new, &served, now),
            }
        }
        let signs = |key: &Key, times: Times| times.state(now) == State::Signing && served.publishes(key);
        let going_on: Vec<u8> =
            late.iter().filter(|(key, times)| signs(key, *times)).map(|(key, _)| key.algorithm()).collect();
        for (old, times) in &mut late {
            let is_over = times.inactive.is_some_and(|inactive| inactive + PROMPT < now);
            let is_followed = old.role() == Role::ZoneSigning && going_on.contains(&old.algorithm());
            if is_over && is_followed && served.relies_on(old) {
                *times = times.ending_at(now);
            }
        }
        late.retain(|(key, times)| key.times != *times);
        late
    }

    /// What begins now to bring the keys of a zone to another algorithm; `None` if nothing does: they have it, or keys are being replaced.
    ///
    /// The conservative way (RFC 6781, 4.1.4): first the signatures, when those are everywhere the keys, when those are everywhere the DS
    /// record. What then follows is [`retired`](KeySet::retired).
    pub fn to_algorithm(&self, to: Algorithm, now: u64) -> Option<Change<'_>> {
        let live = || self.keys().iter().filter(|key| key.times.state(now) != State::Removed);
        let is_new = |key: &&Key| key.algorithm() == to.number();
        let key_signing = |key: &&Key| key.role() == Role::KeySigning;
        // A change that a crash has interrupted goes on: the key-signing key is drawn last but for the end of the old ones.
        if let Some(new) = live().filter(is_new).find(key_signing) {
            // One that leaves itself has a successor, or the way back has begun: if all were to leave, the parent would be told of none.
            let is_leaving = |key: &Key| key.times.sync_delete.is_some();
            if live().filter(is_new).filter(key_signing).any(is_leaving) {
                return None;
            }
            // Nor are any to leave for one that the parent is never told of.
            let sync_delete = new.times.sync_publish?.max(now);
            let leaving = live().filter(|key| !is_new(key)).filter(key_signing);
            let leaving = leaving
                .filter(|key| key.times.sync_delete.is_none() && key.times.state(now) == State::Signing);
            let timed: Vec<_> =
                leaving.map(|key| (key, Times { sync_delete: Some(sync_delete), ..key.times })).collect();
            return Some(Change { drawn: Vec::new(), timed }).filter(|change| !change.timed.is_empty());
        }
        let old = || live().filter(|key| !is_new(key));
        let is_at_rest = |key: &Key| {
            let Times { inactive, delete, sync_delete, .. } = key.times;
            key.times.state(now) == State::Signing && [inactive, delete, sync_delete] == [None; 3]
        };
        let alone = |role| old().filter(move |key| key.role() == role).count() <= 1;
        if old().next().is_none()
            || !old().all(is_at_rest)
            || !alone(Role::KeySigning)
            || !alone(Role::ZoneSigning)
        {
            return None;
        }
        let publish = now + SIGNATURES_GONE;
        let zone_signing = Times { publish: Some(publish), ..Times::beginning(now) };
        let sync = Some(publish + KEYS_SEEN);
        let mut drawn = Vec::new();
        let mut timed = Vec::new();
        // A zone-signing key that a crash has left alone gets the times of the other one.
        match live().find(is_new) {
            Some(left) => timed.push((left, zone_signing)),
            None if old().any(|key| key.role() == Role::ZoneSigning) => {
                drawn.push((Role::ZoneSigning, zone_signing))
            }
            None => {}
        }
        drawn.push((Role::KeySigning, Times { sync_publish: sync, ..zone_signing }));
        let leaving = old().filter(key_signing);
        timed.extend(leaving.map(|key| (key, Times { sync_delete: sync, ..key.times })));
        Some(Change { drawn, timed })
    }
}

/// Has the key-signing key that ended last sign on if no other one signs: without, the zone becomes bogus. Some who give keys an end, as BIND does by the lifetime
/// of its policy, make a successor themselves.
fn keep_the_last(late: &mut [(&Key, Times)], served: &Served<'_>, now: u64) {
    let key_signing = |key: &Key| key.role() == Role::KeySigning;
    if late.iter().any(|(key, times)| key_signing(key) && times.state(now) == State::Signing) {
        return;
    }
    let ended = late.iter_mut().filter(|(key, times)| {
        let has_ended = matches!(times.state(now), State::Retired | State::Removed);
        has_ended && key_signing(key) && served.publishes(key)
    });
    if let Some((_, times)) = ended.max_by_key(|(_, times)| times.inactive.max(times.delete)) {
        *times = times.without_end();
    }
}

/// Has a zone-signing key sign from `seen` on, and those go on until then that sign what is served. Without one of them nobody else could sign.
fn wait_to_sign(late: &mut [(&Key, Times)], new: &Key, served: &Served<'_>, seen: u64) {
    let is_early = new.times.activate.is_none_or(|activate| activate + PROMPT < seen);
    let goes_on = |key: &Key| key.algorithm() == new.algorithm() && served.relies_on(key);
    if !is_early || !late.iter().any(|(key, _)| goes_on(key)) {
        return;
    }
    for (key, times) in late {
        if key.tag() == new.tag() && key.algorithm() == new.algorithm() {
            times.activate = Some(seen);
        } else if key.role() == Role::ZoneSigning && goes_on(key) {
            *times = times.ending_at(seen);
        }
    }
}

/// Has the parent told of a key-signing key when caches can have it. What it signs is new now, unless it has signed before it is shown.
fn wait_to_tell(late: &mut [(&Key, Times)], new: &Key, served: &Served<'_>, now: u64) {
    let (seen, told) = (now + KEYS_SEEN, new.times.sync_publish);
    for (key, times) in late.iter_mut().filter(|(key, _)| key.role() == Role::KeySigning) {
        let is_new = key.tag() == new.tag() && key.algorithm() == new.algorithm();
        if is_new && !served.is_signed_by(new) {
            times.activate =
                times.activate.map(|activate| if activate + PROMPT < now { now } else { activate });
        }
        let time = if is_new { &mut times.sync_publish } else { &mut times.sync_delete };
        let is_early = |time: u64| told.is_some_and(|told| told <= time) && time + PROMPT < seen;
        *time = time.map(|time| if is_early(time) { seen } else { time });
    }
}

/// The begin of a change of keys.
#[derive(Debug)]
pub struct Change<'k> {
    /// Keys to be drawn, in this order, with their times.
    pub drawn: Vec<(Role, Times)>,
    /// Keys that get other times, behind that.
    pub timed: Vec<(&'k Key, Times)>,
}
