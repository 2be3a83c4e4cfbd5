//! Messages to the authoritative server: every answer is an answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dns_auth::fuzz_message(data));
