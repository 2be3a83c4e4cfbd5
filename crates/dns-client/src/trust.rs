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
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::AskError;

/// Who may vouch for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Whoever the system trusts.
    #[default]
    System,
    /// The certificates of a file (PEM) alone.
    File(PathBuf),
    /// Anybody: the connection is encrypted, and may end at somebody else.
    Anybody,
    /// What [`Trust::load`] has read.
    Loaded(Loaded),
}

/// Certificates that were read.
#[derive(Clone, Debug)]
pub struct Loaded(Arc<Accepted>);

impl PartialEq for Loaded {
    fn eq(&self, other: &Loaded) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Loaded {}

impl Trust {
    /// The same with its certificates read, once for all connections. What cannot be read is an error now.
    pub fn load(&self) -> Result<Trust, AskError> {
        let accepted = self.accepted(&Arc::new(default_provider()))?;
        Ok(Trust::Loaded(Loaded(accepted)))
    }

    fn accepted(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<Accepted>, AskError> {
        match self {
            Trust::Anybody => Ok(Arc::new(Accepted::All)),
            Trust::System => Ok(Arc::new(Accepted::SignedBy(verifier(system(), Arc::clone(provider))?))),
            Trust::File(path) => listed(path, provider).map(Arc::new),
            Trust::Loaded(Loaded(accepted)) => Ok(Arc::clone(accepted)),
        }
    }

    /// TLS for one protocol, in ALPN's words.
    pub fn config(&self, protocol: &[u8]) -> Result<ClientConfig, AskError> {
        self.config_of(&[&TLS13, &TLS12], protocol)
    }

    /// The same, for some versions of TLS.
    pub(crate) fn config_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        protocol: &[u8],
    ) -> Result<ClientConfig, AskError> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder =
            builder.with_protocol_versions(versions).expect("the provider has suites for both versions");
        let accepted = self.accepted(&provider)?;
        let verifier = Arc::new(Verifier { accepted, provider });
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
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

/// The certificates of a file, and those that they have signed.
fn listed(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Accepted, AskError> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| no_roots(path, error))?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| no_roots(path, error))?;
    }
    if roots.is_empty() {
        return Err(no_roots(path, "there is none"));
    }
    Ok(Accepted::Listed(certificates, verifier(roots, Arc::clone(provider))?))
}

/// Which certificates are good.
#[derive(Debug)]
enum Accepted {
    All,
    SignedBy(Arc<WebPkiServerVerifier>),
    /// These, whatever their dates, for their names; and those that they have signed.
    Listed(Vec<CertificateDer<'static>>, Arc<WebPkiServerVerifier>),
}

/// Looks at a server's certificate, and has its key make a signature in any case.
#[derive(Debug)]
struct Verifier {
    accepted: Arc<Accepted>,
    provider: Arc<CryptoProvider>,
}

/// A certificate that has signed itself, as OpenSSL makes it by default, may sign others as well: that is what the verifier objects to. For people
/// it is one that nobody vouches for, as others that sign themselves.
fn as_people_say(error: Error) -> Error {
    match &error {
        Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            Error::InvalidCertificate(CertificateError::UnknownIssuer)
        }
        _ => error,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &*self.accepted {
            Accepted::All => Ok(ServerCertVerified::assertion()),
            Accepted::Listed(listed, _) if listed.contains(certificate) => {
                let parsed = ParsedCertificate::try_from(certificate)?;
                verify_server_name(&parsed, name).map(|()| ServerCertVerified::assertion())
            }
            Accepted::SignedBy(signers) | Accepted::Listed(_, signers) => {
                let verified = signers.verify_server_cert(certificate, between, name, ocsp, now);
                verified.map_err(as_people_say)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
