//! The certificate and its key, read and read again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use crate::FrontError;
use crate::validity::not_after;

/// What every connection shows: the same, whatever name it asks for.
#[derive(Debug)]
pub(crate) struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Certificate, FrontError> {
        Ok(Certificate {
            current: RwLock::new(read(certificate, key)?),
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Reads the files again; the old certificate stays if that fails.
    pub(crate) fn reload(&self) -> Result<(), FrontError> {
        let new = read(&self.certificate, &self.key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// When the current one ends, in seconds since 1970, if that can be read.
    pub(crate) fn ends_at(&self) -> Option<u64> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        not_after(current.cert.first()?)
    }

    /// TLS with this certificate for one protocol. QUIC has TLS 1.3 alone.
    pub(crate) fn config(self: &Arc<Self>, alpn: &[u8]) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&[&version::TLS13, &version::TLS12]);
        let builder = builder.expect("the provider has suites for both versions");
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![alpn.to_vec()];
        config
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, FrontError> {
    let missing = |path: &Path, expected| FrontError::Pem { path: path.to_owned(), expected };
    let wrong = |path: &Path, expected: &'static str, error| match error {
        PemError::Io(source) => FrontError::Read { path: path.to_owned(), source },
        _ => missing(path, expected),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| wrong(certificate, "certificates", error))?;
    if chain.is_empty() {
        return Err(missing(certificate, "certificates"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, "a private key", error))?;
    let signed = CertifiedKey::from_der(chain, private, &default_provider());
    signed.map(Arc::new).map_err(|source| FrontError::Certificate {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    })
}
