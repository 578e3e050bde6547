//! On a kernel that has no cachestat(2).

use std::io;

use longhaul_sys::cachestat::page_cache;

#[path = "../examples/old_kernel/forget.rs"]
mod forget;

#[test]
fn a_kernel_without_cachestat_says_unsupported() {
    let old = std::thread::spawn(|| {
        forget::forget(forget::CACHESTAT).unwrap();
        page_cache(&tempfile::tempfile().unwrap()).unwrap_err().kind()
    });
    assert_eq!(old.join().unwrap(), io::ErrorKind::Unsupported);
}
