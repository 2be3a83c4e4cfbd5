//! Who signs for one answer of a zone that is denied compactly (RFC 9824).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use dns_auth::{OnlineSet, SignOnline};
use dns_sign::{DenialBy, KeySet, OnlineKeys};
use dns_wire::{Name, Rtype};

use super::signing::active;
use super::transfers::unix_time;

/// The keys by which a zone that is denied compactly is signed for one answer. What they need is found out once for all versions that they sign.
#[derive(Debug)]
pub(super) struct Online {
    keys: OnlineKeys,
    cost: Duration,
}

impl Online {
    /// Signatures of which the fastest says what one costs: others may have waited for a processor.
    const PROBES: usize = 4;

    /// Those of a zone, if it is denied so.
    pub(super) fn of(
        denial: DenialBy,
        origin: Name<'_>,
        keys: &KeySet,
    ) -> anyhow::Result<Option<Arc<Online>>> {
        if denial != DenialBy::Compact {
            return Ok(None);
        }
        let (now, keys) = (unix_time(), OnlineKeys::new(origin, &active(keys)?)?);
        let mut cost = Duration::MAX;
        for _ in 0..Online::PROBES {
            let began = Instant::now();
            keys.sign(origin, Rtype::NSEC, 0, &[b"\0"], now).context("a key could not sign")?;
            cost = cost.min(began.elapsed());
        }
        Ok(Some(Arc::new(Online { keys, cost })))
    }
}

/// Signs for one answer of a version.
#[derive(Debug)]
pub(super) struct OnlineSigner {
    id: u64,
    online: Arc<Online>,
}

impl OnlineSigner {
    pub(super) fn of_next_version(online: &Arc<Online>) -> Arc<dyn SignOnline> {
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        let id = VERSIONS.fetch_add(1, Ordering::Relaxed);
        Arc::new(OnlineSigner { id, online: Arc::clone(online) })
    }
}

impl SignOnline for OnlineSigner {
    fn id(&self) -> u64 {
        self.id
    }

    fn cost(&self) -> clock::Duration {
        self.online.cost.into()
    }

    fn sign(&self, set: &OnlineSet<'_>) -> Option<Vec<Vec<u8>>> {
        self.online.keys.sign(set.owner, set.rtype, set.ttl, set.records, unix_time())
    }
}
