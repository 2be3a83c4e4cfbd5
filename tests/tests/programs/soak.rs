//! A short run of the soak: `scripts/soak.sh` runs it for longer.

use std::process::Command;
use std::time::Duration;

use lab::Child;

use crate::trial::Turn;

/// What `make test` can spare.
const SECONDS: &str = "30";

#[test]
fn memory_descriptors_and_frames_are_what_they_were_after_mixed_load_with_loss_and_churn() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = Turn::wait();
    let mut soak = Child::spawn("soak", Command::new(env!("CARGO_BIN_EXE_soak")).arg(SECONDS)).unwrap();
    let status = soak.wait(Duration::from_secs(600)).unwrap_or_else(|error| panic!("{error}"));
    assert!(status.success(), "{}", soak.output());
}
