//! A stack that is lied to: any segments, at any time, in any state, beside a reference model that knows what may come of it.
//!
//! The rules: what is delivered was offered inside the window at that very place; a reset counts only where the next octet is
//! expected; an acknowledgement moves what it says and only if that was sent; nothing is sent that no window allowed; and when
//! all is closed, nothing is left.

mod forged;
mod reference;
mod script;
mod victim;

pub use forged::{Forged, octet};
pub use script::fuzz_segments;
pub use victim::{FLOWS, Victim};
