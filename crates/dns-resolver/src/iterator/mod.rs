//! From a question to the servers that know (RFC 1034, 5.3.3).
//!
//! A *task* is a question that is being resolved. It goes through *steps*: a name and type asked of the servers of one zone. Each step
//! starts with what the cache has, takes the closest zone above the name whose servers are known, and asks for one label more than
//! that zone has (RFC 9156). The response ([`classify`]) leads to a zone further down, to another name, or to the end.
//!
//! ```text
//!              ┌──────────── alias: another name ◀──────────┐
//!              ▼                                            │
//! question ─▶ start_step ─▶ pursue ─▶ upstream ─▶ response ─┼─▶ validate ─▶ finish ─▶ clients, other tasks
//!              ▲             ▲  │                           │
//!              │             │  └─ tasks for addresses      │
//!              │             └──── next server ◀── silence, lame
//!              └──────────── referral: a zone further down ◀┘
//! ```
//!
//! Where there is a trust anchor, a response is validated before anything of it is kept or passed on ([`validate`]): `crate::dnssec` names
//! the DNSKEY and DS sets that it takes, and tasks look these up.
//!
//! Bounds: a step asks `tries_max` times, a question with all its look-ups `queries_max` times; aliases, referrals, look-ups of
//! name servers' addresses (RFC 9520; the NXNS attack) and their depth are counted. A task that would wait for itself does not wait.
//! Equal questions share one task, and tasks that ask a server the same share one query.

mod addresses;
mod advance;
pub(crate) mod classify;
mod finish;
pub(crate) mod lame;
mod minimise;
mod respond;
pub(crate) mod task;
mod upstream;
mod validate;
mod zones;

pub(crate) use minimise::last_labels;
pub(crate) use upstream::{SameQueries, Upstream};
