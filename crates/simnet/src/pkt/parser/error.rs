//! What is wrong with a script.

use crate::pkt::ast::Position;

/// Why a script could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct ParseError {
    /// The place.
    pub at: Position,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong at a place of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is not of the language.
    #[error("{0}")]
    Syntax(String),
    /// The text is of the language, but this player cannot do it.
    #[error("{0} is not supported")]
    Unsupported(String),
}

impl ParseError {
    pub(super) fn syntax(at: Position, message: impl Into<String>) -> ParseError {
        ParseError { at, problem: Problem::Syntax(message.into()) }
    }

    pub(super) fn unsupported(at: Position, what: impl Into<String>) -> ParseError {
        ParseError { at, problem: Problem::Unsupported(what.into()) }
    }
}

/// What reading a part of a script gives.
pub(super) type Result<T> = std::result::Result<T, ParseError>;
