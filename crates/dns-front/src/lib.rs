//! DNS over TLS (RFC 7858), HTTPS (RFC 8484) and QUIC (RFC 9250) for a server that answers elsewhere.
//!
//! [`Front::open`] opens the sockets, and [`Front::start`] serves them on one thread of its own. Each question comes out of a bounded queue as
//! a [`Question`], whose answer goes back by its [`Reply`], from any thread and in any order. While the queue is full, clients wait. A question
//! that is dropped without an answer closes its stream, and over TLS it is passed over.
//!
//! | module | what it does |
//! | --- | --- |
//! | `certificate` | the certificate and its key, read and read again |
//! | `validity` | when it ends |
//! | `ask` | from a message to its answer |
//! | `dot`, `doh`, `doq` | the three protocols, one task a connection |
#![forbid(unsafe_code)]

mod ask;
mod certificate;
mod doh;
mod doq;
mod dot;
mod listen;
mod validity;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dns_server::{Admission, TcpLimits};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

pub use ask::{Messages, Question, Reply, Unfinished, Via};
use certificate::Certificate;

/// Octets of the longest question. Real ones have some hundred, and every one that is under way is kept.
pub const QUESTION_MAX: usize = 4096;

/// What is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Addresses of DNS over TLS.
    pub dot: Vec<SocketAddr>,
    /// Addresses of DNS over HTTPS.
    pub doh: Vec<SocketAddr>,
    /// Addresses of DNS over QUIC.
    pub doq: Vec<SocketAddr>,
    /// PEM file: the certificate, and those that lead to its root.
    pub certificate: PathBuf,
    /// PEM file: its private key.
    pub key: PathBuf,
    /// Path of DNS over HTTPS.
    pub path: String,
    /// Connections of all three protocols, and how long one may be idle.
    pub limits: TcpLimits,
    /// Questions of one connection that may be under way.
    pub streams_max: u32,
    /// Questions of all connections that wait to be taken.
    pub queue: usize,
}

/// Why it cannot start, or not go on with another certificate.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// A file cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file has no PEM block of the kind.
    #[error("{path}: expected {expected} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is missing.
        expected: &'static str,
    },
    /// Certificate and key do not fit each other, or TLS cannot use them.
    #[error("{certificate} with {key}")]
    Certificate {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// A socket cannot be opened.
    #[error("{address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// There is no thread for it.
    #[error("starting a thread for encrypted DNS")]
    Thread(#[source] io::Error),
}

/// What all connections have in common.
struct Shared {
    admission: Arc<Admission>,
    questions: mpsc::Sender<Question>,
    /// Called when a question waits.
    wake: Box<dyn Fn() + Send + Sync>,
    streams_max: u32,
    idle: Duration,
    path: String,
}

/// The open front; dropping it closes everything.
pub struct Front {
    certificate: Arc<Certificate>,
    addresses: Vec<(Via, SocketAddr)>,
    admission: Arc<Admission>,
    stop: watch::Sender<bool>,
    state: State,
}

enum State {
    /// What is to run.
    Open(Box<(Runtime, listen::Sockets, Arc<Shared>, watch::Receiver<bool>)>),
    Running(JoinHandle<()>),
    Ended,
}

/// The certificate that new connections get, whichever that is by now.
#[derive(Clone)]
pub struct CertificateInUse(Arc<Certificate>);

impl CertificateInUse {
    /// When it ends, in seconds since 1970, if that can be read.
    #[must_use]
    pub fn ends_at(&self) -> Option<u64> {
        self.0.ends_at()
    }
}

/// The questions that wait.
pub struct Questions(mpsc::Receiver<Question>);

impl Questions {
    /// The next one, as soon as there is one; `None` once the front has ended. Not for the threads of an asynchronous runtime.
    pub fn wait_for_next(&mut self) -> Option<Question> {
        self.0.blocking_recv()
    }

    /// The next one, if there is one now.
    pub fn next_waiting(&mut self) -> Option<Question> {
        self.0.try_recv().ok()
    }
}

impl Options {
    /// Whether the certificate and its key can be used, and when the certificate ends, in seconds since 1970, if that can be read.
    ///
    /// # Errors
    /// What [`Front::open`] would say.
    pub fn check_certificate(&self) -> Result<Option<u64>, FrontError> {
        Certificate::read(&self.certificate, &self.key).map(|certificate| certificate.ends_at())
    }
}

impl Front {
    /// Reads the certificate and opens the sockets, for which privileges may be needed. Nothing runs yet. Questions will come by the
    /// receiver; `wake` is called for each, on another thread.
    pub fn open(
        options: &Options,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Front, Questions), FrontError> {
        let certificate = Arc::new(Certificate::read(&options.certificate, &options.key)?);
        let (questions, receiver) = mpsc::channel(options.queue.max(1));
        let (stop, stopped) = watch::channel(false);
        let admission = Admission::new(options.limits);
        let shared = Arc::new(Shared {
            admission: Arc::clone(&admission),
            questions,
            wake: Box::new(wake),
            streams_max: options.streams_max.max(1),
            idle: options.limits.idle_timeout.into(),
            path: options.path.clone(),
        });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FrontError::Thread)?;
        let sockets = runtime.block_on(async { listen::Sockets::open(options, &certificate) })?;
        let addresses = sockets.addresses();
        let state = State::Open(Box::new((runtime, sockets, shared, stopped)));
        Ok((Front { certificate, addresses, admission, stop, state }, Questions(receiver)))
    }

    /// Starts the thread that serves.
    pub fn start(&mut self) -> Result<(), FrontError> {
        if let State::Open(parts) = std::mem::replace(&mut self.state, State::Ended) {
            let (runtime, sockets, shared, stopped) = *parts;
            let serve = move || runtime.block_on(sockets.serve(shared, stopped));
            let thread = std::thread::Builder::new().name("dns-front".to_owned()).spawn(serve);
            self.state = State::Running(thread.map_err(FrontError::Thread)?);
        }
        Ok(())
    }

    /// Where it listens, with the ports that the kernel chose.
    #[must_use]
    pub fn addresses(&self) -> &[(Via, SocketAddr)] {
        &self.addresses
    }

    /// Reads the certificate again. New connections have the new one; if that cannot be used, the old one stays.
    pub fn reload_certificate(&self) -> Result<(), FrontError> {
        self.certificate.reload()
    }

    /// The certificate in use.
    #[must_use]
    pub fn certificate(&self) -> CertificateInUse {
        CertificateInUse(Arc::clone(&self.certificate))
    }

    /// Connections, admitted and refused.
    #[must_use]
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.stop.send(true); // A thread that has ended hears nothing.
        if let State::Running(thread) = std::mem::replace(&mut self.state, State::Ended) {
            let _ = thread.join(); // One that panicked has said so on stderr.
        }
    }
}
