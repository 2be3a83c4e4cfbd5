//! Validation (RFC 4033 to 4035, 5155, 6840): whether what a server says is what the owner of the zone has signed.
//!
//! All of it is pure: sets, keys and the time go in, a judgement comes out.
//!
//! ```text
//!  trust anchor ─▶ DNSKEY of the root ─▶ DS of com. ─▶ DNSKEY of com. ─▶ DS of example.com. ─▶ DNSKEY ─▶ the answer
//!                  keys                  signature     keys              signature             keys      signature
//!                                         └ or a proof that there is none: all below is insecure (denial)
//! ```
//!
//! | module | what it does |
//! | --- | --- |
//! | `validation` | one response, link by link |
//! | `chain` | the keys of a zone, or where the chain of trust ends |
//! | `anchors` | where trust starts, and where it is suspended |
//! | `keys` | DNSKEY and DS records, and which keys a DS set vouches for |
//! | `signature` | one set and its RRSIG records |
//! | `denial` | what NSEC and NSEC3 records prove |
//! | `gaps` | what NSEC and NSEC3 records of earlier denials prove |
//! | `canonical`, `algorithm` | the octets that are signed, and the cryptography |
//!
//! What it may cost is bounded by [`crate::Dnssec`]: signatures and hashes of one question are counted in its account (the KeyTrap attack,
//! CVE-2023-50387; NSEC3 exhaustion, CVE-2023-50868).

pub(crate) mod algorithm;
pub(crate) mod anchors;
mod canonical;
pub(crate) mod chain;
pub(crate) mod denial;
pub(crate) mod gaps;
mod keys;
mod signature;
pub(crate) mod validation;

use crate::message::Ede;

/// What is known about the authenticity of a set (RFC 4035, 4.3). A set that is bogus is never kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// Nobody has looked: only for clients that validate themselves, and for our own use.
    Unchecked,
    /// The zone is provably not signed, or in a way that we do not know; or there is no trust anchor for it.
    Insecure(Option<Ede>),
    /// The chain of trust reaches it.
    Secure,
}

/// What validating one question may still cost. The question's look-ups share it.
pub(crate) trait Budget {
    /// Takes the check of one signature; false if none is left.
    fn take_signature(&self) -> bool;
    /// Takes the NSEC3 hash of one name; false if none is left.
    fn take_hash(&self) -> bool;
}
