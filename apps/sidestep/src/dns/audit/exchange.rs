//! One question of a plan, over any transport.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use dns_audit::authority::Via;
use dns_audit::plan::{REPEAT_MS, Step};
use dns_audit::transcript::Outcome;
use dns_client::{AskError, Asker, Server, Transport, Trust};
use rustix::io::Errno;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::clock::random;
use super::pace::Turns;
use crate::dns::descriptors;

/// The path of DNS over HTTPS (RFC 8484, 4.1.1).
const PATH: &str = "/dns-query";

/// Who asks: from each of this host's addresses, with good certificates only or with any.
#[derive(Clone, Debug)]
pub(super) struct Askers {
    strict: Vec<Asker>,
    lax: Vec<Asker>,
    /// The first of this host's addresses that the user named.
    source: Option<IpAddr>,
    ports: Ports,
    /// One for each question under way: so many sockets there may be.
    sockets: Arc<Semaphore>,
}

/// Descriptors for all but questions: the runtime, files, the history, who reads metrics.
const RESERVE: usize = 48;
/// Of these, those for questions that wait for no others.
const APART: usize = 8;
/// Questions under way, where descriptors are no bound.
const SOCKETS_MAX: usize = 1 << 16;

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
        let descriptors = descriptors::raise_limit().and_then(|limit| usize::try_from(limit).ok());
        let sockets = descriptors.unwrap_or(SOCKETS_MAX).saturating_sub(RESERVE).clamp(1, SOCKETS_MAX);
        Askers {
            strict: make(trust),
            lax: make(&Trust::Anybody),
            source: sources.first().copied(),
            ports,
            sockets: Arc::new(Semaphore::new(sockets)),
        }
    }

    /// Asks when the rate and the number of sockets allow, over UDP again after a while without answer, and takes the first answer.
    pub(super) async fn exchange(&self, step: &Step, server: &Server, turns: &Turns<'_>) -> Asked {
        let askers = if step.is_verified { &self.strict } else { &self.lax };
        let asker = &askers[step.question.source % askers.len()];
        let transport = transport(step.via);
        let address = SocketAddr::new(server.address.ip(), self.ports.of(transport, server.address.port()));
        let server = Server { address, ..server.clone() };
        let tries = if transport == Transport::Udp { step.tries.max(1) } else { 1 };
        let mut socket = Arc::clone(&self.sockets).acquire_owned().await.ok(); // Nobody closes it.
        turns.wait().await;
        let first = Instant::now();
        let end = first + Duration::from_millis(step.patience_ms);
        let (mut under_way, mut sends) = (JoinSet::new(), 0);
        while sends < tries && Instant::now() < end {
            let Ok(id) = random() else { break };
            let message = step.question.message(u16::from_be_bytes(id));
            let (asker, server, own) = (asker.clone(), server.clone(), socket.take());
            under_way.spawn(async move {
                let _own = own;
                asker.ask(&server, transport, &message).await
            });
            sends += 1;
            let repeat = Instant::now() + Duration::from_millis(REPEAT_MS);
            let again = sends < tries && repeat < end;
            // Those that wait for a second socket have one: nobody may wait for ever.
            let next = timeout_at(end, async {
                if !again {
                    std::future::pending::<()>().await;
                }
                sleep_until(repeat).await;
                socket = Arc::clone(&self.sockets).acquire_owned().await.ok();
                turns.wait().await;
            });
            tokio::select! {
                biased;
                Some(Ok(answer)) = under_way.join_next() => {
                    return Asked { outcome: outcome(answer), sent: first, took: first.elapsed(), sends };
                }
                _ = next => {}
            }
        }
        Asked { outcome: Outcome::Silence, sent: first, took: first.elapsed(), sends }
    }

    /// The same with descriptors of their own: their questions wait for no others.
    pub(super) fn apart(&self) -> Askers {
        Askers { sockets: Arc::new(Semaphore::new(APART)), ..self.clone() }
    }

    /// The address from which this host asks a resolver; `None` if there is no way to it.
    pub(super) fn address_for(&self, resolver: SocketAddr) -> Option<IpAddr> {
        let any = match resolver {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        // A datagram socket that is connected sends nothing, and has an address.
        let socket = UdpSocket::bind((self.source.unwrap_or(any), 0)).ok()?;
        socket.connect(resolver).ok()?;
        socket.local_addr().ok().map(|own| own.ip())
    }

    /// Of the authority.
    pub(super) fn plain(&self) -> &Asker {
        &self.strict[0]
    }
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
        Err(AskError::Io(error)) if is_local(&error) => Outcome::Unsent(error.to_string()),
        Err(error) => Outcome::Failed(error.to_string().escape_default().to_string()),
    }
}

/// Whether this host could not ask at all: no peer makes these errors.
fn is_local(error: &std::io::Error) -> bool {
    let local = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::ACCESS,
        Errno::PERM,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::ADDRINUSE,
        Errno::NETUNREACH,
        Errno::AFNOSUPPORT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| local.contains(&errno))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_this_host_are_not_held_against_a_resolver() {
        let of = |errno: Errno| outcome(Err(AskError::Io(errno.into())));
        for errno in [Errno::MFILE, Errno::ACCESS, Errno::NETUNREACH] {
            assert!(matches!(of(errno), Outcome::Unsent(_)), "{errno:?}");
        }
        for errno in [Errno::CONNREFUSED, Errno::CONNRESET, Errno::HOSTUNREACH, Errno::TIMEDOUT] {
            assert!(matches!(of(errno), Outcome::Failed(_)), "{errno:?}");
        }
    }
}
