//! Zones in etcd, without a connection to it: keys and values in, changes of zones out.
//!
//! | file | what it does |
//! | --- | --- |
//! | `layout.rs` | [`Layout`]: which key says what |
//! | `value.rs` | the records in a value, and the settings of a zone |
//! | `serial.rs` | the serial of a zone at a revision |
//! | `revisions.rs` | [`Revisions`]: what a watch tells, cut into whole revisions |
//! | `zone.rs` | [`EtcdZone`]: a zone that follows its keys, one transaction after the other |
//!
//! Start reading at [`EtcdZone`]. An etcd transaction is to a zone what a dynamic update is: it is carried out as a whole, or it waits as a whole
//! until what is wrong with it is mended.
#![forbid(unsafe_code)]

mod layout;
mod revisions;
mod serial;
mod value;
mod zone;

pub use layout::{Key, KeyError, KeyRange, Layout};
pub use revisions::{KeyChange, Revision, Revisions};
pub use serial::{could_be_serial, serial_at};
pub use value::{RecordSet, Settings, ValueError, read_records, read_settings};
pub use zone::{EtcdZone, Outcome, Refusal, SetChange, Step, Why};
