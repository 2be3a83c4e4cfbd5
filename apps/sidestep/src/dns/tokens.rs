//! Keys of zones whose private halves are in tokens (PKCS #11).
//!
//! The files of such a key have its public half, its times and its name in the token; `key-uri` says by which module and PIN it is used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use dns_sign::{Key, KeyFiles, KeySet, RemoteSigner, Role, Times};
use dns_token::{KeyUri, PublicKey, Token};
use dns_wire::{Name, NameBuf};

use super::key_files;

/// A key in a token, and what it is of a zone.
#[derive(Debug)]
struct TokenKey {
    origin: NameBuf,
    tag: u16,
    public: PublicKey,
    token: Token,
}

impl RemoteSigner for TokenKey {
    fn sign(&self, octets: &[u8]) -> Option<Vec<u8>> {
        let signature = self.token.sign(&self.public, octets);
        let told = signature.inspect_err(|error| {
            log::error!(
                "zone {}: the key {} does not sign, {}: {error}",
                self.origin,
                self.tag,
                self.token.uri()
            );
        });
        told.ok()
    }
}

/// Has the keys of a zone sign that are in tokens. No token is looked at yet.
pub(super) fn connect(origin: Name<'_>, keys: &mut KeySet, uri: Option<&KeyUri>) {
    keys.connect(|key, label| {
        // Module and PIN may have moved since the key was noted.
        let found = uri.map_or_else(|| KeyUri::parse(label), |uri| uri.with_path_of(label));
        let told = found.inspect_err(|error| {
            let tag = key.tag();
            log::error!("zone {origin}: the key {tag} is in a token, {label}, and key-uri does not say how to use it: {error}");
        });
        let public = PublicKey { algorithm: key.algorithm(), octets: key.public_key().to_vec() };
        let (origin, token) = (NameBuf::from(origin), Token::new(told.ok()?));
        Some(Arc::new(TokenKey { origin, tag: key.tag(), public, token }))
    });
}

/// Makes the key that a URI names one of a zone: it writes its files, and says where, apart from their endings.
pub(super) fn adopt(
    origin: Name<'_>,
    directory: &Path,
    uri: &KeyUri,
    role: Role,
    times: Times,
) -> anyhow::Result<PathBuf> {
    let public = public_key(uri)?;
    let files = KeyFiles::of_token(origin, (role, times), (public.algorithm, public.octets), &uri.path())?;
    key_files::write(directory, &files)
}

/// The public half of the key that a URI names.
pub(super) fn public_key(uri: &KeyUri) -> anyhow::Result<PublicKey> {
    Token::new(uri.clone()).public_key().with_context(|| format!("looking for the key {uri}"))
}

/// Whether a key that is to replace `old` is another one, of its algorithm.
pub(super) fn check_successor(keys: &KeySet, old: &Key, uri: &KeyUri) -> anyhow::Result<()> {
    let public = public_key(uri)?;
    if keys.keys().iter().any(|key| key.public_key() == public.octets) {
        bail!(
            "the key {uri} is one of the zone's already: make another one in the token, and name that one by key-uri"
        );
    }
    if public.algorithm != old.algorithm() {
        bail!(
            "the key {uri} is of algorithm {}, and the one that it would replace of {}: make one of that algorithm",
            public.algorithm,
            old.algorithm()
        );
    }
    Ok(())
}
