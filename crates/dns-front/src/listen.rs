//! The sockets, and a task for each connection.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, TokioRuntime, TransportConfig, VarInt};
use rustls::{ProtocolVersion, ServerConnection};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::ask::Asker;
use crate::certificate::Certificate;
use crate::{FrontError, Options, Shared, Via, doh, doq, dot};

/// How long a client may take to shake hands.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long nothing is accepted where the system has no room for a connection.
const PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 1024;
/// The ALPN token of DNS over TLS (RFC 7858, 3.1).
const DOT: &[u8] = b"dot";

pub(crate) struct Sockets {
    streams: Vec<(Via, TcpListener, TlsAcceptor)>,
    endpoints: Vec<Endpoint>,
}

impl Sockets {
    /// Opens them all; to be called inside the runtime.
    pub(crate) fn open(options: &Options, certificate: &Arc<Certificate>) -> Result<Sockets, FrontError> {
        let mut streams = Vec::new();
        for (via, alpn, addresses) in [(Via::Tls, DOT, &options.dot), (Via::Https, b"h2", &options.doh)] {
            let acceptor = TlsAcceptor::from(Arc::new(certificate.config(alpn)));
            for &address in addresses {
                let named = |source| FrontError::Listen { address, source };
                streams.push((via, listen(address).map_err(named)?, acceptor.clone()));
            }
        }
        let quic = |&address| {
            endpoint(address, options, certificate).map_err(|source| FrontError::Listen { address, source })
        };
        let endpoints = options.doq.iter().map(quic).collect::<Result<_, _>>()?;
        Ok(Sockets { streams, endpoints })
    }

    pub(crate) fn addresses(&self) -> Vec<(Via, SocketAddr)> {
        let streams =
            self.streams.iter().filter_map(|(via, socket, _)| Some((*via, socket.local_addr().ok()?)));
        let endpoints =
            self.endpoints.iter().filter_map(|socket| Some((Via::Quic, socket.local_addr().ok()?)));
        streams.chain(endpoints).collect()
    }

    /// Serves until told to stop; then every connection ends.
    pub(crate) async fn serve(self, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        for (via, listener, acceptor) in self.streams {
            tasks.spawn(accept_streams(via, listener, acceptor, Arc::clone(&shared)));
        }
        for endpoint in self.endpoints {
            tasks.spawn(accept_quic(endpoint, Arc::clone(&shared)));
        }
        let _ = stopped.changed().await; // An error means that nobody can tell it to go on, either.
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // A restart must not wait for TIME_WAIT.
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn endpoint(address: SocketAddr, options: &Options, certificate: &Arc<Certificate>) -> io::Result<Endpoint> {
    let tls = QuicServerConfig::try_from(certificate.config(b"doq")).map_err(io::Error::other)?;
    let mut transport = TransportConfig::default();
    let idle: Duration = options.limits.idle_timeout.into();
    transport.max_idle_timeout(Some(IdleTimeout::try_from(idle).map_err(io::Error::other)?));
    transport.max_concurrent_bidi_streams(VarInt::from_u32(options.streams_max.max(1)));
    transport.max_concurrent_uni_streams(VarInt::from_u32(0)); // RFC 9250, 4.2: questions have two directions.
    // Nobody reads datagrams (RFC 9221), so there is no room for them.
    transport.datagram_receive_buffer_size(None);
    // A question fits its stream's window, and a connection has room for some of them.
    transport.stream_receive_window(VarInt::from_u32(1 << 17)).receive_window(VarInt::from_u32(1 << 18));
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Endpoint::new(EndpointConfig::default(), Some(config), UdpSocket::from(socket), Arc::new(TokioRuntime))
}

async fn accept_streams(via: Via, listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, client)) = listener.accept().await else {
            sleep(PAUSE).await; // For want of descriptors, or of memory.
            continue;
        };
        // Beyond a limit a connection is closed at once.
        let Some(permit) = shared.admission.admit(client.ip()) else { continue };
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let _permit = permit;
            serve_stream(via, socket, client, acceptor, &shared).await;
        });
    }
}

async fn serve_stream(
    via: Via,
    socket: TcpStream,
    client: SocketAddr,
    acceptor: TlsAcceptor,
    shared: &Arc<Shared>,
) {
    let _ = socket.set_nodelay(true); // Without it answers come later, but they come.
    let Ok(Ok(stream)) = timeout(HANDSHAKE_MAX, acceptor.accept(socket)).await else { return };
    let takes_transfers = via == Via::Tls && is_fit_for_transfers(stream.get_ref().1);
    let asker = Asker { client, via, takes_transfers };
    match via {
        Via::Https => doh::serve(stream, asker, shared).await,
        Via::Tls | Via::Quic => dot::serve(stream, asker, shared).await,
    }
}

/// RFC 9103, 7.1 and 7.2: a zone goes by TLS 1.3, to a client that has asked for DNS.
fn is_fit_for_transfers(connection: &ServerConnection) -> bool {
    connection.protocol_version() == Some(ProtocolVersion::TLSv1_3) && connection.alpn_protocol() == Some(DOT)
}

async fn accept_quic(endpoint: Endpoint, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Some(incoming) = endpoint.accept().await {
        while connections.try_join_next().is_some() {}
        // A client that has not shown that its address is its own costs nothing until it has (RFC 9000, 8.1).
        if !incoming.remote_address_validated() {
            let _ = incoming.retry();
            continue;
        }
        let Some(permit) = shared.admission.admit(incoming.remote_address().ip()) else {
            incoming.refuse();
            continue;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _permit = permit;
            if let Ok(Ok(connection)) = timeout(HANDSHAKE_MAX, incoming.into_future()).await {
                doq::serve(connection, &shared).await;
            }
        });
    }
}
