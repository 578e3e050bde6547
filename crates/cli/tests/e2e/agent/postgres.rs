//! Agents that share one queue in PostgreSQL: each transfer once, whichever agent or database is
//! lost.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::lab::wait_until;
use crate::support::running::Running;
use crate::support::{
    Home, Postgres, RatedSite, Running as Ran, content, join_farm, names, other_clock, same, serve, text,
    write_old, write_secret,
};

/// The lease in seconds of agents that are lost, which others do not lose on a busy machine.
pub(super) const SHORT_LEASE: u64 = 9;
/// The rate of a transfer that must still run when its host or the database is lost, in bits per
/// second: 12 s.
const SLOW: &str = "2Mbit";
/// The longest lease: its renewals are 20 minutes apart.
const LONG_LEASE: u64 = 3600;
/// The time after which an agent has shown the list once, after it began to listen.
const FIRST_SHOW: Duration = Duration::from_secs(3);

/// A database, a server of files, and the homes of two agents; all files go to the directory of the
/// first.
pub(super) struct Farm {
    pub(super) homes: [Home; 2],
    pub(super) postgres: Postgres,
    _server: Running,
    url: String,
    site: PathBuf,
}

impl Farm {
    pub(super) fn start(options: &[&str]) -> Option<Self> {
        let postgres = Postgres::start()?;
        let homes = [(); 2].map(|()| Home::without_agent());
        join_farm(&homes, &[&["--farm", &postgres.url("farm")], options].concat());
        let site = homes[0].path("site");
        fs::create_dir(&site).unwrap();
        let (server, url) = serve(&site, &[]);
        Some(Self { homes, postgres, _server: server, url, site })
    }

    fn add(&self, name: &str, bytes: &[u8], limit: &str) -> i64 {
        // A run resumes only what had not just been changed.
        write_old(&self.site.join(name), bytes);
        self.homes[0].add(&format!("{}/{name}", self.url), &["--limit", limit])
    }

    /// Returns whether an agent has run a transfer.
    fn has_run(&self, home: usize, id: i64) -> bool {
        self.homes[home].state(&format!("farm-records/{id}.jsonl")).exists()
    }

    /// Waits until an agent runs this number of transfers.
    fn wait_for_runs(&self, home: usize, count: usize) {
        let status = || self.homes[home].command().args(["agent", "status", "--json"]).output().unwrap();
        let count = format!("\"active\":{count},");
        wait_until("the number of its runs", || text(&status()).contains(&count));
    }

    /// Waits until a transfer moves bytes; returns the agent that runs it.
    fn runner(&self, observer: usize, id: i64) -> usize {
        self.homes[observer].wait_for_state(id, "running");
        let part = |name: &String| name.contains("longhaul-part");
        wait_until("a partial file", || names(&self.homes[0].files()).iter().any(part));
        usize::from(!self.has_run(0, id))
    }
}

/// Returns the names of the events that an agent sends from now on.
fn events(home: &Home) -> impl Iterator<Item = String> {
    let (address, token) = home.dashboard();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head =
        format!("GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.filter_map(|line| line.strip_prefix("event: ").map(str::to_owned))
}

#[test]
fn transfers_of_a_farm_run_once_each_on_any_of_its_hosts() {
    let Some(farm) = Farm::start(&[]) else { return };
    let [first, second] = &farm.homes;
    // A client of one agent sees what the other has changed; the total at its start is the first.
    std::thread::sleep(FIRST_SHOW);
    let mut events = events(first);
    events.find(|name| name == "stats").unwrap();
    let url = format!("{}/none", farm.url);
    let id = second.add(&url, &["--paused"]).to_string();
    second.queue_ok(&["cancel", &id]);
    second.queue_ok(&["remove", &id]);
    events.find(|name| name == "stats").unwrap();

    // Each agent runs as many as it may, and the farm shows them host by host.
    farm.homes.iter().for_each(|home| home.set(&json!({ "concurrent": 1 })));
    let slow = ["slow-0", "slow-1"].map(|name| farm.add(name, &content(8_000_000, 1), "1Mbit"));
    (0..2).for_each(|home| farm.wait_for_runs(home, 1));
    let shown = || {
        let (_, body) = first.http("GET", "/api/v1/farm", &[], None);
        let status: Value = serde_json::from_str(&body).unwrap();
        let hosts = status["hosts"].as_array().unwrap().clone();
        hosts.iter().map(|host| (host["is_alive"] == true, host["running"] == 1)).collect::<Vec<_>>()
    };
    wait_until("each host reports its run", || shown() == [(true, true), (true, true)]);
    let status = text(&first.command().args(["agent", "status"]).output().unwrap());
    assert!(status.matches("\nhost ").count() == 2 && status.contains("lease of 30 s"), "{status}");
    assert!(second.list().iter().all(|transfer| transfer["host"].is_string()));

    slow.iter().for_each(|id| drop(second.queue_ok(&["cancel", &id.to_string()])));
    (0..2).for_each(|home| farm.wait_for_runs(home, 0));
    assert_eq!(first.transfer(slow[0])["state"], "cancelled");

    // Partial files of another host are removed where they are seen, under another number of the
    // device, and kept else.
    let change = |id: i64, to: &str| {
        farm.postgres.sql(&format!("UPDATE longhaul.transfers SET {to} WHERE id = {id}"));
    };
    change(slow[0], "owner = 'elsewhere/agent', part_device = part_device + 1");
    first.queue_ok(&["remove", "--files", &slow[0].to_string()]);
    change(slow[1], "owner = 'elsewhere/agent', part_inode = part_inode + 1");
    let refused = first.queue(&["remove", "--files", &slow[1].to_string()]);
    let why = format!("use longhaul queue remove --files {} there", slow[1]);
    assert!(!refused.status.success() && text(&refused).contains("host elsewhere"), "{}", text(&refused));
    assert!(text(&refused).contains(&why), "{}", text(&refused));
    first.queue_ok(&["remove", &slow[1].to_string()]);
    let left = names(&first.files());
    assert!(!left.is_empty() && left.iter().all(|name| name.contains("slow-1")), "{left:?}");
    left.iter().for_each(|name| fs::remove_file(first.files().join(name)).unwrap());

    farm.homes.iter().for_each(|home| home.set(&json!({ "concurrent": 3 })));
    let bytes: Vec<_> = (0..40).map(|number| content(50_000, number)).collect();
    let add = |(number, bytes): (usize, &Vec<u8>)| farm.add(&format!("f{number}"), bytes, "2Mbit");
    let ids: Vec<_> = bytes.iter().enumerate().map(add).collect();
    let all_done =
        |home: &Home| home.list().iter().filter(|transfer| transfer["state"] == "done").count() == 40;
    farm.homes.iter().for_each(|home| wait_until("all are done", || all_done(home)));
    for (number, bytes) in bytes.iter().enumerate() {
        same(first.files().join(format!("f{number}")), bytes);
    }
    assert_eq!(names(&first.files()).len(), 40, "no file twice");
    let run = |home: usize| ids.iter().filter(|id| farm.has_run(home, **id)).count();
    assert_eq!(run(0) + run(1), 40, "each by one agent");
    assert_eq!(farm.postgres.sql("SELECT max(epoch) FROM longhaul.transfers"), "1");
    for home in &farm.homes {
        let log = fs::read_to_string(home.state("agent.log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn change_by_one_host_ends_the_run_of_another_long_before_a_renewal() {
    let Some(farm) = Farm::start(&["--farm-lease", &LONG_LEASE.to_string()]) else { return };
    let id = farm.add("slow", &content(8_000_000, 1), "1Mbit");
    let runner = farm.runner(0, id);
    farm.homes[1 - runner].queue_ok(&["pause", &id.to_string()]);
    farm.wait_for_runs(runner, 0);
    assert_eq!(farm.homes[runner].transfer(id)["state"], "paused");
}

#[test]
fn lost_stopped_and_restarted_hosts_and_databases_lose_nothing() {
    let Some(mut farm) = Farm::start(&["--farm-lease", &SHORT_LEASE.to_string()]) else { return };
    let bytes = content(3_000_000, 7);
    // A host is lost.
    let id = farm.add("killed", &bytes, SLOW);
    let lost = farm.runner(1, id);
    farm.homes[lost].kill(Signal::KILL);
    farm.homes[1 - lost].done(id);
    same(farm.homes[0].files().join("killed"), &bytes);
    farm.homes[lost].agent(&["--listen", "127.0.0.1:0"]);

    // A host stops for more than the lease; the end of its run does not count.
    let id = farm.add("stopped", &bytes, SLOW);
    let stopped = farm.runner(0, id);
    let pid = farm.homes[stopped].pid().unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let epoch = format!("SELECT epoch > 1 FROM longhaul.transfers WHERE id = {id}");
    wait_until("another host has it", || farm.postgres.sql(&epoch) == "t");
    kill_process(pid, Signal::CONT).unwrap();
    farm.homes[1 - stopped].done(id);
    same(farm.homes[0].files().join("stopped"), &bytes);

    // The database crashes for less, and for more than the lease.
    for (name, pause) in [("short", 0), ("long", SHORT_LEASE + 2)] {
        let id = farm.add(name, &bytes, SLOW);
        farm.runner(0, id);
        farm.postgres.kill();
        std::thread::sleep(Duration::from_secs(pause));
        farm.postgres.run();
        let state = format!("SELECT state FROM longhaul.transfers WHERE id = {id}");
        wait_until("it is done", || farm.postgres.sql(&state) == "done");
        same(farm.homes[0].files().join(name), &bytes);
    }
    let complete = ["killed", "long", "short", "stopped"];
    assert_eq!(names(&farm.homes[0].files()), complete, "no file twice, and no leftovers");
}

#[test]
fn agents_whose_clocks_are_an_hour_apart_lose_only_the_leases_of_a_killed_one() {
    let (Some(ahead), Some(behind)) = (other_clock("+1h"), other_clock("-1h")) else { return };
    let Some(postgres) = Postgres::start() else { return };
    let homes = [Home::without_agent().env(ahead), Home::without_agent().env(behind), Home::without_agent()];
    join_farm(&homes, &["--farm", &postgres.url("farm"), "--farm-lease", &SHORT_LEASE.to_string()]);
    homes.iter().for_each(|home| home.set(&json!({ "concurrent": 2 })));
    let files = (0..9).map(|number| (format!("f{number}"), content(1_000_000, number)));
    // The hosts have two files each at a time: 9 s of work, most of it after one is killed.
    let site = RatedSite::start(files, 1_000_000);
    let output = format!("{}/", homes[2].files().display());
    let urls = site.urls();
    let add: Vec<&str> = ["add", "-o", &output].into_iter().chain(urls.iter().map(String::as_str)).collect();
    homes[0].queue_ok(&add);
    let running = "SELECT count(DISTINCT owner) FROM longhaul.transfers WHERE state = 'running'";
    wait_until("each agent has a transfer", || postgres.sql(running) == "3");
    homes[0].kill(Signal::KILL);
    let done = "SELECT count(*) FROM longhaul.transfers WHERE state = 'done'";
    wait_until("all are done", || postgres.sql(done) == "9");
    site.is_in(&homes[2].files());
    // Times are the database's, and only what the killed one had was leased again.
    let wrong = "SELECT count(*) FROM longhaul.transfers
                 WHERE greatest(abs(started - extract(epoch FROM now())), abs(ended - extract(epoch FROM now()))) > 600";
    assert_eq!(postgres.sql(wrong), "0");
    let again = "SELECT count(*) BETWEEN 1 AND 2, max(epoch) FROM longhaul.transfers WHERE epoch > 1";
    assert_eq!(postgres.sql(again), "t|2");
    let shown = text(&homes[1].command().args(["agent", "status"]).output().unwrap());
    assert_eq!(shown.matches("\nhost ").count(), 3, "{shown}");
}

#[test]
fn farm_that_cannot_be_used_is_named_with_a_remedy_and_no_password() {
    let Some(mut postgres) = Postgres::start() else { return };
    let home = Home::with(&["--farm", &postgres.url("farm")]);
    home.kill(Signal::TERM);
    let refused = |url: &str, code: i32, remedy: &str| {
        let mut command = home.command();
        command.args(["agent", "--foreground", "--listen", "127.0.0.1:0", "--farm", url]);
        command.env("PGPASSWORD", "wrong").stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = Ran::new(command).end().fails(code, &[remedy]);
        assert!(!ended.stderr.contains("wrong"), "{ended:?}");
    };
    let url = postgres.url("farm");
    postgres.sql("CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'right'; CREATE ROLE tls LOGIN");
    refused(&postgres.url("ann"), 77, "PGPASSWORD");
    refused(&postgres.url("tls"), 77, "without TLS, in its pg_hba.conf");
    refused(&url.replace("/postgres", "/none"), 78, "createdb");
    refused(&format!("{url}?sslmode=require"), 64, "SSH tunnel");
    let key = fs::read(home.state("farm.key")).unwrap();
    fs::remove_file(home.state("farm.key")).unwrap();
    refused(&url, 78, "copy the farm.key");
    assert!(!home.state("farm.key").exists());
    fs::write(home.state("farm.key"), key).unwrap();
    postgres.sql("UPDATE longhaul.farm SET version = 99");
    refused(&url, 78, "newer longhaul (schema 99");
    postgres
        .sql("UPDATE longhaul.farm SET version = 1; ALTER ROLE farm SET default_transaction_read_only = on");
    refused(&url, 78, "standby");
    // The password of a file that only its owner may read.
    write_secret(home.path(".pgpass"), "*:*:*:ann:right\n");
    home.agent(&["--listen", "127.0.0.1:0", "--farm", &postgres.url("ann")]);
    home.kill(Signal::TERM);
    postgres.kill();
    refused(&url, 69, "see whether it runs");
    // Its own queue is still there.
    home.agent(&["--listen", "127.0.0.1:0", "--no-farm"]);
    assert!(home.list().is_empty());
}
