//! Messages of clients to the broker: what is claimed is what claims and queues amount to.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| broker::fuzz_broker(data));
