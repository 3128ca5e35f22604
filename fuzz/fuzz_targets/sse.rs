#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tallygate_fuzz::sse(data));
