//! Segments of a liar for live TCP connections: the stack keeps to the reference model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simnet::net::hostile::fuzz_segments(data));
