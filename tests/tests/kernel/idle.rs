//! Idle costs nothing.

use std::thread;
use std::time::Duration;

use lab::Zone;
use tests::Serving;

#[test]
fn without_queries_the_server_uses_no_processor_time() {
    const WATCHED: Duration = Duration::from_secs(3);
    let server = Serving::start(&Zone::sample().file, &[]);
    thread::sleep(Duration::from_millis(200)); // Loading is work.
    let before = server.process.cpu_time().unwrap();
    thread::sleep(WATCHED);
    let used = server.process.cpu_time().unwrap() - before;
    assert!(used < WATCHED / 50, "{used:?} of {WATCHED:?}");
}
