//! DNSSEC signing without files and clocks (RFC 4033 to 4035).
//!
//! | file | what it does |
//! | --- | --- |
//! | `key.rs` | [`Key`]: one key, in the files that BIND's tools write, and its times |
//! | `key_set.rs` | [`KeySet`]: the keys of a zone; [`Active`]: what each is for at some time |
//! | `parent.rs` | [`Parent`]: what the servers of the parent have of the zone's DS records, and when keys end because of that |
//! | `roll.rs` | the times of keys that take the place of others |
//! | `wanted.rs` | what a signed zone has at a name: the sets of its source, the keys, the NSEC record |
//! | `signature.rs` | makes RRSIG records, and says which are good for longer |
//! | `online.rs` | [`OnlineKeys`]: signatures for one answer |
//! | `chain.rs`, `hashed.rs` | which NSEC and NSEC3 records change, and to what |
//! | `sign.rs` | [`Signer`]: a zone signed from nothing, and the next version of one that is signed |
//!
//! Start reading at [`Signer`]. A *source* is a zone as its owner writes it; the signed zone is made from it, and follows it. Zones, keys and
//! the time are arguments. Randomness is not: the signatures of elliptic curves need some, and `ring` takes no other than that of the system.
#![forbid(unsafe_code)]

mod chain;
mod hashed;
mod key;
mod key_set;
mod online;
mod parent;
mod roll;
mod sign;
mod signature;
mod wanted;

pub use key::{Algorithm, Key, KeyError, KeyFiles, RemoteSigner, Role, State, Times};
pub use key_set::{Active, KeySet, Lost, NoKey};
pub use online::{InToken, OnlineKeys};
pub use parent::{AtParent, Parent, ParentChange, Said, Server, UNKNOWN_TTL};
pub use roll::{Change, Needed};
pub use sign::{DenialBy, Due, SignError, Signed, Signer, differing};
pub use signature::Lifetimes;
