//! What an answer says about its error (RFC 8914).

use dns_wire::Edns;

use crate::catalog::Unavailable;
use crate::online::Unsigned;

/// Why an answer has the code that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedError {
    /// The zone has no data.
    Unavailable(Unavailable),
    /// The answer has a record that cannot be signed.
    Unsigned(Unsigned),
    /// The type is none to ask for.
    InvalidQueryType,
}

/// Octets in front of the text: code and length of the option, INFO-CODE.
const FIXED_LEN: usize = 6;

impl ExtendedError {
    /// INFO-CODE and EXTRA-TEXT (IANA's registry of them).
    pub const fn info(self) -> (u16, &'static str) {
        match self {
            ExtendedError::Unavailable(reason) => (reason.info_code(), ""),
            ExtendedError::Unsigned(Unsigned::OverBudget) => {
                (0, "too many names that do not exist at a time")
            }
            ExtendedError::Unsigned(Unsigned::NoKeys) => (0, "no key to deny the name with"),
            ExtendedError::InvalidQueryType => (30, ""),
        }
    }

    /// Octets of the option.
    pub(crate) const fn len(self) -> usize {
        FIXED_LEN + self.info().1.len()
    }

    /// Fills `option`, which has as many octets.
    pub(crate) fn write(self, option: &mut [u8]) {
        let ((code, text), len) = (self.info(), option.len() - 4);
        option[..2].copy_from_slice(&Edns::EXTENDED_ERROR.to_be_bytes());
        option[2..4].copy_from_slice(&(len as u16).to_be_bytes()); // Texts are short.
        option[4..FIXED_LEN].copy_from_slice(&code.to_be_bytes());
        option[FIXED_LEN..].copy_from_slice(text.as_bytes());
    }
}
