//! Zones that the server signs: their keys, and their signed versions, on disk.
//!
//! The owner's file stays as it is. The signed version lies beside it, in `FILE.signed` and its journal, so that serials go on after a restart.
//! It follows what the owner's file and updates say, the keys and the time.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use dns_auth::compile::{compile, compile_changed, compile_views, compile_with_lines};
use dns_auth::{LineData, ServedZone, SignFailure, SignSets};
use dns_message::is_older;
use dns_sign::{
    Active, Algorithm, DenialBy, Due, Key, KeySet, Lifetimes, Lost, Role, Signed, Signer, State, Times,
    differing,
};
use dns_token::KeyUri;
use dns_transfer::Difference;
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::Zone;
use dns_zone::text::ZoneTextErrors;

use super::config::ZoneSpec;
use super::online_signing::{Online, OnlineSigner};
use super::serial::{stayed, went_back};
use super::transfers::unix_time;
use super::version::Version;
use super::{key_clock, key_files, load, served_serial, store, tokens};

/// Names whose signatures are renewed in one version at most: others wait for less than a second meanwhile. With the apex these are few enough for their links
/// in the chain of NSEC records to be made one by one.
const RENEWED_MAX: usize = 900;

/// What happens to signatures is looked at so often, whatever they say: clocks may jump, and keys may come.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(3600);

/// After an error they are looked at again so soon: a token may be back, or a file whole.
pub(crate) const LOOK_AFTER_ERROR: Duration = Duration::from_secs(120);

/// A version that is not on disk is written again so soon, if that takes no more than a part of the time.
const KEEP_AGAIN: Duration = Duration::from_secs(5);
const KEEP_PART: u32 = 20;

/// What a version was signed from, and how the next one will be.
#[derive(Clone, Debug)]
pub(crate) struct Signing {
    /// The zone as its owner has it.
    pub(crate) source: Zone,
    keys: Arc<KeySet>,
    denial: DenialBy,
    has_csync: bool,
    /// Where the keys are.
    directory: PathBuf,
    /// The algorithm that they are to have, and whether keys may be made for that.
    algorithm: Option<Algorithm>,
    makes_keys: bool,
    /// How keys in tokens are used.
    key_uri: Option<KeyUri>,
    /// The signed version.
    file: PathBuf,
    /// Why the keys are those that were read before, if their files cannot be used any more.
    from_memory: Option<Arc<str>>,
    /// Why the file lacks what is served or to be served, if it could not be written.
    unsaved: Option<Arc<str>>,
    /// The serial that is noted beside the file, up to which versions were served that the file may lack.
    noted: Option<u32>,
    /// Signatures of record sets that some clients get in place of the zone's.
    made: Arc<Made>,
    /// Who signs for one answer, of a zone that is denied compactly.
    online: Option<Arc<Online>>,
}

#[cfg(test)]
impl Signing {
    /// That of a zone without keys.
    pub(crate) fn without_keys(source: Zone) -> Signing {
        Signing {
            source,
            keys: Arc::new(KeySet::new(Vec::new())),
            denial: DenialBy::Nsec,
            has_csync: false,
            directory: PathBuf::new(),
            algorithm: None,
            makes_keys: false,
            key_uri: None,
            file: PathBuf::new(),
            from_memory: None,
            unsaved: None,
            noted: None,
            made: Arc::default(),
            online: None,
        }
    }
}

/// Signatures that were made, by owner, type, TTL and data of what they cover.
type Made = Mutex<HashMap<(NameBuf, u16, u32, Vec<Vec<u8>>), Vec<Vec<u8>>>>;

/// Signs what some clients get in place of a zone's own, each set once.
#[derive(Debug)]
struct ViewSigner {
    origin: NameBuf,
    keys: Arc<KeySet>,
    made: Arc<Made>,
    failure: Mutex<Option<SignFailure>>,
}

/// As far as signatures are good that cannot be made anew now: until they expire.
const UNTIL_EXPIRED: Lifetimes = Lifetimes { validity: 14 * 86_400, spread: 0, refresh: 0 };

impl ViewSigner {
    fn new(origin: NameBuf, keys: Arc<KeySet>, made: Arc<Made>) -> ViewSigner {
        ViewSigner { origin, keys, made, failure: Mutex::new(None) }
    }

    /// Notes that a set was not signed. One without signatures counts more than those that have them.
    fn note(&self, why: String, is_unsigned: bool) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|noted| is_unsigned && !noted.is_unsigned) {
            *failure = Some(SignFailure { why, is_unsigned });
        }
    }

    fn try_sign(
        &self,
        owner: &NameBuf,
        rtype: Rtype,
        ttl: u32,
        records: &[Vec<u8>],
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let (now, active) = (unix_time(), active(&self.keys)?);
        // It denies nothing.
        let by = |lifetimes| Signer::new(self.origin.as_name(), &active, now, lifetimes, DenialBy::default());
        let signer = by(Lifetimes::default());
        let key = (owner.clone(), rtype.0, ttl, records.to_vec());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let held = made.get(&key).cloned();
        let are_good =
            |signer: &Signer<'_>, held: &Vec<Vec<u8>>| signer.are_good(rtype, held.iter().map(Vec::as_slice));
        if let Some(held) = held.as_ref().filter(|held| are_good(&signer, held)) {
            return Ok(held.clone());
        }
        if let Some(signatures) = signer.sign_set(owner.as_name(), rtype, ttl, records) {
            made.insert(key, signatures.clone());
            return Ok(signatures);
        }
        let why = format!("{owner} {rtype}, which some clients get: a key could not sign");
        match held.filter(|held| are_good(&by(UNTIL_EXPIRED), held)) {
            Some(held) => {
                self.note(why, false);
                Ok(held)
            }
            None => bail!(why),
        }
    }
}

impl SignSets for ViewSigner {
    fn sign(&self, owner: &NameBuf, rtype: Rtype, ttl: u32, records: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.try_sign(owner, rtype, ttl, records).unwrap_or_else(|error| {
            self.note(format!("{error:#}"), true);
            Vec::new()
        })
    }

    fn take_failure(&self) -> Option<SignFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What was there of a zone before it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before<'v> {
    /// What is served by the same configuration.
    pub(crate) version: Option<&'v Version>,
    /// That was signed, though it could not be signed again since.
    pub(crate) was_signed: bool,
    /// How it was signed, also by another configuration: its keys are in memory.
    pub(crate) signing: Option<&'v Signing>,
}

/// The signed version of a zone that was read, as `spec` has it signed; `data` is what views have. If the files of keys that were in use cannot be
/// used any more, it is signed with those in memory.
///
/// # Errors
/// The zone cannot be signed. What is served stays good for as long as its signatures.
pub(crate) fn load(
    source: Zone,
    spec: &ZoneSpec,
    Before { version: before, was_signed, signing: remembered }: Before<'_>,
    data: &LineData,
) -> anyhow::Result<Version> {
    let (directory, denial) = (spec.keys.as_deref().unwrap_or(Path::new(".")), spec.denial);
    let signed = signed_file(&spec.file);
    let before = before.filter(|version| version.served.origin() == source.origin());
    let made = before.and_then(|version| version.signing.as_ref()).map(|signing| Arc::clone(&signing.made));
    // The file may have an older version than what is served, whose serial must not go back.
    let unsaved = |version: &Version| match &version.signing {
        Some(signing) => Some(signing.unsaved.clone()),
        None => was_signed.then(|| Some("the zone could not be signed".into())),
    };
    let before = before.and_then(|version| Some((version.clone(), unsaved(version)?)));
    let held = match before {
        Some(held) => Some(held),
        None => read_signed(&signed, source.origin(), store::read)?.map(|version| (version, None)),
    };
    // Without a version there is nothing that a note could be about.
    let noted = held.as_ref().and_then(|(held, _)| told(&signed, held, &source));
    let remembered = remembered.filter(|signing| signing.source.origin() == source.origin());
    let from_files = || {
        let keys = keys_for(source.origin(), spec, held.is_some())?;
        let Some((held, _)) = &held else { return Ok(keys) };
        usable(keys, held, remembered, (&source, directory))
    };
    let served = held.as_ref().and_then(|(held, _)| held.tree());
    let InUse { mut keys, from_memory } = InUse::of(from_files(), remembered, served)?;
    if let Some(why) = &from_memory {
        log::error!("zone {}: {why}", source.origin());
    }
    tokens::connect(source.origin(), &mut keys, spec.key_uri.as_ref());
    let keys = Arc::new(keys);
    let online = Online::of(denial, source.origin(), &keys)?;
    let signing = |source, unsaved| Signing {
        source,
        keys,
        denial,
        directory: directory.to_owned(),
        has_csync: spec.has_csync,
        algorithm: spec.algorithm,
        makes_keys: spec.makes_keys,
        key_uri: spec.key_uri.clone(),
        file: signed,
        from_memory,
        unsaved,
        noted,
        made: made.unwrap_or_default(),
        online,
    };
    match held {
        None => first(signing(source, None), data),
        Some((held, unsaved)) => {
            let zone = held.tree().context("it has no data")?;
            let mut names = differing(zone, &source);
            let signing = signing(source, unsaved);
            names.extend(signing.due(zone, usize::MAX)?.names);
            let next = signing.next(&held, &names)?;
            // What cannot be served is not kept either.
            let viewed = viewed(served_next(&held, next.as_ref()), Some(&signing), data)?;
            Ok(signing.keep_with(&held, next, viewed))
        }
    }
}

/// The last serial that others may have, if that may be ahead of the signed version's.
fn told(signed: &Path, held: &Version, source: &Zone) -> Option<u32> {
    let noted = served_serial::prepare(signed)?;
    let is_ahead = held.tree().is_some_and(|held| is_older(held.serial(), noted));
    // It may have been served without signatures, and updates have raised it since.
    Some(if is_ahead && is_older(noted, source.serial()) { source.serial() } else { noted })
}

/// Notes that a zone is served without signatures, if there is a version with some: that is to come behind it when it is signed again.
pub(crate) fn note_unsigned(file: &Path, zone: &Zone) {
    let signed = signed_file(file);
    let serial = zone.serial();
    if !signed.exists() || served_serial::prepare(&signed).is_some_and(|noted| is_older(serial, noted)) {
        return;
    }
    if let Err(error) = served_serial::note(&signed, Some(serial)) {
        log::warn!("zone {}: its serial cannot be noted beside {}: {error}", zone.origin(), signed.display());
    }
}

/// A version with views that are made of `data`.
///
/// # Errors
/// A set that some clients would get cannot be signed. The views that are served stay good for as long as their signatures.
pub(crate) fn with_views(version: &Version, data: &LineData) -> anyhow::Result<Version> {
    let viewed = viewed(&version.served, version.signing.as_deref(), data)?;
    Ok(with_viewed(version.clone(), viewed))
}

/// A zone with views that were made for it.
struct Viewed {
    served: ServedZone,
    /// Why sets in them have signatures of before, which end soon.
    kept: Option<String>,
}

/// A zone with views that are made of `data`; `None` if it has none, and is to have none.
fn viewed(served: &ServedZone, signing: Option<&Signing>, data: &LineData) -> anyhow::Result<Option<Viewed>> {
    if data.is_empty() && served.lines().is_none() {
        return Ok(None);
    }
    let data = match signing {
        Some(signing) => data.signed_by(signing.view_signer()),
        None => data.clone(),
    };
    let data = Arc::new(data);
    let served = compile_views(served, &data);
    let kept = kept_signatures(&data)?;
    if let Some(why) = &kept {
        log::error!("zone {}: signatures of before are still served: {why}", served.origin());
    }
    Ok(Some(Viewed { served, kept }))
}

fn with_viewed(version: Version, viewed: Option<Viewed>) -> Version {
    match viewed {
        Some(Viewed { served, .. }) => Version { served: Arc::new(served), ..version },
        None => version,
    }
}

/// Why sets in views that were just made of `data` have signatures of before.
///
/// # Errors
/// One has none.
fn kept_signatures(data: &LineData) -> anyhow::Result<Option<String>> {
    match data.signer().and_then(|signer| signer.take_failure()) {
        Some(SignFailure { why, is_unsigned: true }) => {
            bail!("{why}: some clients would get what is not signed")
        }
        failure => Ok(failure.map(|failure| failure.why)),
    }
}

/// What is served of `held`, or of the version behind that.
fn served_next<'v>(held: &'v Version, next: Option<&'v Next>) -> &'v ServedZone {
    next.map_or(&held.served, |next| &next.served)
}

/// What was served of a zone that cannot be signed now, if it is on disk.
pub(crate) fn last_signed(file: &Path, origin: Name<'_>) -> Option<Version> {
    read_signed(&signed_file(file), origin, store::read).ok().flatten()
}

/// The same for a tool: a server may be writing there.
pub(crate) fn look_at_signed(file: &Path, origin: Name<'_>) -> Option<Version> {
    read_signed(&signed_file(file), origin, store::look).ok().flatten()
}

/// Whether there is a signed version on disk, also one that cannot be read.
pub(crate) fn has_signed(file: &Path) -> bool {
    signed_file(file).exists()
}

/// What comes of a zone that was signed here, as is known or as its signed version on disk says, and is not any more by its configuration.
pub(crate) fn ended(zone: &Zone, spec: &ZoneSpec, was_signed: bool) -> Option<String> {
    // Others may have signed it since.
    let is_unsigned = spec.keys.is_none() && !zone.is_signed();
    let has_signed = has_signed(&spec.file);
    if !is_unsigned || !(was_signed || has_signed) {
        return None;
    }
    let bogus = "it was signed here, and is not any more: it is bogus for validators while the parent has a DS record of it; \
                 dnssec = true signs it again";
    let file = signed_file(&spec.file);
    let remove = has_signed.then(|| format!(". If the parent has none, remove {}", file.display()));
    Some(format!("{bogus}{}", remove.unwrap_or_default()))
}

/// The same for a tool, and whether secondary servers keep the signed version, by its serial.
fn look_at_end(zone: &Zone, spec: &ZoneSpec) -> Option<String> {
    let ended = ended(zone, spec, false)?;
    let held = look_at_signed(&spec.file, zone.origin());
    let held = held.as_ref().and_then(Version::tree).map(Zone::serial);
    let serial = zone.serial();
    let kept = held.and_then(|held| match held == serial {
        true => Some(stayed(serial)),
        false => is_older(serial, held).then(|| went_back(held, serial)),
    });
    Some([Some(ended), kept].into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// Removes the signed version of a zone that is signed no longer, or has left.
pub(crate) fn forget(file: &Path) {
    let signed = signed_file(file);
    store::remove(&signed);
    served_serial::remove(&signed);
}

/// Where the signed version of a zone lies whose owner's file is `file`. BIND has its own at the same place, in a form of its own (`raw`), and may
/// need it again: ours has another name there, and keeps it.
fn signed_file(file: &Path) -> PathBuf {
    let with = |ending: &str| {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        file.with_file_name(name)
    };
    let (usual, other) = (with(".signed"), with(".sidestep-signed"));
    if other.exists() || is_raw(&usual) { other } else { usual }
}

/// Whether a file begins like those of BIND in its form `raw`, with the number 2 in four octets; no text does.
fn is_raw(file: &Path) -> bool {
    let mut head = [0; 4];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == 2u32.to_be_bytes()
}

/// What a start would have to say about the keys and the signed version of a zone, before there is one: an error, or a warning.
pub(crate) fn look(source: &Zone, spec: &ZoneSpec) -> Result<Option<String>, String> {
    let origin = source.origin();
    let Some(directory) = &spec.keys else { return Ok(look_at_end(source, spec)) };
    let in_full = |error: anyhow::Error| format!("{error:#}");
    let held = read_signed(&signed_file(&spec.file), origin, store::look).map_err(in_full)?;
    let was_signed = held.is_some();
    let keys = key_files::read(origin, directory).map_err(in_full)?;
    match keys.keys() {
        [] if was_signed || !spec.makes_keys => Err(no_keys(origin, spec, was_signed)),
        [] if spec.key_uri.is_some() => {
            Ok(Some("it has no key yet: the start looks for that of key-uri in its token".to_owned()))
        }
        [] => Ok(Some(format!(
            "there is no key of it in {}: the start makes one. If the parent has a DS record already, bring the key that it is of \
             instead: all answers would be bogus",
            directory.display()
        ))),
        _ => {
            // Others may be of another signer, and have left the file or updates since.
            let held = held.as_ref().and_then(Version::tree);
            let lost = held.and_then(|held| keys.lost(held, source));
            if let Some(lost) = lost.filter(|lost| lost.signs) {
                return Err(gone(&lost, directory));
            }
            let as_served = held.map_or_else(|| keys.clone(), |held| keys.put_off(held, unix_time()));
            as_served.at(unix_time()).map_err(|error| error.to_string())?;
            Online::of(spec.denial, origin, &as_served).map_err(in_full)?;
            Ok(keys.ends_alone(unix_time()).map(|(key, end)| {
                format!(
                    "by its file its key {} ends at {}, and no other key-signing key follows. It will sign on, and has to be replaced by hand: sidestep \
                     dns key roll",
                    key.tag(),
                    super::keys::show_time(end)
                )
            }))
        }
    }
}

fn no_keys(origin: Name<'_>, spec: &ZoneSpec, was_signed: bool) -> String {
    let directory = spec.keys.as_deref().unwrap_or(Path::new(".")).display();
    let why = match was_signed {
        true => "the zone was signed before: bring its keys there",
        false => {
            "new-keys = false says that none is made: bring its keys there, or, if the parent has no DS record, remove that option"
        }
    };
    format!("there is no key of {origin} in the directory {directory}, and {why}")
}

fn read_signed(
    file: &Path,
    origin: Name<'_>,
    read: impl Fn(&ZoneSpec) -> Result<Version, ZoneTextErrors>,
) -> anyhow::Result<Option<Version>> {
    if !file.try_exists()? {
        return Ok(None);
    }
    let spec = ZoneSpec { origin: Some(NameBuf::from(origin)), ..ZoneSpec::of(file.to_owned()) };
    let version = read(&spec).with_context(|| {
        format!("reading {}; without that file the zone is signed anew, with a serial behind that of its own file", file.display())
    })?;
    Ok(Some(version).filter(|version| version.served.origin() == origin))
}

/// The first version.
fn first(signing: Signing, data: &LineData) -> anyhow::Result<Version> {
    let Signing { source, keys, file, .. } = &signing;
    let (now, origin) = (unix_time(), source.origin());
    let active = active(keys)?;
    // Secondaries that have the zone without signatures are to fetch it.
    let serial = source.serial().wrapping_add(1).max(1);
    let signer = signing.signer(origin, &active, now);
    let zone = signer.sign(source, serial, load::random_seed())?;
    let served = match data.is_empty() {
        true => compile(zone.clone()),
        false => {
            let data = Arc::new(data.signed_by(signing.view_signer()));
            let served = compile_with_lines(zone.clone(), &data);
            kept_signatures(&data)?;
            served
        }
    };
    store::save(file, &zone)?;
    served_serial::prepare(file);
    log::info!("zone {origin}: signed, serial {serial}");
    Ok(Version::first(served).signed_by(signing))
}

/// A version that is signed, and not yet kept.
pub(crate) struct Next {
    zone: Zone,
    served: ServedZone,
    differences: [Arc<Difference>; 1],
    /// Why views have a set without signatures, which are made by the keys of before.
    unsigned: Option<String>,
}

impl Next {
    /// # Errors
    /// It has views, and a set of theirs has no signatures.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.unsigned.clone().map_or(Ok(()), |why| bail!(why))
    }
}

/// What keys are for by now. Their time may be another one than that of signatures, which have to be good for those whose clocks are right.
pub(super) fn active(keys: &KeySet) -> anyhow::Result<Active<'_>> {
    Ok(keys.at(key_clock::now(keys))?)
}

impl Signing {
    fn signer<'k>(&self, origin: Name<'k>, keys: &'k Active<'k>, now: u64) -> Signer<'k> {
        Signer::new(origin, keys, now, Lifetimes::default(), self.denial)
            .with_csync(self.has_csync)
            .behind(self.noted)
    }

    /// Has answers of a version signed by the keys, if it is denied compactly.
    pub(crate) fn sign_online(&self, served: &ServedZone) {
        let signs = || served.signer().is_none();
        if let Some(online) = self.online.as_ref().filter(|_| signs()) {
            served.sign_online_by(OnlineSigner::of_next_version(online));
        }
    }

    /// Signs for views, with the keys as they are now.
    fn view_signer(&self) -> Arc<dyn SignSets> {
        let (origin, keys) = (NameBuf::from(self.source.origin()), Arc::clone(&self.keys));
        Arc::new(ViewSigner::new(origin, keys, Arc::clone(&self.made)))
    }

    /// Whether all signatures of views are good for long enough.
    fn are_views_good(&self, served: &ServedZone) -> anyhow::Result<bool> {
        let Some(lines) = served.lines() else { return Ok(true) };
        let now = unix_time();
        let (origin, active) = (self.source.origin(), active(&self.keys)?);
        let signer = self.signer(origin, &active, now);
        let are_good = lines.signatures().all(|(rtype, own)| signer.are_good(rtype, own.into_iter()));
        // Those that end soon stay until there are others: a token may be away.
        let lasting = Signer::new(origin, &active, now, UNTIL_EXPIRED, self.denial);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(_, rtype, ..), own| lasting.are_good(Rtype(*rtype), own.iter().map(Vec::as_slice)));
        Ok(are_good)
    }

    /// The same, when its owner has another zone.
    pub(crate) fn with_source(&self, source: Zone) -> Signing {
        Signing { source, ..self.clone() }
    }

    /// The version behind `held` that has at `names` what the source has; `None` if that one has.
    pub(crate) fn next(&self, held: &Version, names: &[NameBuf]) -> anyhow::Result<Option<Next>> {
        let (now, old) = (unix_time(), held.tree().context("it has no data")?);
        let active = active(&self.keys)?;
        let signer = self.signer(old.origin(), &active, now);
        let Some(Signed { changed, names }) = signer.follow(old, &self.source, names)? else {
            return Ok(None);
        };
        let differences = [Arc::new(Difference::at(old, &changed.zone, &names))];
        let zone = changed.zone.clone();
        let served = compile_changed(&held.served, changed);
        let unsigned = served.lines().and_then(|lines| kept_signatures(lines.data()).err());
        Ok(Some(Next { zone, served, differences, unsigned: unsigned.map(|error| error.to_string()) }))
    }

    /// The same with the keys that the files have now, behind `held`, which has the records of `served`. The log has it while that is impossible.
    fn with_keys_of_now(&self, held: &Version, served: &Zone) -> anyhow::Result<Signing> {
        let origin = served.origin();
        let from_files = with_algorithm(origin, &self.directory, self.algorithm, self.makes_keys)
            .and_then(|keys| usable(keys, held, Some(self), (&self.source, &self.directory)));
        let InUse { mut keys, from_memory } = InUse::of(from_files, Some(self), Some(served))?;
        tokens::connect(origin, &mut keys, self.key_uri.as_ref());
        match &from_memory {
            Some(why) => log::error!("zone {origin}: {why}"),
            None if self.from_memory.is_some() => {
                log::info!("zone {origin}: it is signed with the keys in their files again")
            }
            _ => {}
        }
        let online = Online::of(self.denial, origin, &keys)?;
        Ok(Signing { keys: Arc::new(keys), from_memory, online, ..self.clone() })
    }

    /// What is due of the signatures of a version, of so many names at most.
    fn due(&self, held: &Zone, names_max: usize) -> anyhow::Result<Due> {
        let (now, active) = (unix_time(), active(&self.keys)?);
        Ok(self.signer(held.origin(), &active, now).due(held, &self.source, names_max))
    }

    /// Writes the version behind `held`, and has it served. A disk that is full does not end that: what was signed before would end.
    pub(crate) fn keep(self, held: &Version, next: Option<Next>) -> Version {
        self.keep_with(held, next, None)
    }

    /// The same with views that were made for it.
    fn keep_with(mut self, held: &Version, next: Option<Next>, viewed: Option<Viewed>) -> Version {
        let Some(Next { zone, served, differences, .. }) = next else {
            if let Some(zone) = held.tree().filter(|_| self.unsaved.is_some()) {
                self.note(zone, store::save(&self.file, zone));
            }
            return with_viewed(held.clone(), viewed).signed_by(self);
        };
        let written = match self.unsaved {
            Some(_) => store::save(&self.file, &zone),
            None => store::add(&self.file, &differences, &zone),
        };
        if !self.note(&zone, written) {
            return held.clone().signed_by(self);
        }
        with_viewed(held.next(served, &differences), viewed).signed_by(self)
    }

    /// What became of writing the signed version; whether it may be served. Else secondaries may have what a restart knows nothing of, and
    /// would ignore what it gives them under the same serials.
    fn note(&mut self, zone: &Zone, written: anyhow::Result<()>) -> bool {
        let (origin, serial) = (zone.origin(), zone.serial());
        let Err(error) = written else {
            if self.unsaved.take().is_some() {
                log::info!("zone {origin}: its signed version is kept again, serial {serial}");
            }
            if self.noted.is_some() && served_serial::note(&self.file, None).is_ok() {
                self.noted = None;
            }
            return true;
        };
        let noted =
            if self.noted == Some(serial) { Ok(()) } else { served_serial::note(&self.file, Some(serial)) };
        let why = match &noted {
            Ok(()) => {
                self.noted = Some(serial);
                format!("its signed version is served, but not kept: {error:#}")
            }
            Err(_) => format!(
                "its signed version can be neither kept nor noted, so no later one is served: {error:#}"
            ),
        };
        if self.unsaved.as_deref() != Some(&why) {
            log::error!("zone {origin}: {why}");
        }
        self.unsaved = Some(why.into());
        noted.is_ok()
    }
}

/// The keys that a zone is signed with.
struct InUse {
    keys: KeySet,
    /// Why they are those of before.
    from_memory: Option<Arc<str>>,
}

impl InUse {
    /// Those of the files, or, where these cannot be used any more, those that are in memory: signatures end, and updates are to be signed. Their times
    /// go on, and are put off by what is `served`.
    fn of(
        from_files: anyhow::Result<KeySet>,
        remembered: Option<&Signing>,
        served: Option<&Zone>,
    ) -> anyhow::Result<InUse> {
        let error = match from_files {
            Ok(keys) => return Ok(InUse { keys, from_memory: None }),
            Err(error) => error,
        };
        let (Some(remembered), Some(served)) = (remembered, served) else { return Err(error) };
        let held = &remembered.keys;
        let why = format!(
            "it is signed with the keys in memory, which end with this process, as their files cannot be used: {error:#}"
        );
        Ok(InUse { keys: held.put_off(served, key_clock::now(held)), from_memory: Some(why.into()) })
    }
}

/// The keys that were read, if the version behind `held` can have them. `remembered` is how a version was signed before, with keys in memory.
fn usable(
    keys: KeySet,
    held: &Version,
    remembered: Option<&Signing>,
    (source, directory): (&Zone, &Path),
) -> anyhow::Result<KeySet> {
    refuse_lacking(held, remembered, &keys, (source, directory))?;
    match held.tree() {
        Some(served) => as_served(keys, directory, served),
        None => Ok(keys),
    }
}

/// Why a version is not as files of keys say, or why it, or one behind it, is not on disk.
pub(crate) fn trouble(version: &Version) -> Option<&str> {
    let from_memory = version.signing.as_ref()?.from_memory.as_deref();
    from_memory.or_else(|| why_unsaved(version))
}

/// Why the keys of a version are those of before.
pub(crate) fn why_from_memory(version: &Version) -> Option<&str> {
    version.signing.as_ref()?.from_memory.as_deref()
}

/// Why a version, or one behind it, is not on disk.
pub(crate) fn why_unsaved(version: &Version) -> Option<&str> {
    version.signing.as_ref()?.unsaved.as_deref()
}

/// Whether all keys sign that are in use now and whose private halves are in tokens; who knows why not says so.
pub(crate) fn do_keys_sign(version: &Version) -> bool {
    const PROBE: &[u8] = b"a token that was away is there";
    let Some(signing) = &version.signing else { return true };
    let Ok(Active { key_signing, parent_signing, zone_signing, .. }) = active(&signing.keys) else {
        return false;
    };
    let mut keys = key_signing.into_iter().chain(parent_signing).chain(zone_signing);
    keys.all(|key| key.label().is_none() || key.sign(PROBE).is_some())
}

/// Tries once more to write a version that is not on disk.
pub(crate) fn keep_at_end(version: &Version) {
    if let (Some(signing), Some(_)) = (&version.signing, why_unsaved(version)) {
        Signing::clone(signing).keep(version, None);
    }
}

/// Renews what is due of a zone, with the keys as they are now. `None` if nothing is. Then, when to look again.
pub(crate) fn renew(held: &Version) -> anyhow::Result<(Option<Version>, Duration)> {
    let (Some(zone), Some(signing)) = (held.tree(), &held.signing) else { return Ok((None, LOOK_MAX)) };
    let began = Instant::now();
    let signing = signing.with_keys_of_now(held, zone)?;
    let mut due = signing.due(zone, RENEWED_MAX)?;
    if signing.unsaved.is_some() {
        // What could not even be noted is not served yet.
        due.names.extend(differing(zone, &signing.source));
    }
    let now = key_clock::now(&signing.keys);
    let next_key = signing.keys.next_change(now).map_or(u64::MAX, |time| time - now);
    // Signatures are renewed days before they end: those of an hour in one version, lest a large zone has one each second.
    let again =
        if due.is_all { LOOK_MAX.min(Duration::from_secs(next_key.max(1))) } else { Duration::from_secs(1) };
    let next = signing.next(held, &due.names)?;
    let served = served_next(held, next.as_ref());
    let is_unsigned = next.as_ref().is_some_and(|next| next.unsigned.is_some());
    let viewed = match served.lines() {
        Some(lines) if is_unsigned || !signing.are_views_good(served)? => {
            viewed(served, Some(&signing), lines.data())?
        }
        _ => None,
    };
    if let Some(why) = viewed.as_ref().and_then(|viewed| viewed.kept.clone()) {
        bail!(why);
    }
    let has_keys_otherwise = signing.from_memory.as_deref() != why_from_memory(held);
    let again = if signing.from_memory.is_some() { again.min(LOOK_AFTER_ERROR) } else { again };
    let has_changed = next.is_some() || viewed.is_some() || has_keys_otherwise;
    if !has_changed && signing.unsaved.is_none() {
        return Ok((None, again));
    }
    let version = signing.keep_with(held, next, viewed);
    if why_unsaved(&version).is_none() {
        return Ok((Some(version), again));
    }
    let again = again.min((began.elapsed() * KEEP_PART).clamp(KEEP_AGAIN, LOOK_AFTER_ERROR));
    let is_other = has_changed || why_unsaved(&version) != why_unsaved(held);
    Ok((is_other.then_some(version), again))
}

/// What was signed with a key whose files are gone would be bogus for whoever has it still, once the key has left the DNSKEY set, and all of the zone if the
/// parent trusts that key: these are not used until they are back. Where nobody remembers the keys that `held` was signed with, it tells them.
fn refuse_lacking(
    held: &Version,
    remembered: Option<&Signing>,
    keys: &KeySet,
    (source, directory): (&Zone, &Path),
) -> anyhow::Result<()> {
    let lost = match (remembered, held.tree()) {
        (Some(before), _) => {
            let key = keys.lacks(&before.keys, key_clock::now(keys));
            key.map(|key| Lost { file_stem: key.file_stem(source.origin()), signs: true })
        }
        (None, Some(served)) => keys.lost(served, source),
        (None, None) => None,
    };
    lost.map_or(Ok(()), |lost| bail!(gone(&lost, directory)))
}

fn gone(lost: &Lost, directory: &Path) -> String {
    let other = match lost.signs {
        true => "",
        false => {
            "; if it is the key of another signer, have its DNSKEY record in the zone's file again, and take it out when the zone is signed"
        }
    };
    format!(
        "the files {}.key and .private are gone from {}: put them back, or have the key retire by its times{other}",
        lost.file_stem,
        directory.display()
    )
}

/// The keys in a directory. If they are to have another algorithm, the change begins.
fn with_algorithm(
    origin: Name<'_>,
    directory: &Path,
    algorithm: Option<Algorithm>,
    makes_keys: bool,
) -> anyhow::Result<KeySet> {
    let keys = key_files::read(origin, directory)?;
    let Some(algorithm) = algorithm else { return Ok(keys) };
    let now = key_clock::now(&keys);
    let Some(change) = keys.to_algorithm(algorithm, now) else {
        let has_come =
            |key: &Key| key.algorithm() == algorithm.number() && key.times.state(now) != State::Removed;
        if !keys.keys().is_empty() && !keys.keys().iter().any(has_come) {
            log::warn!(
                "zone {origin}: its change to {} waits, as its keys are being replaced: see sidestep dns keys",
                algorithm.name()
            );
        }
        return Ok(keys);
    };
    if !makes_keys && !change.drawn.is_empty() {
        log::error!(
            "zone {origin}: its keys are not of {}, and new-keys = false says that none is made: {}",
            algorithm.name(),
            advice(origin, algorithm, &change.drawn, now)
        );
        return Ok(keys);
    }
    let _lock = key_files::lock(directory)?;
    let keys = key_files::read(origin, directory)?;
    let now = key_clock::now(&keys);
    let change = keys.to_algorithm(algorithm, now);
    let Some(change) = change.filter(|change| makes_keys || change.drawn.is_empty()) else { return Ok(keys) };
    for (role, times) in change.drawn {
        let stem = key_files::generate(origin, directory, algorithm, role, times)?;
        log::info!(
            "zone {origin}: a key was made for the change to {}, {}",
            algorithm.name(),
            stem.display()
        );
    }
    for (key, times) in change.timed {
        key_files::set_times(origin, directory, key, times)?;
    }
    key_files::read(origin, directory)
}

/// The keys in a directory, those with later times that come or go later than they were to, by the version that is served until now. Their files
/// have these times before a version follows them.
fn as_served(keys: KeySet, directory: &Path, served: &Zone) -> anyhow::Result<KeySet> {
    if keys.late(served, key_clock::now(&keys)).is_empty() {
        return Ok(keys);
    }
    let (origin, _lock) = (served.origin(), key_files::lock(directory)?);
    let keys = key_files::read(origin, directory)?;
    for (key, times) in keys.late(served, key_clock::now(&keys)) {
        let tag = key.tag();
        if key.role() == Role::KeySigning && key.times.inactive.is_some() && times.inactive.is_none() {
            log::warn!(
                "zone {origin}: by its file key {tag} ends now, and no other key-signing key signs: it signs on. To replace it: sidestep dns key roll"
            );
        } else {
            log::info!(
                "zone {origin}: the times of key {tag} are put off, as the zone that is served does not follow them yet"
            );
        }
        key_files::set_times(origin, directory, key, times)?;
    }
    key_files::read(origin, directory)
}

/// How somebody else makes keys that a change needs, with times in seconds from `now` on: validators refuse a zone whose keys come in front
/// of their signatures.
fn advice(origin: Name<'_>, algorithm: Algorithm, drawn: &[(Role, Times)], now: u64) -> String {
    let command = |(role, times): &(Role, Times)| {
        let of_role = if *role == Role::KeySigning { " -f KSK" } else { "" };
        let options = [("-A", times.activate), ("-P", times.publish), ("-P sync", times.sync_publish)];
        let options =
            options.into_iter().filter_map(|(option, time)| Some((option, time?.saturating_sub(now))));
        let options: String = options.map(|(option, seconds)| format!(" {option} +{seconds}")).collect();
        format!("dnssec-keygen -a {}{of_role}{options} {origin}", algorithm.name())
    };
    format!(
        "make what it needs, in this order, by {}",
        drawn.iter().map(command).collect::<Vec<_>>().join("; ")
    )
}

/// The keys of a zone. One that was never signed gets its first key.
fn keys_for(origin: Name<'_>, spec: &ZoneSpec, was_signed: bool) -> anyhow::Result<KeySet> {
    let directory = spec.keys.as_deref().unwrap_or(Path::new("."));
    let keys = with_algorithm(origin, directory, spec.algorithm, spec.makes_keys)?;
    if !keys.keys().is_empty() {
        return Ok(keys);
    }
    if was_signed || !spec.makes_keys {
        // Another key would break the chain of trust that the parent has begun.
        bail!(no_keys(origin, spec, was_signed));
    }
    let (algorithm, times) = (spec.algorithm.unwrap_or_default(), Times::first(key_clock::now(&keys)));
    if let Some(uri) = &spec.key_uri {
        let stem = tokens::adopt(origin, directory, uri, Role::KeySigning, times)?;
        log::info!("zone {origin}: its key is {uri}, noted in {}", stem.display());
        return key_files::read(origin, directory);
    }
    let stem = key_files::generate(origin, directory, algorithm, Role::KeySigning, times)?;
    log::info!("zone {origin}: a key was made, {}", stem.display());
    key_files::read(origin, directory)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use dns_sign::{KeyFiles, RemoteSigner};

    use super::super::key_clock::tests::set_clock;
    use super::*;

    /// A token that may be away.
    #[derive(Debug)]
    struct Token(AtomicBool);

    impl RemoteSigner for Token {
        fn sign(&self, _octets: &[u8]) -> Option<Vec<u8>> {
            self.0.load(Ordering::Relaxed).then(|| vec![7; 64])
        }
    }

    #[test]
    fn the_advice_says_when_signatures_and_keys_and_what_the_parent_is_told_come() {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let zone_signing = Times { activate: Some(1000), publish: Some(1800), ..Times::default() };
        let key_signing = Times { sync_publish: Some(2600), ..zone_signing };
        let drawn = [(Role::ZoneSigning, zone_signing), (Role::KeySigning, key_signing)];
        assert_eq!(
            advice(origin.as_name(), Algorithm::Ed25519, &drawn, 1000),
            "make what it needs, in this order, by dnssec-keygen -a ED25519 -A +0 -P +800 example.; \
             dnssec-keygen -a ED25519 -f KSK -A +0 -P +800 -P sync +1600 example."
        );
    }

    /// A directory of a zone with a key-signing key and a zone-signing key that is being replaced, as of now.
    fn zone_with_a_roll_over(directory: &Path) -> ZoneSpec {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let (now, day) = (unix_time(), 86_400);
        std::fs::create_dir_all(directory).unwrap();
        let long_ago = Times::first(now - 90 * day);
        let (old, new) = Times { sync_publish: None, ..long_ago }.roll(Role::ZoneSigning, now);
        for (role, times) in
            [(Role::KeySigning, long_ago), (Role::ZoneSigning, old), (Role::ZoneSigning, new)]
        {
            key_files::generate(origin.as_name(), directory, Algorithm::default(), role, times).unwrap();
        }
        let file = directory.join("example.zone");
        let text = "$ORIGIN example.\n@ 60 SOA ns host 1 3600 600 86400 60\n 60 NS ns\nns 60 A 192.0.2.1\n";
        std::fs::write(&file, text).unwrap();
        let keys = Some(directory.to_owned());
        ZoneSpec { keys, makes_keys: true, algorithm: Some(Algorithm::Ed25519), ..ZoneSpec::of(file) }
    }

    /// What is in the files of keys.
    fn key_texts(directory: &Path) -> Vec<(PathBuf, String)> {
        let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut private: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|ending| ending == "private")).collect();
        private.sort();
        private.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
    }

    #[test]
    fn a_clock_that_is_set_a_year_ahead_during_a_roll_over_and_back_changes_nothing() {
        let directory = std::env::temp_dir().join(format!("sidestep-key-clock-{}", std::process::id()));
        let spec = zone_with_a_roll_over(&directory);
        let source = store::read(&ZoneSpec::of(spec.file.clone())).unwrap().tree().unwrap().clone();
        let sign = |before| load(source.clone(), &spec, before, &LineData::default()).unwrap();
        let none = Before::default();
        let keys_of =
            |version: &Version| version.tree().unwrap().apex().rrset(Rtype::DNSKEY).map(|set| set.count());
        let signed = sign(none);
        let before = key_texts(&directory);
        assert_eq!((keys_of(&signed), before.len()), (Some(3), 3));
        for ahead in [366 * 86_400, 0] {
            set_clock(ahead);
            assert!(renew(&signed).unwrap().0.is_none(), "{ahead}");
            let before_it = Before { version: Some(&signed), was_signed: true, ..none };
            assert_eq!(keys_of(&sign(before_it)), Some(3), "{ahead}");
            assert_eq!(key_texts(&directory), before, "{ahead}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_key_whose_files_vanish_stays_in_use_until_the_process_ends() {
        let directory = std::env::temp_dir().join(format!("sidestep-key-gone-{}", std::process::id()));
        let spec = zone_with_a_roll_over(&directory);
        let source = store::read(&ZoneSpec::of(spec.file.clone())).unwrap().tree().unwrap().clone();
        let sign = |before| load(source.clone(), &spec, before, &LineData::default());
        let start = Before::default();
        let signed = sign(start).unwrap();
        let unable = Version { signing: None, ..signed.clone() };
        let keys = signed.signing.as_ref().unwrap().keys.clone();
        for key in keys.keys() {
            let stem = key.file_stem(source.origin());
            let gone = format!("{stem}.key and .private are gone");
            let file = directory.join(format!("{stem}.private"));
            let away = directory.join("away");
            std::fs::rename(&file, &away).unwrap();
            for before in [start, Before { version: Some(&unable), was_signed: true, ..start }] {
                let error = sign(before).unwrap_err().to_string();
                assert!(error.contains(&gone), "{error}");
            }
            let signing = signed.signing.as_deref();
            let before = Before { version: Some(&signed), signing, ..start };
            let other_options = Before { signing, ..start };
            let renewed = || renew(&signed).unwrap().0.unwrap();
            for version in [sign(before).unwrap(), sign(other_options).unwrap(), renewed()] {
                assert!(trouble(&version).unwrap().contains(&gone), "{:?}", trouble(&version));
                assert_eq!(version.signing.as_ref().unwrap().keys.keys().len(), 3);
                assert_eq!(version.served.tree().unwrap().serial(), signed.served.tree().unwrap().serial());
                let (again, wait) = renew(&version).unwrap();
                assert!(again.is_none() && wait <= LOOK_AFTER_ERROR, "it is looked for soon");
            }
            let signs = key.role() == Role::KeySigning || key.times.inactive.is_some();
            assert_eq!(look(&source, &spec).is_err(), signs, "the other one may be another signer's");
            let without = renewed();
            std::fs::rename(&away, &file).unwrap();
            assert_eq!(trouble(&renew(&without).unwrap().0.unwrap()), None, "they are back");
        }
        assert!(sign(start).is_ok() && look(&source, &spec).is_ok());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_views_have_keeps_its_signatures_until_they_expire_and_is_not_served_without() {
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let about = (Role::KeySigning, Times::first(unix_time() - 60));
        let files =
            KeyFiles::of_token(origin.as_name(), about, (13, vec![7; 64]), "pkcs11:object=a").unwrap();
        let key = Key::read(origin.as_name(), &files.public, &files.private).unwrap();
        let mut keys = KeySet::new(vec![key]);
        let token = Arc::new(Token(AtomicBool::new(true)));
        keys.connect(|_, _| Some(Arc::<Token>::clone(&token)));
        let made = Arc::new(Made::default());
        let signer = ViewSigner::new(origin.clone(), Arc::new(keys), Arc::clone(&made));
        let sign = |octet: u8| signer.sign(&origin, Rtype::A, 60, &[vec![192, 0, 2, octet]]);
        let expire_at = |time: u64| {
            let time = (time as u32).to_be_bytes();
            let mut made = made.lock().unwrap();
            made.values_mut().flatten().for_each(|signature| signature[8..12].copy_from_slice(&time));
        };
        assert_eq!((sign(1).len(), signer.take_failure()), (1, None));

        token.0.store(false, Ordering::Relaxed);
        assert_eq!((sign(1).len(), signer.take_failure()), (1, None), "they are good for days");
        expire_at(unix_time() + 3600);
        assert_eq!(sign(1).len(), 1);
        assert!(!signer.take_failure().unwrap().is_unsigned);
        let data = LineData::default().signed_by(Arc::new(signer));
        let signer = data.signer().unwrap();
        let sign = |octet: u8| signer.sign(&origin, Rtype::A, 60, &[vec![192, 0, 2, octet]]);
        assert_eq!((sign(2), sign(1).len()), (Vec::new(), 1));
        assert!(kept_signatures(&data).is_err(), "one that was never signed");
        expire_at(unix_time() - 1);
        assert_eq!(sign(1), Vec::<Vec<u8>>::new());
        assert!(kept_signatures(&data).is_err());

        token.0.store(true, Ordering::Relaxed);
        assert_eq!((sign(1).len(), sign(2).len()), (1, 1));
        assert!(kept_signatures(&data).unwrap().is_none(), "what was told is not told again");
    }
}
