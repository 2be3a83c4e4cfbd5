//! DNS over TLS: messages with their lengths, answers in any order (RFC 7858, 3.3; RFC 7766, 6.2.1.1), and transfers between them (RFC 9103).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ask::{Answer, Asker, Messages, ask, framed};
use crate::{QUESTION_MAX, Shared};

/// Octets read at a time.
const READ_SIZE: usize = 4 << 10;

/// Serves one client until it leaves, is idle, does not read its answers, or sends what is no message.
pub(crate) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, asker: Asker, shared: &Arc<Shared>) {
    let mut connection = Connection {
        stream,
        input: Vec::new(),
        pending: JoinSet::new(),
        transfers: VecDeque::new(),
        idle_at: Instant::now() + shared.idle,
        shared,
    };
    // An error means that the client has gone, or is to go.
    let _ = connection.serve(asker).await;
}

struct Connection<'s, S> {
    stream: S,
    input: Vec<u8>,
    /// Questions that wait for their answers.
    pending: JoinSet<Option<Answer>>,
    /// Answers of several messages, which take turns.
    transfers: VecDeque<Messages>,
    idle_at: Instant,
    shared: &'s Arc<Shared>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn serve(&mut self, asker: Asker) -> io::Result<()> {
        let mut has_ended = false;
        loop {
            self.take_questions(asker)?;
            if has_ended && self.is_quiet() {
                return self.stream.shutdown().await;
            }
            let has_room = self.has_room() && !has_ended;
            tokio::select! {
                Some(done) = self.pending.join_next() => match done {
                    Ok(Some(Answer::One(answer))) => self.send(&answer).await?,
                    Ok(Some(Answer::Many(messages))) => self.transfers.push_back(messages),
                    _ => {}
                },
                () = std::future::ready(()), if !self.transfers.is_empty() => self.go_on_with_transfer().await?,
                read = read_some(&mut self.stream, &mut self.input), if has_room => has_ended = read? == 0,
                () = sleep_until(self.idle_at), if self.is_quiet() => {
                    self.shared.admission.on_idle_closed();
                    return Ok(());
                }
            }
        }
    }

    /// Passes on the whole messages that have come.
    fn take_questions(&mut self, asker: Asker) -> io::Result<()> {
        while self.has_room() {
            let Some(octets) = take_message(&mut self.input)? else { break };
            self.idle_at = Instant::now() + self.shared.idle;
            let shared = Arc::clone(self.shared);
            self.pending.spawn(async move { ask(&shared, asker, octets).await });
        }
        Ok(())
    }

    /// A client with many questions under way is not read from.
    fn has_room(&self) -> bool {
        self.pending.len() + self.transfers.len() < self.shared.streams_max as usize
    }

    fn is_quiet(&self) -> bool {
        self.pending.is_empty() && self.transfers.is_empty()
    }

    /// Sends one message of the transfer whose turn it is.
    async fn go_on_with_transfer(&mut self) -> io::Result<()> {
        let Some(mut messages) = self.transfers.pop_front() else { return Ok(()) };
        if let Some(message) = messages.next() {
            let message = message.map_err(|_| io::ErrorKind::InvalidData)?;
            self.send(&message).await?;
            self.transfers.push_back(messages);
            tokio::task::yield_now().await; // A client that reads fast must not keep the others waiting.
        }
        Ok(())
    }

    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(framed) = framed(message) else { return Ok(()) };
        let send = async {
            self.stream.write_all(&framed).await?;
            self.stream.flush().await
        };
        timeout(self.shared.idle, send).await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.idle_at = Instant::now() + self.shared.idle;
        Ok(())
    }
}

async fn read_some(stream: &mut (impl AsyncRead + Unpin), input: &mut Vec<u8>) -> io::Result<usize> {
    input.reserve(READ_SIZE);
    let mut limited = stream.take(READ_SIZE as u64);
    limited.read_buf(input).await // Nothing is lost if this is given up.
}

/// An empty message is not DNS, and one longer than a question is none.
#[derive(Debug, PartialEq, Eq)]
struct Malformed;

impl From<Malformed> for io::Error {
    fn from(_: Malformed) -> io::Error {
        io::ErrorKind::InvalidData.into()
    }
}

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
