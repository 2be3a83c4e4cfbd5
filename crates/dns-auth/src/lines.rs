//! What of a zone depends on the line of the client.
//!
//! A zone with lines has a variant for each line that has records of its own there: a tree that shares with the plain one what both have, and a table
//! of the answers that differ. Which one answers is decided behind the look-up in the plain table, and only where that says that it matters.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use dns_lines::{Found, LineId, Lines};
use dns_wire::NameBuf;
use dns_zone::overlay::{Overlay, mark, varied};
use dns_zone::text::ZoneTextError;
use dns_zone::{Changed, Zone};

use crate::catalog::Catalog;
use crate::table::Tables;

/// The records that lines have in a zone.
#[derive(Clone, Debug, Default)]
pub struct LineData {
    lines: Vec<LineOverlays>,
}

/// What a line has.
#[derive(Clone, Debug)]
pub struct LineOverlays {
    /// The line's name.
    pub line: Arc<str>,
    /// Its overlay, behind those of the lines that it falls back on, the nearest last.
    pub overlays: Vec<Arc<Overlay>>,
}

impl LineOverlays {
    /// The names at which the line has records.
    pub(crate) fn names(&self) -> BTreeSet<&NameBuf> {
        self.overlays.iter().flat_map(|overlay| overlay.sets()).map(|set| &set.owner).collect()
    }
}

impl LineData {
    /// Of these lines, each once.
    pub fn new(lines: Vec<LineOverlays>) -> LineData {
        LineData { lines }
    }

    /// What each line has.
    pub fn lines(&self) -> &[LineOverlays] {
        &self.lines
    }

    /// Each overlay once.
    fn overlays(&self) -> Vec<&Overlay> {
        let mut all: Vec<&Arc<Overlay>> = Vec::new();
        for overlay in self.lines.iter().flat_map(|line| &line.overlays) {
            if !all.iter().any(|other| Arc::ptr_eq(other, overlay)) {
                all.push(overlay);
            }
        }
        all.into_iter().map(|overlay| &**overlay).collect()
    }

    /// What of it has no place in a zone.
    pub fn misfits(&self, zone: &Zone) -> Vec<ZoneTextError> {
        self.overlays().into_iter().flat_map(|overlay| overlay.misfits(zone)).collect()
    }

    /// A zone with marks at the names where lines have records.
    pub(crate) fn mark(&self, changed: Changed) -> Changed {
        let marked = mark(&changed.zone, &self.overlays());
        let names = changed.names.zip(marked.names).map(|(mut names, more)| {
            names.extend(more);
            names.sort_unstable();
            names.dedup();
            names
        });
        Changed { zone: marked.zone, names }
    }

    /// The trees of all variants, in the order of the lines.
    pub(crate) fn trees(&self, marked: &Zone) -> impl Iterator<Item = (&LineOverlays, Zone)> {
        self.lines.iter().map(|line| {
            let overlays: Vec<&Overlay> = line.overlays.iter().map(|overlay| &**overlay).collect();
            (line, varied(marked, &overlays))
        })
    }
}

/// The variants of a zone.
#[derive(Debug)]
pub struct ZoneLines {
    /// What they are made of.
    pub(crate) data: Arc<LineData>,
    pub(crate) variants: Vec<Variant>,
}

/// A zone as clients of a line see it.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) line: Arc<str>,
    pub(crate) tree: Zone,
    /// The answers that are others than those of the plain zone.
    pub(crate) tables: Tables,
}

impl ZoneLines {
    /// What the variants are made of.
    pub fn data(&self) -> &Arc<LineData> {
        &self.data
    }

    /// For each line, the number of the variant that its clients get, from 1; 0 is the plain zone.
    pub(crate) fn by_line(&self, lines: &Lines) -> Box<[u16]> {
        let variant_of = |line: &str| self.variants.iter().position(|variant| *variant.line == *line);
        let ids = (0..lines.lines().len()).map(|number| LineId(number as u16)); // Lines are numbered in 16 bits.
        let number = |id| {
            lines.chain(id).find_map(|(_, line)| variant_of(&line.name)).map_or(0, |place| place as u16 + 1)
        };
        ids.map(number).collect()
    }

    /// The variant of this number; `None` for the plain zone.
    #[inline(always)]
    pub(crate) fn variant(&self, number: u16) -> Option<&Variant> {
        self.variants.get(usize::from(number).wrapping_sub(1))
    }
}

/// Who asks, as far as answers depend on that. The line is looked up when the first zone wants to know it.
pub struct Asker {
    /// `None` where there are no lines.
    address: Option<IpAddr>,
    found: OnceCell<Found>,
}

impl Asker {
    /// A client at this address; `None` if nothing depends on it.
    pub(crate) fn new(address: Option<IpAddr>) -> Asker {
        Asker { address, found: OnceCell::new() }
    }

    /// Its line.
    pub(crate) fn find(&self, catalog: &Catalog) -> Found {
        let find = || {
            catalog.lines().zip(self.address).map_or(Found::NOTHING, |(lines, address)| lines.find(address))
        };
        *self.found.get_or_init(find)
    }
}
