//! DNS over QUIC: a stream for each question (RFC 9250, 4.2), with all messages of its answer.

use std::net::SocketAddr;
use std::sync::Arc;

use dns_server::asks_for_keepalive;
use quinn::{Connection, ReadToEndError, RecvStream, SendStream, VarInt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ask::{Answer, Asker, Messages, Via, ask, framed};
use crate::{QUESTION_MAX, Shared};

/// Error codes (RFC 9250, 4.3).
const NO_ERROR: VarInt = VarInt::from_u32(0);
const INTERNAL_ERROR: VarInt = VarInt::from_u32(1);
const PROTOCOL_ERROR: VarInt = VarInt::from_u32(2);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(3);
const UNSPECIFIED_ERROR: VarInt = VarInt::from_u32(5);
/// A question with its length.
const STREAM_MAX: usize = 2 + QUESTION_MAX;

/// Serves one client until it leaves, is idle, or breaks the protocol.
pub(crate) async fn serve(connection: Connection, shared: &Arc<Shared>) {
    let mut questions = JoinSet::new();
    // The handshake has shown that the client is there. A later packet may have any source, and moves the connection before that is checked (RFC 9000, 9.3).
    let client = connection.remote_address();
    while let Ok((send, receive)) = connection.accept_bi().await {
        while questions.try_join_next().is_some() {}
        questions.spawn(answer((connection.clone(), client), (send, receive), Arc::clone(shared)));
    }
    connection.close(NO_ERROR, b"");
}

async fn answer(
    (connection, client): (Connection, SocketAddr),
    (mut send, mut receive): (SendStream, RecvStream),
    shared: Arc<Shared>,
) {
    let octets = match timeout(shared.idle, receive.read_to_end(STREAM_MAX)).await {
        Ok(Ok(octets)) => octets,
        Ok(Err(ReadToEndError::TooLong)) => {
            return connection.close(PROTOCOL_ERROR, b"more than one message");
        }
        // The client has cancelled this question; others go on (RFC 9250, 4.3.1).
        Ok(Err(ReadToEndError::Read(_))) => return abandon(send, receive, REQUEST_CANCELLED),
        // Who never ends a question has no place for ever.
        Err(_) => return abandon(send, receive, UNSPECIFIED_ERROR),
    };
    let Some(message) = message_in(&octets) else {
        return connection.close(PROTOCOL_ERROR, b"not one message with ID 0");
    };
    if asks_for_keepalive(message) {
        return connection.close(PROTOCOL_ERROR, b"edns-tcp-keepalive is for TCP");
    }
    let asker = Asker { client, via: Via::Quic, takes_transfers: true };
    let is_sent = match ask(&shared, asker, message.to_vec()).await {
        Some(Answer::One(answer)) => send_message(&mut send, &answer, &shared).await.is_some(),
        Some(Answer::Many(messages)) => send_all(&mut send, messages, &shared).await.is_some(),
        None => false,
    };
    // A stream that is closed already cannot be finished or reset, and need not be.
    if is_sent {
        let _ = send.finish();
    } else {
        let _ = send.reset(INTERNAL_ERROR);
    }
}

/// Ends one stream, both ways. One that is closed already cannot be ended, and need not be.
fn abandon(mut send: SendStream, mut receive: RecvStream, why: VarInt) {
    let _ = receive.stop(why);
    let _ = send.reset(why);
}

/// `None` if not all of them can be sent.
async fn send_all(send: &mut SendStream, messages: Messages, shared: &Shared) -> Option<()> {
    for message in messages {
        send_message(send, &message.ok()?, shared).await?;
        tokio::task::yield_now().await; // A client that reads fast must not keep the others waiting.
    }
    Some(())
}

/// `None` if the client does not take it.
async fn send_message(send: &mut SendStream, message: &[u8], shared: &Shared) -> Option<()> {
    timeout(shared.idle, send.write_all(&framed(message)?)).await.ok()?.ok()
}

/// The one message that a stream has. Its ID is 0 (RFC 9250, 4.2.1), since the stream names it.
fn message_in(octets: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = octets.split_first_chunk::<2>()?;
    let is_whole = usize::from(u16::from_be_bytes(*prefix)) == message.len();
    (is_whole && message.starts_with(&[0, 0])).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_message_without_an_id() {
        assert_eq!(message_in(b"\0\x03\0\0x"), Some(&b"\0\0x"[..]));
        for wrong in [&b""[..], b"\0", b"\0\0", b"\0\x03\0\0", b"\0\x02\0\0x", b"\0\x02\0\x01"] {
            assert_eq!(message_in(wrong), None, "{wrong:?}");
        }
    }
}
