//! Clients, servers, silence and time against the resolver: nothing panics, bounds hold, every question gets one answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dns_resolver::fuzz_resolver(data));
