//! Idle costs nothing.

use std::thread;
use std::time::Duration;

use lab::Zone;

use crate::Setting;

#[test]
fn without_queries_the_server_uses_no_processor_time() {
    const WATCHED: Duration = Duration::from_secs(3);
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    thread::sleep(Duration::from_millis(500)); // Loading is work.
    let before = setting.server.process.cpu_time().unwrap();
    thread::sleep(WATCHED);
    let used = setting.server.process.cpu_time().unwrap() - before;
    assert!(used < WATCHED / 100, "{used:?} of {WATCHED:?}");
}
