//! Every request of several clients, with sockets beside them, to a whole broker: each is answered, and nothing is left behind.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| broker::fuzz_requests(data));
