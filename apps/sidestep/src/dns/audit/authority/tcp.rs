//! TCP on kernel sockets, one thread with a task for each connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dns_audit::authority::Via;
use dns_server::{Admission, TcpLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::service::Service;

/// A connection without a whole query for so long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// A client takes an answer within so long.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// Starts the thread. It ends with the process.
pub(super) fn start(listeners: Vec<std::net::TcpListener>, service: Arc<Service>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("audit-tcp".to_owned())
        .spawn(move || serve(&runtime, listeners, &service))
        .map(drop)
}

fn serve(runtime: &Runtime, listeners: Vec<std::net::TcpListener>, service: &Arc<Service>) {
    let limits = TcpLimits {
        idle_timeout: clock::Duration::from_secs(IDLE.as_secs()),
        connections_max: 1024,
        connections_per_client_max: 128,
    };
    let admission = Admission::new(limits);
    runtime.block_on(async {
        let tasks = listeners.into_iter().filter_map(|listener| TcpListener::from_std(listener).ok());
        let tasks =
            tasks.map(|listener| tokio::spawn(accept(listener, Arc::clone(service), Arc::clone(&admission))));
        for task in tasks.collect::<Vec<_>>() {
            let _ = task.await; // It goes on for ever.
        }
    });
}

async fn accept(listener: TcpListener, service: Arc<Service>, admission: Arc<Admission>) {
    loop {
        // One that is gone again, or no descriptor: the next one is looked at after a moment.
        let Ok((stream, client)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Some(permit) = admission.admit(client.ip()) else { continue };
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let _ = attend(stream, client, &service).await; // A client that leaves is no event.
            drop(permit);
        });
    }
}

/// Answers the queries of a connection one after the other (RFC 7766, 6.2.1.1).
async fn attend(mut stream: TcpStream, client: SocketAddr, service: &Service) -> io::Result<()> {
    let server = stream.local_addr()?;
    stream.set_nodelay(true)?;
    loop {
        let message = tokio::time::timeout(IDLE, read(&mut stream)).await??;
        let answer = service.answer(&message, client, server, Via::Tcp);
        let Some(octets) = answer.message else { continue };
        tokio::time::sleep(Duration::from_millis(answer.delay_ms.into())).await;
        let framed = [&(octets.len() as u16).to_be_bytes()[..], &octets].concat(); // At most 65535.
        tokio::time::timeout(WRITE_MAX, stream.write_all(&framed)).await??;
    }
}

async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
