//! One question of a plan, over any transport.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dns_audit::authority::Via;
use dns_audit::plan::Step;
use dns_audit::transcript::Outcome;
use dns_client::{AskError, Asker, Server, Transport, Trust};

use super::clock::random;

/// The path of DNS over HTTPS (RFC 8484, 4.1.1).
const PATH: &str = "/dns-query";

/// Who asks: from each of this host's addresses, with good certificates only or with any.
#[derive(Clone, Debug)]
pub(super) struct Askers {
    strict: Vec<Asker>,
    lax: Vec<Asker>,
}

impl Askers {
    /// From the address that the system chooses, and from these.
    pub(super) fn new(trust: &Trust, sources: &[IpAddr]) -> Askers {
        let all = || {
            let named: Vec<Option<IpAddr>> = sources.iter().copied().map(Some).collect();
            if named.is_empty() { vec![None] } else { named }
        };
        let make =
            |trust: &Trust| all().into_iter().map(|source| Asker::new(trust.clone(), source)).collect();
        Askers { strict: make(trust), lax: make(&Trust::Anybody) }
    }

    /// Asks, and says what became of it and how long it took.
    pub(super) async fn exchange(&self, step: &Step, server: &Server) -> (Outcome, Duration) {
        let askers = if step.is_verified { &self.strict } else { &self.lax };
        let asker = &askers[step.question.source % askers.len()];
        let started = Instant::now();
        let outcome = exchange(asker, step, server).await;
        (outcome, started.elapsed())
    }

    /// Of the authority.
    pub(super) fn plain(&self) -> &Asker {
        &self.strict[0]
    }
}

async fn exchange(asker: &Asker, step: &Step, server: &Server) -> Outcome {
    let transport = transport(step.via);
    let address = SocketAddr::new(
        server.address.ip(),
        if step.via > Via::Tcp { transport.port() } else { server.address.port() },
    );
    let server = Server { address, ..server.clone() };
    for _ in 0..step.tries.max(1) {
        let Ok(id) = random() else { return Outcome::Failed("no random numbers".to_owned()) };
        let message = step.question.message(u16::from_be_bytes(id));
        let asked = asker.ask(&server, transport, &message);
        match tokio::time::timeout(Duration::from_millis(step.patience_ms), asked).await {
            Ok(Ok(answer)) => return Outcome::Answer(answer),
            Ok(Err(AskError::Io(error))) if step.via == Via::Udp => {
                return Outcome::Failed(error.to_string());
            }
            Ok(Err(error)) => return Outcome::Failed(error.to_string()),
            Err(_) => {}
        }
    }
    Outcome::Silence
}

fn transport(via: Via) -> Transport {
    match via {
        Via::Udp => Transport::Udp,
        Via::Tcp => Transport::Tcp,
        Via::Tls => Transport::Tls,
        Via::Https => Transport::Https,
        Via::Quic => Transport::Quic,
    }
}

/// A resolver at an address; `name` is what its certificate has to have.
pub(super) fn server(address: SocketAddr, name: Option<String>) -> Server {
    Server { address, name, path: PATH.to_owned() }
}
