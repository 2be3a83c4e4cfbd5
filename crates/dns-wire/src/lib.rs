//! DNS messages on the hot path: names, types, header, question, EDNS.
//!
//! Pure: bytes in, values out. Nothing here allocates; nothing panics on any input.
#![forbid(unsafe_code)]

pub mod name;
pub mod rtype;

pub use name::{Name, NameBuf, NameError};
pub use rtype::{Class, Rtype};
