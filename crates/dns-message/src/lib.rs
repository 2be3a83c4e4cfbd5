//! DNS messages where an allocation costs little (RFC 1035, 4.1): transfers, a resolver's upstream side, tools. A [`Message`] is read record
//! by record, with names decompressed; [`question_message`] and [`push_record`] write one, and a [`Compressor`] makes it short.
//!
//! Pure: bytes in, values out; nothing panics on any input. What servers do millions of times a second is in `dns-wire`.
#![forbid(unsafe_code)]

mod canonical;
mod compressor;
mod layout;
mod padding;
mod reader;
mod serial;
mod writer;

pub use canonical::{push_canonical_set, signed_label_count};
pub use compressor::Compressor;
pub use layout::lowercase_names;
pub use padding::pad;
pub use reader::{Malformed, Message, Question, Record};
pub use serial::{is_older, serial_of, soa_numbers};
pub use writer::{add_to_count, push_record, question_message};

/// The opcode NOTIFY in its place in the header's second word (RFC 1996, 3.1).
pub const NOTIFY: u16 = 4 << 11;

/// The opcode UPDATE in its place in the header's second word (RFC 2136, 1.3).
pub const UPDATE: u16 = 5 << 11;
