//! `[[line]]` and `[geo]`: the classes of clients, and which records each has in a zone.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dns_lines::{LineId, Prefix};

use super::config::ConfigError;
use super::config_file::{GeoTable, LineTable, ZoneTable};

/// All lines, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineSpecs {
    pub(crate) lines: Vec<LineSpec>,
    pub(crate) geo: Geo,
}

/// A class of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineSpec {
    pub(crate) name: Arc<str>,
    pub(crate) fallback: Option<LineId>,
    pub(crate) prefixes: Vec<Prefix>,
    pub(crate) prefixes_file: Option<PathBuf>,
    /// ISO 3166-1 codes of two letters.
    pub(crate) countries: Vec<String>,
    /// ISO 3166-2 codes.
    pub(crate) regions: Vec<String>,
    pub(crate) asns: Vec<u32>,
}

/// MMDB files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geo {
    pub(crate) country: Option<PathBuf>,
    pub(crate) city: Option<PathBuf>,
    pub(crate) asn: Option<PathBuf>,
}

/// What a line has in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ZoneLine {
    pub(crate) line: Arc<str>,
    /// Its overlay, behind those of the lines that it falls back on, the nearest last.
    pub(crate) files: Vec<PathBuf>,
}

const NAME_LEN_MAX: usize = 63;

impl LineSpecs {
    /// Checks the tables; paths start at `directory`.
    pub(crate) fn new(
        tables: &[LineTable],
        geo: &GeoTable,
        directory: &Path,
    ) -> Result<LineSpecs, ConfigError> {
        if tables.len() > LineId::COUNT_MAX {
            let (value, max) = (tables.len() as u64, LineId::COUNT_MAX as u64);
            return Err(ConfigError::Range { option: "line", value, min: 0, max });
        }
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| directory.join(path));
        let geo = Geo { country: path(&geo.country), city: path(&geo.city), asn: path(&geo.asn) };
        let numbers = numbers(tables)?;
        let lines = tables.iter().map(|table| line(table, &numbers, directory)).collect::<Result<_, _>>()?;
        let specs = LineSpecs { lines, geo };
        specs.check_fallbacks()?;
        specs.check_places()?;
        Ok(specs)
    }

    /// The files with prefixes and places.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let Geo { country, city, asn } = &self.geo;
        let lists = self.lines.iter().filter_map(|spec| spec.prefixes_file.as_deref());
        lists.chain([country, city, asn].into_iter().filter_map(|file| file.as_deref()))
    }

    /// No line falls back on itself, by way of others or not.
    fn check_fallbacks(&self) -> Result<(), ConfigError> {
        for spec in &self.lines {
            let next = |spec: &&LineSpec| spec.fallback.map(|id| &self.lines[usize::from(id.0)]);
            let mut steps = std::iter::successors(Some(spec), next).skip(1).take(self.lines.len());
            if steps.any(|other| other.name == spec.name) {
                let expected = "a line that does not fall back on this one";
                let fallback = spec.fallback.map(|id| self.lines[usize::from(id.0)].name.to_string());
                return Err(form("line.fallback", fallback.unwrap_or_default(), expected));
            }
        }
        Ok(())
    }

    /// A country, region or system is in one line, and a file says where it is.
    fn check_places(&self) -> Result<(), ConfigError> {
        let Geo { country, city, asn } = &self.geo;
        let (mut seen, is_placed) = (HashMap::new(), country.is_some() || city.is_some());
        for spec in &self.lines {
            let asns = spec
                .asns
                .iter()
                .map(|asn| ("line.asns", format!("AS{asn}"), asn.to_string(), "geo.asn", false));
            let named = |option, file, is_there: bool, codes: &[String]| {
                let of = |code: &String| (option, code.clone(), code.clone(), file, is_there);
                codes.iter().map(of).collect::<Vec<_>>()
            };
            let asns = asns.map(|(option, key, value, file, _)| (option, key, value, file, asn.is_some()));
            let countries = named("line.countries", "geo.country or geo.city", is_placed, &spec.countries);
            let regions = named("line.regions", "geo.city", city.is_some(), &spec.regions);
            for (option, key, value, file, is_there) in countries.into_iter().chain(regions).chain(asns) {
                if !is_there {
                    return Err(ConfigError::NoGeo { option, value, file });
                }
                if let Some(first) = seen.insert(key, &spec.name) {
                    let lines = [first.to_string(), spec.name.to_string()];
                    return Err(ConfigError::InTwoLines { option, value, lines });
                }
            }
        }
        Ok(())
    }

    /// What lines have in a zone, in the order of the lines. Paths start at `directory`.
    pub(crate) fn of_zone(&self, table: &ZoneTable, directory: &Path) -> Result<Vec<ZoneLine>, ConfigError> {
        let files: BTreeMap<&str, PathBuf> =
            table.lines.iter().map(|(line, file)| (line.as_str(), directory.join(file))).collect();
        let is_known = |line: &str| self.lines.iter().any(|spec| *spec.name == *line);
        if let Some(line) = files.keys().find(|line| !is_known(line)) {
            return Err(form("lines", (*line).to_owned(), "the name of a [[line]]"));
        }
        let own = self.lines.iter().filter(|spec| files.contains_key(&*spec.name));
        Ok(own
            .map(|spec| {
                let next = |spec: &&LineSpec| spec.fallback.map(|id| &self.lines[usize::from(id.0)]);
                let chain = std::iter::successors(Some(spec), next);
                let mut layers: Vec<PathBuf> =
                    chain.filter_map(|spec| files.get(&*spec.name).cloned()).collect();
                layers.reverse();
                ZoneLine { line: Arc::clone(&spec.name), files: layers }
            })
            .collect())
    }
}

/// The number of each line, by its name.
fn numbers(tables: &[LineTable]) -> Result<HashMap<&str, LineId>, ConfigError> {
    let mut numbers = HashMap::new();
    for (number, table) in tables.iter().enumerate() {
        let name = table.name.as_str();
        let is_name = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_name) {
            let expected = "a name of 1 to 63 letters, digits, hyphens, underscores and dots";
            return Err(form("line.name", name.to_owned(), expected));
        }
        if numbers.insert(name, LineId(number as u16)).is_some() {
            return Err(form("line.name", name.to_owned(), "a name that no other line has"));
        }
    }
    Ok(numbers)
}

fn line(
    table: &LineTable,
    numbers: &HashMap<&str, LineId>,
    directory: &Path,
) -> Result<LineSpec, ConfigError> {
    let prefix = |text: &String| {
        text.parse::<Prefix>().map_err(|error| ConfigError::Prefix { option: "line.prefixes", error })
    };
    let fallback = table.fallback.as_deref().map(|name| {
        let number = numbers.get(name).copied();
        number.ok_or_else(|| form("line.fallback", name.to_owned(), "the name of a [[line]]"))
    });
    let is_country = |text: &str| text.len() == 2 && text.bytes().all(|octet| octet.is_ascii_alphabetic());
    let country = |text: &String| match is_country(text) {
        true => Ok(text.to_ascii_uppercase()),
        false => Err(form("line.countries", text.clone(), "a country's code of two letters, such as DE")),
    };
    let region = |text: &String| {
        let parts = text.split_once('-').filter(|(country, part)| {
            is_country(country)
                && (1..=3).contains(&part.len())
                && part.bytes().all(|o| o.is_ascii_alphanumeric())
        });
        let expected = "a region's code of country and part, such as US-CA";
        parts.map(|_| text.to_ascii_uppercase()).ok_or_else(|| form("line.regions", text.clone(), expected))
    };
    Ok(LineSpec {
        name: table.name.as_str().into(),
        fallback: fallback.transpose()?,
        prefixes: table.prefixes.iter().map(prefix).collect::<Result<_, _>>()?,
        prefixes_file: table.prefixes_file.as_ref().map(|file| directory.join(file)),
        countries: table.countries.iter().map(country).collect::<Result<_, _>>()?,
        regions: table.regions.iter().map(region).collect::<Result<_, _>>()?,
        asns: table.asns.clone(),
    })
}

fn form(option: &'static str, value: String, expected: &'static str) -> ConfigError {
    ConfigError::Form { option, value, expected }
}
