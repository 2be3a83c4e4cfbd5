//! Idle costs nothing.

use lab::Zone;

use crate::Setting;

#[test]
fn without_queries_the_server_uses_no_processor_time() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    tests::assert_comes_to_rest(&setting.server.process, 100);
}
