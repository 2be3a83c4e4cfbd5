//! One zone from etcd: what etcd has, what is served of it, and what is kept over a restart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dns_auth::compile::{compile, compile_changed};
use dns_auth::{LineData, ServedZone, Unavailable};
use dns_etcd::{EtcdZone, Settings, Step};
use dns_message::is_older;
use dns_sign::DenialBy;
use dns_transfer::Difference;
use dns_wire::NameBuf;
use dns_zone::{Changed, Zone};

use super::config::{EtcdSpec, is_kept_name};
use super::files::Job;
use crate::dns::config::ZoneSpec;
use crate::dns::load::random_seed;
use crate::dns::version::Version;
use crate::dns::{serial, signing, store};

/// A zone that was kept over a restart.
pub(crate) struct Prepared {
    /// What is served of it.
    pub(crate) version: Version,
    /// The zone as etcd had it.
    source: Zone,
    file: PathBuf,
}

/// Reads the zones that were kept in the directory.
pub(crate) fn prepare(spec: &EtcdSpec) -> Vec<Prepared> {
    let Some(directory) = &spec.directory else { return Vec::new() };
    let files = match kept_files(directory) {
        Ok(files) => files,
        Err(error) => {
            log::error!("etcd: reading {}: {error}", directory.display());
            return Vec::new();
        }
    };
    files.into_iter().filter_map(|file| prepare_zone(spec, file)).collect()
}

/// How many zones were kept in the directory.
pub(crate) fn count_kept(directory: &Path) -> usize {
    kept_files(directory).map_or(0, |files| files.len())
}

fn kept_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if is_kept_name(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn prepare_zone(spec: &EtcdSpec, file: PathBuf) -> Option<Prepared> {
    let version = store::read(&ZoneSpec::of(file.clone()));
    let version = version.inspect_err(|errors| {
        log::warn!("etcd: a zone that was kept is of no use, and will be read from etcd: {errors}");
    });
    let version = version.ok()?;
    let origin = NameBuf::from(version.served.origin());
    if spec.file_of(&origin).as_ref() != Some(&file) {
        log::warn!("etcd: {} has the zone {origin}, and is not read", file.display());
        return None;
    }
    // Whether it is signed is known when its settings are read. It is served as it was signed last until then, and never without signatures.
    let source = version.tree()?.clone();
    let signed = signing::last_signed(&file, origin.as_name());
    if signed.is_none() && signing::has_signed(&file) {
        log::warn!(
            "etcd: the signed version of {origin} that was kept is of no use, and the zone will be read from etcd"
        );
        return None;
    }
    Some(Prepared { version: signed.unwrap_or(version), source, file })
}

/// One zone.
pub(super) struct Kept {
    pub(super) content: EtcdZone,
    /// What is served; `None` while there is nothing.
    pub(super) version: Option<Version>,
    /// How it is served. `None` while etcd has had none that are right since the start: what is served stays then.
    pub(super) settings: Option<Settings>,
    /// Whether what is served lacks something of the content, as it could not be made.
    is_behind: bool,
    /// Whether it is answered by SERVFAIL.
    has_placeholder: bool,
    pub(super) file: Option<PathBuf>,
    /// Differences that go to the file's journal next; `None` if all of the zone is to be written.
    unsaved: Option<Vec<Arc<Difference>>>,
    /// What is wrong.
    pub(super) problems: Problems,
}

/// What is wrong with a zone, in one line each.
#[derive(Default)]
pub(super) struct Problems {
    /// Its settings.
    pub(super) settings: Option<String>,
    /// Its signatures.
    pub(super) signing: Option<String>,
    /// The first reason why record sets wait.
    pub(super) waiting: Option<String>,
}

/// Whether there is another version to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Anew,
    AsBefore,
}

impl Kept {
    pub(super) fn new(origin: &NameBuf, file: Option<PathBuf>) -> Kept {
        Kept {
            content: EtcdZone::new(origin.as_name(), random_seed()),
            version: None,
            settings: None,
            is_behind: false,
            has_placeholder: false,
            file,
            unsaved: None,
            problems: Problems::default(),
        }
    }

    pub(super) fn resumed(prepared: Prepared) -> (NameBuf, Kept) {
        let Prepared { version, source, file } = prepared;
        let origin = NameBuf::from(source.origin());
        let (version, unsaved) = (Some(version), Some(Vec::new()));
        let content = EtcdZone::resumed(source, random_seed());
        let kept = Kept { content, version, unsaved, ..Kept::new(&origin, Some(file)) };
        (origin, kept)
    }

    /// Why it is not what etcd has, in one line.
    pub(super) fn problem(&self) -> Option<String> {
        let Problems { settings, signing: not_signed, waiting } = &self.problems;
        let count = self.content.waiting();
        let waits = || waiting.as_ref().map(|first| format!("record sets that wait: {count}; {first}"));
        let unsaved = || Some(signing::trouble(self.version.as_ref()?)?.to_owned());
        settings.clone().or_else(|| not_signed.clone()).or_else(unsaved).or_else(waits)
    }

    /// What is served of it. A zone that waits for what is wrong with it is not answered from the zone above.
    pub(super) fn served(&self) -> Option<Version> {
        let placeholder =
            || ServedZone::unavailable(NameBuf::from(self.content.origin()), Unavailable::NotReady);
        self.version.clone().or_else(|| self.has_placeholder.then(|| Version::first(placeholder())))
    }

    /// Whether something comes in place of a version that is not there, or goes.
    pub(super) fn note_placeholder(&mut self) -> bool {
        let waits = self.content.zone().is_some() || self.content.waiting() > 0;
        let had = std::mem::replace(&mut self.has_placeholder, self.version.is_none() && waits);
        had != self.has_placeholder
    }

    /// Whether it is to be signed.
    pub(super) fn is_to_be_signed(&self) -> bool {
        self.settings.is_some_and(|settings| settings.dnssec)
    }

    /// The zone as one of a file, for whoever signs it.
    fn zone_spec(&self, settings: Settings, spec: &EtcdSpec) -> ZoneSpec {
        ZoneSpec {
            origin: Some(NameBuf::from(self.content.origin())),
            keys: spec.keys.clone(),
            makes_keys: spec.makes_keys,
            denial: if settings.nsec3 { DenialBy::Nsec3 } else { DenialBy::Nsec },
            ..ZoneSpec::of(self.file.clone().unwrap_or_default())
        }
    }

    /// Takes settings that are right.
    ///
    /// # Errors
    /// As [`Kept::serve_anew`].
    pub(super) fn set(&mut self, settings: Settings, spec: &EtcdSpec) -> anyhow::Result<Served> {
        self.problems.settings = None;
        let before = self.settings.replace(settings);
        let is_unsigned =
            self.version.as_ref().is_some_and(|version| version.tree().is_some_and(|tree| !tree.is_signed()));
        // What was kept over a restart without signatures, and is to have none, goes on as it is.
        let is_right = before.map_or(!settings.dnssec && is_unsigned, |before| before == settings);
        if is_right && !self.is_behind { Ok(Served::AsBefore) } else { self.serve_anew(spec) }
    }

    /// Serves what comes of a step.
    ///
    /// # Errors
    /// As [`Kept::serve_anew`].
    pub(super) fn take(&mut self, step: Step, spec: &EtcdSpec) -> anyhow::Result<Served> {
        match step {
            Step::Same => Ok(Served::AsBefore),
            Step::First => self.serve_anew(spec),
            Step::Next(changed, difference) => {
                let (from, to) = (difference.from(), difference.to());
                if is_older(to, from) {
                    let origin = self.content.origin();
                    log::warn!("zone {origin}: {}", serial::went_back(from, to));
                }
                let served = self.serve_next(*changed, *difference, spec);
                // What the source has and its signatures have not is written with the next version that has them.
                self.is_behind |= served.is_err();
                if self.is_behind {
                    self.unsaved = None;
                }
                served
            }
        }
    }

    fn serve_next(
        &mut self,
        changed: Changed,
        difference: Difference,
        spec: &EtcdSpec,
    ) -> anyhow::Result<Served> {
        let held = self.version.as_ref().filter(|_| !self.is_behind && self.problems.signing.is_none());
        let Some((held, settings)) = held.zip(self.settings) else {
            return self.serve_anew(spec);
        };
        let difference = Arc::new(difference);
        let is_chained = difference.from() != difference.to();
        let version = match &held.signing {
            None if settings.dnssec => return self.serve_anew(spec),
            None => {
                let served = compile_changed(&held.served, changed);
                let differences = if is_chained { vec![Arc::clone(&difference)] } else { Vec::new() };
                held.next(served, &differences)
            }
            Some(signing) => {
                let names: BTreeSet<NameBuf> =
                    difference.records().map(|record| NameBuf::from(record.owner)).collect();
                let names: Vec<NameBuf> = names.into_iter().collect();
                let signing = signing.with_source(changed.zone);
                let next = signing.next(held, &names)?;
                signing.keep(held, next)
            }
        };
        self.version = Some(version);
        match &mut self.unsaved {
            Some(unsaved) if is_chained => unsaved.push(difference),
            _ => self.unsaved = None,
        }
        Ok(Served::Anew)
    }

    /// Serves what is held as its settings and keys are now, whatever was served before. Without settings what is served stays.
    ///
    /// # Errors
    /// It cannot be signed. What is served stays.
    pub(super) fn serve_anew(&mut self, spec: &EtcdSpec) -> anyhow::Result<Served> {
        let Some(zone) = self.content.zone().cloned() else { return Ok(Served::AsBefore) };
        self.is_behind = true;
        self.unsaved = None;
        let Some(settings) = self.settings else { return Ok(Served::AsBefore) };
        let version = match settings.dnssec {
            true => {
                let zone_spec = self.zone_spec(settings, spec);
                zone_spec
                    .keys
                    .as_ref()
                    .context("its settings have dnssec = true, and [etcd] here has no keys")?;
                let before = self.version.as_ref().filter(|version| version.signing.is_some());
                let held = before.and_then(|version| version.signing.as_deref());
                let before = signing::Before { version: before, was_signed: false, signing: held };
                signing::load(zone, &zone_spec, before, &LineData::default())?
            }
            false => {
                // A start without etcd is not to go back to what was signed.
                self.file.iter().for_each(|file| signing::forget(file));
                Version::first(compile(zone))
            }
        };
        self.version = Some(version);
        self.is_behind = false;
        self.problems.signing = None;
        Ok(Served::Anew)
    }

    /// Looks at signatures and keys; when to look again.
    ///
    /// # Errors
    /// As [`Kept::serve_anew`].
    pub(super) fn renew(&mut self, spec: &EtcdSpec) -> anyhow::Result<(Served, Duration)> {
        if self.is_behind || self.problems.signing.is_some() {
            return Ok((self.serve_anew(spec)?, signing::LOOK_AFTER_ERROR));
        }
        let Some(version) = &self.version else { return Ok((Served::AsBefore, signing::LOOK_MAX)) };
        let (renewed, wait) = signing::renew(version)?;
        let served = if renewed.is_some() { Served::Anew } else { Served::AsBefore };
        self.version = renewed.or_else(|| self.version.take());
        Ok((served, wait))
    }

    /// How many differences wait to be written.
    #[cfg(test)]
    pub(super) fn gathered(&self) -> usize {
        self.unsaved.as_ref().map_or(0, Vec::len)
    }

    /// What brings the file and its journal to what is held, if all of that is served.
    pub(super) fn job(&mut self) -> Option<Job> {
        let (file, zone) = (self.file.clone()?, self.content.zone()?.clone());
        if self.is_behind {
            return None;
        }
        Some(Job { file, zone: Some(zone), differences: self.unsaved.replace(Vec::new()) })
    }
}
