//! Signatures for one answer: of sets that no version of a zone has (RFC 9824).

use dns_wire::{Name, NameBuf, Rtype};

use crate::key::Key;
use crate::key_set::Active;
use crate::signature::{Covered, rrsig};

/// How long such a signature is good, in seconds. An answer is asked for again after its TTL, so it could be shorter; and it must not be much longer, since
/// whoever keeps a denial can show it to others after the name has come.
const VALIDITY: u32 = 3 * 86_400;

/// The keys by which sets are signed for one answer, as long as they sign the zone.
#[derive(Clone, Debug)]
pub struct OnlineKeys {
    origin: NameBuf,
    keys: Vec<Key>,
}

/// The private half of a key is not in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {tag} is in a token, which cannot sign while clients wait: compact denial needs keys in files")]
pub struct InToken {
    /// The key's tag.
    pub tag: u16,
}

impl OnlineKeys {
    /// Those that sign a zone's records, besides its keys, at some time.
    ///
    /// # Errors
    /// One of them is in a token.
    pub fn new(origin: Name<'_>, active: &Active<'_>) -> Result<OnlineKeys, InToken> {
        let keys: Vec<Key> = active.zone_signing.iter().copied().cloned().collect();
        match keys.iter().find(|key| key.label().is_some()) {
            Some(key) => Err(InToken { tag: key.tag() }),
            None => Ok(OnlineKeys { origin: NameBuf::from(origin), keys }),
        }
    }

    /// The data of a set's signatures, one by each key; `None` if the library cannot sign. `now` is in seconds since 1970.
    pub fn sign(
        &self,
        owner: Name<'_>,
        rtype: Rtype,
        ttl: u32,
        records: &[&[u8]],
        now: u64,
    ) -> Option<Vec<Vec<u8>>> {
        let now = now as u32; // Modulo 2^32 (RFC 4034, 3.1.5).
        let covered = Covered { owner, rtype, ttl, records };
        let sign = |key| rrsig(key, self.origin.as_name(), &covered, now, now.wrapping_add(VALIDITY));
        self.keys.iter().map(sign).collect()
    }
}
