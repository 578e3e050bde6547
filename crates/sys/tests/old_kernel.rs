//! Tests on a simulated kernel without cachestat(2).

use std::io;

use longhaul_sys::cachestat::page_cache;

#[path = "../examples/old_kernel/forget.rs"]
mod forget;

#[test]
fn missing_cachestat_is_unsupported() {
    let old = std::thread::spawn(|| {
        forget::forget(forget::CACHESTAT).unwrap();
        page_cache(&tempfile::tempfile().unwrap()).unwrap_err().kind()
    });
    assert_eq!(old.join().unwrap(), io::ErrorKind::Unsupported);
}
