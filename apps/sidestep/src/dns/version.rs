//! A version of a zone, with what led to it.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use dns_auth::ServedZone;
use dns_transfer::text::write_zone;
use dns_transfer::{Difference, History};
use dns_zone::Zone;

use super::signing::Signing;

/// What is served of a zone, and its last differences.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) served: Arc<ServedZone>,
    pub(crate) history: Arc<History>,
    /// What it was signed from, if we sign it.
    pub(crate) signing: Option<Arc<Signing>>,
}

impl Version {
    /// A version about whose past nothing is known.
    pub(crate) fn first(served: ServedZone) -> Version {
        Version { served: Arc::new(served), history: Arc::default(), signing: None }
    }

    /// The version that differences led to from this one; without any, nothing is known of the past.
    pub(crate) fn next(&self, served: ServedZone, differences: &[Arc<Difference>]) -> Version {
        if differences.is_empty() {
            return Version::first(served);
        }
        let history = Arc::new(self.history.with(differences));
        Version { served: Arc::new(served), history, signing: None }
    }

    /// The same version as one that was signed so.
    pub(crate) fn signed_by(self, signing: Signing) -> Version {
        signing.sign_online(&self.served);
        Version { signing: Some(Arc::new(signing)), ..self }
    }

    /// What an update is about: the zone as its owner has it, if there is data.
    pub(crate) fn source(&self) -> Option<&Zone> {
        self.signing.as_ref().map(|signing| &signing.source).or(self.tree())
    }

    /// The zone, if there is data.
    pub(crate) fn tree(&self) -> Option<&Zone> {
        self.served.tree().ok()
    }
}

/// Writes a zone as a zone file, in pieces of up to 64 KiB.
pub(crate) fn write_zone_to(zone: &Zone, out: &mut dyn Write) -> io::Result<()> {
    /// Keeps the error that `fmt::Write` has no place for.
    struct Out<'o>(BufWriter<&'o mut dyn Write>, io::Result<()>);
    impl std::fmt::Write for Out<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.1 = self.0.write_all(text.as_bytes());
            if self.1.is_ok() { Ok(()) } else { Err(std::fmt::Error) }
        }
    }
    let mut out = Out(BufWriter::with_capacity(64 << 10, out), Ok(()));
    let written = write_zone(zone, &mut out);
    out.1?;
    written.map_err(io::Error::other)?;
    out.0.flush()
}
