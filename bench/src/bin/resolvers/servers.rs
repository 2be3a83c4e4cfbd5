//! The servers of the Internet as resolvers see them: addresses with a distance and with faults, in front of real name servers.
//!
//! The kernel of the laboratory cannot delay packets, so each address is a proxy: it waits, asks its name server, and passes the answer on.
//! Into answers for some names it writes the time ([`clock`]).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::clock;

/// How long a name server may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest message (RFC 1035, 4.2.2).
const MESSAGE_MAX: usize = 65_535;
/// ARCOUNT, and where the additional section's OPT record is announced.
const ADDITIONAL_COUNT: std::ops::Range<usize> = 10..12;
/// REFUSED.
const REFUSED: u8 = 5;

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It answers nothing.
    Silent,
    /// It answers REFUSED, as one that was never told of the zone.
    Lame,
    /// It answers nothing that has an OPT record.
    DropsEdns,
    /// It loses one query in ten.
    Lossy,
}

/// One address.
#[derive(Debug)]
pub(crate) struct Server {
    address: Ipv4Addr,
    backend: SocketAddr,
    /// In microseconds.
    delay: AtomicU64,
    fault: AtomicU8,
    received: AtomicU64,
}

/// A query that a server got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Since the start.
    pub(crate) at: Duration,
    /// Who asked.
    pub(crate) from: Ipv4Addr,
    /// Whom.
    pub(crate) server: Ipv4Addr,
    /// Whether it is for an address, as all questions of clients are.
    pub(crate) is_for_address: bool,
}

/// All queries so far.
#[derive(Debug)]
pub(crate) struct Arrivals {
    start: Instant,
    list: Mutex<Vec<Arrival>>,
}

impl Server {
    /// One at `address`, so far away, in front of `backend`.
    pub(crate) fn new(address: Ipv4Addr, backend: SocketAddr, delay: Duration) -> Server {
        let server = Server {
            address,
            backend,
            delay: AtomicU64::new(0),
            fault: AtomicU8::new(Fault::None as u8),
            received: AtomicU64::new(0),
        };
        server.move_to(delay);
        server
    }

    /// Where it is.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// From now on it is so far away.
    pub(crate) fn move_to(&self, delay: Duration) {
        self.delay.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// From now on this is wrong with it.
    pub(crate) fn suffer(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault.load(Ordering::Relaxed) == fault as u8
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.delay.load(Ordering::Relaxed))
    }

    /// Whether a query is lost.
    fn loses(&self, query: &[u8]) -> bool {
        let number = self.received.fetch_add(1, Ordering::Relaxed);
        self.has(Fault::Silent)
            || self.has(Fault::Lossy) && number % 10 == 7
            || self.has(Fault::DropsEdns) && query.get(ADDITIONAL_COUNT).is_some_and(|count| count != [0, 0])
    }
}

impl Arrivals {
    /// None so far.
    pub(crate) fn new(start: Instant) -> Arrivals {
        Arrivals { start, list: Mutex::default() }
    }

    /// Those so far.
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn note(&self, from: SocketAddr, server: &Server, query: &[u8]) {
        let SocketAddr::V4(from) = from else { return };
        let is_for_address = clock::question(query).is_some_and(|question| question.ends_with(&clock::A_IN));
        self.list().push(Arrival {
            at: self.start.elapsed(),
            from: *from.ip(),
            server: server.address,
            is_for_address,
        });
    }
}

/// Opens all servers; they answer as long as the runtime lives. It has to run in their namespace.
pub(crate) async fn open(servers: &[Arc<Server>], arrivals: &Arc<Arrivals>) -> io::Result<()> {
    for server in servers {
        let address = SocketAddrV4::new(server.address, 53);
        let (udp, tcp) = (UdpSocket::bind(address).await?, TcpListener::bind(address).await?);
        tokio::spawn(serve_udp(Arc::clone(server), Arc::new(udp), Arc::clone(arrivals)));
        tokio::spawn(serve_tcp(Arc::clone(server), tcp, Arc::clone(arrivals)));
    }
    Ok(())
}

async fn serve_udp(server: Arc<Server>, socket: Arc<UdpSocket>, arrivals: Arc<Arrivals>) {
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        // An error is news of a client that has gone.
        let Ok((len, client)) = socket.recv_from(&mut buffer).await else { continue };
        let query = buffer[..len].to_vec();
        arrivals.note(client, &server, &query);
        if server.loses(&query) {
            continue;
        }
        let (server, socket) = (Arc::clone(&server), Arc::clone(&socket));
        tokio::spawn(async move {
            sleep(server.delay()).await;
            if let Ok(answer) = answer(&server, query).await {
                let _ = socket.send_to(&answer, client).await; // As lost as on a wire.
            }
        });
    }
}

async fn answer(server: &Server, mut query: Vec<u8>) -> io::Result<Vec<u8>> {
    if server.has(Fault::Lame) && query.len() > 3 {
        query[2] |= 0x80;
        query[3] = REFUSED;
        return Ok(query);
    }
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(server.backend).await?;
    socket.send(&query).await?;
    query.resize(MESSAGE_MAX, 0);
    let len = timeout(PATIENCE, socket.recv(&mut query)).await??;
    query.truncate(len);
    clock::set(&mut query);
    Ok(query)
}

async fn serve_tcp(server: Arc<Server>, listener: TcpListener, arrivals: Arc<Arrivals>) {
    loop {
        let Ok((client, address)) = listener.accept().await else { continue };
        arrivals.note(address, &server, &[]);
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            sleep(server.delay() * 2).await; // A handshake, and a question.
            if server.has(Fault::Silent) {
                return;
            }
            if let Ok(backend) = TcpStream::connect(server.backend).await {
                let _ = pass_on(client, backend).await; // Whoever waits sees the end.
            }
        });
    }
}

/// Passes octets on in both directions, until one of the two ends.
async fn pass_on(mut client: TcpStream, mut backend: TcpStream) -> io::Result<()> {
    let (mut asked, mut answered) = (vec![0; MESSAGE_MAX], vec![0; MESSAGE_MAX]);
    loop {
        select! {
            count = client.read(&mut asked) => match count? {
                0 => return Ok(()),
                count => backend.write_all(&asked[..count]).await?,
            },
            count = backend.read(&mut answered) => match count? {
                0 => return Ok(()),
                count => {
                    clock::set(&mut answered[..count]);
                    client.write_all(&answered[..count]).await?;
                }
            },
        }
    }
}
