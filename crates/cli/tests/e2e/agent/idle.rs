//! Memory and wake-ups of an idle agent.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::agent::home::{File, Home, Server, content};

#[test]
fn idle_agent_is_small_and_sleeps() {
    // scripts/test.sh names a release build: its whole memory counts. Most memory of a debug build is code and is left out.
    let release = std::env::var_os("LONGHAUL_RELEASE").map(PathBuf::from);
    let home = release.as_deref().map_or_else(Home::new, Home::of);
    let server = Server::of(File::new(content(30_000_000, 14)));
    let id = home.add(&server.url("/f"), &[]);
    home.wait_for_state(id, "done");
    // Idle worker threads end after 10 s (tokio's thread_keep_alive).
    std::thread::sleep(Duration::from_secs(12));
    let pid = home.pid().unwrap().as_raw_nonzero();
    let before = switches(pid.get());
    std::thread::sleep(Duration::from_secs(4));
    let wakes = switches(pid.get()) - before;
    assert!(wakes <= 4, "{wakes} wake-ups in 4 s");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = field(&status, if release.is_some() { "VmRSS:" } else { "RssAnon:" });
    assert!(resident < 20 * 1024, "{resident} KiB");
}

/// Returns the number of voluntary context switches of all threads.
fn switches(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        Some(field(&status, "voluntary_ctxt_switches:"))
    };
    tasks.filter_map(of_task).sum()
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
