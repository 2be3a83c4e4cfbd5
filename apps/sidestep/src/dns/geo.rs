//! Countries, regions and autonomous systems by address, from MMDB files.
//!
//! A file is read once, when lines are loaded: its networks go into the table of prefixes, and no query waits for it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use dns_lines::{LineId, Prefix};
use maxminddb::Reader;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::line_table::Rank;
use super::lines::{Geo, LineSpecs};

/// What a database says of a network. Each kind of database has some of it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Place {
    #[serde(default)]
    country: Code,
    /// From the largest to the smallest.
    #[serde(default)]
    subdivisions: Vec<Code>,
    #[serde(default, deserialize_with = "number")]
    autonomous_system_number: Option<u32>,
}

/// A number in whatever size a database has it: many have the smallest that it fits in.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of 32 bits")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
            u32::try_from(number).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Number).map(Some)
}

#[derive(Debug, Default, Deserialize)]
struct Code {
    iso_code: Option<String>,
}

/// The configured files.
pub(crate) struct Files<'g> {
    pub(crate) country: Option<&'g Path>,
    pub(crate) city: Option<&'g Path>,
    pub(crate) asn: Option<&'g Path>,
}

impl Files<'_> {
    pub(crate) fn of(geo: &Geo) -> Files<'_> {
        let [country, city, asn] = [&geo.country, &geo.city, &geo.asn].map(Option::as_deref);
        Files { country, city, asn }
    }
}

/// Which line has which place.
pub(crate) struct Places<'s> {
    countries: HashMap<&'s str, LineId>,
    regions: HashMap<&'s str, LineId>,
    asns: HashMap<u32, LineId>,
}

impl Places<'_> {
    pub(crate) fn of(specs: &LineSpecs) -> Places<'_> {
        let (mut countries, mut regions, mut asns) = (HashMap::new(), HashMap::new(), HashMap::new());
        for (number, spec) in specs.lines.iter().enumerate() {
            let id = LineId(number as u16); // Lines are counted when they are configured.
            countries.extend(spec.countries.iter().map(|code| (code.as_str(), id)));
            regions.extend(spec.regions.iter().map(|code| (code.as_str(), id)));
            asns.extend(spec.asns.iter().map(|asn| (*asn, id)));
        }
        Places { countries, regions, asns }
    }

    /// Whether any line has a place of this kind.
    pub(crate) fn has(&self, rank: Rank) -> bool {
        match rank {
            Rank::Country => !self.countries.is_empty(),
            Rank::Region => !self.regions.is_empty(),
            Rank::Asn => !self.asns.is_empty(),
            Rank::Listed => false,
        }
    }

    /// The line that has a place, by what is known of it in this respect, and by which code.
    pub(crate) fn line(&self, rank: Rank, place: &Place) -> Option<(String, LineId)> {
        let country = place.country.iso_code.as_deref();
        match rank {
            Rank::Country => Some((country?.to_owned(), *self.countries.get(country?)?)),
            Rank::Region => {
                let parts = place.subdivisions.iter().rev().filter_map(|part| part.iso_code.as_deref());
                parts
                    .map(|part| format!("{}-{part}", country.unwrap_or_default()))
                    .find_map(|code| self.regions.get(&*code).map(|id| (code.clone(), *id)))
            }
            Rank::Asn => {
                let asn = place.autonomous_system_number?;
                Some((asn.to_string(), *self.asns.get(&asn)?))
            }
            Rank::Listed => None,
        }
    }
}

/// Passes on each network of a database that is of a line.
pub(crate) fn read(
    mut file: File,
    mut line_of: impl FnMut(&Place) -> Option<LineId>,
    mut take: impl FnMut(Prefix, LineId),
) -> anyhow::Result<()> {
    let mut octets = Vec::new();
    file.read_to_end(&mut octets)?;
    let reader = Reader::from_source(octets).context("this is no MMDB file")?;
    // Many networks share a record.
    let mut known: HashMap<Option<usize>, Option<LineId>> = HashMap::new();
    for found in reader.networks(Default::default())? {
        let found = found?;
        let line = match known.get(&found.offset()) {
            Some(line) => *line,
            None => {
                let place: Option<Place> = found.decode()?;
                let line = place.as_ref().and_then(&mut line_of);
                known.insert(found.offset(), line);
                line
            }
        };
        if let Some(line) = line {
            let network = found.network()?;
            take(Prefix::new(network.ip(), network.prefix()), line);
        }
    }
    Ok(())
}
