//! The keys of a zone, and what each is for at some time.

use std::sync::Arc;

use dns_wire::Rtype;
use dns_zone::Zone;

use crate::key::{Key, RemoteSigner, Role, State, is_for_parent, stem};
use crate::signature::key_of;
use crate::wanted::tag_of;

/// All keys of a zone.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A key that a zone was signed with, and whose files are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The names of its two files, up to the dot.
    pub file_stem: String,
    /// Whether it signs the zone. One that does not may be a key of another signer (RFC 8901), whose record the zone's owner has removed.
    pub signs: bool,
}

/// The zone cannot be signed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no key-signing key is active")]
pub struct NoKey;

impl KeySet {
    /// The keys in the order of their tags.
    pub fn new(mut keys: Vec<Key>) -> KeySet {
        keys.sort_by_key(|key| (key.algorithm(), key.tag()));
        KeySet { keys }
    }

    /// Has keys sign whose private halves are in tokens, each by what `remote` gives for it.
    pub fn connect(&mut self, remote: impl Fn(&Key, &str) -> Option<Arc<dyn RemoteSigner>>) {
        for key in &mut self.keys {
            let signer = key.label().and_then(|label| remote(key, label));
            signer.into_iter().for_each(|signer| key.connect(signer));
        }
    }

    /// The same keys, those with other times that come or go later than they were to, by the version that everybody has until now. It is for keys whose files
    /// cannot be written.
    #[must_use]
    pub fn put_off(&self, served: &Zone, now: u64) -> KeySet {
        let mut keys = self.keys.clone();
        for (late, times) in self.late(served, now) {
            let own = keys.iter_mut().filter(|key| key.public_key() == late.public_key());
            own.for_each(|key| key.times = times);
        }
        KeySet { keys }
    }

    #[cfg(test)]
    pub(crate) fn into_keys(self) -> Vec<Key> {
        self.keys
    }

    /// All of them, whatever they are for.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// What the keys are for at a time, in seconds since 1970.
    ///
    /// # Errors
    /// No key could sign the others.
    pub fn at(&self, now: u64) -> Result<Active<'_>, NoKey> {
        let state = |key: &Key| key.times.state(now);
        let published = |key: &&Key| matches!(state(key), State::Published | State::Signing | State::Retired);
        let published: Vec<&Key> = self.keys.iter().filter(published).collect();
        let signing: Vec<&Key> =
            published.iter().filter(|key| state(key) == State::Signing).copied().collect();
        let of_role = |role| signing.iter().copied().filter(move |key| key.role() == role);
        let key_signing: Vec<&Key> = of_role(Role::KeySigning).collect();
        if key_signing.is_empty() {
            return Err(NoKey);
        }
        let unpublished = self.keys.iter().filter(|key| state(key) == State::SigningUnpublished);
        let (zone_alone, keys_alone): (Vec<&Key>, Vec<&Key>) =
            unpublished.partition(|key| key.role() == Role::ZoneSigning);
        let mut zone_signing: Vec<&Key> = of_role(Role::ZoneSigning).chain(zone_alone).collect();
        let parent_signing: Vec<&Key> = key_signing.iter().copied().chain(keys_alone).collect();
        // A validator that trusts an algorithm may expect it of every signature (RFC 4035, 2.2).
        zone_signing.extend(parent_signing.iter().filter(|key| self.signs_all(key, now)).copied());
        let synced = key_signing.iter().filter(|key| self.is_synced(key, now)).copied().collect();
        Ok(Active { published, key_signing, parent_signing, zone_signing, synced })
    }

    /// Whether a key-signing key signs all else, too.
    pub fn signs_all(&self, key: &Key, now: u64) -> bool {
        let own = key.times.state(now);
        // A key that is in the DNSKEY set does not rely on one that is not.
        let is_relied_on =
            |state| state == State::Signing || state == own && own == State::SigningUnpublished;
        let is_own = |other: &&Key| other.algorithm() == key.algorithm() && other.role() == Role::ZoneSigning;
        !self.keys.iter().filter(is_own).any(|other| is_relied_on(other.times.state(now)))
    }

    /// Whether a key-signing key is one that the parent is to trust.
    pub fn is_synced(&self, key: &Key, now: u64) -> bool {
        let is_past = |time: Option<u64>| time.is_some_and(|time| time <= now);
        is_past(key.times.sync_publish) && !is_past(key.times.sync_delete)
    }

    /// Whether a key-signing key signs for as long as caches may have a DS record of it, and no longer.
    pub fn is_leaving(&self, key: &Key, now: u64) -> bool {
        let is_told = key.times.sync_delete.is_some_and(|time| time <= now);
        is_told && key.role() == Role::KeySigning && key.times.state(now) == State::Signing
    }

    /// A key of `before` that is in use by its times, and is not among these: its files are gone.
    pub fn lacks<'k>(&self, before: &'k KeySet, now: u64) -> Option<&'k Key> {
        let is_used = |key: &Key| !matches!(key.times.state(now), State::Waiting | State::Removed);
        let is_here = |key: &Key| self.keys.iter().any(|own| own.public_key() == key.public_key());
        before.keys.iter().find(|key| is_used(key) && !is_here(key))
    }

    /// A key that the signed zone `held` has, and that the next version would lose: its files are gone. For zones whose keys nobody remembers; else there is
    /// [`lacks`](KeySet::lacks). One that signs comes first. The DNSKEY record of another may stay, as `source` has it, but nothing is signed with that.
    pub fn lost(&self, held: &Zone, source: &Zone) -> Option<Lost> {
        let signers = own_signers(held);
        let is_here = |record: &[u8]| self.keys.iter().any(|own| Some(own.public_key()) == record.get(4..));
        let lost = |record: &[u8]| {
            let key = (*record.get(3)?, tag_of(record));
            // Another signer's key may have the tag of one of ours.
            let is_unmatched = !self.keys.iter().any(|own| (own.algorithm(), own.tag()) == key);
            let signs = is_unmatched && signers.contains(&key);
            let file_stem = stem(held.origin(), key.0, key.1);
            (signs || !dnskeys(source).any(|other| other == record)).then_some(Lost { file_stem, signs })
        };
        dnskeys(held).filter(|record| !is_here(record)).filter_map(lost).max_by_key(|lost| lost.signs)
    }

    /// When the next key comes or goes.
    pub fn next_change(&self, now: u64) -> Option<u64> {
        self.keys.iter().filter_map(|key| key.times.next(now)).map(|(_, time)| time).min()
    }
}

fn dnskeys(zone: &Zone) -> impl Iterator<Item = &[u8]> {
    zone.apex().rrset(Rtype::DNSKEY).into_iter().flat_map(|set| set.records())
}

/// Algorithm and tag of all keys that sign a zone: some sign its DNSKEY set, others all else.
fn own_signers(zone: &Zone) -> Vec<(u8, u16)> {
    let is_by_all = |covered| [Some(Rtype::SOA), Some(Rtype::DNSKEY)].contains(&covered);
    let signatures = zone.apex().rrsets().filter(|set| is_by_all(set.covered()));
    signatures.flat_map(|set| set.records()).filter_map(key_of).collect()
}

/// What the keys of a zone are for at some time.
#[derive(Debug)]
pub struct Active<'k> {
    /// Those of the DNSKEY set.
    pub published: Vec<&'k Key>,
    /// Those that sign it.
    pub key_signing: Vec<&'k Key>,
    /// Those that sign what the parent is told.
    pub parent_signing: Vec<&'k Key>,
    /// Those that sign all else.
    pub zone_signing: Vec<&'k Key>,
    /// Those that the parent is to take (RFC 7344).
    pub synced: Vec<&'k Key>,
}

impl Active<'_> {
    /// The keys that sign the sets of a type.
    pub(crate) fn signers(&self, rtype: Rtype) -> &[&Key] {
        match rtype {
            Rtype::DNSKEY => &self.key_signing,
            _ if is_for_parent(rtype) => &self.parent_signing,
            _ => &self.zone_signing,
        }
    }
}
