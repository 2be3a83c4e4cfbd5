//! What comes of a request.

use super::helpers::Passed;
use crate::protocol::{Answer, Refusal};

/// An answer at once, with at most one descriptor; `Ok(None)`: it comes later.
pub(super) type Outcome = Result<Option<(Answer, Option<Passed>)>, Refusal>;

/// There is no more to say than that it is done, or why not.
pub(super) fn done(outcome: Result<(), Refusal>) -> Outcome {
    outcome.map(|()| Some((Answer::Done, None)))
}
