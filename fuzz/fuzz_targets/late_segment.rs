//! Segments that came too late for our stack: the packets that the kernel is given are the peer's.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tcp_repair::fuzz_late_segment(data));
