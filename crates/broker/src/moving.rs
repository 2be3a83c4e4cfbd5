//! A connection on its way from a stack to the kernel: what it is in the message, its octets in a file beside it.

use std::os::fd::OwnedFd;

use crate::client::ClientError;
use crate::protocol::{Established, Moving};

/// The message, and the file if there are octets.
pub(crate) fn pack(connection: &Established) -> Result<(Moving, Option<OwnedFd>), ClientError> {
    let moving = Moving { connection: connection.clone(), received_len: 0, unacked_len: 0, unsent_len: 0 };
    Ok((moving, None))
}
