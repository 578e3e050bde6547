//! The agent's lock and database at its start, and its wake-ups when idle.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::lab::wait_until;
use crate::support::{File, Home, Server, content, text};

#[test]
fn of_several_agents_started_at_once_one_serves() {
    let home = Home::without_agent();
    let mut command = home.command();
    command.args(["agent", "--foreground", "--listen", "127.0.0.1:0"]).stderr(Stdio::null());
    let mut agents: Vec<_> = (0..5).map(|_| command.spawn().unwrap()).collect();
    // Without an agent, the list would start one of its own.
    wait_until("an agent has the lock", || home.pid().is_some());
    home.queue_ok(&["list"]);
    home.queue_ok(&["add", "http://127.0.0.1:9/f", "--paused"]);
    let mut have_ended = || agents.iter_mut().filter_map(|agent| agent.try_wait().unwrap()).count();
    wait_until("the others have ended", || have_ended() == 4);
    let first = format!("process {}", home.pid().unwrap().as_raw_nonzero());
    let second = home.command().args(["agent", "--foreground"]).output().unwrap();
    assert!(second.status.code() == Some(75) && text(&second).contains(&first), "{}", text(&second));
    assert!(text(&home.command().arg("agent").output().unwrap()).contains("runs already"));
    let open = home.command().args(["agent", "--foreground", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert!(open.status.code() == Some(78) && text(&open).contains("loopback"), "{}", text(&open));
    home.kill(Signal::TERM);
    let mut codes: Vec<_> = agents.iter_mut().map(|agent| agent.wait().unwrap().code()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(75), Some(75), Some(75), Some(75)]);
}

#[test]
fn homes_of_one_user_have_agents_of_their_own_that_start_on_demand() {
    let (home, other) = (Home::new(), Home::without_agent());
    fs::write(other.state("queue.db"), "no database").unwrap();
    home.queue_ok(&["add", "http://127.0.0.1:9/f", "--paused"]);
    let listed = other.command().env("XDG_RUNTIME_DIR", home.path("run")).args(["queue", "list"]).output();
    let listed = listed.unwrap();
    assert!(listed.status.success() && listed.stdout.is_empty(), "{}", text(&listed));
    assert!(fs::read_to_string(other.state("agent.log")).unwrap().contains("queue.db is damaged"));
    assert_ne!(home.pid().unwrap(), other.pid().unwrap());
    let socket = home.path("run/longhaul/agent.sock");
    assert!(socket.exists());
    home.kill(Signal::TERM);
    assert!(!socket.exists());
    assert_eq!(home.list()[0]["state"], "paused");
}

#[test]
fn unit_is_installed_and_removed() {
    let home = Home::without_agent();
    let unit = home.path("config/systemd/user/longhaul-agent.service");
    let agent = |verb: &str| home.command().args(["agent", verb]).output().unwrap().status.code();
    let install = ["agent", "install", "--listen", "127.0.0.1:7001"];
    assert!(home.command().args(install).output().unwrap().status.success());
    assert!(fs::read_to_string(&unit).unwrap().contains("agent --foreground --listen 127.0.0.1:7001\n"));
    assert_eq!(agent("uninstall"), Some(0));
    for (url, code) in
        [("postgres://ann:secret@db/farm", 64), ("mysql://db/farm", 64), ("postgres://ann@db/a%20b", 0)]
    {
        assert!(!unit.exists());
        let installed = home.command().args(["agent", "install", "--farm", url]).output().unwrap();
        assert_eq!(installed.status.code(), Some(code), "{}", text(&installed));
        assert_eq!(unit.exists(), code == 0);
    }
    assert!(
        fs::read_to_string(&unit).unwrap().contains(" --farm postgres://ann@db/a%%20b --farm-lease 30\n")
    );
    assert_eq!(agent("uninstall"), Some(0));
    assert_eq!(agent("uninstall"), Some(66));
}

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

/// Returns the threads of a process, the voluntary context switches of all of them, and its CPU
/// time in ticks of 10 ms.
fn activity(pid: i32) -> (usize, u64, u64) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    // A thread may end during the listing.
    let statuses: Vec<_> = tasks.filter_map(|task| fs::read_to_string(task.join("status")).ok()).collect();
    let counts = statuses.iter().flat_map(|status| status.lines());
    let counts = counts.filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let switches = counts.map(|count| count.trim().parse::<u64>().unwrap()).sum();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // utime and stime, fields 14 and 15 of proc_pid_stat(5); the name before field 3 ends with a
    // parenthesis.
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    (statuses.len(), switches, fields.map(|field| field.parse::<u64>().unwrap()).sum())
}
