//! DNS over QUIC: one stream for one question (RFC 9250, 4.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, VarInt};

use tokio::time::timeout;

use crate::{AskError, Server, certified_name, plain};

/// DOQ_NO_ERROR (RFC 9250, 4.3).
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// For the last packet to leave.
const FAREWELL: Duration = Duration::from_millis(1);

/// Sends `question`, whose ID is 0, and returns the answer.
pub(crate) async fn ask(
    server: &Server,
    config: rustls::ClientConfig,
    question: &[u8],
) -> Result<Vec<u8>, AskError> {
    let any: SocketAddr = match server.address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = Endpoint::client(any)?;
    let config = QuicClientConfig::try_from(config).map_err(|error| wrong(&error))?;
    let config = ClientConfig::new(Arc::new(config));
    let name = certified_name(server)?.to_str().into_owned();
    let connecting = endpoint.connect_with(config, server.address, &name).map_err(|error| wrong(&error))?;
    let connection = connecting.await.map_err(|error| wrong(&error))?;
    let (mut send, mut receive) = connection.open_bi().await.map_err(|error| wrong(&error))?;
    send.write_all(&plain::framed(question)).await.map_err(|error| wrong(&error))?;
    send.finish().map_err(|error| wrong(&error))?;
    let octets = receive.read_to_end(2 + usize::from(u16::MAX)).await.map_err(|error| wrong(&error))?;
    connection.close(NO_ERROR, b"");
    // The answer is here: the server hears that we go, or misses us after a while.
    let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
    let (len, answer) = octets.split_first_chunk::<2>().ok_or(AskError::NoAnswer)?;
    if usize::from(u16::from_be_bytes(*len)) == answer.len() {
        Ok(answer.to_vec())
    } else {
        Err(AskError::NoAnswer)
    }
}

/// Peers give reasons in words of their own, before they have shown a certificate: none of them is a command to the terminal.
fn wrong(error: &dyn std::error::Error) -> AskError {
    AskError::Quic(error.to_string().escape_debug().to_string())
}
