//! `[catalog]`: a catalog of the zones that are served from files (RFC 9432), for secondaries that follow it.

use anyhow::{Context, bail};
use dns_auth::compile::compile;
use dns_message::is_older;
use dns_sign::DenialBy;
use dns_transfer::{AccessList, Keys, catalog};
use dns_wire::NameBuf;

use super::config::parse_domain;
use super::config_file::CatalogTable;
use super::load::{Loaded, random_seed};
use super::peer::Peer;
use super::transfers::{access_list, own_peers, unix_time};
use super::version::Version;

/// The catalog that is made.
#[derive(Clone, Debug)]
pub(crate) struct CatalogSpec {
    pub(crate) origin: NameBuf,
    /// Who may transfer it, in place of those who may transfer all.
    pub(crate) allow_transfer: Option<AccessList>,
    /// Who hears of new versions, in place of those who hear of all.
    pub(crate) notify: Option<Vec<Peer>>,
}

impl CatalogSpec {
    /// Checks the table.
    pub(crate) fn resolve(table: &CatalogTable, keys: &Keys) -> anyhow::Result<CatalogSpec> {
        let allow_transfer = table.allow_transfer.as_deref();
        let list = |texts| access_list("allow-transfer", texts, keys);
        let origin = parse_domain("zone", &table.zone).context("catalog")?;
        if origin.as_name().is_root() {
            bail!("catalog: zone: the root is no name for it");
        }
        Ok(CatalogSpec {
            origin,
            allow_transfer: allow_transfer.map(list).transpose().context("catalog")?,
            notify: own_peers(table.notify.as_deref(), keys).context("catalog")?,
        })
    }

    /// The catalog of what is loaded; `None` if `held` is that, or if it is not known which zones there are. Its serial is the time, so that it
    /// goes on over a restart.
    pub(crate) fn next(&self, loaded: &Loaded, held: Option<&Version>) -> Option<Version> {
        if loaded.failed > 0 {
            // Secondaries would forget a zone whose file is broken.
            log::error!(
                "catalog {}: it stays as it was, as there are zones that cannot be loaded",
                self.origin
            );
            return None;
        }
        if loaded.find(self.origin.as_name()).is_some() {
            log::error!("catalog {}: a zone of that name is there already: give it another one", self.origin);
            return None;
        }
        // Secondaries could not deny the names of those that are denied compactly.
        let transferred = loaded.specs().filter(|(spec, _)| spec.denial != DenialBy::Compact);
        let mut zones: Vec<NameBuf> = transferred.map(|(_, origin)| NameBuf::from(origin)).collect();
        zones.sort();
        zones.dedup();
        let held = held.and_then(Version::tree).filter(|tree| tree.origin() == self.origin.as_name());
        if held.is_some_and(|held| {
            catalog::members(held).is_ok_and(|members| members.into_keys().eq(zones.iter().cloned()))
        }) {
            return None;
        }
        let serial = serial_after(held.map(|held| held.serial()), unix_time() as u32);
        let built = catalog::build(self.origin.as_name(), &zones, serial, random_seed());
        if built.is_none() {
            log::error!("catalog {}: a name is too long to stand in it, and it stays as it was", self.origin);
        }
        built.map(|zone| Version::first(compile(zone)))
    }
}

/// The time, or one more than what is there, if that is ahead.
fn serial_after(held: Option<u32>, now: u32) -> u32 {
    match held {
        Some(held) if !is_older(held, now) => held.wrapping_add(1),
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_is_the_time_and_never_goes_back() {
        assert_eq!(serial_after(None, 1000), 1000);
        assert_eq!(serial_after(Some(900), 1000), 1000);
        assert_eq!(serial_after(Some(1000), 1000), 1001);
        assert_eq!(serial_after(Some(u32::MAX), u32::MAX), 0);
    }
}
