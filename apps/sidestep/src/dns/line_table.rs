//! From lists of prefixes and MMDB files to the table of lines.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use dns_lines::{Line, LineId, LineTableBuilder, Lines, TwoLines, read_prefixes};

use super::geo::{self, Place, Places};
use super::lines::{LineSpec, LineSpecs};
use super::load::Stamp;
use super::privileges::explain_denial;

/// From where the prefix came that decides about a client. What an operator lists counts before what a database says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    Country,
    Region,
    Asn,
    Listed,
}

impl Rank {
    /// The rank of this number, of which there are no others.
    pub(crate) fn of(number: u8) -> Rank {
        [Rank::Country, Rank::Region, Rank::Asn][..].get(usize::from(number)).copied().unwrap_or(Rank::Listed)
    }
}

/// The table, and what it was made of.
#[derive(Clone)]
pub(crate) struct LoadedLines {
    specs: LineSpecs,
    files: Vec<(PathBuf, Option<Stamp>)>,
    pub(crate) lines: Arc<Lines>,
    /// Of which line something is rarely meant, and what.
    pub(crate) remarks: Vec<(String, String)>,
}

impl LoadedLines {
    /// The lines of these specifications; `None` if there are none. They are not read again if nothing has changed since `current`.
    pub(crate) fn load(
        specs: &LineSpecs,
        current: Option<&LoadedLines>,
    ) -> anyhow::Result<Option<LoadedLines>> {
        if specs.lines.is_empty() {
            return Ok(None);
        }
        let is_current = |(path, stamp): &(PathBuf, Option<Stamp>)| {
            stamp.as_ref().is_some_and(|stamp| stamp.is_current(path))
        };
        if let Some(same) = current.filter(|old| old.specs == *specs && old.files.iter().all(is_current)) {
            return Ok(Some(same.clone()));
        }
        let mut collected = Collected::default();
        collected.add_all(specs)?;
        let count = collected.builder.len();
        let table = collected.builder.finish().map_err(|error| in_two_lines(specs, error))?;
        let named = specs.lines.iter();
        let named = named.map(|spec| Line { name: Arc::clone(&spec.name), fallback: spec.fallback });
        let lines = Lines::new(named.collect(), table);
        let mib = lines.memory() >> 20;
        log::info!("{} lines of {count} prefixes, {mib} MiB", specs.lines.len());
        let remarks = collected.missing.into_iter().chain(empty_lines(specs, &collected.lines)).collect();
        Ok(Some(LoadedLines {
            specs: specs.clone(),
            files: collected.files,
            lines: Arc::new(lines),
            remarks,
        }))
    }
}

/// Lines that no prefix belongs to, but for those that others fall back on.
fn empty_lines(specs: &LineSpecs, has_prefixes: &BTreeSet<LineId>) -> Vec<(String, String)> {
    let ids = (0..).map(LineId).zip(&specs.lines);
    let is_fallback = |id| specs.lines.iter().any(|spec| spec.fallback == Some(id));
    let empty = ids.filter(|(id, _)| !has_prefixes.contains(id) && !is_fallback(*id));
    let what = "no prefix belongs to it, so no client is in it";
    empty.map(|(_, spec)| (format!("line {}", spec.name), what.to_owned())).collect()
}

fn in_two_lines(specs: &LineSpecs, error: TwoLines) -> anyhow::Error {
    let [one, other] = error.lines.map(|id| &specs.lines[usize::from(id.0)].name);
    anyhow!("{} is in line {one} and in line {other}: remove it from one of them", error.prefix)
}

/// Prefixes, and the files that they are from.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) builder: LineTableBuilder,
    files: Vec<(PathBuf, Option<Stamp>)>,
    /// Those that have prefixes.
    lines: BTreeSet<LineId>,
    /// By line, places that its file does not know.
    missing: Vec<(String, String)>,
}

impl Collected {
    /// Reads all that the specifications name.
    pub(crate) fn add_all(&mut self, specs: &LineSpecs) -> anyhow::Result<()> {
        for (number, spec) in specs.lines.iter().enumerate() {
            let id = LineId(number as u16); // Lines are counted when they are configured.
            self.add_listed(spec, id).with_context(|| format!("line {}", spec.name))?;
        }
        self.add_places(specs)
    }

    fn add_listed(&mut self, spec: &LineSpec, id: LineId) -> anyhow::Result<()> {
        let rank = Rank::Listed as u8;
        spec.prefixes.iter().for_each(|prefix| self.builder.add(*prefix, id, rank));
        self.lines.extend((!spec.prefixes.is_empty()).then_some(id));
        let Some(path) = &spec.prefixes_file else { return Ok(()) };
        let mut text = BufReader::new(self.open(path)?);
        let (builder, lines) = (&mut self.builder, &mut self.lines);
        let add = |prefix| {
            builder.add(prefix, id, rank);
            lines.insert(id);
        };
        read_prefixes(&mut text, add).with_context(|| format!("prefixes-file: reading {}", path.display()))
    }

    /// Adds the networks of the places and systems that lines name, as the databases have them.
    fn add_places(&mut self, specs: &LineSpecs) -> anyhow::Result<()> {
        let places = Places::of(specs);
        let geo::Files { country, city, asn } = geo::Files::of(&specs.geo);
        // A file with regions knows countries, too.
        let files = [(country.or(city), Rank::Country), (city, Rank::Region), (asn, Rank::Asn)];
        for (path, rank) in files.into_iter().filter(|(_, rank)| places.has(*rank)) {
            let Some(path) = path else { continue };
            let file = self.open(path)?;
            let (builder, lines, mut found) = (&mut self.builder, &mut self.lines, BTreeSet::new());
            let line_of = |place: &Place| {
                let (code, id) = places.line(rank, place)?;
                lines.insert(id);
                found.insert(code);
                Some(id)
            };
            geo::read(file, line_of, |prefix, id| builder.add(prefix, id, rank as u8))
                .with_context(|| format!("reading {}", path.display()))?;
            self.missing.extend(missing(specs, rank, &found, path));
        }
        Ok(())
    }

    fn open(&mut self, path: &Path) -> anyhow::Result<File> {
        let open = || {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            Ok((file, metadata))
        };
        let (file, metadata) =
            open().map_err(explain_denial).with_context(|| format!("opening {}", path.display()))?;
        self.files.push((path.to_owned(), Stamp::of_settled(&metadata)));
        Ok(file)
    }
}

/// The places of lines, of one kind, that are not among those `found` in the file at `path`.
fn missing<'s>(
    specs: &'s LineSpecs,
    rank: Rank,
    found: &'s BTreeSet<String>,
    path: &'s Path,
) -> impl Iterator<Item = (String, String)> + 's {
    specs.lines.iter().flat_map(move |spec| {
        let (option, codes) = match rank {
            Rank::Country => ("countries", spec.countries.clone()),
            Rank::Region => ("regions", spec.regions.clone()),
            Rank::Asn => ("asns", spec.asns.iter().map(u32::to_string).collect()),
            Rank::Listed => ("prefixes", Vec::new()),
        };
        let unknown = codes.into_iter().filter(|code| !found.contains(code));
        let remark = move |code| {
            let what = format!("{option}: {code}: {} has no network of it", path.display());
            (format!("line {}", spec.name), what)
        };
        unknown.map(remark)
    })
}
