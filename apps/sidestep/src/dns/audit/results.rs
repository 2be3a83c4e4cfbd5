//! What was found so far: a line of JSON for each resolver that is done, and a report at any time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use dns_audit::checks::Finding;
use dns_audit::report::ResolverReport;

use super::options::Settings;
use crate::output;

/// The findings of all resolvers, as they come.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// By the resolvers' numbers.
    found: Mutex<BTreeMap<usize, Found>>,
    lines: Option<(PathBuf, Mutex<File>)>,
}

/// Of one resolver.
#[derive(Debug, Default)]
struct Found {
    /// By the probe's place.
    findings: BTreeMap<usize, Vec<Finding>>,
    questions: u64,
}

impl Results {
    /// With a file to which a line is added for each resolver.
    pub(super) fn with_lines(path: &Path) -> anyhow::Result<Results> {
        let file = File::options().append(true).create(true).open(path);
        let file = file.with_context(|| format!("lines {}", path.display()))?;
        Ok(Results { lines: Some((path.to_owned(), Mutex::new(file))), ..Results::default() })
    }

    /// Keeps what one probe has found, and how many questions the resolver was asked so far.
    pub(super) fn add(&self, number: usize, place: usize, findings: Vec<Finding>, questions: u64) {
        let mut found = self.lock();
        let own = found.entry(number).or_default();
        own.findings.insert(place, findings);
        own.questions = own.questions.max(questions);
    }

    /// All probes of a resolver are done.
    pub(super) fn finish(&self, settings: &Settings, number: usize) {
        let Some((path, file)) = &self.lines else { return };
        let Some(report) = self.lock().get(&number).map(|found| found.report(settings, number)) else {
            return;
        };
        let line = format!("{}\n", serde_json::to_string(&report).unwrap_or_default()); // Text and numbers.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            output::complain!("{}: {error}: {} is not there", path.display(), report.resolver);
        }
    }

    /// What there is, in the order of the resolvers.
    pub(super) fn reports(&self, settings: &Settings) -> Vec<ResolverReport> {
        self.lock().iter().map(|(number, found)| found.report(settings, *number)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    fn report(&self, settings: &Settings, number: usize) -> ResolverReport {
        let findings = self.findings.values().flatten().cloned().collect();
        ResolverReport::new(settings.targets[number].show(), findings, self.questions)
    }
}
