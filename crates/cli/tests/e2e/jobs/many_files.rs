//! Ten thousand files in one command.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::{get, of_size, same, site};

const FILES: u64 = 10_000;

#[test]
fn ten_thousand_urls_end_within_bounded_memory_threads_and_descriptors() {
    let (server, load) = site(Duration::ZERO);
    let urls = (0..FILES).map(|number| server.url(&format!("/100/{number}")));
    let run = get().through(&["sh", "-c", "ulimit -n 1024; exec \"$0\" \"$@\""]).args(urls);
    let mut command = run.command();
    let mut child: std::process::Child = Command::spawn(
        command.stdout(std::process::Stdio::null()).stderr(fs::File::create(run.path("stderr")).unwrap()),
    )
    .unwrap();
    let (mut memory, mut threads, mut descriptors) = (0, 0, 0);
    let began = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > Duration::from_secs(180) {
            let _ = child.kill();
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        memory = memory.max(value("VmHWM:"));
        threads = threads.max(value("Threads:"));
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).map_or(0, Iterator::count);
        descriptors = descriptors.max(open);
        std::thread::sleep(Duration::from_millis(20));
    };
    println!(
        "{:?}, {memory} kB, {threads} threads, {descriptors} descriptors, {} connections",
        began.elapsed(),
        load.connections()
    );
    let stderr = fs::read_to_string(run.path("stderr")).unwrap();
    let end: String = stderr.chars().take(2000).collect();
    assert!(status.success(), "{status}: {end}");
    (0..FILES).for_each(|number| same(run.path(number.to_string()), &of_size(100, number)));
    assert!(memory < 200 << 10, "{memory} kB");
    assert!(threads < 400, "{threads} threads");
    assert!(descriptors < 500, "{descriptors} descriptors");
    assert!(load.connections() < 200, "{} connections", load.connections());
}
