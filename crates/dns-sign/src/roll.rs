//! New keys in place of old ones, without a moment in which somebody cannot validate (RFC 7583).

use crate::key::{Key, Role, State, Times};
use crate::key_set::KeySet;
use crate::wanted::KEY_TTL;

/// All secondaries have a version after so many seconds.
const PROPAGATION: u64 = 3600;

/// After so many seconds everybody who asks for the keys gets those of now.
const KEYS_SEEN: u64 = KEY_TTL as u64 + PROPAGATION;

/// After so many seconds nobody has signatures of a key any more that has ended to sign: the longest TTL of a zone, and what it takes to
/// sign and to send it.
const SIGNATURES_GONE: u64 = 8 * 86_400;

impl Times {
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
    /// has its DS record and [`retired`](KeySet::retired) ends the old one (3.3.1).
    #[must_use]
    pub fn roll(self, role: Role, now: u64) -> (Times, Times) {
        let seen = Some(now + KEYS_SEEN);
        match role {
            Role::ZoneSigning => {
                let delete = Some(now + KEYS_SEEN + SIGNATURES_GONE);
                (Times { inactive: seen, delete, ..self }, Times { activate: seen, ..Times::beginning(now) })
            }
            Role::KeySigning => (Times { sync_delete: seen, ..self }, Times::first(now)),
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
        "no other key-signing key of its algorithm has been told to the parent: roll it first, and wait until the parent has the new DS record"
    )]
    Only,
}

impl KeySet {
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
        let follows = |other: &&Key| other.tag() != tag && other.algorithm() == key.algorithm();
        if active.synced.iter().any(follows) { Ok(()) } else { Err(Needed::Only) }
    }

    /// The times of a key-signing key that no DS record of the parent leads to any more.
    ///
    /// One that signs all stays in the DNSKEY set until nobody has its signatures any more: those of the other key have been there since that
    /// one came.
    #[must_use]
    pub fn retired(&self, old: &Key, now: u64) -> Times {
        let others = self.keys().iter().filter(|other| {
            other.role() == Role::KeySigning && other.tag() != old.tag() && other.times.state(now) == State::Signing
        });
        let alone_since = others.filter_map(|other| other.times.activate).max().unwrap_or(0);
        let gone = if self.signs_all(old, now) { alone_since + SIGNATURES_GONE } else { now };
        Times { inactive: Some(now), delete: Some(now.max(gone)), ..old.times }
    }
}
