//! `/metrics`, `/health` and `/ready` over HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::exposition::Exposition;

/// Of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Clients at a time. Some may keep their connections, and say nothing: others are not to wait for them.
const CONNECTIONS_MAX: usize = 256;
/// Reads at a time.
const READS_MAX: usize = 2;
/// For the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is read for each request, on a thread that may wait.
type Read = Arc<dyn Fn() -> anyhow::Result<Exposition> + Send + Sync>;

/// What all connections share.
#[derive(Clone)]
struct Shared {
    read: Read,
    /// Places of reads that run: one goes on when the client that wanted it has left.
    reads: Arc<Semaphore>,
}

/// Serves for ever.
pub(crate) fn serve(
    listener: std::net::TcpListener,
    read: impl Fn() -> anyhow::Result<Exposition> + Send + Sync + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shared = Shared { read: Arc::new(read), reads: Arc::new(Semaphore::new(READS_MAX)) };
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        log::info!("ready: metrics at http://{}/metrics", listener.local_addr()?);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
            // One that is gone again, or no descriptor: the next one is looked at after a moment.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let shared = shared.clone();
            tokio::spawn(async move {
                let _ = tokio::time::timeout(6 * PATIENCE, attend(stream, shared)).await;
                drop(place);
            });
        }
    })
}

async fn attend(stream: TcpStream, shared: Shared) {
    let service = service_fn(|request| answer(request, shared.clone()));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A client that breaks the rules, or leaves, is no event.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, shared: Shared) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(page(StatusCode::METHOD_NOT_ALLOWED, "GET /metrics, /health or /ready\n"));
    }
    if !["/metrics", "/health", "/ready"].contains(&&*path) {
        return Ok(page(StatusCode::NOT_FOUND, "there are /metrics, /health and /ready\n"));
    }
    let place = shared.reads.acquire_owned().await.expect("nobody closes it");
    let exposition = tokio::task::spawn_blocking(move || {
        let exposition = (shared.read)();
        drop(place);
        exposition
    });
    let exposition = exposition.await;
    Ok(match exposition {
        Ok(Ok(_)) if path == "/health" => page(StatusCode::OK, "ok\n"),
        Ok(Ok(exposition)) if path == "/ready" => ready(&exposition),
        Ok(Ok(exposition)) => page(StatusCode::OK, exposition.to_string()),
        Ok(Err(error)) => page(StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}\n")),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    })
}

/// Whether all programs are ready that were found.
fn ready(exposition: &Exposition) -> Response<Full<Bytes>> {
    match exposition.not_ready() {
        (unready, 0) if unready.is_empty() => page(StatusCode::OK, "ok\n"),
        (unready, 0) => page(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", unready.join(", "))),
        (_, silent) => page(StatusCode::SERVICE_UNAVAILABLE, format!("programs without answer: {silent}\n")),
    }
}

fn page(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut page = Response::new(Full::new(text.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, TEXT.parse().expect("a header's value"));
    page
}
