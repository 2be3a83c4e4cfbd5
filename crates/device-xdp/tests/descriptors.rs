//! A process without free descriptors. Alone in its binary, as the limit is the process's. Needs root and AF_XDP; skipped otherwise.

#[allow(dead_code)]
mod support;

use device_xdp::{SharedQueue, SteeringOptions, SteeringProgram, XdpOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use support::lab;

/// Runs `body` while descriptors must have numbers below `limit`.
fn with_descriptors_below<T>(limit: u64, body: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    let result = body();
    setrlimit(Resource::Nofile, before).unwrap();
    result
}

#[test]
fn who_could_not_be_lent_a_place_for_want_of_descriptors_does_not_share_the_queue() {
    let Some(lab) = lab(1) else { return };
    lab.enter_server();
    let mut program = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let mut queue = SharedQueue::create(&program, 0, 2, &XdpOptions::default()).unwrap();
    let mut refused = 0;
    for limit in 3..1000 {
        match with_descriptors_below(limit, || queue.lend(&mut program, 0)) {
            Ok(_) => break,
            Err(_) => refused += 1,
        }
        assert!(!program.is_shared(0) && queue.is_unused(), "{limit}");
    }
    assert!(refused > 0 && queue.has(0) && program.is_shared(0));
    queue.withdraw(&mut program, 0).unwrap();
    assert!(!program.is_shared(0) && queue.is_unused());
}
