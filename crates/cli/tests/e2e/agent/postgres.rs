//! Agents that share one queue in PostgreSQL: each transfer once, whichever agent or database is lost.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::support::lab::wait_until;
use crate::support::running::Running;
use crate::support::{Home, Postgres, content, names, same, serve, text};

/// The lease of the agents in seconds, the shortest.
const LEASE: u64 = 3;

/// A database, a server of files, and the homes of two agents; all files go to the directory of the first.
struct Farm {
    homes: [Home; 2],
    postgres: Postgres,
    _server: Running,
    url: String,
    site: PathBuf,
}

impl Farm {
    fn start() -> Option<Self> {
        let postgres = Postgres::start()?;
        let lease = LEASE.to_string();
        let address = postgres.url("farm");
        let options = ["--farm", &address, "--farm-lease", &lease];
        let first = Home::with(&options);
        let second = Home::without_agent();
        fs::copy(first.state("farm.key"), second.state("farm.key")).unwrap();
        second.agent(&[&["--listen", "127.0.0.1:0"], &options[..]].concat());
        let site = first.path("site");
        fs::create_dir(&site).unwrap();
        let (server, url) = serve(&site, &[]);
        Some(Self { homes: [first, second], postgres, _server: server, url, site })
    }

    fn add(&self, name: &str, bytes: &[u8], limit: &str) -> i64 {
        fs::write(self.site.join(name), bytes).unwrap();
        self.homes[0].add(&format!("{}/{name}", self.url), &["--limit", limit])
    }

    /// Returns whether an agent has run a transfer.
    fn has_run(&self, home: usize, id: i64) -> bool {
        self.homes[home].state(&format!("farm-records/{id}.jsonl")).exists()
    }

    /// Waits until a transfer moves bytes; returns the agent that runs it.
    fn runner(&self, observer: usize, id: i64) -> usize {
        self.homes[observer].wait_for_state(id, "running");
        let part = |name: &String| name.contains("longhaul-part");
        wait_until("a partial file", || names(&self.homes[0].files()).iter().any(part));
        usize::from(!self.has_run(0, id))
    }
}

#[test]
fn transfers_of_a_farm_run_once_each_on_any_of_its_hosts() {
    let Some(farm) = Farm::start() else { return };
    let bytes: Vec<_> = (0..40).map(|number| content(50_000, number)).collect();
    let add = |(number, bytes): (usize, &Vec<u8>)| farm.add(&format!("f{number}"), bytes, "2Mbit");
    let ids: Vec<_> = bytes.iter().enumerate().map(add).collect();
    let all_done =
        |home: &Home| home.list().iter().filter(|transfer| transfer["state"] == "done").count() == 40;
    farm.homes.iter().for_each(|home| wait_until("all are done", || all_done(home)));
    for (number, bytes) in bytes.iter().enumerate() {
        same(farm.homes[0].files().join(format!("f{number}")), bytes);
    }
    assert_eq!(names(&farm.homes[0].files()).len(), 40, "no file twice");
    let run = |home: usize| ids.iter().filter(|id| farm.has_run(home, **id)).count();
    assert!(run(0) > 0 && run(1) > 0 && run(0) + run(1) == 40, "{} and {}", run(0), run(1));
    assert_eq!(farm.postgres.sql("SELECT max(epoch) FROM longhaul.transfers"), "1");
    let status = text(&farm.homes[0].command().args(["agent", "status"]).output().unwrap());
    assert!(status.matches("\nhost ").count() == 2 && status.contains("lease of 3 s"), "{status}");
    assert!(farm.homes[1].list().iter().all(|transfer| transfer["host"].is_string()));

    // A pause by one agent ends the run of another.
    let id = farm.add("paused", &content(4_000_000, 1), "4Mbit");
    let runner = farm.runner(0, id);
    farm.homes[1 - runner].queue_ok(&["pause", &id.to_string()]);
    let status = || farm.homes[runner].command().args(["agent", "status", "--json"]).output().unwrap();
    wait_until("it stops", || text(&status()).contains("\"active\":0"));
    assert_eq!(farm.homes[runner].transfer(id)["state"], "paused");
}

#[test]
fn lost_stopped_and_restarted_hosts_and_databases_lose_nothing() {
    let Some(mut farm) = Farm::start() else { return };
    let bytes = content(3_000_000, 7);
    // A host is lost.
    let id = farm.add("killed", &bytes, "6Mbit");
    let lost = farm.runner(1, id);
    farm.homes[lost].kill(Signal::KILL);
    farm.homes[1 - lost].done(id);
    same(farm.homes[0].files().join("killed"), &bytes);
    farm.homes[lost].agent(&["--listen", "127.0.0.1:0"]);

    // A host stops for more than the lease; the end of its run does not count.
    let id = farm.add("stopped", &bytes, "6Mbit");
    let stopped = farm.runner(0, id);
    let pid = farm.homes[stopped].pid().unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let epoch = format!("SELECT epoch > 1 FROM longhaul.transfers WHERE id = {id}");
    wait_until("another host has it", || farm.postgres.sql(&epoch) == "t");
    kill_process(pid, Signal::CONT).unwrap();
    farm.homes[1 - stopped].done(id);
    same(farm.homes[0].files().join("stopped"), &bytes);

    // The database crashes for less, and for more than the lease.
    for (name, pause) in [("short", 0), ("long", LEASE + 2)] {
        let id = farm.add(name, &bytes, "6Mbit");
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
fn farm_that_cannot_be_used_is_named_with_a_remedy_and_no_password() {
    let Some(mut postgres) = Postgres::start() else { return };
    let home = Home::with(&["--farm", &postgres.url("farm")]);
    home.kill(Signal::TERM);
    let refused = |url: &str, code: i32, remedy: &str| {
        let mut command = home.command();
        command.args(["agent", "--foreground", "--listen", "127.0.0.1:0", "--farm", url]);
        let output = command.env("PGPASSWORD", "wrong").output().unwrap();
        let said = text(&output);
        assert!(
            output.status.code() == Some(code) && said.contains(remedy) && !said.contains("wrong"),
            "{said}"
        );
    };
    let url = postgres.url("farm");
    postgres.sql("CREATE ROLE ann LOGIN PASSWORD 'right'");
    refused(&postgres.url("ann"), 77, "PGPASSWORD");
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
    postgres.kill();
    refused(&url, 69, "see whether it runs");
    // Its own queue is still there.
    home.agent(&["--listen", "127.0.0.1:0", "--no-farm"]);
    assert!(home.list().is_empty());
}
