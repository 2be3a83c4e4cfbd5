//! Whose certificates are good.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::AskError;

/// Who may vouch for a server.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Whoever the system trusts.
    #[default]
    System,
    /// The certificates of a file (PEM) alone.
    File(PathBuf),
    /// Anybody: the connection is encrypted, and may end at somebody else.
    Anybody,
}

impl Trust {
    /// TLS for one protocol, in ALPN's words.
    pub(crate) fn config(&self, protocol: &[u8]) -> Result<ClientConfig, AskError> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder =
            builder.with_safe_default_protocol_versions().expect("the provider has suites for both versions");
        let builder = match self {
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
            }
            Trust::System => builder.with_webpki_verifier(verifier(system(), provider)?),
            Trust::File(path) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Listed::read(path, provider)?))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}

fn verifier(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, AskError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| no_roots(Path::new("the system's certificates"), error))
}

fn no_roots(path: &Path, reason: impl ToString) -> AskError {
    AskError::Roots { path: path.to_owned(), reason: reason.to_string() }
}

/// Those that cannot be read or used are passed over, as everywhere.
fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Accepts the certificates of a file, and those that they have signed. A server whose certificate has signed itself is known by it: there,
/// only the name is checked.
#[derive(Debug)]
struct Listed {
    certificates: Vec<CertificateDer<'static>>,
    signers: Arc<WebPkiServerVerifier>,
}

impl Listed {
    fn read(path: &Path, provider: Arc<CryptoProvider>) -> Result<Listed, AskError> {
        let certificates =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = certificates.map_err(|error| no_roots(path, error))?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| no_roots(path, error))?;
        }
        if roots.is_empty() {
            return Err(no_roots(path, "there is none"));
        }
        Ok(Listed { certificates, signers: verifier(roots, provider)? })
    }
}

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.certificates.iter().any(|listed| listed == certificate) {
            let parsed = ParsedCertificate::try_from(certificate)?;
            return verify_server_name(&parsed, name).map(|()| ServerCertVerified::assertion());
        }
        self.signers.verify_server_cert(certificate, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signers.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signers.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signers.supported_verify_schemes()
    }
}

/// Accepts every certificate whose key made the handshake's signature.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
