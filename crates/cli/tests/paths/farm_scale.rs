//! Farms at their promised scale: a plan of a million units, and the database of eight agents
//! without work.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::costs::program_and_limit;
use crate::support::running::Running;
use crate::support::{Home, Postgres, installed, join_farm, names, site};

const UNITS: usize = 1_000_000;
/// The units that are not done when the workers begin.
const OPEN: usize = 2000;
const WORKERS: usize = 4;
/// The files that are planned in a second.
const MIN_FILES_PER_SECOND: f64 = 20_000.0;
/// The most memory of `plan` and of each worker, in KiB.
const MAX_MEMORY: u64 = 200 << 10;

/// Returns a command that writes its time in seconds and its largest memory in KiB to the file
/// `measured`.
fn measured(program: &str, measured: &Path) -> Command {
    let mut command = Command::new("time");
    command.args(["-f", "%e %M", "-o"]).arg(measured).arg(fs::canonicalize(program).unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn read_measured(path: &Path) -> (f64, u64) {
    let text = fs::read_to_string(path).unwrap();
    let (time, memory) = text.trim().split_once(' ').unwrap();
    (time.parse().unwrap(), memory.parse().unwrap())
}

#[test]
fn plan_of_a_million_units_is_written_and_executed_in_little_memory() {
    if installed(&["/usr/bin/time"]).is_none() {
        return;
    }
    // Without optimisation it takes ten times as long.
    let (program, slower) = program_and_limit(1.0, 10.0);
    let (server, _) = site(Duration::ZERO);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut list = String::new();
    for number in 0..UNITS {
        writeln!(list, "{}\n size=1000", server.url(&format!("/1000/{number:07}"))).unwrap();
    }
    fs::write(dir.path().join("list"), list).unwrap();
    let report = dir.path().join("measured");
    let mut plan = measured(&program, &report);
    plan.args(["plan", "-i", "list", "--unit-files", "1", "-o", "p", "here"]).current_dir(dir.path());
    assert!(plan.status().unwrap().success());
    let (time, memory) = read_measured(&report);
    let rate = UNITS as f64 / time;
    println!("plan: {rate:.0} files per second, {} MiB", memory >> 10);
    assert!(rate > MIN_FILES_PER_SECOND / slower && memory < MAX_MEMORY, "{rate} files/s, {memory} KiB");
    work_on_the_rest(&program, &dir);
}

/// Lets four workers execute the last units of the plan `p`.
fn work_on_the_rest(program: &str, dir: &TempDir) {
    let state = names(&dir.path().join("p")).into_iter().find(|name| name.starts_with("state-")).unwrap();
    let mut done = String::new();
    for unit in (0..UNITS).filter(|unit| unit % (UNITS / OPEN) > 0) {
        writeln!(done, r#"{{"unit":{unit},"epoch":1,"result":"done","bytes":1000}}"#).unwrap();
    }
    fs::write(dir.path().join("p").join(state).join("log/earlier.log"), done).unwrap();
    let report = |number: usize| dir.path().join(format!("worker-{number}"));
    let start = |number: usize| {
        let mut work = measured(program, &report(number));
        Running(work.args(["work", "-q", "--no-memory", "p"]).current_dir(dir.path()).spawn().unwrap())
    };
    let began = Instant::now();
    let workers: Vec<Running> = (0..WORKERS).map(start).collect();
    for mut worker in workers {
        assert!(worker.0.wait().unwrap().success());
    }
    let memory = (0..WORKERS).map(|number| read_measured(&report(number)).1).max().unwrap();
    let took = began.elapsed().as_secs_f64();
    println!("work: {OPEN} units by {WORKERS} workers in {took:.1} s, {} MiB each at most", memory >> 10);
    assert_eq!(names(&dir.path().join("here")).len(), OPEN);
    assert!(memory < MAX_MEMORY, "{memory} KiB");
}

const AGENTS: usize = 8;
/// The time over which the database is observed, and in which an agent renews its leases six times.
const WINDOW: Duration = Duration::from_secs(60);
/// The time after which agents have shown what has changed.
const SETTLING: Duration = Duration::from_secs(15);
/// The part of a core that the database of idle agents takes.
const MAX_CPU: f64 = 0.05;

#[test]
fn database_of_eight_idle_agents_takes_little_of_a_core() {
    let Some(postgres) = Postgres::start() else { return };
    let homes: Vec<Home> = (0..AGENTS).map(|_| Home::without_agent()).collect();
    join_farm(&homes, &["--farm", &postgres.url("farm")]);
    let observe = |what: &str| {
        std::thread::sleep(SETTLING);
        let (began, before) = (Instant::now(), cpu_time(postgres.process()));
        std::thread::sleep(WINDOW);
        let share = (cpu_time(postgres.process()) - before) / began.elapsed().as_secs_f64();
        println!("database, {what}: {:.2} % of a core", 100.0 * share);
        assert!(share < MAX_CPU, "{what}: {share}");
    };
    observe("without transfers");
    homes[0].queue_ok(&["add", "http://127.0.0.1:9/f", "--paused"]);
    // All columns but those of the numbers.
    let copy =
        "INSERT INTO longhaul.transfers (kind, state, priority, position, request, urls, name, path, added)
                SELECT kind, state, priority, n, request, urls, name, path, added
                FROM longhaul.transfers, generate_series(1, 10000) AS n";
    postgres.sql(copy);
    observe("10,000 paused transfers");
}

/// Returns the CPU time of a process, the children that it had and the children that it has, in
/// seconds.
fn cpu_time(process: u32) -> f64 {
    let stat = |id: &str| -> Option<Vec<i64>> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name before field 3 of proc_pid_stat(5) ends with a parenthesis; the state is no
        // number.
        Some(
            text.rsplit_once(')')?
                .1
                .split_whitespace()
                .skip(1)
                .filter_map(|field| field.parse().ok())
                .collect(),
        )
    };
    // ppid is field 4, utime and stime are 14 and 15, cutime and cstime 16 and 17; in ticks of 10
    // ms.
    let own: i64 = stat(&process.to_string()).unwrap()[10..14].iter().sum();
    let all = names(Path::new("/proc")).into_iter().filter_map(|id| stat(&id));
    let children = all.filter(|fields| fields.first() == Some(&i64::from(process)));
    (own + children.map(|fields| fields[10..12].iter().sum::<i64>()).sum::<i64>()) as f64 / 100.0
}
