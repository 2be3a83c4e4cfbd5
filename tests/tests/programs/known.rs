//! What is known not to work under `sidestep run`, and why. An entry that no longer fails fails its test: then it has to go.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lab::programs::Network;

/// What is known of a test under `sidestep run`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "not both kinds are there at all times")]
enum Fails {
    Always,
    /// Not every time: the test may pass.
    Sometimes,
}

/// How often a test is tried that may fail: what is broken fails every time.
const TRIES: u32 = 3;

/// Tests by name, and why they fail.
const KNOWN: [(&str, Fails, &str); 1] = [(
    "iperf3 server",
    Fails::Sometimes,
    "some datagrams of a UDP stream, which the kernel carries, are lost while the machine is busy with other work",
)];

/// Runs the test `name`; one that is known to fail under `sidestep run` has to fail there.
pub(crate) fn check(name: &str, test: impl Fn()) {
    let entry = KNOWN.iter().find(|(known, ..)| *known == name);
    let entry = entry.filter(|_| Network::wanted() != Network::Kernel && lab::require_root_and_xdp());
    let Some((_, fails, reason)) = entry else { return test() };
    let fails_now = || {
        let failed = catch_unwind(AssertUnwindSafe(&test)).is_err();
        if failed {
            println!("{name}: fails, as is known: {reason}");
        }
        failed
    };
    match fails {
        Fails::Always => assert!(fails_now(), "{name} does not fail any more: take it from the list"),
        Fails::Sometimes => assert!((0..TRIES).any(|_| !fails_now()), "{name} fails every time"),
    }
}
