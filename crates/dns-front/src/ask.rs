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
#[derive(Debug)]
pub struct Question {
    /// Who asks.
    pub client: SocketAddr,
    /// How.
    pub via: Via,
    /// The message, without a length before it. It may be anything.
    pub octets: Vec<u8>,
    reply: oneshot::Sender<Vec<u8>>,
}

impl Question {
    /// The message, and the way back for its answer.
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Reply) {
        (self.octets, Reply(self.reply))
    }
}

/// The way back to who asked.
#[derive(Debug)]
pub struct Reply(oneshot::Sender<Vec<u8>>);

impl Reply {
    /// Sends the answer; an empty one is none. A client that has gone gets none.
    pub fn answer(self, octets: Vec<u8>) {
        if !octets.is_empty() {
            let _ = self.0.send(octets);
        }
    }
}

/// Asks; `None` if there is no answer.
pub(crate) async fn ask(shared: &Shared, client: SocketAddr, via: Via, octets: Vec<u8>) -> Option<Vec<u8>> {
    let (reply, answer) = oneshot::channel();
    shared.questions.send(Question { client, via, octets, reply }).await.ok()?;
    (shared.wake)();
    answer.await.ok()
}
