//! Wake-ups of an idle agent.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{File, Home, Server, content};

/// The window in which the wake-ups are counted: a timer of a second would cause several.
const WINDOW: Duration = Duration::from_secs(3);
/// Longer than tokio keeps idle threads (10 s).
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn idle_agent_sleeps() {
    let home = Home::new();
    let server = Server::of(File::new(content(3_000_000, 14)));
    home.done(home.add(&server.url("/f"), &[]));
    let pid = home.pid().unwrap().as_raw_nonzero().get();
    let began = Instant::now();
    let mut before = activity(pid);
    loop {
        std::thread::sleep(WINDOW);
        let now = activity(pid);
        // What the transfer has left ends within some windows; polling never ends.
        if now.0 == before.0 && now.1 <= before.1 + 1 && now.2 <= before.2 + 1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{before:?}, then {now:?}");
        before = now;
    }
}

/// Returns the threads of a process, the voluntary context switches of all of them, and its CPU time in ticks of 10 ms.
fn activity(pid: i32) -> (usize, u64, u64) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    // A thread may end during the listing.
    let statuses: Vec<_> = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok()).collect();
    let counts = statuses.iter().flat_map(|status| status.lines());
    let counts = counts.filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let switches = counts.map(|count| count.trim().parse::<u64>().unwrap()).sum();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // utime and stime, fields 14 and 15 of proc_pid_stat(5); the name before field 3 ends with a parenthesis.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    (statuses.len(), switches, fields.map(|field| field.parse::<u64>().unwrap()).sum())
}
