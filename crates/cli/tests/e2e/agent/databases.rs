//! The agent's lock and database at its start, and its wake-ups when idle.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::lab::wait_until;
use crate::support::{File, Home, Server, content, names, needs_root, text};

#[test]
fn second_agent_and_address_that_others_can_reach_are_refused() {
    let foreground = |home: &Home, options: &[&str]| {
        home.command().args(["agent", "--foreground"]).args(options).output().unwrap()
    };
    let home = Home::new();
    let first = format!("process {}", home.pid().unwrap().as_raw_nonzero());
    let second = foreground(&home, &[]);
    assert!(second.status.code() == Some(75) && text(&second).contains(&first), "{}", text(&second));
    assert!(text(&home.command().arg("agent").output().unwrap()).contains("runs already"));
    let open = foreground(&Home::without_agent(), &["--listen", "0.0.0.0:0"]);
    assert!(open.status.code() == Some(78) && text(&open).contains("loopback"), "{}", text(&open));
}

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
    home.kill(Signal::TERM);
    let mut codes: Vec<_> = agents.iter_mut().map(|agent| agent.wait().unwrap().code()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(75), Some(75), Some(75), Some(75)]);
}

#[test]
fn damaged_database_is_kept_aside_and_reported() {
    let home = Home::without_agent();
    fs::write(home.state("queue.db"), "this is no database at all, but it is long enough to be read as one")
        .unwrap();
    home.agent(&["--listen", "127.0.0.1:0"]);
    assert!(home.list().is_empty());
    let names = names(&home.state(""));
    assert!(names.iter().any(|name| name.starts_with("queue.db.damaged-")), "{names:?}");
    let log = fs::read_to_string(home.state("agent.log")).unwrap();
    assert!(log.contains("damaged") && log.contains("is kept as"), "{log}");
}

#[test]
fn database_of_a_newer_version_stops_the_agent_and_stays() {
    let home = Home::new();
    home.kill(Signal::TERM);
    let path = home.state("queue.db");
    let mut bytes = fs::read(&path).unwrap();
    // The database's user version (sqlite.org/fileformat2.html, 1.3), big-endian at offset 60.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    for name in ["queue.db-wal", "queue.db-shm"] {
        let _ = fs::remove_file(home.state(name));
    }
    let output = home.command().args(["agent", "--foreground"]).output().unwrap();
    let is_refused = output.status.code() == Some(78) && text(&output).contains("newer longhaul");
    assert!(is_refused, "{}", text(&output));
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert!(text(&home.queue(&["list"])).contains("newer longhaul"));
}

#[test]
fn agent_starts_on_demand_and_ends_on_sigterm() {
    let home = Home::without_agent();
    home.queue_ok(&["add", "http://127.0.0.1:9/f", "--paused"]);
    assert!(home.pid().is_some());
    home.kill(Signal::TERM);
    assert!(!home.path("run/longhaul/agent.sock").exists());
    let all = home.list();
    assert_eq!((all.len(), &all[0]["state"]), (1, &"paused".into()));
}

#[test]
fn unit_is_installed_and_removed() {
    let home = Home::without_agent();
    let unit = home.path("config/systemd/user/longhaul-agent.service");
    let agent = |verb: &str| home.command().args(["agent", verb]).output().unwrap().status.code();
    assert_eq!(agent("install"), Some(0));
    assert!(fs::read_to_string(&unit).unwrap().contains("agent --foreground"));
    assert_eq!(agent("uninstall"), Some(0));
    assert!(!unit.exists());
    assert_eq!(agent("uninstall"), Some(66));
}

#[test]
fn full_disk_refuses_additions_and_the_agent_goes_on() {
    let Some(()) = needs_root("mounting a file system") else { return };
    let home = Home::without_agent();
    let state = home.path("state");
    let script = format!(
        "mount -t tmpfs -o size=4m small {} && exec {} agent --foreground --listen 127.0.0.1:0",
        state.display(),
        env!("CARGO_BIN_EXE_longhaul")
    );
    let inside = home.command();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    command.envs(inside.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut agent = command.spawn().unwrap();
    wait_until("the agent listens", || home.path("run/longhaul/agent.sock").exists());
    home.queue_ok(&["add", "http://127.0.0.1:9/first", "--paused"]);
    // The path outside the mount namespace.
    let filler = PathBuf::from(format!("/proc/{}/root{}/filler", agent.id(), state.display()));
    // The write ends when the disk is full.
    let _ = fs::write(&filler, vec![0; 8 << 20]);
    let header = format!("X: {}", "x".repeat(60_000));
    let add = || home.queue(&["add", "http://127.0.0.1:9/more", "--paused", "--header", &header]);
    let refused = (0..100).map(|_| add()).find(|output| !output.status.success()).unwrap();
    assert!(refused.status.code() == Some(74) && text(&refused).contains("full"), "{}", text(&refused));
    let before = home.list().len();
    fs::remove_file(&filler).unwrap();
    assert!(add().status.success());
    assert_eq!(home.list().len(), before + 1);
    agent.kill().unwrap();
    agent.wait().unwrap();
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
