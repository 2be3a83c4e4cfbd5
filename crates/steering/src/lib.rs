//! Which flows Sidestep takes from the kernel, and which queue a flow arrives on.
//!
//! Pure: claims are values here. `control` decides them, and `device-xdp` writes them into the steering program's map. Where no such program can
//! be, [`ClaimTable`] decides by the same rules.
#![forbid(unsafe_code)]

pub mod claim;
pub mod rss;
mod source_ports;
mod table;

pub use claim::{Claim, ClaimTerms, ListenAddress, LocalAddress, Marks, QueueSet, Transport, VlanTags};
pub use source_ports::{Found, LocalPorts, SourcePorts, Spread};
pub use table::{ClaimTable, Verdict};
