//! Memory of an idle agent.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{File, Home, Server, content};

/// The most memory of an idle agent, in KiB.
const MAX_RESIDENT_KIB: u64 = 20 * 1024;

#[test]
fn idle_agent_is_small() {
    // All memory of a release build counts, if `make test-paths` names one; most of a debug build
    // is code and is left out.
    let release = std::env::var_os("LONGHAUL_RELEASE").map(PathBuf::from);
    let home = release.as_deref().map_or_else(Home::new, |program| Home::of(program, &[]));
    let server = Server::of(File::new(content(30_000_000, 14)));
    home.done(home.add(&server.url("/f"), &[]));
    let status = format!("/proc/{}/status", home.pid().unwrap().as_raw_nonzero());
    let kind = if release.is_some() { "VmRSS:" } else { "RssAnon:" };
    let began = Instant::now();
    loop {
        let text = fs::read_to_string(&status).unwrap();
        let resident = text.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
        let resident: u64 = resident.split_whitespace().next().unwrap().parse().unwrap();
        if resident < MAX_RESIDENT_KIB {
            return println!("{resident} KiB");
        }
        // Idle worker threads end after 10 s (tokio's thread_keep_alive).
        assert!(began.elapsed() < Duration::from_secs(30), "{resident} KiB");
        std::thread::sleep(Duration::from_millis(500));
    }
}
