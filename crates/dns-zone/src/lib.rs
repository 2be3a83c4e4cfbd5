//! Zone files, the zone tree, immutable versions.
//!
//! Start reading at [`tree::Zone`], what a zone is once loaded; [`builder`] makes one from records, [`text`] makes
//! records from a zone file; [`findings`] says what in a zone works badly. Pure: no files are opened and no clock is read here.
#![forbid(unsafe_code)]

pub mod builder;
mod compact;
mod denial;
mod editor;
pub mod findings;
pub mod index;
mod load;
mod offset;
pub mod overlay;
pub mod text;
pub mod tree;
pub mod versioned;

pub use builder::{RecordError, ZoneBuilder, ZoneError};
pub use compact::next_name;
pub use denial::{Denial, Nsec, Nsec3};
pub use editor::{Changed, ZoneEditor};
pub use load::{load_source, load_zone};
pub use overlay::{Overlay, load_overlay};
pub use tree::{Marks, Node, NodeId, Rrset, Zone};
