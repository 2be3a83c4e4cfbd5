//! A short run of the soak: `scripts/soak.sh` runs it for longer.

use std::process::Command;
use std::time::Duration;

use lab::{Child, Directory};

use crate::trial::{PATIENCE, Turn};

/// What `make test` can spare.
const SECONDS: &str = "30";

#[test]
fn clients_lose_connections_with_killed_workers_alone_and_memory_descriptors_and_frames_are_what_they_were() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let _turn = Turn::wait();
    let mut soak = Child::spawn("soak", Command::new(env!("CARGO_BIN_EXE_soak")).arg(SECONDS)).unwrap();
    let status = soak.wait(Duration::from_secs(600)).unwrap_or_else(|error| panic!("{error}"));
    assert!(status.success(), "{}", soak.output());
}

#[test]
fn a_time_that_is_no_number_is_refused() {
    let mut soak = Child::spawn("soak", Command::new(env!("CARGO_BIN_EXE_soak")).arg("10m")).unwrap();
    assert_eq!(soak.wait(PATIENCE).unwrap().code(), Some(2));
    assert!(soak.output().contains("usage: soak [SECONDS [SEED]]"), "{}", soak.output());
}

#[test]
fn a_soak_that_cannot_run_has_not_gone_well() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to be somebody else");
    }
    let directory = Directory::new().unwrap();
    // Where it was built, others may not be allowed to look.
    let copy = directory.path().join("soak");
    std::fs::copy(env!("CARGO_BIN_EXE_soak"), &copy).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(copy);
    // It says that it is skipped, but not to those who count.
    let mut soak = Child::spawn("soak", command.env_remove("SIDESTEP_SKIPPED")).unwrap();
    assert_eq!(soak.wait(PATIENCE).unwrap().code(), Some(1), "{}", soak.output());
    assert!(soak.output().contains("nothing was tried"), "{}", soak.output());
}
