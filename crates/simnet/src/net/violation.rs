//! What must not happen.

use clock::Duration;

/// A rule that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

/// Returns [`Broken`] with a formatted text unless a condition holds.
macro_rules! require {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::net::Broken(format!($($text)+)));
        }
    };
}
pub(crate) use require;

/// A broken rule, when it was broken, and what the hosts looked like then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Time since the simulation's start.
    pub at: Duration,
    /// What happened.
    pub text: String,
    /// The hosts at that time.
    pub hosts: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {:?}: {}\n{}", self.at, self.text, self.hosts)
    }
}

impl std::error::Error for Violation {}
