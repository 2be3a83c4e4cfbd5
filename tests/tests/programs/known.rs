//! What is known not to work under `sidestep run`, and why. An entry that no longer fails fails its test: then it has to go.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use lab::programs::Network;

/// What is known of a test under `sidestep run`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "not both kinds are there at all times")]
enum Fails {
    Always,
    /// Not every time: the test may pass.
    Sometimes,
}

/// Tests by name, and why they fail.
const KNOWN: [(&str, Fails, &str); 1] = [(
    "iperf3 server",
    Fails::Sometimes,
    "some datagrams of a UDP stream, which the kernel carries, are lost while the machine is busy with other work",
)];

/// Runs the test `name`; one that is known to fail under `sidestep run` has to fail there.
pub(crate) fn check(name: &str, test: impl FnOnce()) {
    let entry = KNOWN.iter().find(|(known, ..)| *known == name);
    let entry = entry.filter(|_| Network::wanted() != Network::Kernel && lab::require_root_and_xdp());
    let Some((_, fails, reason)) = entry else { return test() };
    match catch_unwind(AssertUnwindSafe(test)) {
        Err(_) => println!("{name}: fails, as is known: {reason}"),
        Ok(()) if *fails == Fails::Sometimes => {}
        Ok(()) => resume_unwind(Box::new(format!("{name} does not fail any more: take it from the list"))),
    }
}
