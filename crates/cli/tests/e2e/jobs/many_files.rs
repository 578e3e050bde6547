//! Thousands of files in one command.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{get, of_size, same, site};

const FILES: u64 = 2000;

#[test]
fn thousands_of_urls_need_bounded_memory_threads_and_descriptors() {
    let (server, load) = site(Duration::ZERO);
    let urls = (0..FILES).map(|number| server.url(&format!("/100/{number}")));
    let run = get().through(&["sh", "-c", "echo $$ >pid; ulimit -n 1024; exec \"$0\" \"$@\""]).args(urls);
    let mut running = run.start();
    let (mut memory, mut threads, mut descriptors) = (0, 0, 0);
    while !running.has_ended() {
        let pid = fs::read_to_string(run.path("pid")).unwrap_or_default();
        let proc = Path::new("/proc").join(pid.trim_end());
        let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        memory = memory.max(value("VmHWM:"));
        threads = threads.max(value("Threads:"));
        descriptors = descriptors.max(fs::read_dir(proc.join("fd")).map_or(0, Iterator::count));
        std::thread::sleep(Duration::from_millis(20));
    }
    running.end().ok();
    (0..FILES).for_each(|number| same(run.path(number.to_string()), &of_size(100, number)));
    let used = format!("{memory} kB, {threads} threads, {descriptors} descriptors");
    assert!(memory < 200 << 10 && threads < 400 && descriptors < 500, "{used}");
    assert!(load.connections() < 200, "{} connections", load.connections());
}
