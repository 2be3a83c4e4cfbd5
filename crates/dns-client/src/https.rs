//! DNS over HTTPS: one POST (RFC 8484, 4.1).

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{AskError, Server};

/// RFC 8484, 6.
const MEDIA_TYPE: &str = "application/dns-message";

/// Sends `question` and returns the body of the response.
pub(crate) async fn post(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    server: &Server,
    question: Vec<u8>,
) -> Result<Vec<u8>, AskError> {
    let wrong = |error: h2::Error| AskError::Http(error.to_string());
    let (requests, connection) = h2::client::handshake(stream).await.map_err(wrong)?;
    tokio::spawn(connection); // It ends with the client.
    let mut requests = requests.ready().await.map_err(wrong)?;
    let authority = server.name.clone().unwrap_or_else(|| match server.address {
        std::net::SocketAddr::V4(address) => address.ip().to_string(),
        std::net::SocketAddr::V6(address) => format!("[{}]", address.ip()),
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("https://{authority}:{}{}", server.address.port(), server.path))
        .header(CONTENT_TYPE, MEDIA_TYPE)
        .header(ACCEPT, MEDIA_TYPE)
        .body(())
        .map_err(|error| AskError::Http(error.to_string()))?;
    let (response, mut body) = requests.send_request(request, false).map_err(wrong)?;
    body.send_data(Bytes::from(question), true).map_err(wrong)?;
    let response = response.await.map_err(wrong)?;
    if !response.status().is_success() {
        return Err(AskError::Http(format!("status {}", response.status())));
    }
    read(response.into_body()).await
}

async fn read(mut body: h2::RecvStream) -> Result<Vec<u8>, AskError> {
    let wrong = |error: h2::Error| AskError::Http(error.to_string());
    let mut answer = Vec::new();
    while let Some(octets) = body.data().await {
        let octets = octets.map_err(wrong)?;
        body.flow_control().release_capacity(octets.len()).map_err(wrong)?;
        answer.extend_from_slice(&octets);
        if answer.len() > usize::from(u16::MAX) {
            return Err(AskError::Http("the answer is longer than a message can be".to_owned()));
        }
    }
    Ok(answer)
}
