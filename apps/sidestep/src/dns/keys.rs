//! `sidestep dns keys` and `sidestep dns key`: the keys of zones that the server signs.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use dns_sign::{KeySet, Role, State, Times};
use dns_wire::{NameBuf, Rtype};
use humantime::format_rfc3339_seconds;
use serde::Serialize;

use super::config::{Config, parse_origin};
use super::options::Sources;
use super::transfers::unix_time;
use super::version::Version;
use super::{key_files, load, signing};
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
    },
}

/// A zone that is signed, and its keys.
struct SignedZone {
    origin: NameBuf,
    directory: PathBuf,
    keys: KeySet,
    /// The DNSKEY records of the version that the server has made last; `None` before there is one.
    served: Option<Vec<Vec<u8>>>,
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
    /// What happens next, as the key's file has it, and when (RFC 3339).
    next: Option<(&'static str, String)>,
}

/// Prints the keys of all zones that are signed, or of one.
pub(crate) fn print(options: &Keys) -> anyhow::Result<ExitCode> {
    let zones = signed_zones(&options.config, options.zone.as_deref())?;
    let now = unix_time();
    to_stdout(|out| {
        if options.ds {
            return zones.iter().try_for_each(|zone| write_ds(zone, now, out));
        }
        if !options.json {
            writeln!(
                out,
                "{:<32} {:>5} {:<16} {:<5} {:<9}  next",
                "zone", "tag", "algorithm", "signs", "state"
            )?;
        }
        for report in zones.iter().flat_map(|zone| reports(zone, now)) {
            if options.json {
                serde_json::to_writer(&mut *out, &report)?;
                writeln!(out)?;
                continue;
            }
            let KeyReport { zone, tag, algorithm, signs, state, next } = report;
            let next = next.map(|(what, when)| format!("{what} {when}")).unwrap_or_default();
            writeln!(out, "{zone:<32} {tag:>5} {algorithm:<16} {signs:<5} {state:<9}  {next}")?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
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
        next: key.times.next(now).map(|(what, time)| (what, show_time(time))),
    })
}

fn word_of(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Published => "published",
        State::Signing => "signing",
        State::Retired => "retired",
        State::Removed => "removed",
    }
}

/// A time in seconds since 1970, for people.
pub(super) fn show_time(time: u64) -> String {
    format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(time)).to_string()
}

/// The records by which a parent trusts the zone: of the keys that it is told of, and of all that sign the keys if that is none yet.
fn write_ds(zone: &SignedZone, now: u64, out: &mut dyn Write) -> anyhow::Result<()> {
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
        writeln!(out, "{} 3600 IN DS {} {} {} {digest}", zone.origin, key.tag(), ds[2], ds[3])?;
    }
    Ok(())
}

/// Changes the keys of a zone.
pub(crate) fn change(command: &Key) -> anyhow::Result<ExitCode> {
    let (Key::Roll { zone, config, .. } | Key::Retire { zone, config, .. }) = command;
    let zones = signed_zones(config, Some(zone))?;
    let zone = zones.first().expect("without one there is an error");
    let text = match command {
        Key::Roll { zsk, .. } => roll(zone, if *zsk { Role::ZoneSigning } else { Role::KeySigning })?,
        Key::Retire { tag, .. } => retire(zone, *tag)?,
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
    let (old, new): (Times, Times) = key.times.roll(role, now);
    let stem = key_files::generate(origin, &zone.directory, role, new)?;
    key_files::set_times(origin, &zone.directory, key, old)?;
    let then = match (role, new.sync_publish) {
        (Role::KeySigning, Some(time)) => format!(
            "; from {} on its CDS record is there: when the parent has its DS record, and the TTL of the old one is over, end the old key: \
             sidestep dns key retire {origin} {}",
            show_time(time),
            key.tag()
        ),
        _ => format!("; it signs from {} on", new.activate.map(show_time).unwrap_or_default()),
    };
    Ok(format!("new key {}{then}. The server looks for it within an hour, or at SIGHUP", stem.display()))
}

fn retire(zone: &SignedZone, tag: u16) -> anyhow::Result<String> {
    let (now, origin) = (unix_time(), zone.origin.as_name());
    zone.keys.may_retire(tag, now).with_context(|| format!("zone {origin}, key {tag}"))?;
    let key = zone.keys.keys().iter().find(|key| key.tag() == tag).expect("it was found before");
    key_files::set_times(origin, &zone.directory, key, key.times.retired(now))?;
    Ok(format!("key {tag} of {origin} ends when the server looks next: within an hour, or at SIGHUP"))
}

/// The zones of a configuration that are signed, or the one that is wanted.
fn signed_zones(config: &std::path::Path, wanted: Option<&str>) -> anyhow::Result<Vec<SignedZone>> {
    let sources = Sources { config: Some(config.to_owned()), ..Sources::default() };
    let config = Config::resolve(&sources.to_serve())?;
    let wanted = wanted.map(parse_origin).transpose()?;
    let mut zones = Vec::new();
    for spec in &config.zones {
        let Some(directory) = &spec.keys else { continue };
        let origin = match &spec.origin {
            Some(origin) => origin.clone(),
            None => NameBuf::from(load::read(spec)?.origin()),
        };
        if wanted.as_ref().is_none_or(|wanted| *wanted == origin) {
            let keys = key_files::read(origin.as_name(), directory)?;
            let served = signing::last_signed(&spec.file, origin.as_name());
            let served = served.as_ref().and_then(Version::tree).map(|tree| {
                let sets = tree.apex().rrsets().filter(|set| set.rtype() == Rtype::DNSKEY);
                sets.flat_map(|set| set.records()).map(<[u8]>::to_vec).collect()
            });
            zones.push(SignedZone { origin, directory: directory.clone(), keys, served });
        }
    }
    match wanted {
        Some(wanted) if zones.is_empty() => {
            bail!("{wanted} is no zone with dnssec = true in the configuration")
        }
        _ => Ok(zones),
    }
}
