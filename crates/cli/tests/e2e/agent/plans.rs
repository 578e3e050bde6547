//! Workers of plans as transfers of the queue, of one agent and of a farm.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::postgres::{Farm, SHORT_LEASE};
use crate::support::lab::wait_until;
use crate::support::{Home, Writable, age, assert_equal, content, text};

/// The rate of a worker, at which a second one starts before the first one has done all: the plan
/// takes 16 s.
const SLOW: &str = "10Mbit";

/// A plan in a home, of a huge file and of small ones.
struct Planned<'a> {
    home: &'a Home,
    server: Writable,
    path: String,
    units: u64,
}

impl<'a> Planned<'a> {
    fn new(home: &'a Home) -> Self {
        let server = Writable::start();
        fs::create_dir(server.path("t")).unwrap();
        for number in 0..40 {
            fs::write(server.path("t").join(number.to_string()), content(100_000, number)).unwrap();
        }
        fs::write(server.path("t/huge"), content(16 << 20, 1)).unwrap();
        age(&server.path("t"), 1_100_000_000);
        let path = home.path("p").display().to_string();
        let mut planned = Self { home, server, path, units: 0 };
        let url = planned.server.url("/t/");
        planned.plan(&["-r", "--unit-size", "1MiB", "--lease", "2s", "-o", "p", &url, "here"]);
        let status: Value = serde_json::from_str(&planned.plan(&["status", "--json", "p"])).unwrap();
        planned.units = status["units"].as_u64().unwrap();
        planned
    }

    /// Runs a command of `plan` that must succeed; returns its output.
    fn plan(&self, args: &[&str]) -> String {
        let output = self.home.command().arg("plan").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Adds workers of the plan; returns their numbers.
    fn add(&self, options: &[&str]) -> Vec<i64> {
        let added = self.home.queue_ok(&[&["add", "--plan", &self.path], options].concat());
        added.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    }

    /// Returns the number of lines in the logs of a process, or of all, that end a unit so.
    fn ended(&self, process: Option<Pid>, result: &str) -> usize {
        let is_of = |path: &PathBuf| {
            let id = process.map_or_else(String::new, |pid| pid.as_raw_nonzero().to_string());
            path.display().to_string().contains(&format!("-{id}"))
        };
        let state = fs::read_dir(self.home.path("p")).unwrap().map(|entry| entry.unwrap().path());
        let logs =
            state.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path.join("log")).unwrap());
        let logs = logs.map(|entry| entry.unwrap().path()).filter(is_of);
        let lines: String = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["result"] == result).count()
    }

    /// Checks that each file is as its source.
    fn verify(&self) {
        self.plan(&["verify", "p"]);
        assert_equal(&self.server.path("t"), &self.home.path("here"));
    }
}

#[test]
fn workers_of_a_plan_run_on_both_hosts_and_do_each_unit_once() {
    let Some(farm) = Farm::start(&[]) else { return };
    let [first, second] = &farm.homes;
    let planned = Planned::new(first);
    // The third one is for a third host.
    let ids = planned.add(&["-N", "3", "--limit", SLOW]);
    wait_until("both hosts work", || farm.homes.iter().all(|home| planned.ended(home.pid(), "done") > 0));
    let mut units: Vec<u64> =
        ids.iter().map(|id| second.done(*id)["units"]["done"].as_u64().unwrap()).collect();
    units.sort_unstable();
    assert!(units[0] == 0 && units[1] > 0, "{units:?}");
    assert_eq!(units.iter().sum::<u64>(), planned.units);
    assert_eq!(planned.ended(None, "done") as u64, planned.units);
    planned.verify();
    let (_, body) = first.http("GET", "/api/v1/transfers", &[], None);
    let page: Value = serde_json::from_str(&body).unwrap();
    for shown in page["transfers"].as_array().unwrap() {
        assert_eq!((&shown["kind"], &shown["path"]), (&"plan".into(), &planned.path.as_str().into()));
        assert_eq!(shown["units"]["total"], planned.units);
    }
    let list = second.queue_ok(&["list"]);
    assert!(list.contains(&format!("p ({} of {} units) on ", units[2], planned.units)), "{list}");
}

#[test]
fn worker_of_a_host_that_is_lost_goes_to_another_one() {
    let Some(farm) = Farm::start(&["--farm-lease", &SHORT_LEASE.to_string()]) else { return };
    let [lost, other] = &farm.homes;
    let planned = Planned::new(lost);
    let ids = planned.add(&["-N", "2", "--limit", SLOW]);
    wait_until("both hosts work", || farm.homes.iter().all(|home| planned.ended(home.pid(), "done") > 0));
    lost.kill(Signal::KILL);
    ids.iter().for_each(|id| drop(other.done(*id)));
    assert_eq!(farm.postgres.sql("SELECT max(epoch) FROM longhaul.transfers"), "2");
    planned.verify();
}

#[test]
fn worker_of_one_agent_is_paused_and_retried_and_a_bad_plan_is_named() {
    let home = Home::new();
    let planned = Planned::new(&home);
    let header = home.path("p/plan.json");
    let sound = fs::read_to_string(&header).unwrap();
    let failure = |id: i64| home.wait_for_state(id, "failed")["error"].clone();
    for (bad, why) in [
        (sound.replace("\"version\": 2", "\"version\": 9"), "is of version 9"),
        (sound.replace("here", "there"), "plan.json was edited"),
        (String::new(), "truncated"),
    ] {
        fs::write(&header, bad).unwrap();
        let error = failure(planned.add(&[])[0]);
        assert!(error["message"].as_str().unwrap().contains(why) && error["exit_code"] == 65, "{error}");
    }
    fs::write(&header, sound).unwrap();
    let none = failure(home.added(&["add", "--plan", "none"]));
    assert!(
        none["message"].as_str().unwrap().contains("none is no plan") && none["exit_code"] == 66,
        "{none}"
    );
    for options in [&["-o", "f"][..], &["-N", "0"], &["--put"]] {
        let refused = home.queue(&[&["add", "--plan", &planned.path], options].concat());
        assert_eq!(refused.status.code(), Some(64), "{options:?}");
    }

    // A unit fails until its source is there again; one under way is given back by a pause.
    fs::rename(planned.server.path("t/7"), planned.server.path("7")).unwrap();
    let id = planned.add(&["--limit", SLOW])[0];
    home.wait_for(id, |shown| shown["units"]["done"].as_u64() > Some(0));
    home.queue_ok(&["pause", &id.to_string()]);
    wait_until("its units are released", || planned.ended(None, "released") > 0);
    assert_eq!(home.transfer(id)["state"], "paused");
    home.queue_ok(&["set", &id.to_string(), "--limit", "none"]);
    home.queue_ok(&["resume", &id.to_string()]);
    let error = failure(id);
    let why = format!("a unit has failed; longhaul plan status {} says why", planned.path);
    assert!(error["message"].as_str().unwrap().starts_with(&why), "{error}");
    fs::rename(planned.server.path("7"), planned.server.path("t/7")).unwrap();
    age(&planned.server.path("t"), 1_100_000_000);
    home.queue_ok(&["retry", &id.to_string()]);
    home.done(id);
    planned.verify();
    // What is there is uploaded, with the token of the request.
    let (url, token) = (planned.server.url("/up/"), planned.server.token().display().to_string());
    planned.plan(&["-r", "-o", "q", "--token", &token, "here", &url]);
    home.done(home.added(&["add", "--plan", "q", "--token", &token]));
    assert_equal(&planned.server.path("up"), &home.path("here"));
    // All is done: workers that come later have nothing to do.
    planned.add(&["-N", "2"]).iter().for_each(|id| assert_eq!(home.done(*id)["units"]["done"], 0));
}
