//! `sidestep dns keys` and `sidestep dns key`: the keys of zones that the server signs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use dns_sign::{Algorithm, AtParent, KeySet, Parent, Role, State, Times};
use dns_token::KeyUri;
use dns_wire::{NameBuf, Rtype};
use humantime::format_rfc3339_seconds;
use serde::Serialize;

use super::config::{Config, ZoneSpec, parse_origin};
use super::key_files::Lock;
use super::options::Sources;
use super::transfers::unix_time;
use super::version::Version;
use super::{key_files, load, parents, signing, tokens};
use crate::output::{complain, to_stdout};

/// Show the keys of zones.
#[derive(Args, Clone, Debug)]
pub(crate) struct Keys {
    /// Only of this zone.
    zone: Option<String>,

    /// Configuration file of the server.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Print DS records instead, for the parent, of the key-signing keys that it is to trust.
    #[arg(long, conflicts_with = "json")]
    ds: bool,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Change the keys of a zone.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Key {
    /// Begin to replace the key of a zone by a new one.
    ///
    /// A zone-signing key needs no more than this. A key-signing key, or one that signs all, signs beside the old one from now on: when the
    /// parent has the DS record of the new one, and the TTL of the old DS record is over, end the old one by `sidestep dns key retire`.
    /// With `parent` in the configuration of the zone the server does that by itself.
    /// The server looks for changes every hour; SIGHUP makes it look at once.
    #[command(verbatim_doc_comment)]
    Roll {
        /// The zone.
        zone: String,

        /// Configuration file of the server.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,

        /// Replace the zone-signing key [default: the key-signing key, or the one that signs all].
        #[arg(long)]
        zsk: bool,
    },
    /// End a key-signing key that no DS record of the parent leads to any more.
    Retire {
        /// The zone.
        zone: String,

        /// The key tag.
        tag: u16,

        /// Configuration file of the server.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,

        /// End it although the servers of `parent` in the configuration have not shown for long enough that they have the DS record of the next key: answers may be bogus then.
        #[arg(long)]
        force: bool,
    },
}

/// A zone that is signed, and its keys.
struct SignedZone {
    origin: NameBuf,
    directory: PathBuf,
    keys: KeySet,
    /// The key in a token that is the next one of a roll-over.
    key_uri: Option<KeyUri>,
    /// What the servers of the parent have said; `None` if nobody asks them.
    parent: Option<Parent>,
    /// The DNSKEY records of the version that the server has made last; `None` before there is one.
    served: Option<Vec<Vec<u8>>>,
    /// Held while keys are to change.
    _lock: Option<Lock>,
}

impl SignedZone {
    /// Whether the server has a key already, as far as its version on disk shows that. The first version will have all keys.
    fn has(&self, key: &dns_sign::Key) -> bool {
        self.served.as_ref().is_none_or(|served| served.iter().any(|data| data == key.dnskey()))
    }
}

/// A key as it is printed.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct KeyReport {
    zone: String,
    tag: u16,
    algorithm: String,
    /// `zone`, `keys` or `all`.
    signs: &'static str,
    state: &'static str,
    /// `not-told`, `told` or `has-ds`; for a key-signing key whose zone has `parent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'static str>,
    /// What happens next, as the key's file has it, and when (RFC 3339).
    next: Option<(&'static str, String)>,
    /// What it waits for at the parent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<String>,
}

/// Prints the keys of all zones that are signed, or of one. What is wrong with one zone takes nothing from the others.
pub(crate) fn print(options: &Keys) -> anyhow::Result<ExitCode> {
    let (now, mut has_failed) = (unix_time(), false);
    let zones = good(signed_zones(&options.config, options.zone.as_deref(), false)?, &mut has_failed);
    if options.ds {
        let records = good(zones.iter().map(|zone| ds_records(zone, now)), &mut has_failed);
        to_stdout(|out| Ok(write!(out, "{}", records.concat())?))?;
    } else {
        let all = zones.iter().flat_map(|zone| reports(zone, now));
        to_stdout(|out| if options.json { write_json(all, out) } else { write_table(all, out) })?;
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Those that are no errors; the others are told.
fn good<T>(results: impl IntoIterator<Item = anyhow::Result<T>>, has_failed: &mut bool) -> Vec<T> {
    let mut tell = |error: &anyhow::Error| {
        complain!("sidestep: {}", crate::explain(error));
        *has_failed = true;
    };
    results.into_iter().filter_map(|result| result.inspect_err(&mut tell).ok()).collect()
}

fn write_json(reports: impl Iterator<Item = KeyReport>, out: &mut dyn Write) -> anyhow::Result<()> {
    for report in reports {
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_table(reports: impl Iterator<Item = KeyReport>, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "{:<32} {:>5} {:<16} {:<5} {:<9} {:<8}  next",
        "zone", "tag", "algorithm", "signs", "state", "parent"
    )?;
    for KeyReport { zone, tag, algorithm, signs, state, parent, next, waits_for } in reports {
        let next = next.map(|(what, when)| format!("{what} {when}")).unwrap_or_default();
        let parent = parent.unwrap_or("-");
        let line = format!("{zone:<32} {tag:>5} {algorithm:<16} {signs:<5} {state:<9} {parent:<8}  {next}");
        writeln!(out, "{}", line.trim_end())?;
        waits_for.iter().try_for_each(|what| writeln!(out, "    waits for {what}"))?;
    }
    Ok(())
}

fn reports(zone: &SignedZone, now: u64) -> impl Iterator<Item = KeyReport> {
    zone.keys.keys().iter().map(move |key| KeyReport {
        zone: zone.origin.to_string(),
        tag: key.tag(),
        algorithm: key.algorithm_name(),
        signs: match key.role() {
            Role::ZoneSigning => "zone",
            Role::KeySigning if zone.keys.signs_all(key, now) => "all",
            Role::KeySigning => "keys",
        },
        state: match key.times.state(now) {
            State::Published | State::Signing if !zone.has(key) => "unseen",
            state => word_of(state),
        },
        parent: zone.at_parent(key, now).map(word_at_parent),
        next: zone.next(key, now).map(|(what, time)| (what, show_time(time))),
        waits_for: zone.waits_for(key, now),
    })
}

impl SignedZone {
    fn at_parent(&self, key: &dns_sign::Key, now: u64) -> Option<AtParent> {
        let parent = self.parent.as_ref().filter(|_| key.role() == Role::KeySigning)?;
        Some(parent.state_of(self.origin.as_name(), &self.keys, key, now))
    }

    /// What its file says that happens next, or what the parent lets happen.
    fn next(&self, key: &dns_sign::Key, now: u64) -> Option<(&'static str, u64)> {
        let end = || self.parent.as_ref()?.end_of(self.origin.as_name(), &self.keys, key, now);
        key.times.next(now).or_else(|| end().map(|end| ("Inactive", end)))
    }

    /// Why a key is where it is: what servers of the parent lack.
    fn waits_for(&self, key: &dns_sign::Key, now: u64) -> Vec<String> {
        let Some(parent) = &self.parent else { return Vec::new() };
        let is_leaving = self.keys.is_leaving(key, now);
        if !is_leaving && self.at_parent(key, now) != Some(AtParent::Told) {
            return Vec::new();
        }
        if parent.servers().is_empty() {
            return vec!["the parent, which the server has not asked yet".to_owned()];
        }
        let problems = parent.servers().iter().filter_map(|server| {
            let problem = server.problem.as_ref()?;
            Some(format!("the server {} of the parent: {problem}", server.address))
        });
        problems.collect()
    }
}

fn word_at_parent(state: AtParent) -> &'static str {
    match state {
        AtParent::NotTold => "not-told",
        AtParent::Told => "told",
        AtParent::HasDs(_) => "has-ds",
    }
}

fn word_of(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Published => "published",
        State::Signing => "signing",
        State::SigningUnpublished => "hidden",
        State::Retired => "retired",
        State::Removed => "removed",
    }
}

/// A time in seconds since 1970, for people.
pub(super) fn show_time(time: u64) -> String {
    format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time)).to_string()
}

/// The records by which a parent trusts the zone: of the keys that it is told of, and of all that sign the keys if that is none yet.
fn ds_records(zone: &SignedZone, now: u64) -> anyhow::Result<String> {
    let mut records = String::new();
    let active = zone.keys.at(now).with_context(|| format!("zone {}", zone.origin))?;
    let keys = if active.synced.is_empty() { &active.key_signing } else { &active.synced };
    for key in keys {
        if !zone.has(key) {
            complain!(
                "{}: the server does not have the key {} yet, so the parent must not: send SIGHUP, or wait an hour",
                zone.origin,
                key.tag()
            );
            continue;
        }
        let ds = key.ds(zone.origin.as_name());
        let digest: String = ds[4..].iter().map(|octet| format!("{octet:02X}")).collect();
        let tag = key.tag();
        records += &format!("{} 3600 IN DS {tag} {} {} {digest}\n", zone.origin, ds[2], ds[3]);
    }
    Ok(records)
}

/// Changes the keys of a zone.
pub(crate) fn change(command: &Key) -> anyhow::Result<ExitCode> {
    let (Key::Roll { zone, config, .. } | Key::Retire { zone, config, .. }) = command;
    let mut zones = signed_zones(config, Some(zone), true)?;
    // One that cannot be read, whose name is not known, may be another one.
    let number = zones.iter().position(Result::is_ok).unwrap_or(0);
    let zone = zones.swap_remove(number)?;
    let text = match command {
        Key::Roll { zsk, .. } => roll(&zone, if *zsk { Role::ZoneSigning } else { Role::KeySigning })?,
        Key::Retire { tag, force, .. } => retire(&zone, *tag, *force)?,
    };
    to_stdout(|out| Ok(writeln!(out, "{text}")?))?;
    Ok(ExitCode::SUCCESS)
}

fn roll(zone: &SignedZone, role: Role) -> anyhow::Result<String> {
    let (now, origin) = (unix_time(), zone.origin.as_name());
    let signing = |key: &&dns_sign::Key| key.role() == role && key.times.state(now) == State::Signing;
    let mut old = zone.keys.keys().iter().filter(signing);
    let (Some(key), None) = (old.next(), old.next()) else {
        bail!(
            "{origin} does not have one key of this kind that signs: either none, or a change is under way; see `sidestep dns keys`"
        );
    };
    if zone.keys.keys().iter().any(|other| other.role() == role && other.times.state(now) == State::Published)
    {
        bail!(
            "{origin} has a key of this kind that is to sign soon: a change is under way; see `sidestep dns keys`"
        );
    }
    if zone
        .keys
        .keys()
        .iter()
        .any(|other| other.algorithm() != key.algorithm() && other.times.state(now) != State::Removed)
    {
        bail!("{origin} has keys of two algorithms: a change is under way; see `sidestep dns keys`");
    }
    let (old, new): (Times, Times) = key.times.roll(role, now);
    let stem = match &zone.key_uri {
        Some(uri) => {
            tokens::check_successor(&zone.keys, key, uri)?;
            tokens::adopt(origin, &zone.directory, uri, role, new)?
        }
        None => {
            let algorithm = Algorithm::of_number(key.algorithm()).with_context(|| {
                format!(
                    "keys of {} are not made here: make one by dnssec-keygen, or name another algorithm in the configuration",
                    key.algorithm_name()
                )
            })?;
            key_files::generate(origin, &zone.directory, algorithm, role, new)?
        }
    };
    key_files::set_times(origin, &zone.directory, key, old)?;
    let then = match (role, new.sync_publish) {
        (Role::KeySigning, Some(time)) if zone.parent.is_some() => format!(
            "; from {} on its CDS record is there: when all servers of the parent have its DS record, and the TTL of the old one is over, \
             the key {} ends by itself",
            show_time(time),
            key.tag()
        ),
        (Role::KeySigning, Some(time)) => format!(
            "; from {} on its CDS record is there: when the parent has its DS record, and the TTL of the old one is over, end the old key: \
             sidestep dns key retire {origin} {}",
            show_time(time),
            key.tag()
        ),
        _ => format!(
            "; it signs two hours after the first version that has it, from {} on at the earliest",
            new.activate.map(show_time).unwrap_or_default()
        ),
    };
    Ok(format!("new key {}{then}. The server looks for it within an hour, or at SIGHUP", stem.display()))
}

fn retire(zone: &SignedZone, tag: u16, is_forced: bool) -> anyhow::Result<String> {
    let (now, origin) = (unix_time(), zone.origin.as_name());
    zone.keys.may_retire(tag, now).with_context(|| format!("zone {origin}, key {tag}"))?;
    let key = zone.keys.keys().iter().find(|key| key.tag() == tag).expect("it was found before");
    if let Some(parent) = zone.parent.as_ref().filter(|_| !is_forced) {
        let ended = parent.ended(origin, &zone.keys, now);
        if !ended.iter().any(|ended| ended.dnskey() == key.dnskey()) {
            let waits_for = match (zone.waits_for(key, now), parent.end_of(origin, &zone.keys, key, now)) {
                (problems, _) if !problems.is_empty() => problems.join("; "),
                (_, Some(end)) => format!("the TTL of its DS record, which is over at {}", show_time(end)),
                _ => "the parent".to_owned(),
            };
            bail!(
                "zone {origin}: key {tag} ends by itself when the parent lets it, and waits for {waits_for}. Without that answers may be bogus: --force ends it all \
                 the same"
            );
        }
    }
    for (key, times) in zone.keys.retired(key, now) {
        key_files::set_times(origin, &zone.directory, key, times)?;
    }
    Ok(format!("key {tag} of {origin} ends when the server looks next: within an hour, or at SIGHUP"))
}

/// The zones of a configuration that are signed, or the one that is wanted, each with what is wrong with it if that is so. There is one at least if one is
/// wanted. Their keys are locked if they are to change.
fn signed_zones(
    config: &Path,
    wanted: Option<&str>,
    to_change: bool,
) -> anyhow::Result<Vec<anyhow::Result<SignedZone>>> {
    let sources = Sources { config: Some(config.to_owned()), ..Sources::default() };
    let config = Config::resolve(&sources.to_serve())?;
    let wanted = wanted.map(parse_origin).transpose()?;
    let zone = |spec| signed_zone(spec, wanted.as_ref(), to_change).transpose();
    let zones: Vec<_> = config.zones.iter().filter_map(zone).collect();
    match wanted {
        Some(wanted) if zones.is_empty() => {
            bail!("{wanted} is no zone with dnssec = true in the configuration")
        }
        _ => Ok(zones),
    }
}

/// A zone of the configuration, if it is signed, and the one that is wanted.
fn signed_zone(
    spec: &ZoneSpec,
    wanted: Option<&NameBuf>,
    to_change: bool,
) -> anyhow::Result<Option<SignedZone>> {
    let Some(directory) = &spec.keys else { return Ok(None) };
    let origin = match &spec.origin {
        Some(origin) => origin.clone(),
        None => NameBuf::from(load::read(spec)?.origin()),
    };
    if wanted.is_some_and(|wanted| *wanted != origin) {
        return Ok(None);
    }
    let lock = to_change.then(|| key_files::lock(directory)).transpose()?;
    let context = || format!("zone {origin}");
    let keys = key_files::read(origin.as_name(), directory).with_context(context)?;
    let is_asked = !spec.parent.is_empty();
    let parent = is_asked.then(|| parents::read(origin.as_name(), directory)).transpose();
    let parent = parent.with_context(context)?;
    let served = signing::look_at_signed(&spec.file, origin.as_name());
    let served = served.as_ref().and_then(Version::tree).map(|tree| {
        let sets = tree.apex().rrsets().filter(|set| set.rtype() == Rtype::DNSKEY);
        sets.flat_map(|set| set.records()).map(<[u8]>::to_vec).collect()
    });
    Ok(Some(SignedZone {
        origin,
        directory: directory.clone(),
        keys,
        key_uri: spec.key_uri.clone(),
        parent,
        served,
        _lock: lock,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_by_hand_before_the_parent_has_shown_the_next_one_only_by_force() {
        let directory = std::env::temp_dir().join(format!("sidestep-retire-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let origin = NameBuf::from_text(b"example.org.", None).unwrap();
        let long_ago = unix_time() - 1_000_000;
        let told = Times { sync_publish: Some(long_ago), ..Times::first(long_ago) };
        for times in [Times { sync_delete: Some(long_ago), ..told }, told] {
            let algorithm = Algorithm::default();
            key_files::generate(origin.as_name(), &directory, algorithm, Role::KeySigning, times).unwrap();
        }
        let keys = key_files::read(origin.as_name(), &directory).unwrap();
        let old = keys.keys().iter().find(|key| key.times.sync_delete.is_some()).unwrap().tag();
        let parent = Some(Parent::default());
        let zone = SignedZone { origin, directory, keys, key_uri: None, parent, served: None, _lock: None };
        let refused = retire(&zone, old, false).unwrap_err().to_string();
        assert!(
            refused.contains("which the server has not asked yet") && refused.contains("--force"),
            "{refused}"
        );
        retire(&zone, old, true).unwrap();
        let zone = SignedZone { parent: None, ..zone };
        retire(&zone, old, false).unwrap();
        std::fs::remove_dir_all(&zone.directory).unwrap();
    }
}
