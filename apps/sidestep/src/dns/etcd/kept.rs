//! One zone from etcd: what etcd has, what is served of it, and what is kept over a restart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use dns_auth::LineData;
use dns_auth::compile::{compile, compile_changed};
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
    // Whether it is signed is known when its settings are read. It is served as it was signed last until then.
    let source = version.tree()?.clone();
    let signed = signing::last_signed(&file, origin.as_name());
    Some(Prepared { version: signed.unwrap_or(version), source, file })
}

/// One zone.
pub(super) struct Kept {
    pub(super) content: EtcdZone,
    /// What is served; `None` while there is nothing.
    pub(super) version: Option<Version>,
    pub(super) settings: Settings,
    /// Whether what is served was signed before the start, and its settings have not been read since.
    pub(super) is_signed_last: bool,
    pub(super) file: Option<PathBuf>,
    /// Differences that go to the file's journal next; `None` if all of the zone is to be written.
    pub(super) unsaved: Option<Vec<Arc<Difference>>>,
    /// The first reason why something waits.
    pub(super) problem: Option<String>,
    /// The same about signatures.
    pub(super) not_signed: Option<String>,
}

impl Kept {
    pub(super) fn new(origin: &NameBuf, file: Option<PathBuf>) -> Kept {
        Kept {
            content: EtcdZone::new(origin.as_name(), random_seed()),
            version: None,
            settings: Settings::default(),
            is_signed_last: false,
            file,
            unsaved: None,
            problem: None,
            not_signed: None,
        }
    }

    pub(super) fn resumed(prepared: Prepared) -> (NameBuf, Kept) {
        let Prepared { version, source, file } = prepared;
        let origin = NameBuf::from(source.origin());
        let is_signed_last = version.tree().is_some_and(Zone::is_signed);
        let (version, unsaved) = (Some(version), Some(Vec::new()));
        let content = EtcdZone::resumed(source, random_seed());
        let kept = Kept { content, version, unsaved, is_signed_last, ..Kept::new(&origin, Some(file)) };
        (origin, kept)
    }

    /// Why it is not what etcd has, in one line.
    pub(super) fn problem(&self) -> Option<String> {
        let waiting = self.content.waiting();
        let waits =
            || self.problem.as_ref().map(|first| format!("record sets that wait: {waiting}; {first}"));
        self.not_signed.clone().or_else(waits)
    }

    /// The zone as one of a file, for whoever signs it.
    pub(super) fn zone_spec(&self, spec: &EtcdSpec) -> ZoneSpec {
        let keys = spec.keys.clone().filter(|_| self.settings.dnssec);
        ZoneSpec {
            origin: Some(NameBuf::from(self.content.origin())),
            keys,
            makes_keys: spec.makes_keys,
            denial: if self.settings.nsec3 { DenialBy::Nsec3 } else { DenialBy::Nsec },
            ..ZoneSpec::of(self.file.clone().unwrap_or_default())
        }
    }

    /// Makes a version of a step; false if there is no other one.
    pub(super) fn take(&mut self, step: Step, spec: &ZoneSpec) -> anyhow::Result<bool> {
        match step {
            Step::Same => return Ok(false),
            Step::First => {
                self.unsaved = None;
                self.serve_anew(spec)?;
            }
            Step::Next(changed, difference) => {
                let (from, to) = (difference.from(), difference.to());
                if is_older(to, from) {
                    let origin = self.content.origin();
                    log::warn!("zone {origin}: {}", serial::went_back(from, to));
                }
                let is_chained = from != to;
                let difference = Arc::new(*difference);
                match &mut self.unsaved {
                    Some(unsaved) if is_chained => unsaved.push(Arc::clone(&difference)),
                    _ => self.unsaved = None,
                }
                self.serve_next(*changed, difference, is_chained, spec)?;
            }
        }
        Ok(true)
    }

    fn serve_next(
        &mut self,
        changed: Changed,
        difference: Arc<Difference>,
        is_chained: bool,
        spec: &ZoneSpec,
    ) -> anyhow::Result<()> {
        let Some(held) = self.version.as_ref().filter(|_| self.not_signed.is_none()) else {
            return self.serve_anew(spec);
        };
        let Some(signing) = &held.signing else {
            if self.settings.dnssec || self.is_signed_last {
                return self.serve_anew(spec);
            }
            let served = compile_changed(&held.served, changed);
            let differences = if is_chained { vec![difference] } else { Vec::new() };
            self.version = Some(held.next(served, &differences));
            return Ok(());
        };
        let names: BTreeSet<NameBuf> =
            difference.records().iter().map(|record| record.owner.clone()).collect();
        let names: Vec<NameBuf> = names.into_iter().collect();
        let signing = signing.with_source(changed.zone);
        let next = signing.next(held, &names)?;
        self.version = Some(signing.keep(held, next));
        Ok(())
    }

    /// Serves what is held, whatever was served before.
    pub(super) fn serve_anew(&mut self, spec: &ZoneSpec) -> anyhow::Result<()> {
        let Some(zone) = self.content.zone().cloned() else { return Ok(()) };
        if !self.settings.dnssec {
            (self.not_signed, self.is_signed_last) = (None, false);
            self.version = Some(Version::first(compile(zone)));
            return Ok(());
        }
        spec.keys.as_ref().context("its settings have dnssec = true, and [etcd] here has no keys")?;
        let before = self.version.as_ref().filter(|version| version.signing.is_some());
        self.version = Some(signing::load(zone, spec, before, &LineData::default())?);
        (self.not_signed, self.is_signed_last) = (None, false);
        Ok(())
    }

    /// What brings the file and its journal to what is held.
    pub(super) fn job(&mut self) -> Option<Job> {
        let (file, zone) = (self.file.clone()?, self.content.zone()?.clone());
        Some(Job { file, zone: Some(zone), differences: self.unsaved.replace(Vec::new()) })
    }
}
