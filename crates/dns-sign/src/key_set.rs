//! The keys of a zone, and what each is for at some time.

use dns_wire::Rtype;

use crate::key::{Key, Role, is_of_keys};

/// All keys of a zone.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
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

    /// All of them, whatever they are for.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// What the keys are for at a time, in seconds since 1970.
    ///
    /// # Errors
    /// No key could sign the others.
    pub fn at(&self, now: u64) -> Result<Active<'_>, NoKey> {
        let has_come = |time: Option<u64>| time.is_none_or(|time| time <= now);
        let is_gone = |time: Option<u64>| time.is_some_and(|time| time <= now);
        let published = |key: &&Key| has_come(key.times.publish) && !is_gone(key.times.delete);
        let published: Vec<&Key> = self.keys.iter().filter(published).collect();
        let signs = |key: &&&Key| has_come(key.times.activate) && !is_gone(key.times.inactive);
        let signing: Vec<&Key> = published.iter().filter(signs).copied().collect();
        let of_role = |role| signing.iter().copied().filter(move |key| key.role() == role);
        let key_signing: Vec<&Key> = of_role(Role::KeySigning).collect();
        if key_signing.is_empty() {
            return Err(NoKey);
        }
        let mut zone_signing: Vec<&Key> = of_role(Role::ZoneSigning).collect();
        // A validator that trusts an algorithm may expect it of every signature (RFC 4035, 2.2).
        let has_own =
            |key: &&&Key| !of_role(Role::ZoneSigning).any(|other| other.algorithm() == key.algorithm());
        zone_signing.extend(key_signing.iter().filter(has_own).copied());
        let is_synced = |key: &&&Key| {
            key.times.sync_publish.is_some_and(|time| time <= now) && !is_gone(key.times.sync_delete)
        };
        let synced = key_signing.iter().filter(is_synced).copied().collect();
        Ok(Active { published, key_signing, zone_signing, synced })
    }

    /// When the next key comes or goes.
    pub fn next_change(&self, now: u64) -> Option<u64> {
        self.keys.iter().flat_map(|key| key.times.all()).filter(|time| *time > now).min()
    }
}

/// What the keys of a zone are for at some time.
#[derive(Debug)]
pub struct Active<'k> {
    /// Those of the DNSKEY set.
    pub published: Vec<&'k Key>,
    /// Those that sign it.
    pub key_signing: Vec<&'k Key>,
    /// Those that sign all else.
    pub zone_signing: Vec<&'k Key>,
    /// Those that the parent is to take (RFC 7344).
    pub synced: Vec<&'k Key>,
}

impl Active<'_> {
    /// The keys that sign the sets of a type.
    pub(crate) fn signers(&self, rtype: Rtype) -> &[&Key] {
        if is_of_keys(rtype) { &self.key_signing } else { &self.zone_signing }
    }
}
