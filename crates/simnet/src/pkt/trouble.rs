//! Why a script does not go on.

/// Why an event did not go as the script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The stack did something else; each line says what.
    Differs(Vec<String>),
    /// The player cannot do what the script says.
    Unsupported(String),
}

impl Trouble {
    pub(crate) fn differs(line: impl Into<String>) -> Trouble {
        Trouble::Differs(vec![line.into()])
    }

    /// `what` is what is not supported.
    pub(crate) fn unsupported(what: impl Into<String>) -> Trouble {
        Trouble::Unsupported(what.into())
    }
}
