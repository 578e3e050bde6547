#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz_entries::checksum_list(bytes));
