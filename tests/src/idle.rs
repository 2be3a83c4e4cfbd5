//! Idle costs nothing.

use std::thread;
use std::time::Duration;

use lab::Child;

/// Checks that a process, to which nobody says anything, soon uses less than such a part of the time.
///
/// # Panics
/// If it does not.
pub fn assert_comes_to_rest(process: &Child, part: u32) {
    const WATCHED: Duration = Duration::from_secs(3);
    // Who has begun a moment ago, on a machine that does other work too, may not be done with that.
    const TIMES: usize = 5;
    let used: Vec<Duration> = (0..TIMES)
        .map(|_| {
            let before = process.cpu_time().unwrap();
            thread::sleep(WATCHED);
            process.cpu_time().unwrap() - before
        })
        .take_while(|used| *used >= WATCHED / part)
        .collect();
    assert!(used.len() < TIMES, "{used:?}, each of {WATCHED:?}");
}
