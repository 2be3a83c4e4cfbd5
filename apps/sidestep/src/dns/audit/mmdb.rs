//! Networks and countries by MMDB files. Makers name their fields in several ways; those of MaxMind, DB-IP and IPinfo are known.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use dns_audit::networks::{Network, Networks};
use maxminddb::Reader;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// So many different records are read when a file is opened.
const CHECKED_MAX: usize = 100_000;

/// The files, read into memory. What one does not know the next may.
pub(super) struct Mmdb(Vec<Reader<Vec<u8>>>);

/// Fields of databases of countries, cities and autonomous systems.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    autonomous_system_number: Field,
    asn: Field,
    autonomous_system_organization: Field,
    as_name: Field,
    country: Field,
    country_code: Field,
    registered_country: Field,
}

/// A field whose kind depends on the maker.
#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Field {
    Text(String),
    Number(u32),
    Place {
        iso_code: String,
    },
    Other(IgnoredAny),
    #[default]
    Nothing,
}

impl Mmdb {
    /// Reads files. One that is damaged, or has neither systems nor countries, is an error with its name: later it would say nothing.
    pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Mmdb> {
        let open = |path: &PathBuf| read(path).with_context(|| format!("database {}", path.display()));
        paths.iter().map(open).collect::<Result<_, _>>().map(Mmdb)
    }
}

fn read(path: &Path) -> anyhow::Result<Reader<Vec<u8>>> {
    let reader = Reader::open_readfile(path)?;
    let networks_max = 3 * u64::from(reader.metadata().node_count);
    let (mut seen, mut count, mut is_useful) = (BTreeSet::new(), 0, false);
    for found in reader.networks(Default::default())? {
        let found = found?;
        count += 1;
        ensure!(count <= networks_max, "it is damaged: its tree has a loop");
        if seen.len() < CHECKED_MAX && found.offset().is_some_and(|offset| seen.insert(offset)) {
            let fields: Fields = found.decode()?.unwrap_or_default();
            is_useful |= fields.network() != Network::default();
        }
    }
    let kind = reader.metadata().database_type.escape_default();
    ensure!(is_useful, "it has neither autonomous systems nor countries; its type is {kind}");
    Ok(reader)
}

impl Fields {
    fn network(self) -> Network {
        // Where it is, or else where it is registered.
        let places = [self.country, self.country_code, self.registered_country];
        Network {
            number: self.autonomous_system_number.number().or(self.asn.number()),
            organisation: self.autonomous_system_organization.text().or(self.as_name.text()),
            country: places.into_iter().find_map(Field::country),
        }
    }
}

impl Field {
    /// A number, or a text such as `AS64496`.
    fn number(self) -> Option<u32> {
        match self {
            Field::Number(number) => Some(number),
            Field::Text(text) => text.trim_start_matches("AS").parse().ok(),
            Field::Place { .. } | Field::Other(_) | Field::Nothing => None,
        }
    }

    fn text(self) -> Option<String> {
        match self {
            Field::Text(text) if !text.is_empty() => Some(text.escape_default().to_string()),
            _ => None,
        }
    }

    /// Two letters; names of countries are none.
    fn country(self) -> Option<String> {
        let (Field::Text(code) | Field::Place { iso_code: code }) = self else { return None };
        let is_code = code.len() == 2 && code.bytes().all(|octet| octet.is_ascii_alphabetic());
        is_code.then(|| code.to_ascii_uppercase())
    }
}

impl Networks for Mmdb {
    fn look_up(&self, address: IpAddr) -> Network {
        let mut all = Network::default();
        for reader in &self.0 {
            // An address of IPv6 is in no database of IPv4 alone.
            let found = reader.lookup(address.to_canonical()).and_then(|found| found.decode::<Fields>());
            let own = found.ok().flatten().unwrap_or_default().network();
            all.number = all.number.or(own.number);
            all.organisation = all.organisation.or(own.organisation);
            all.country = all.country.or(own.country);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(data: Value) -> String {
        serde_json::from_value::<Fields>(data).unwrap().network().to_string()
    }

    #[test]
    fn records_of_several_makers_are_read() {
        let names = json!({"en": "Germany"});
        let country =
            json!({"country": {"iso_code": "DE", "names": names}, "registered_country": {"iso_code": "US"}});
        assert_eq!(shown(country), "DE");
        assert_eq!(shown(json!({"registered_country": {"iso_code": "US"}})), "US");
        let city =
            json!({"city": {"names": names}, "country": {"iso_code": "DE"}, "location": {"latitude": 50.7}});
        assert_eq!(shown(city), "DE");
        let system = json!({"autonomous_system_number": 64496, "autonomous_system_organization": "Example"});
        assert_eq!(shown(system), "AS64496 Example");
        let both =
            json!({"asn": "AS64496", "as_name": "Example", "country": "de", "country_name": "Germany"});
        assert_eq!(shown(both), "AS64496 Example DE");
        assert_eq!(shown(json!({"country": "Germany", "country_code": "DE"})), "DE");
    }

    #[test]
    fn records_of_something_else_say_nothing() {
        for data in [json!({"isp": "Example"}), json!({"country": 7, "asn": "none"}), json!({"country": {}})]
        {
            assert_eq!(shown(data), "");
        }
    }
}
