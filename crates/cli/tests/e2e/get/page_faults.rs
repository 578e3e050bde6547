//! Page faults of a fetch.

use std::fs;
use std::process::Stdio;

use longhaul_core::units::Bytes;
use longhaul_sys::process;
use rustix::process::Pid;

use crate::support::{Nginx, get, skip};

const SIZE: Bytes = Bytes::mib(256);
/// Start-up, 32 threads and 64 MiB of huge pages cause 700 to 1,100 faults (23 Nov 2026); mapping each segment anew caused 10,000.
const MOST_FAULTS: u64 = 3000;

/// Returns whether the kernel provides huge pages on request.
fn has_huge_pages() -> bool {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    setting.contains("[madvise]") || setting.contains("[always]")
}

#[test]
#[allow(clippy::zombie_processes, reason = "process::wait reaps it, and returns what it used")]
fn many_streams_use_the_same_memory_again_and_again() {
    if !has_huge_pages() {
        return skip("without huge pages the first use of each segment alone is a fault for each 4 KiB");
    }
    let Some(site) = Nginx::start() else { return };
    site.file("large", b"");
    fs::File::options().write(true).open(site.path("large")).unwrap().set_len(SIZE.get()).unwrap();
    let run = get().args(["--streams", "32", "-o", "large", &site.url("/large")]);
    let child = run.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = process::wait(Pid::from_child(&child)).unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fs::metadata(run.path("large")).unwrap().len(), SIZE.get());
    assert!(ended.minor_faults < MOST_FAULTS, "{ended:?}");
}
