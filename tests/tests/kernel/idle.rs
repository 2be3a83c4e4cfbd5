//! Idle costs nothing.

use lab::Zone;
use tests::{Serving, assert_comes_to_rest};

#[test]
fn without_queries_the_server_uses_no_processor_time() {
    let server = Serving::start(&Zone::sample().file, &[]);
    assert_comes_to_rest(&server.process, 50);
}
