//! Why a request was not answered, or not as wished.

use rustix::io::Errno;

use crate::protocol::{ProtocolError, Refusal};

/// Why a request was not answered, or not as wished.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker does not do it: the kernel serves what it is about, and the text says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The broker is gone.
    #[error("the broker has ended")]
    Gone,
    /// The broker does not answer now: the kernel serves what was to be asked.
    #[error("the broker does not answer")]
    TimedOut,
    /// What listens there is no broker of this user's or root's.
    #[error("the broker's socket belongs to another user")]
    Impostor,
    /// What came is no message.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A message came that does not belong there.
    #[error("an answer to another request")]
    OutOfPlace,
    /// What is to be sent could not be made, for want of a descriptor or of memory: nothing was asked.
    #[error("no request could be made: {0}")]
    Unmade(Errno),
    /// A system call failed.
    #[error("the broker's socket: {0}")]
    System(#[from] Errno),
}

impl ClientError {
    /// Whether the connection to the broker is lost: after every error but a refusal, a request that was never sent, and the
    /// want of an answer.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, ClientError::Refused(_) | ClientError::Unmade(_) | ClientError::TimedOut)
    }
}
