//! Zone transfers without sockets and clocks.
//!
//! | file | what it does |
//! | --- | --- |
//! | `request.rs` | what a server does with AXFR, IXFR, NOTIFY, updates and signed requests |
//! | `outgoing.rs` | [`Transfer`]: the messages of an AXFR or IXFR, one at a time, from one version of a zone |
//! | `incoming.rs` | [`Incoming`]: an answer to AXFR or IXFR, checked and made into a zone |
//! | `difference.rs` | [`Difference`]: what leads from one version to the next; [`History`]: the last ones |
//! | `secondary.rs` | [`Secondary`]: when a secondary zone looks for changes, and when it expires |
//! | `update.rs` | [`Update`]: prerequisites and changes of a dynamic update, and the version that it leads to |
//! | `catalog.rs` | catalog zones: the zones that one names, and one of zones that are there |
//! | `text.rs` | a zone as a zone file |
//! | `access.rs` | who may transfer |
//! | `tsig.rs` | signatures: keys, signing, checking (RFC 8945) |
//!
//! Start reading at [`handle`]. Octets, time and the zone are arguments.
#![forbid(unsafe_code)]

pub mod access;
pub mod catalog;
pub mod difference;
pub mod incoming;
mod lacking;
pub mod outgoing;
pub mod request;
pub mod secondary;
pub mod text;
pub mod tsig;
pub mod update;

pub use access::{AccessList, Allowed, Client, Prefix, Who};
pub use difference::{Difference, History, RecordRef, Unfit};
pub use incoming::{Incoming, IncomingError, Received};
pub use lacking::lacking;
pub use outgoing::{Slots, Transfer, TransferError};
pub use request::{Handled, Notice, Policy, UpdateRequest, ZonePolicy, handle};
pub use secondary::{Due, Secondary, SoaTimers};
pub use tsig::{Algorithm, Key, Keys};
pub use update::{Update, Updated};
