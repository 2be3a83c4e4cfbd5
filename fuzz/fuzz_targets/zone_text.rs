//! Zone files: every record that is read is one.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dns_zone::text::fuzz_zone_text(data));
