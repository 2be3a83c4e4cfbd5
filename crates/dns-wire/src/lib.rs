//! DNS messages on the hot path: names, types, header, question, EDNS.
//!
//! Pure: bytes in, values out. Nothing here allocates; nothing panics on any input.
#![forbid(unsafe_code)]

pub mod fold;
pub mod header;
mod labels;
pub mod name;
pub mod query;
pub mod rtype;
mod subnet;

pub use header::{Rcode, ReceivedRcode};
pub use labels::LabelStarts;
pub use name::{Name, NameBuf, NameError};
pub use query::{Edns, MoreOptions, Query, QueryError};
pub use rtype::{Class, Rtype};
pub use subnet::Subnet;
