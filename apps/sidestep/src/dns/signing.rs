//! Zones that the server signs: their keys, and their signed versions, on disk.
//!
//! The owner's file stays as it is. The signed version lies beside it, in `FILE.signed` and its journal, so that serials go on after a restart.
//! It follows what the owner's file and updates say, the keys and the time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use dns_auth::compile::{compile, compile_changed};
use dns_sign::{Due, KeySet, Lifetimes, Role, Signed, Signer, Times, differing};
use dns_transfer::Difference;
use dns_wire::{Name, NameBuf};
use dns_zone::{Changed, Zone};

use super::config::ZoneSpec;
use super::transfers::unix_time;
use super::version::Version;
use super::{key_files, load, store};

/// Names whose signatures are renewed in one version at most: others wait for less than a second meanwhile.
const RENEWED_MAX: usize = 2000;

/// What happens to signatures is looked at so often, whatever they say: clocks may jump, and keys may come.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(3600);

/// What a version was signed from, and how the next one will be.
#[derive(Clone, Debug)]
pub(crate) struct Signing {
    /// The zone as its owner has it.
    pub(crate) source: Zone,
    keys: Arc<KeySet>,
    /// Where the keys are.
    directory: PathBuf,
    /// The signed version.
    file: PathBuf,
    /// Whether the file lacks what is served, as it could not be written.
    is_unsaved: bool,
}

/// The signed version of a zone that was read, whose owner's file is `file`. `before` is what is served.
///
/// # Errors
/// The zone cannot be signed. What is served stays good for as long as its signatures.
pub(crate) fn load(
    source: Zone,
    file: &Path,
    directory: &Path,
    before: Option<&Version>,
) -> anyhow::Result<Version> {
    let signed = signed_file(file);
    let before = before.filter(|version| version.served.origin() == source.origin());
    let before = before.and_then(|version| Some((version.clone(), version.signing.as_ref()?.is_unsaved)));
    let held = match before {
        Some(held) => Some(held),
        None => read_signed(&signed, source.origin())?.map(|version| (version, false)),
    };
    let keys = keys_for(source.origin(), directory, held.is_some())?;
    let keys = Arc::new(keys);
    let signing = |source, is_unsaved| Signing {
        source,
        keys,
        directory: directory.to_owned(),
        file: signed,
        is_unsaved,
    };
    match held {
        None => first(signing(source, false)),
        Some((held, is_unsaved)) => {
            let zone = held.tree().context("it has no data")?;
            let mut names = differing(zone, &source);
            let signing = signing(source, is_unsaved);
            names.extend(signing.due(zone, usize::MAX)?.names);
            let next = signing.next(&held, &names)?;
            Ok(signing.keep(&held, next))
        }
    }
}

/// What was served of a zone that cannot be signed now, if it is on disk.
pub(crate) fn last_signed(file: &Path, origin: Name<'_>) -> Option<Version> {
    read_signed(&signed_file(file), origin).ok().flatten()
}

/// Where the signed version of a zone lies whose owner's file is `file`.
fn signed_file(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".signed");
    file.with_file_name(name)
}

fn read_signed(file: &Path, origin: Name<'_>) -> anyhow::Result<Option<Version>> {
    if !file.try_exists()? {
        return Ok(None);
    }
    let spec = ZoneSpec { origin: Some(NameBuf::from(origin)), ..ZoneSpec::of(file.to_owned()) };
    let version = store::read(&spec).with_context(|| {
        format!("reading {}; without that file the zone is signed anew, with a serial behind that of its own file", file.display())
    })?;
    Ok(Some(version).filter(|version| version.served.origin() == origin))
}

/// The first version.
fn first(signing: Signing) -> anyhow::Result<Version> {
    let Signing { source, keys, file, .. } = &signing;
    let (now, origin) = (unix_time(), source.origin());
    let active = keys.at(now)?;
    // Secondaries that have the zone without signatures are to fetch it.
    let serial = source.serial().wrapping_add(1).max(1);
    let signer = Signer::new(origin, &active, now, Lifetimes::default());
    let zone = signer.sign(source, serial, load::random_seed())?;
    store::save(file, &zone)?;
    log::info!("zone {origin}: signed, serial {serial}");
    Ok(Version { signing: Some(Arc::new(signing)), ..Version::first(compile(zone)) })
}

/// A version that is signed, and not yet kept.
pub(crate) struct Next {
    changed: Changed,
    differences: [Arc<Difference>; 1],
}

impl Signing {
    /// The same, when its owner has another zone.
    pub(crate) fn with_source(&self, source: Zone) -> Signing {
        Signing { source, ..self.clone() }
    }

    /// The version behind `held` that has at `names` what the source has; `None` if that one has.
    pub(crate) fn next(&self, held: &Version, names: &[NameBuf]) -> anyhow::Result<Option<Next>> {
        let (now, old) = (unix_time(), held.tree().context("it has no data")?);
        let active = self.keys.at(now)?;
        let signer = Signer::new(old.origin(), &active, now, Lifetimes::default());
        let Some(Signed { changed, names }) = signer.follow(old, &self.source, names)? else {
            return Ok(None);
        };
        let differences = [Arc::new(Difference::at(old, &changed.zone, &names))];
        Ok(Some(Next { changed, differences }))
    }

    /// What is due of the signatures of a version, of so many names at most.
    fn due(&self, held: &Zone, names_max: usize) -> anyhow::Result<Due> {
        let now = unix_time();
        let active = self.keys.at(now)?;
        Ok(Signer::new(held.origin(), &active, now, Lifetimes::default()).due(held, names_max))
    }

    /// Writes the version behind `held`, and has it served. A disk that is full does not end that: what was signed before would end.
    pub(crate) fn keep(mut self, held: &Version, next: Option<Next>) -> Version {
        let Some(Next { changed, differences }) = next else {
            return Version { signing: Some(Arc::new(self)), ..held.clone() };
        };
        let written = match self.is_unsaved {
            true => store::save(&self.file, &changed.zone),
            false => store::add(&self.file, &differences, &changed.zone),
        };
        self.is_unsaved = written.is_err();
        if let Err(error) = written {
            let origin = held.served.origin();
            log::error!("zone {origin}: its signed version is served, but not kept: {error:#}");
        }
        let next = held.next(compile_changed(&held.served, changed), &differences);
        Version { signing: Some(Arc::new(self)), ..next }
    }
}

/// Renews what is due of a zone, with the keys as they are now. `None` if nothing is. Then, when to look again.
pub(crate) fn renew(held: &Version) -> anyhow::Result<(Option<Version>, Duration)> {
    let (Some(zone), Some(signing)) = (held.tree(), &held.signing) else { return Ok((None, LOOK_MAX)) };
    let now = unix_time();
    let keys = Arc::new(key_files::read(zone.origin(), &signing.directory)?);
    let signing = Signing { keys: Arc::clone(&keys), ..Signing::clone(signing) };
    let due = signing.due(zone, RENEWED_MAX)?;
    let next_key = keys.next_change(now).map_or(u64::MAX, |time| time - now);
    let again = Duration::from_secs(next_key.min(due.next.into()).max(1)).min(LOOK_MAX);
    let next = signing.next(held, &due.names)?;
    Ok((next.map(|next| signing.keep(held, Some(next))), again))
}

/// The keys of a zone. One that was never signed gets its first key.
fn keys_for(origin: Name<'_>, directory: &Path, was_signed: bool) -> anyhow::Result<KeySet> {
    let keys = key_files::read(origin, directory)?;
    if !keys.keys().is_empty() {
        return Ok(keys);
    }
    if was_signed {
        // Another key would break the chain of trust that the parent has begun.
        bail!("{} has none of its keys, though the zone was signed before", directory.display());
    }
    let stem = key_files::generate(origin, directory, Role::KeySigning, Times::first(unix_time()))?;
    log::info!("zone {origin}: a key was made, {}", stem.display());
    key_files::read(origin, directory)
}
