//! DNS over TLS: messages with their lengths, answers in any order (RFC 7858, 3.3; RFC 7766, 6.2.1.1).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ask::{Via, ask};
use crate::{QUESTION_MAX, Shared};

/// Octets read at a time.
const READ_SIZE: usize = 4 << 10;

/// Serves one client until it leaves, is idle, does not read its answers, or sends what is no message.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    client: SocketAddr,
    shared: &Arc<Shared>,
) {
    let mut input = Vec::new();
    let mut pending: JoinSet<Option<Vec<u8>>> = JoinSet::new();
    let mut has_ended = false;
    let mut idle_at = Instant::now() + shared.idle;
    loop {
        while pending.len() < shared.streams_max as usize {
            match take_message(&mut input) {
                Ok(Some(octets)) => {
                    idle_at = Instant::now() + shared.idle;
                    let shared = Arc::clone(shared);
                    pending.spawn(async move { ask(&shared, client, Via::Tls, octets).await });
                }
                Ok(None) => break,
                Err(Malformed) => return,
            }
        }
        if has_ended && pending.is_empty() {
            let _ = stream.shutdown().await;
            return;
        }
        // A client with many questions under way is not read from.
        let has_room = pending.len() < shared.streams_max as usize && !has_ended;
        tokio::select! {
            Some(done) = pending.join_next() => {
                let Ok(Some(answer)) = done else { continue };
                if !matches!(timeout(shared.idle, send(&mut stream, &answer)).await, Ok(Ok(()))) {
                    return;
                }
                idle_at = Instant::now() + shared.idle;
            }
            read = read_some(&mut stream, &mut input), if has_room => match read {
                Ok(0) => has_ended = true,
                Ok(_) => {}
                Err(_) => return,
            },
            () = sleep_until(idle_at), if pending.is_empty() => {
                shared.admission.on_idle_closed();
                return;
            }
        }
    }
}

async fn read_some(stream: &mut (impl AsyncRead + Unpin), input: &mut Vec<u8>) -> std::io::Result<usize> {
    input.reserve(READ_SIZE);
    let mut limited = stream.take(READ_SIZE as u64);
    limited.read_buf(input).await // Nothing is lost if this is given up.
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), answer: &[u8]) -> std::io::Result<()> {
    let Ok(len) = u16::try_from(answer.len()) else { return Ok(()) };
    stream.write_all(&[&len.to_be_bytes()[..], answer].concat()).await?;
    stream.flush().await
}

/// An empty message is not DNS, and one longer than a question is none.
#[derive(Debug, PartialEq, Eq)]
struct Malformed;

/// Takes a whole message off the front of what has come.
fn take_message(input: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Malformed> {
    let Some((prefix, rest)) = input.split_first_chunk::<2>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes(*prefix));
    if len == 0 || len > QUESTION_MAX {
        return Err(Malformed);
    }
    let Some(message) = rest.get(..len).map(<[u8]>::to_vec) else { return Ok(None) };
    input.drain(..2 + len);
    if input.is_empty() {
        *input = Vec::new(); // An idle connection keeps no buffer.
    }
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_any_pieces() {
        let mut input = b"\0\x03one\0\x03tw".to_vec();
        assert_eq!(take_message(&mut input), Ok(Some(b"one".to_vec())));
        assert_eq!(take_message(&mut input), Ok(None));
        input.push(b'o');
        assert_eq!(take_message(&mut input), Ok(Some(b"two".to_vec())));
        assert_eq!((take_message(&mut input), input.capacity()), (Ok(None), 0));
        for malformed in [b"\0\0", b"\x10\x01"] {
            assert_eq!(take_message(&mut malformed.to_vec()), Err(Malformed));
        }
    }
}
