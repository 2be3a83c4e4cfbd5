//! Whether answers arrive as the authority sent them, validation, guessable queries, sizes and transports.

mod answers;
mod queries;
mod transports;
mod validation;

use crate::checks::Finding;
use crate::plan::Planner;
use crate::transcript::Transcript;

pub(super) fn plan(planner: &mut Planner<'_>) {
    answers::plan(planner);
    validation::plan(planner);
    queries::plan(planner);
    transports::plan(planner);
}

pub(super) fn judge(transcript: &Transcript<'_>) -> Vec<Finding> {
    let parts = [answers::judge, validation::judge, queries::judge, transports::judge];
    parts.iter().flat_map(|judge| judge(transcript)).collect()
}
