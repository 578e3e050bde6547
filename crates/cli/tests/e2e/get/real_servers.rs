//! Real servers: nginx, Apache and longhaul serve, with one and several streams, plain and
//! encrypted.

use std::fs;
use std::process::Stdio;

use longhaul_core::units::Bytes;
use longhaul_sys::process;
use rustix::process::Pid;

use crate::support::{Apache, Nginx, Serve, Site, at_once, content, get, skip};

/// Fetches a file of 64 MiB in all variants; 16 MiB with TLS, which is slow in a debug build.
#[test]
fn each_server_serves_one_and_four_streams_plain_and_encrypted() {
    let (large, small) = (content(64 << 20, 1), content((16 << 20) + 77, 2));
    at_once([Nginx::start(), Apache::start(), Some(Serve::start())].into_iter().flatten(), |site: Site| {
        site.file("large", &large);
        site.file("small", &small);
        for streams in ["1", "4"] {
            let run = get().args(["--streams", streams, "--json", "-o", "f", &site.url("/large")]);
            let used = run.fetches(&large).done()["streams"].as_u64().unwrap();
            // Read-ahead requests of the first streams may leave no work for the last.
            assert_eq!(used > 1, streams == "4", "{used} of {streams} streams of {}", site.url(""));
            let run = run.again(["--streams", streams, "-o", "f", &site.tls_url("/small"), "--cacert"]);
            run.args([site.ca()]).fetches(&small);
        }
    });
}

#[test]
fn a_server_that_keeps_no_connection_alive() {
    let Some(site) = Nginx::start() else { return };
    let bytes = content((20 << 20) + 1, 3);
    site.file("f", &bytes);
    for place in ["closing", "one-each"] {
        for streams in ["1", "4"] {
            let run = get().args(["-q", "--streams", streams, &site.url(&format!("/{place}/f"))]);
            assert_eq!(run.fetches(&bytes).stderr, "", "closing after an answer is no failure");
        }
    }
}

const LARGE_SIZE: Bytes = Bytes::mib(256);
/// Start-up, 32 threads and 64 MiB of huge pages cause 700 to 1,100 faults (23 Nov 2026); mapping
/// each segment anew caused 10,000.
const MAX_FAULTS: u64 = 3000;

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
    fs::File::options().write(true).open(site.path("large")).unwrap().set_len(LARGE_SIZE.get()).unwrap();
    let run = get().args(["--streams", "32", "-o", "large", &site.url("/large")]);
    let child = run.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = process::wait(Pid::from_child(&child)).unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fs::metadata(run.path("large")).unwrap().len(), LARGE_SIZE.get());
    assert!(ended.minor_faults < MAX_FAULTS, "{ended:?}");
}
