//! Networks and countries by MMDB files: those of several makers have the same fields.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use dns_audit::networks::{Network, Networks};
use maxminddb::Reader;
use serde::Deserialize;

/// The files, read into memory. What one does not know the next may.
pub(super) struct Mmdb(Vec<Reader<Vec<u8>>>);

/// Fields of databases of countries, cities and autonomous systems.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    autonomous_system_number: Option<u32>,
    autonomous_system_organization: Option<String>,
    country: Option<Country>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Country {
    iso_code: Option<String>,
}

impl Mmdb {
    pub(super) fn open(paths: &[PathBuf]) -> anyhow::Result<Mmdb> {
        let open = |path: &PathBuf| {
            Reader::open_readfile(path).with_context(|| format!("database {}", path.display()))
        };
        paths.iter().map(open).collect::<Result<_, _>>().map(Mmdb)
    }
}

impl Networks for Mmdb {
    fn look_up(&self, address: IpAddr) -> Network {
        let mut network = Network::default();
        for reader in &self.0 {
            let found = reader.lookup(address).ok().and_then(|found| found.decode::<Fields>().ok().flatten());
            let fields = found.unwrap_or_default();
            network.number = network.number.or(fields.autonomous_system_number);
            network.organisation = network.organisation.or(fields.autonomous_system_organization);
            network.country = network.country.or(fields.country.and_then(|country| country.iso_code));
        }
        network
    }
}
