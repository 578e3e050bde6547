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
        if now.threads == before.threads && now.wakes <= before.wakes + 1 && now.ticks <= before.ticks + 1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{before:?}, then {now:?}");
        before = now;
    }
}

/// The activity of a process since its start.
#[derive(Debug)]
struct Activity {
    threads: usize,
    /// Voluntary context switches of all threads.
    wakes: u64,
    /// Clock ticks of CPU time, of 10 ms each.
    ticks: u64,
}

fn activity(pid: i32) -> Activity {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    // A thread may end during the listing.
    let statuses: Vec<_> = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok()).collect();
    let switches = |status: &String| -> u64 {
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // utime and stime, fields 14 and 15 of proc_pid_stat(5); the name before field 3 ends with a parenthesis.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    let ticks = fields.map(|field| field.parse::<u64>().unwrap()).sum();
    Activity { threads: statuses.len(), wakes: statuses.iter().map(switches).sum(), ticks }
}
