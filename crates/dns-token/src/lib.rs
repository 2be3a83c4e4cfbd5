//! Keys of DNSSEC in tokens: smart cards, HSMs and their like, by PKCS #11.
//!
//! | file | what it does |
//! | --- | --- |
//! | `uri.rs` | [`KeyUri`]: which key of which token, and by which module (RFC 7512) |
//! | `public.rs` | [`PublicKey`]: what a token says of a key, as a DNSKEY record has it |
//! | `session.rs` | one module: sessions with its tokens, keys that are found there, the PIN |
//! | `worker.rs` | [`Token`]: a key on a thread that may wait for its token, while its caller does not |
//!
//! A module is a library that somebody else has written, in this process. All calls into one come from one thread, and whoever wants a
//! signature waits for [`LIMIT`] at most.
#![forbid(unsafe_code)]

mod public;
mod session;
mod uri;
mod worker;

use std::path::PathBuf;

use thiserror::Error;

pub use public::PublicKey;
pub use uri::{KeyUri, UriError};
pub use worker::{LIMIT, Token, forget_failures};

/// Why a token gives no key or no signature.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The module does not come back. It is left alone for a while.
    #[error("the module {} does not answer within {} s", .0.display(), LIMIT.as_secs())]
    Hangs(PathBuf),
    /// The module cannot be loaded, or begins with an error.
    #[error("the module {} cannot be used: {error}", module.display())]
    Module {
        /// The library.
        module: PathBuf,
        /// What the linker or the library says.
        error: String,
    },
    /// No such token is there.
    #[error("there is no such token: see `pkcs11-tool --module {} -L`", .0.display())]
    NoToken(PathBuf),
    /// The PIN cannot be read.
    #[error("the PIN in {} cannot be read: {error}", path.display())]
    PinSource {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The token wants a PIN.
    #[error("the token wants a PIN: name a file with it by pin-source")]
    NoPin,
    /// The token refuses the PIN. It is not tried again.
    #[error(
        "the token refuses the PIN: it is tried again when pin-source has another one, as the token may lock itself"
    )]
    WrongPin,
    /// The token takes one more PIN or none.
    #[error("the token {0}: log in by hand, or have it unlocked")]
    AlmostLocked(&'static str),
    /// The token lets nobody in, for another reason than the PIN.
    #[error("the token does not let the server log in: {0}")]
    LogIn(String),
    /// There is no such key.
    #[error("the token has no private key of that name with a public key beside it")]
    NoKey,
    /// Several keys have the name.
    #[error("the token has {0} keys of that name: give the id of one")]
    Ambiguous(usize),
    /// The keys of the name are others.
    #[error("the token has a key of that name, and it is another one than the DNSKEY record's")]
    OtherKey,
    /// A key that DNSSEC has no algorithm for, or that we cannot use.
    #[error("the key is not of ECDSA on P-256 or P-384 or of RSA with 1024 to 4096 bits")]
    Algorithm,
    /// The token says so.
    #[error("{0}")]
    Pkcs11(String),
}

impl TokenError {
    /// Whether a module that begins anew may find what it did not: a token that has come since it began, or one that was away. Nothing that has to do
    /// with a PIN is among that, as each try may be the last.
    fn may_end_with_new_start(&self) -> bool {
        matches!(self, TokenError::NoToken(_) | TokenError::NoKey | TokenError::Pkcs11(_))
    }
}
