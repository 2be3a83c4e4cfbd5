//! What a resolver does with time, place and names, measured from outside: without sockets and clocks.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`authority`] | the audit zone: every name says how its answers behave, so that the authority remembers nothing but who asked |
//! | [`plan`] | a probe's questions, and when each is asked |
//! | [`transcript`] | what became of them |
//! | [`presence`] | when the authority was surely there |
//! | [`checks`] | what is judged, why it matters, and where it is written |
//! | [`probes`] | a plan and a judge each |
//! | [`report`] | findings put together: score, comparison, text, HTML |
//!
//! A probe is two pure functions. Its *plan* makes timed questions from a nonce and the time. Its *judge* reads the transcript of the
//! exchanges and the authority's log, and says what it found. Whoever carries a plan out may do so over sockets or in simulated time.
#![forbid(unsafe_code)]

pub mod authority;
pub mod checks;
pub mod edns;
pub mod networks;
pub mod plan;
pub mod presence;
pub mod probes;
pub mod report;
pub mod transcript;
