//! Lines: named classes of clients, by their addresses.
//!
//! A [`LineTable`] says which line an address belongs to, and how long the prefix is whose addresses all belong to the same: what an answer by
//! line may be kept for (RFC 7871, 7.2.1). It is made once, of all prefixes, and never changes. Start at [`LineTableBuilder`].
//!
//! Pure: it reads no file. [`read_prefixes`] takes the text of a list of prefixes.
#![forbid(unsafe_code)]

mod build;
mod intervals;
mod lines;
mod list;
mod prefix;
mod table;

pub use build::{LineTableBuilder, TwoLines};
pub use lines::{Line, Lines};
pub use list::{ListError, read_prefixes};
pub use prefix::{Prefix, PrefixError};
pub use table::{Found, LineId, LineTable};
