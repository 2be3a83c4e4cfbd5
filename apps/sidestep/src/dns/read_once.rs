//! Reading from a socket that does not block.

use std::io::{self, Read};

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Octets, or a signal: there may be more.
    Some,
    /// Nothing now.
    Nothing,
    /// The end of the stream.
    End,
}

/// Reads once, `size` octets at most, behind what `input` has.
pub(crate) fn read_once(socket: &mut impl Read, input: &mut Vec<u8>, size: usize) -> io::Result<Came> {
    let start = input.len();
    input.resize(start + size, 0);
    let outcome = socket.read(&mut input[start..]);
    input.truncate(start + *outcome.as_ref().unwrap_or(&0));
    match outcome {
        Ok(0) => Ok(Came::End),
        Ok(_) => Ok(Came::Some),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Came::Nothing),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Came::Some),
        Err(error) => Err(error),
    }
}
