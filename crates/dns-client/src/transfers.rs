//! Connections for zone transfers over TLS (RFC 9103), for callers that wait.

use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::trust::Trust;
use crate::{AskError, name_in_certificate};

/// How long a handshake may take, however slowly its octets come.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// A connection to a server that has shown its certificate. Reading and writing wait.
pub type TransferStream = StreamOwned<ClientConnection, TcpStream>;

/// How to connect to the servers of a zone.
#[derive(Debug)]
pub struct TransferTls {
    config: Mutex<Arc<ClientConfig>>,
    name: ServerName<'static>,
    trust: Trust,
}

/// Two are the same if they trust the same about the same name.
impl PartialEq for TransferTls {
    fn eq(&self, other: &TransferTls) -> bool {
        (&self.name, &self.trust) == (&other.name, &other.trust)
    }
}

impl Eq for TransferTls {}

impl TransferTls {
    /// Connections to servers whose certificates have `name`, and that `trust` vouches for. This reads files.
    pub fn new(name: &str, trust: &Trust) -> Result<TransferTls, AskError> {
        // RFC 9103, 7.1 and 7.2: ALPN, and nothing before TLS 1.3.
        let config = Mutex::new(Arc::new(trust.config_of(&[&TLS13], b"dot")?));
        Ok(TransferTls { config, name: name_in_certificate(name)?, trust: trust.clone() })
    }

    /// Takes over what files had when another one of the same trust was made, later than this. Connections from then on resume none of before.
    pub fn renew_from(&self, other: &TransferTls) {
        let config = other.config();
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shakes hands over a connection, in ten seconds. Each later read and write may take `patience`.
    pub fn shake_hands(&self, mut stream: TcpStream, patience: Duration) -> io::Result<TransferStream> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let connection = ClientConnection::new(self.config(), self.name.clone());
        let mut connection = connection.map_err(io::Error::other)?;
        let began = Instant::now();
        while connection.is_handshaking() {
            if connection.wants_write() {
                connection.write_tls(&mut stream)?;
                continue;
            }
            if connection.read_tls(&mut stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            connection.process_new_packets().map_err(io::Error::other)?;
            if began.elapsed() > HANDSHAKE_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        if connection.alpn_protocol() != Some(b"dot") {
            return Err(io::Error::other("the server does not speak DNS over TLS (no ALPN token \"dot\")"));
        }
        Ok(StreamOwned::new(connection, stream))
    }
}
