//! TCP on kernel sockets, one thread with a task for each connection. Clients that ask for too much wait: nothing is read of them meanwhile.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dns_audit::authority::Via;
use dns_guard::{RateLimiter, Verdict};
use dns_server::{Admission, TcpLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::service::Service;

/// A connection without a whole query for so long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// A client takes an answer within so long.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// A query beyond the bound of rate waits so long before it is looked at again, and so often: then its connection is closed.
const TURN: Duration = Duration::from_millis(50);
const TURNS_MAX: usize = 200;

/// What all connections share.
struct Shared {
    service: Arc<Service>,
    limiter: Mutex<RateLimiter>,
    started: Instant,
}

/// Starts the thread. It ends with the process.
pub(super) fn start(
    listeners: Vec<std::net::TcpListener>,
    service: Arc<Service>,
    limiter: RateLimiter,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let shared = Arc::new(Shared { service, limiter: Mutex::new(limiter), started: Instant::now() });
    std::thread::Builder::new()
        .name("audit-tcp".to_owned())
        .spawn(move || serve(&runtime, listeners, &shared))
        .map(drop)
}

fn serve(runtime: &Runtime, listeners: Vec<std::net::TcpListener>, shared: &Arc<Shared>) {
    let limits = TcpLimits {
        idle_timeout: clock::Duration::from_secs(IDLE.as_secs()),
        connections_max: 1024,
        connections_per_client_max: 128,
    };
    let admission = Admission::new(limits);
    runtime.block_on(async {
        let tasks = listeners.into_iter().filter_map(|listener| TcpListener::from_std(listener).ok());
        let tasks =
            tasks.map(|listener| tokio::spawn(accept(listener, Arc::clone(shared), Arc::clone(&admission))));
        for task in tasks.collect::<Vec<_>>() {
            let _ = task.await; // It goes on for ever.
        }
    });
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, admission: Arc<Admission>) {
    loop {
        // One that is gone again, or no descriptor: the next one is looked at after a moment.
        let Ok((stream, client)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Some(permit) = admission.admit(client.ip()) else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _ = attend(stream, client, &shared).await; // A client that leaves is no event.
            drop(permit);
        });
    }
}

/// Answers the queries of a connection one after the other (RFC 7766, 6.2.1.1).
async fn attend(mut stream: TcpStream, client: SocketAddr, shared: &Shared) -> io::Result<()> {
    let server = stream.local_addr()?;
    stream.set_nodelay(true)?;
    loop {
        let message = tokio::time::timeout(IDLE, read(&mut stream)).await??;
        shared.turn(client).await?;
        let answer = shared.service.answer(&message, client, server, Via::Tcp);
        let Some(octets) = answer.message else { continue };
        tokio::time::sleep(Duration::from_millis(answer.delay_ms.into())).await;
        let framed = [&(octets.len() as u16).to_be_bytes()[..], &octets].concat(); // At most 65535.
        tokio::time::timeout(WRITE_MAX, stream.write_all(&framed)).await??;
    }
}

impl Shared {
    /// Returns when the client may have an answer.
    async fn turn(&self, client: SocketAddr) -> io::Result<()> {
        for _ in 0..TURNS_MAX {
            if self.may_have_one(client) {
                return Ok(());
            }
            tokio::time::sleep(TURN).await;
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn may_have_one(&self, client: SocketAddr) -> bool {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now = clock::Instant::ZERO + clock::Duration::from_millis(elapsed);
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        // It is no forged address: its neighbours are not counted with it.
        limiter.take(client.ip(), true, 0, now) == Verdict::Pass
    }
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
