//! The sample zones in `specs/zones/`, for tests that read them.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program has its own copy of this module and uses part of it"
)]

use std::io;
use std::path::{Path, PathBuf};

use dns_wire::{NameBuf, Rtype};
use dns_zone::text::{Files, Limits, Position, Summary, TextFile, ZoneTextErrors, read_zone};

/// The directory that paths of sample zones start from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below the workspace.
pub struct Workspace;

impl Files for Workspace {
    fn open(&mut self, path: &Path) -> io::Result<TextFile> {
        std::fs::read(workspace().join(path)).map(TextFile::from)
    }
}

/// A record that outlives the reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    pub owner: NameBuf,
    pub ttl: u32,
    pub rtype: Rtype,
    pub rdata: Vec<u8>,
    pub position: Position,
}

/// All records of a zone in any kind of files.
pub fn records<F: Files>(files: &mut F, path: &str) -> Result<(Summary, Vec<OwnedRecord>), ZoneTextErrors> {
    let mut records = Vec::new();
    let summary = read_zone(files, Path::new(path), None, &Limits::default(), |record| {
        records.push(OwnedRecord {
            owner: NameBuf::from(record.owner),
            ttl: record.ttl,
            rtype: record.rtype,
            rdata: record.rdata.to_vec(),
            position: record.position,
        });
        Ok::<(), String>(())
    })?;
    Ok((summary, records))
}
