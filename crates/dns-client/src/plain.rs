//! UDP and TCP, and what TLS and TCP have in common: messages with their length before them (RFC 1035, 4.2.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;

use crate::{AskError, answer_to};

/// The socket is connected, and its port is the kernel's choice. What is no answer is passed over, as it may be forged.
pub(crate) async fn udp(server: SocketAddr, question: &[u8]) -> Result<Vec<u8>, AskError> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let len = socket.recv(&mut buffer).await?;
        if let Ok(answer) = answer_to(question, buffer[..len].to_vec()) {
            return Ok(answer);
        }
    }
}

/// Sends the question with its length, and reads one message.
pub(crate) async fn over_stream(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    question: &[u8],
) -> Result<Vec<u8>, AskError> {
    stream.write_all(&framed(question)).await?;
    stream.flush().await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(len)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// A message behind its length. Questions are short.
pub(crate) fn framed(question: &[u8]) -> Vec<u8> {
    [&(question.len() as u16).to_be_bytes(), question].concat()
}
