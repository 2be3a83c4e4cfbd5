//! The reader of zone files: master files of RFC 1035, section 5, with common extensions.
//!
//! [`read_zone`] takes the text of one zone, from one file and the files that it includes, and passes each record on in
//! wire format. It examines one record at a time. The tree decides whether the records make a good zone (a CNAME beside other data,
//! a delegation without glue).
//!
//! - `$TTL` (RFC 2308), `$ORIGIN`, `$INCLUDE` and `$GENERATE`; parentheses, quotes, comments, escapes; class and TTL in
//!   either order; TTLs with units (`1h30m`).
//! - Every type with a text format (`schema.rs` is the table of them), and every type as `\# LENGTH HEX` (RFC 3597).
//! - A record without TTL takes that of `$TTL`, else that of the record before it, else the minimum of the SOA.
//! - The SOA is the first record and its owner is the origin of the zone; all records are at or below it, in class IN. It may stand at the end
//!   once more, as in what `dig AXFR` prints.
//! - Reading goes on after an error, with the next entry, so that one run reports many errors.
//!
//! All work is bounded by [`Limits`] and by the size of the files, memory by the longest entry. The reader opens no file: [`Files`] does.

mod address;
mod bitmap;
mod check;
mod directive;
mod encoding;
mod error;
mod field;
mod fuzz;
mod gateway;
mod generate;
mod lexer;
mod loc;
mod mnemonic;
mod number;
mod print;
mod reader;
mod schema;
mod svcb;
mod window;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use dns_wire::{Class, Name, NameBuf, Rtype};

pub use error::{FileId, Position, Problem, ZoneTextError, ZoneTextErrors};
#[doc(hidden)]
pub use fuzz::fuzz_zone_text;
pub use print::{RdataPrinter, rdata_text};
pub use reader::origin_from_path;
pub use window::TextFile;

/// Whether octets can be data of their type, as far as its form is known: what is not cannot be read from a zone file either.
pub fn is_rdata(rtype: Rtype, octets: &[u8]) -> bool {
    schema::schema(rtype).is_none_or(|fields| check::is_rdata(fields, octets))
}

/// Where the text comes from: a directory, or in tests a map.
pub trait Files {
    /// Opens a file. Included files are asked for relative to the directory of the file that includes them.
    fn open(&mut self, path: &Path) -> io::Result<TextFile>;
}

/// What one zone may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Errors after which reading stops; at least 1. Default: 20.
    pub errors_max: usize,
    /// Files within files. Default: 16.
    pub include_depth_max: usize,
    /// Included files in all, a file included twice counted twice. Default: 10 000.
    pub includes_max: usize,
    /// Records made by all `$GENERATE` directives of the zone together. Default: 1 000 000, some 50 MB of zone; a
    /// directive that would go beyond makes none at all.
    pub generated_records_max: u64,
    /// Octets of RDATA in those records together. Default: 256 MiB, reached only by directives with long data.
    pub generated_octets_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            errors_max: 20,
            include_depth_max: 16,
            includes_max: 10_000,
            generated_records_max: 1_000_000,
            generated_octets_max: 256 << 20,
        }
    }
}

/// A record of the zone, as long as its receiver looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// At or below the origin of the zone, in the case it was written in.
    pub owner: Name<'a>,
    /// Seconds, at most 2147483647.
    pub ttl: u32,
    /// Always IN.
    pub class: Class,
    /// Never a type that only messages use.
    pub rtype: Rtype,
    /// Wire format, names not compressed, at most 65535 octets.
    pub rdata: &'a [u8],
    /// Where the record begins.
    pub position: Position,
}

/// What was read, once all of it was right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The origin of the zone: the owner of its SOA.
    pub origin: NameBuf,
    /// How many records were handed on.
    pub record_count: u64,
    /// The files that were read, by [`FileId`].
    pub files: Vec<PathBuf>,
}

impl Summary {
    /// `position` for a message: `example.com.zone:12:17`.
    #[must_use]
    pub fn location(&self, position: Position) -> String {
        let path = self.files.get(position.file.0 as usize).map_or(Path::new("?"), PathBuf::as_path);
        format!("{}:{}:{}", path.display(), position.line, position.column)
    }
}

/// What records are handed to.
pub trait Receiver {
    /// Says why a record is not taken; becomes an error at the place of the record.
    type Refusal: fmt::Display;

    /// The owner of records to come is known, their data is not yet: time to fetch what they will need.
    fn on_owner(&mut self, owner: Name<'_>);

    /// So many octets of the zone's own file have been read, of so many: time to make room for the rest.
    fn on_progress(&mut self, done: u64, of: u64);

    /// Takes a record. The first one is the SOA. After an error, records go on coming, for the errors in them.
    fn on_record(&mut self, record: Record<'_>) -> Result<(), Self::Refusal>;
}

/// A closure as a [`Receiver`].
struct Call<R>(R);

impl<R, E> Receiver for Call<R>
where
    R: FnMut(Record<'_>) -> Result<(), E>,
    E: fmt::Display,
{
    type Refusal = E;

    fn on_owner(&mut self, _owner: Name<'_>) {}

    fn on_progress(&mut self, _done: u64, _of: u64) {}

    fn on_record(&mut self, record: Record<'_>) -> Result<(), E> {
        (self.0)(record)
    }
}

/// Reads the zone in the file at `path` and hands its records to `receive`, in the order of the text.
///
/// `origin` is the name of the zone and what names are relative to at first. Without one the zone is that of the SOA, and names are relative
/// to what the name of the file says (`example.com.zone`); where it does not end in `.zone`, they are to be absolute up to an `$ORIGIN`.
///
/// The first record that `receive` sees is the SOA. What it refuses becomes an error at the place of the record, and reading goes on.
///
/// # Errors
///
/// All that was found wrong. The records handed on are then not the whole zone and must not be used.
pub fn read_zone<F, R, E>(
    files: &mut F,
    path: &Path,
    origin: Option<Name<'_>>,
    limits: &Limits,
    receive: R,
) -> Result<Summary, ZoneTextErrors>
where
    F: Files + ?Sized,
    R: FnMut(Record<'_>) -> Result<(), E>,
    E: fmt::Display,
{
    read_zone_into(files, path, origin, limits, Call(receive))
}

/// As [`read_zone`], for a receiver that wants to know of owners early.
///
/// # Errors
///
/// As [`read_zone`].
pub fn read_zone_into<F, R>(
    files: &mut F,
    path: &Path,
    origin: Option<Name<'_>>,
    limits: &Limits,
    receiver: R,
) -> Result<Summary, ZoneTextErrors>
where
    F: Files + ?Sized,
    R: Receiver,
{
    reader::Reader::new(files, limits, receiver).read_zone(path, origin)
}

/// Reads records of the zone `origin` that are beside its own file, as [`read_zone_into`] does, but without a SOA at their beginning: that of the zone
/// has this `minimum`. What else the receiver does not want it refuses.
///
/// # Errors
///
/// As [`read_zone`].
pub fn read_part_into<F, R>(
    files: &mut F,
    path: &Path,
    (origin, minimum): (Name<'_>, u32),
    limits: &Limits,
    receiver: R,
) -> Result<Summary, ZoneTextErrors>
where
    F: Files + ?Sized,
    R: Receiver,
{
    reader::Reader::new(files, limits, receiver).read_part(path, origin, minimum)
}

#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod testing;
