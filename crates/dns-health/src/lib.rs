//! Which hosts are well: when to check them, and what the checks say.
//!
//! | file | what it does |
//! | --- | --- |
//! | `watches.rs` | [`Watches`]: when each host is checked, and after how many checks it counts as up or down |
//! | `http.rs` | the request of a check by HTTP, and the status of its answer |
//! | `ping.rs` | echo requests and their replies (ICMP) |
//!
//! Pure: it opens no socket and reads no clock. Start at [`Watches`].
#![forbid(unsafe_code)]

pub mod http;
pub mod ping;
mod watches;

pub use watches::{Policy, Watches};
