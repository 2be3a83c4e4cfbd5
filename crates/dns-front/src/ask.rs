//! From a message to its answer.

use std::net::SocketAddr;

use tokio::sync::oneshot;

use crate::Shared;

/// The protocol of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS.
    Https,
    /// DNS over QUIC.
    Quic,
}

/// A question that waits for its answer.
pub struct Question {
    /// Who asks.
    pub client: SocketAddr,
    /// How.
    pub via: Via,
    /// Whether the answer may have several messages, so that a zone can be transferred: over QUIC, and over TLS 1.3 with the ALPN token of DNS
    /// (RFC 9103, 7.1 and 7.2; RFC 9250, 4.2).
    pub takes_transfers: bool,
    /// The message, without a length before it. It may be anything.
    pub octets: Vec<u8>,
    reply: oneshot::Sender<Answer>,
}

/// Who asks, and how: the same for all questions of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) client: SocketAddr,
    pub(crate) via: Via,
    pub(crate) takes_transfers: bool,
}

/// An answer that cannot be finished: its connection, or its stream of QUIC, is cut, so that the client does not take what came for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished;

/// The messages of one answer, in their order. The front asks for the next one when the client can take it, on its own thread: that must not
/// wait.
pub type Messages = Box<dyn Iterator<Item = Result<Vec<u8>, Unfinished>> + Send>;

/// What goes back.
pub(crate) enum Answer {
    One(Vec<u8>),
    Many(Messages),
}

impl Question {
    /// The message, and the way back for its answer.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Reply) {
        (self.octets, Reply(self.reply))
    }
}

/// The way back to who asked.
pub struct Reply(oneshot::Sender<Answer>);

impl Reply {
    /// Sends the answer; an empty one is none. A client that has gone gets none.
    pub fn answer(self, octets: Vec<u8>) {
        if !octets.is_empty() {
            let _ = self.0.send(Answer::One(octets));
        }
    }

    /// Sends several messages, to a question that takes transfers.
    pub fn answer_many(self, messages: Messages) {
        let _ = self.0.send(Answer::Many(messages)); // A client that has gone gets none.
    }
}

/// Asks; `None` if there is no answer.
pub(crate) async fn ask(shared: &Shared, asker: Asker, octets: Vec<u8>) -> Option<Answer> {
    let (reply, answer) = oneshot::channel();
    let Asker { client, via, takes_transfers } = asker;
    shared.questions.send(Question { client, via, takes_transfers, octets, reply }).await.ok()?;
    (shared.wake)();
    answer.await.ok()
}

/// A message with its length before it (RFC 1035, 4.2.2); `None` for one that is too long to have one.
pub(crate) fn framed(message: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(message.len()).ok()?;
    Some([&len.to_be_bytes()[..], message].concat())
}
