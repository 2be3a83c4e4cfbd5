//! Frames and packets: the parsers agree with each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzz_wire(data));
