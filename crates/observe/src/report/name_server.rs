//! One name server that a resolver knows.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What a resolver knows of the server at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameServerReport {
    /// Where it is.
    pub address: SocketAddr,
    /// Smoothed time of its answers; none if it has never answered.
    pub srtt_us: Option<u64>,
    /// How much that varies.
    pub rttvar_us: Option<u64>,
    /// What its silence adds when servers are compared.
    pub penalty_us: u64,
    /// Queries in a row without an answer.
    pub silent: u32,
    /// Whether it takes EDNS.
    pub edns: bool,
    /// Whether it takes TCP.
    pub tcp: bool,
    /// Queries for clients.
    pub queries: u64,
    /// Queries that measure it.
    pub probes: u64,
    /// Answers to either.
    pub answers: u64,
    /// Queries without an answer in time.
    pub losses: u64,
    /// Since its last answer.
    pub age_ms: u64,
}
