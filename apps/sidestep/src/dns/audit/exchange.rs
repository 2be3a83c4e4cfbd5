//! One question of a plan, over any transport.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dns_audit::authority::Via;
use dns_audit::plan::{REPEAT_MS, Step};
use dns_audit::transcript::Outcome;
use dns_client::{AskError, Asker, Server, Transport, Trust};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::clock::random;
use super::pace::Turns;

/// The path of DNS over HTTPS (RFC 8484, 4.1.1).
const PATH: &str = "/dns-query";

/// Who asks: from each of this host's addresses, with good certificates only or with any.
#[derive(Clone, Debug)]
pub(super) struct Askers {
    strict: Vec<Asker>,
    lax: Vec<Asker>,
    ports: Ports,
}

/// Where resolvers answer what is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) tls: u16,
    pub(super) https: u16,
    pub(super) quic: u16,
}

/// What became of a question.
pub(super) struct Asked {
    pub(super) outcome: Outcome,
    /// When it was sent for the first time, and how long it took since then: a client waits as long.
    pub(super) sent: Instant,
    pub(super) took: Duration,
    pub(super) sends: u32,
}

impl Askers {
    /// From the address that the system chooses, and from these.
    pub(super) fn new(trust: &Trust, sources: &[IpAddr], ports: Ports) -> Askers {
        let all = || {
            let named: Vec<Option<IpAddr>> = sources.iter().copied().map(Some).collect();
            if named.is_empty() { vec![None] } else { named }
        };
        let make =
            |trust: &Trust| all().into_iter().map(|source| Asker::new(trust.clone(), source)).collect();
        Askers { strict: make(trust), lax: make(&Trust::Anybody), ports }
    }

    /// Asks when the rate allows, over UDP again after a while without answer, and takes the first answer.
    pub(super) async fn exchange(&self, step: &Step, server: &Server, turns: &Turns<'_>) -> Asked {
        let askers = if step.is_verified { &self.strict } else { &self.lax };
        let asker = &askers[step.question.source % askers.len()];
        let transport = transport(step.via);
        let address = SocketAddr::new(server.address.ip(), self.ports.of(transport, server.address.port()));
        let server = Server { address, ..server.clone() };
        let tries = if transport == Transport::Udp { step.tries.max(1) } else { 1 };
        turns.wait().await;
        let first = Instant::now();
        let end = first + Duration::from_millis(step.patience_ms);
        let (mut under_way, mut sends) = (JoinSet::new(), 0);
        while sends < tries && Instant::now() < end {
            let Ok(id) = random() else { break };
            let message = step.question.message(u16::from_be_bytes(id));
            under_way.spawn(ask_once(asker.clone(), server.clone(), transport, message));
            sends += 1;
            let repeat = Instant::now() + Duration::from_millis(REPEAT_MS);
            let again = sends < tries && repeat < end;
            let next = async {
                sleep_until(if again { repeat } else { end }).await;
                if again {
                    turns.wait().await;
                }
            };
            tokio::select! {
                biased;
                Some(Ok(answer)) = under_way.join_next() => {
                    return Asked { outcome: outcome(answer), sent: first, took: first.elapsed(), sends };
                }
                () = next => {}
            }
        }
        Asked { outcome: Outcome::Silence, sent: first, took: first.elapsed(), sends }
    }

    /// Of the authority.
    pub(super) fn plain(&self) -> &Asker {
        &self.strict[0]
    }
}

/// What came.
async fn ask_once(
    asker: Asker,
    server: Server,
    transport: Transport,
    message: Vec<u8>,
) -> Result<Vec<u8>, AskError> {
    asker.ask(&server, transport, &message).await
}

impl Ports {
    fn of(self, transport: Transport, plain: u16) -> u16 {
        match transport {
            Transport::Udp | Transport::Tcp => plain,
            Transport::Tls => self.tls,
            Transport::Https => self.https,
            Transport::Quic => self.quic,
        }
    }
}

/// What a resolver makes others say is escaped.
fn outcome(answer: Result<Vec<u8>, AskError>) -> Outcome {
    match answer {
        Ok(message) => Outcome::Answer(message),
        Err(error) => Outcome::Failed(error.to_string().escape_default().to_string()),
    }
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
