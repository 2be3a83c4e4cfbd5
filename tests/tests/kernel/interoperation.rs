//! Zones that change, between Sidestep, NSD, Knot and BIND, both ways.

use std::process::Command;

use lab::sidestep_binary;

/// What `scripts/transfers.sh` does for an hour with a million records, for some seconds with few.
#[test]
fn servers_of_four_makes_follow_each_other_with_consistent_versions_and_are_equal_at_the_end() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transfers"));
    command.args(["12", "5000", "17"]).env("SIDESTEP_BIN", sidestep_binary());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("transfers: ok"), "{text}");
}
