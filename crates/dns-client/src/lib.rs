//! One question to one DNS server: over UDP, TCP, TLS (RFC 7858), HTTPS (RFC 8484) or QUIC (RFC 9250).
//!
//! [`Client::ask`] sends a message and returns the one that answers it: same ID, same question. It keeps no connections and no cache.
//! Random numbers come from the caller, as the ID of the message. [`Asker`] does the same within a runtime of the caller's.
//!
//! | module | what it does |
//! | --- | --- |
//! | `trust` | whose certificates are good |
//! | `plain` | UDP and TCP, and messages in a stream |
//! | `https`, `quic` | those two protocols |
//! | `transfers` | connections for zone transfers over TLS, for callers that wait |
#![forbid(unsafe_code)]

mod https;
mod plain;
mod quic;
mod transfers;
mod trust;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dns_message::Message;
use dns_wire::Rcode;
use dns_wire::header::flag;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub use transfers::{TransferStream, TransferTls};
pub use trust::{Loaded, Trust};

/// How a question travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Over UDP; a lost packet is sent again.
    Udp,
    /// Over TCP.
    Tcp,
    /// Over TLS.
    Tls,
    /// Over HTTPS: a POST of HTTP/2.
    Https,
    /// Over QUIC.
    Quic,
}

impl Transport {
    /// The port that servers have for it.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Transport::Udp | Transport::Tcp => 53,
            Transport::Tls | Transport::Quic => 853,
            Transport::Https => 443,
        }
    }

    /// What servers and clients call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Https => "HTTPS",
            Transport::Quic => "QUIC",
        }
    }
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// The name that its certificate has to have; its address if there is none.
    pub name: Option<String>,
    /// The path of DNS over HTTPS.
    pub path: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server did not answer in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The system or the peer ended it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The name of the server cannot be in a certificate.
    #[error("{0}: not a name of a server")]
    Name(String),
    /// There is nobody to trust.
    #[error("{path}: no certificates in PEM: {reason}", path = .path.display())]
    Roots {
        /// The file, or the system's store.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// QUIC did not come to an answer.
    #[error("{0}")]
    Quic(String),
    /// HTTP did not come to an answer.
    #[error("HTTP: {0}")]
    Http(String),
    /// What came does not answer the question.
    #[error("the server sent something that is no answer to the question")]
    NoAnswer,
}

/// Asks servers, and waits for each answer.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    asker: Asker,
    patience: Duration,
}

/// Asks servers from within a runtime of the caller's, who bounds the time.
#[derive(Clone, Debug)]
pub struct Asker {
    /// For all that is encrypted; made when it is needed, as that reads files.
    trust: Trust,
    /// Where questions over UDP and TCP leave from; the system's choice if there is none.
    source: Option<IpAddr>,
}

impl Client {
    /// A client that waits that long for each answer, over UDP for each of [`Client::TRIES`] tries.
    pub fn new(trust: Trust, patience: Duration) -> io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Client { runtime, asker: Asker::new(trust, None), patience })
    }

    /// How often a question is sent over UDP.
    pub const TRIES: u32 = 3;

    /// Sends `question`, a whole message, and returns the answer. An answer over UDP may be truncated: asking again is the caller's.
    pub fn ask(&self, server: &Server, transport: Transport, question: &[u8]) -> Result<Vec<u8>, AskError> {
        let late = || AskError::TimedOut(self.patience);
        self.runtime.block_on(async {
            if transport == Transport::Udp {
                for _ in 0..Client::TRIES {
                    if let Ok(answer) =
                        tokio::time::timeout(self.patience, plain::udp(server.address, None, question)).await
                    {
                        return answer;
                    }
                }
                return Err(AskError::TimedOut(self.patience * Client::TRIES));
            }
            tokio::time::timeout(self.patience, self.asker.ask(server, transport, question))
                .await
                .unwrap_or_else(|_| Err(late()))
        })
    }
}

impl Asker {
    /// One that asks from `source`, or from where the system chooses.
    #[must_use]
    pub fn new(trust: Trust, source: Option<IpAddr>) -> Asker {
        Asker { trust, source }
    }

    /// Sends `question`, a whole message, once, and returns the answer. It waits as long as it is let: drop it to give up.
    pub async fn ask(
        &self,
        server: &Server,
        transport: Transport,
        question: &[u8],
    ) -> Result<Vec<u8>, AskError> {
        // No ID in what caches may keep, or what has streams of its own (RFC 8484, 4.1; RFC 9250, 4.2.1).
        let without_id = || [&[0, 0], question.get(2..).unwrap_or_default()].concat();
        match transport {
            Transport::Udp => plain::udp(server.address, self.source, question).await,
            Transport::Tcp => {
                let stream = plain::connect(server.address, self.source).await?;
                answer_to(question, plain::over_stream(stream, question).await?)
            }
            Transport::Tls => {
                let stream = self.connect_tls(server, b"dot").await?;
                answer_to(question, plain::over_stream(stream, question).await?)
            }
            Transport::Https => {
                let stream = self.connect_tls(server, b"h2").await?;
                let answer = https::post(stream, server, without_id()).await?;
                answer_to(&without_id(), answer).map(|answer| with_id(question, answer))
            }
            Transport::Quic => {
                let config = self.trust.config(b"doq")?;
                let answer = quic::ask(server, config, &without_id()).await?;
                answer_to(&without_id(), answer).map(|answer| with_id(question, answer))
            }
        }
    }

    async fn connect_tls(
        &self,
        server: &Server,
        protocol: &[u8],
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, AskError> {
        let config: ClientConfig = self.trust.config(protocol)?;
        let name = certified_name(server)?;
        let stream = TcpStream::connect(server.address).await?;
        stream.set_nodelay(true)?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }
}

/// What the server's certificate has to say.
fn certified_name(server: &Server) -> Result<ServerName<'static>, AskError> {
    match &server.name {
        Some(name) => name_in_certificate(name),
        None => Ok(ServerName::IpAddress(server.address.ip().into())),
    }
}

fn name_in_certificate(name: &str) -> Result<ServerName<'static>, AskError> {
    ServerName::try_from(name.to_owned()).map_err(|_| AskError::Name(name.to_owned()))
}

/// `answer`, if it is one to `question`. A server may leave out the question of what it could not read.
fn answer_to(question: &[u8], answer: Vec<u8>) -> Result<Vec<u8>, AskError> {
    let (Ok(asked), Ok(said)) = (Message::parse(question), Message::parse(&answer)) else {
        return Err(AskError::NoAnswer);
    };
    let is_response = said.id() == asked.id() && said.flags() & flag::QR != 0;
    let is_ours = match said.question() {
        Some(said) => Some(said) == asked.question(),
        None => [Rcode::FormErr, Rcode::NotImp].iter().any(|rcode| said.flags() & 0xf == rcode.low()),
    };
    if is_response && is_ours { Ok(answer) } else { Err(AskError::NoAnswer) }
}

/// `answer` with the ID of `question`.
fn with_id(question: &[u8], mut answer: Vec<u8>) -> Vec<u8> {
    answer[..2].copy_from_slice(&question[..2]); // Both were parsed.
    answer
}
