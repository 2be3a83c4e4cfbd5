//! Errors in a zone file, with their place.

use std::fmt;
use std::path::PathBuf;

use dns_wire::{NameBuf, NameError, Rtype};
use thiserror::Error;

/// A file that a zone was read from: its index in [`Summary::files`](super::Summary::files).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FileId(pub u32);

/// A place in a zone file. Records that `$GENERATE` made are where the directive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Position {
    /// The file.
    pub file: FileId,
    /// The line, from 1.
    pub line: u32,
    /// The column in octets, from 1.
    pub column: u32,
}

/// What is wrong in a zone file, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{}:{}: {problem}", path.display(), position.line, position.column)]
pub struct ZoneTextError {
    /// The file, as [`Files`](super::Files) was asked for it.
    pub path: PathBuf,
    /// Where in the file.
    pub position: Position,
    /// What is wrong.
    pub problem: Problem,
}

/// Everything that was found wrong with the text of a zone. Nothing of the zone may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneTextErrors {
    /// What was found, in the order of the text; never empty.
    pub errors: Vec<ZoneTextError>,
    /// The origin of the zone, if the caller gave it or the SOA was read.
    pub origin: Option<Box<NameBuf>>,
    /// True if reading stopped at [`Limits::errors_max`](super::Limits::errors_max) before the end of the text.
    pub stopped_early: bool,
}

impl fmt::Display for ZoneTextErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        if self.stopped_early {
            write!(f, "\nreading stopped here: too many errors")?;
        }
        Ok(())
    }
}

impl std::error::Error for ZoneTextErrors {}

impl ZoneTextErrors {
    /// Whether a file could not be read: what is in it may be right.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.errors.iter().all(|error| matches!(error.problem, Problem::CannotRead { .. }))
    }
}

/// What can be wrong with the text of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What should stand here.
        expected: &'static str,
        /// What stands here: the text in quotes, or words for it.
        found: String,
    },
    /// The text is no domain name.
    #[error("expected a domain name, found \"{text}\": {error}")]
    Name {
        /// The text.
        text: String,
        /// Why it is none.
        error: NameError,
    },
    /// The file has a NUL octet: it is not text.
    #[error("a NUL octet: this is not a text file")]
    Nul,
    /// A carriage return that does not end a line.
    #[error("a carriage return in the middle of a line")]
    CarriageReturn,
    /// A quoted string goes on at the end of the line.
    #[error("the quoted string does not end on this line")]
    UnterminatedString,
    /// A parenthesis is still open at the end of the file.
    #[error("this parenthesis is never closed")]
    UnclosedParenthesis,
    /// A parenthesis closes that was never opened.
    #[error("this parenthesis closes nothing")]
    UnopenedParenthesis,
    /// A character-string has more than 255 octets (RFC 1035, 3.3).
    #[error("the string has {0} octets, and 255 is the most")]
    StringTooLong(usize),
    /// A word with a dollar sign in front that is no directive. A name starts with `\$`.
    #[error("unknown directive {0}")]
    UnknownDirective(String),
    /// The first record starts with a blank.
    #[error("a record without owner name, and no record before it")]
    NoPreviousOwner,
    /// A class other than IN.
    #[error("class {0} is not supported, only IN is")]
    ClassNotIn(String),
    /// A TTL of more than 31 bits (RFC 2181, 8).
    #[error("the TTL {0} is above 2147483647")]
    TtlTooLarge(String),
    /// A record without TTL, and nothing to take one from.
    #[error("no TTL here, no $TTL and no record before this one that has a TTL")]
    NoTtl,
    /// A type that only queries and messages use.
    #[error("{0} records cannot be in a zone")]
    MetaType(Rtype),
    /// A type whose RDATA has only the generic form of RFC 3597.
    #[error("{0} has no text format, write its octets as \\# LENGTH HEX")]
    NoTextFormat(Rtype),
    /// Generic RDATA of another length than it says.
    #[error("\\# says {stated} octets, and {given} follow")]
    GenericLength {
        /// The length given behind `\#`.
        stated: u16,
        /// The octets that follow.
        given: usize,
    },
    /// Generic RDATA that a record of this type cannot have.
    #[error("these octets are not {0} data")]
    GenericMalformed(Rtype),
    /// RDATA of more than 65535 octets.
    #[error("the data of this record has more than 65535 octets")]
    RdataTooLong,
    /// Service parameters that contradict RFC 9460.
    #[error("{0}")]
    SvcParams(&'static str),
    /// Data before the SOA record.
    #[error("the first record must be the SOA, found {0}")]
    FirstRecordNotSoa(Rtype),
    /// A second SOA record.
    #[error("a second SOA record")]
    SecondSoa,
    /// The zone is another one than was asked for.
    #[error("the SOA is that of {owner}, and the zone is {origin}")]
    SoaNotAtOrigin {
        /// The owner of the SOA.
        owner: Box<NameBuf>,
        /// The origin that was asked for.
        origin: Box<NameBuf>,
    },
    /// A record that is not at or below the origin of the zone.
    #[error("{owner} is outside of the zone {origin}")]
    OutOfZone {
        /// The owner of the record.
        owner: Box<NameBuf>,
        /// The origin of the zone.
        origin: Box<NameBuf>,
    },
    /// No SOA record up to the end of the text.
    #[error("there is no SOA record")]
    NoSoa,
    /// A relative name, and nothing says what it is relative to.
    #[error(
        "\"{0}\" is relative, and the origin of the zone is not known: give it with the file (--zone ORIGIN=FILE, or origin in the \
         configuration), in the file with $ORIGIN, or by a file name that is ORIGIN.zone"
    )]
    NoOrigin(String),
    /// A file could not be read.
    #[error("cannot read {}: {reason}", path.display())]
    CannotRead {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file that includes itself, directly or through others.
    #[error("{} includes itself", .0.display())]
    IncludeLoop(PathBuf),
    /// Files within files within files.
    #[error("$INCLUDE is nested more than {0} deep")]
    IncludeTooDeep(usize),
    /// More files than allowed.
    #[error("more than {0} files are included")]
    TooManyIncludes(usize),
    /// `$GENERATE` would make more records than allowed.
    #[error("$GENERATE would bring the zone to {asked} generated records, and {max} is the most")]
    TooManyGenerated {
        /// Generated records in this zone, this directive included.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// `$GENERATE` made more data than allowed.
    #[error("generated records have more than {0} octets of data")]
    TooMuchGenerated(u64),
    /// A template of `$GENERATE` that cannot be followed.
    #[error("{0}")]
    Template(&'static str),
    /// The receiver of the records refused this one.
    #[error("{0}")]
    Refused(String),
}

impl Problem {
    /// Why `text` is no name.
    pub(super) fn of_name(text: String, error: NameError) -> Problem {
        match error {
            NameError::NoOrigin => Problem::NoOrigin(text),
            error => Problem::Name { text, error },
        }
    }
}

/// A problem on its way to the reader, which knows the names of the files.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) position: Position,
    pub(super) problem: Problem,
}

/// Boxed, so that what goes well stays small.
pub(super) type Parsed<T> = Result<T, Box<Fault>>;

impl Position {
    pub(super) fn fault<T>(self, problem: Problem) -> Parsed<T> {
        Err(Box::new(Fault { position: self, problem }))
    }
}
