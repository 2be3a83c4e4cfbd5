//! UDP and TCP, and what TLS and TCP have in common: messages with their length before them (RFC 1035, 4.2.2).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::{AskError, answer_to};

/// The socket is connected, and its port is the kernel's choice. What is no answer is passed over, as it may be forged.
pub(crate) async fn udp(
    server: SocketAddr,
    source: Option<IpAddr>,
    question: &[u8],
) -> Result<Vec<u8>, AskError> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((source.unwrap_or(any), 0)).await?;
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

/// Connects from `source`, or from where the system chooses.
pub(crate) async fn connect(server: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(source) = source {
        socket.bind((source, 0).into())?;
    }
    socket.connect(server).await
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
