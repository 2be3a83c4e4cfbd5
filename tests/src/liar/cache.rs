//! What the liar keeps.

use dns_message::Record;

/// One answer.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) rcode: u16,
    pub(super) answers: Vec<Record>,
    pub(super) authority: Vec<Record>,
    /// As clients are told.
    pub(super) ttl: u32,
    pub(super) stored_ms: u64,
    pub(super) expires_ms: u64,
}
