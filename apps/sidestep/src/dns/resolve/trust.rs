//! `[dnssec]`: trust anchors, and zones that are not validated.

use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, anyhow};
use dns_resolver::{NegativeAnchor, Trust, TrustAnchor};
use dns_wire::{NameBuf, Rtype};
use dns_zone::text::{Files, Limits, Record, TextFile, read_zone};

use super::config_file::{ConfigFile, NegativeTable};
use crate::dns::config::{ConfigError, parse_domain};
use crate::dns::privileges::explain_denial;

/// What `file` trusts. `directory` is where relative paths start.
pub(super) fn trust(file: &ConfigFile, directory: &Path) -> anyhow::Result<Trust> {
    if file.dnssec.enabled == Some(false) {
        return Ok(Trust::default());
    }
    let anchors = match &file.dnssec.trust_anchors {
        None => vec![TrustAnchor::root()],
        Some(path) => {
            let path = directory.join(path);
            let text = std::fs::read_to_string(&path).map_err(explain_denial);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            parse_anchors(&text).map_err(|problem| anyhow!("in {}: {problem}", path.display()))?
        }
    };
    let suspended = file.dnssec.negative.iter().map(negative);
    let directed = file.forwards.iter().map(|table| ("forward", table));
    let directed = directed.chain(file.stubs.iter().map(|table| ("stub", table)));
    let private = directed
        .filter(|(_, table)| table.dnssec == Some(false))
        .map(|(option, table)| Ok(NegativeAnchor { zone: parse_domain(option, &table.zone)?, until: None }));
    let negative = suspended.chain(private).collect::<Result<_, ConfigError>>()?;
    Ok(Trust { anchors, negative })
}

fn negative(table: &NegativeTable) -> Result<NegativeAnchor, ConfigError> {
    const OPTION: &str = "dnssec.negative";
    let form = || ConfigError::Form {
        option: OPTION,
        value: table.until.to_string(),
        expected: "a time with its zone, such as 2026-12-31T00:00:00Z",
    };
    let until = humantime::parse_rfc3339(&table.until.to_string()).map_err(|_| form())?;
    let until = until.duration_since(UNIX_EPOCH).map_err(|_| form())?.as_secs();
    Ok(NegativeAnchor { zone: parse_domain(OPTION, &table.zone)?, until: Some(until) })
}

/// A text that was read already.
struct OneText<'a>(&'a str);

impl Files for OneText<'_> {
    fn open(&mut self, _path: &Path) -> io::Result<TextFile> {
        Ok(TextFile::from(self.0.as_bytes().to_vec()))
    }
}

/// DS and DNSKEY records, one a line, as IANA and others publish them (`root.key`). The error names the line.
fn parse_anchors(text: &str) -> Result<Vec<TrustAnchor>, String> {
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate() {
        read_line(line, &mut records).map_err(|problem| format!("line {}: {problem}", number + 1))?;
    }
    let mut zones: Vec<&NameBuf> = records.iter().map(|(zone, ..)| zone).collect();
    zones.sort();
    zones.dedup();
    if zones.is_empty() {
        return Err("there is no DS or DNSKEY record".to_owned());
    }
    let anchors = zones.into_iter().map(|zone| {
        let own = records.iter().filter(|(owner, ..)| owner == zone);
        TrustAnchor::new(zone.as_name(), own.map(|(_, rtype, rdata)| (*rtype, &rdata[..])))
    });
    anchors.collect::<Option<_>>().ok_or_else(|| "a DNSKEY record has no key".to_owned())
}

/// A record's owner, type and data.
type Anchor = (NameBuf, Rtype, Vec<u8>);

/// Reads the record of a line, if there is one.
fn read_line(line: &str, records: &mut Vec<Anchor>) -> Result<(), String> {
    let root = NameBuf::root();
    // A zone starts with its SOA record. What follows may lack its TTL.
    let zone = format!(". 0 IN SOA . . 0 0 0 0 0\n{line}\n");
    let take = |record: Record<'_>| match record.rtype {
        Rtype::SOA => Ok(()),
        Rtype::DS | Rtype::DNSKEY => {
            records.push((record.owner.into(), record.rtype, record.rdata.to_vec()));
            Ok(())
        }
        _ => Err(format!("{} is neither DS nor DNSKEY", record.rtype)),
    };
    let read =
        read_zone(&mut OneText(&zone), Path::new("record"), Some(root.as_name()), &Limits::default(), take);
    read.map(|_| ()).map_err(|errors| errors.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Trust, String> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
        trust(&file, Path::new("")).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_root_is_trusted_unless_validation_is_off() {
        assert_eq!(from_text("").unwrap().anchors, [TrustAnchor::root()]);
        assert_eq!(from_text("[dnssec]\nenabled = false\n").unwrap(), Trust::default());
        assert!(from_text("[dnssec]\ntrust-anchors = \"/nowhere\"\n").unwrap_err().contains("/nowhere"));
    }

    #[test]
    fn zones_are_suspended_until_a_time_or_for_good() {
        let negative = "[[dnssec.negative]]\nzone = \"broken.example.\"\nuntil = 1970-01-02T00:00:00Z\n";
        assert_eq!(from_text(negative).unwrap().negative[0].until, Some(86_400));
        assert!(from_text(&negative.replace("Z\n", "\n")).unwrap_err().contains("a time with its zone"));
        assert!(from_text("[[dnssec.negative]]\nzone = \"a.\"\n").unwrap_err().contains("until"));
        let forward = "[[forward]]\nzone = \"corp.\"\nservers = [\"192.0.2.1\"]\ndnssec = false\n";
        assert_eq!(from_text(forward).unwrap().negative[0].until, None);
    }

    #[test]
    fn anchors_are_ds_and_dnskey_records() {
        let ds = ". IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D\n\
                  . 3600 DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16\n";
        assert_eq!(parse_anchors(ds).unwrap(), [TrustAnchor::root()]);
        let key = "example. DNSKEY 257 3 15 8h/gO6THdVwRbXfjpkkvgF12O5bbld7dXXK/+cptf4k=\n";
        let zones = [ds, key].concat();
        assert_eq!(parse_anchors(&zones).unwrap()[1].zone().to_string(), "example.");
        let wrong = parse_anchors("; a comment\n. NS a.\n").unwrap_err();
        assert!(wrong.starts_with("line 2") && wrong.contains("neither DS nor DNSKEY"), "{wrong}");
        assert!(parse_anchors("; nothing\n\n").unwrap_err().contains("no DS"));
    }
}
