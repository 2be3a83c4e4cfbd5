//! A version of a zone, with what led to it.

use std::sync::Arc;

use dns_auth::ServedZone;
use dns_transfer::{Difference, History};
use dns_zone::Zone;

/// What is served of a zone, and its last differences.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) served: Arc<ServedZone>,
    pub(crate) history: Arc<History>,
}

impl Version {
    /// A version about whose past nothing is known.
    pub(crate) fn first(served: ServedZone) -> Version {
        Version { served: Arc::new(served), history: Arc::default() }
    }

    /// The version that differences led to from this one; without any, nothing is known of the past.
    pub(crate) fn next(&self, served: ServedZone, differences: &[Arc<Difference>]) -> Version {
        if differences.is_empty() {
            return Version::first(served);
        }
        Version { served: Arc::new(served), history: Arc::new(self.history.with(differences)) }
    }

    /// The zone, if there is data.
    pub(crate) fn tree(&self) -> Option<&Zone> {
        self.served.tree().ok()
    }
}
