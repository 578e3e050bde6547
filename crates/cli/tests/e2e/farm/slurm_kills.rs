//! Nodes and controllers of Slurm that are killed at seeded moments, and tasks that reach their
//! time limit.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{log_lines, plan, status};
use crate::support::{NODES, RatedSite, RoundWork, Slurm, chosen_kill_rounds, content, longhaul};

/// One of so many rounds is played, as each takes a minute.
const SHARE: u64 = 10;

#[test]
fn lost_nodes_and_controllers_and_time_limits_lose_nothing() {
    let Some(rounds) = chosen_kill_rounds() else {
        return println!("not played: LONGHAUL_KILL_ROUNDS is not set");
    };
    let Some(mut cluster) = Slurm::start() else { return };
    let files = (0..40).map(|number| (format!("f{number}"), content(300_000, number)));
    // 40 s of work.
    let site = RatedSite::start(files, 300_000);
    let mut all = RoundWork::default();
    rounds.step_by(SHARE as usize).for_each(|seed| all += play(seed, &mut cluster, &site));
    all.judge();
}

fn play(seed: u64, cluster: &mut Slurm, site: &RatedSite) -> RoundWork {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let (began, before) = (Instant::now(), site.sent());
    let run = plan().args(["-r", "--unit-files", "1", "--lease", "4s", "-o", "p", &site.url(""), "here"]);
    run.run().ok();
    let submit = longhaul("slurm").env("SLURM_CONF", cluster.conf());
    submit.args(["submit", run.path("p").to_str().unwrap(), "-N", "4", "--time", "30"]).run().ok();
    cluster.until("four workers run", || {
        status(run.dir())["workers"].as_array().is_some_and(|workers| workers.len() == 4)
    });
    // slurmctld stores a change of the jobs within 5 s.
    std::thread::sleep(Duration::from_millis(6000 + dice.random_range(0..2000)));
    let node = NODES[dice.random_range(0..NODES.len())];
    let what = match seed / SHARE % 3 {
        0 => {
            cluster.lose(node);
            cluster.start_node(node);
            format!("{node} is lost")
        }
        1 => {
            cluster.lose_controller();
            std::thread::sleep(Duration::from_millis(dice.random_range(0..5000)));
            cluster.start_controller();
            "the controller is lost".to_owned()
        }
        _ => {
            // Slurm signals a task a minute before its limit, here when it looks at all limits
            // next: each 30 s.
            let task = cluster.run("squeue", &["-h", "-w", node, "-o", "%i"]).trim().to_owned();
            cluster.run("scontrol", &["update", &format!("JobId={task}"), "TimeLimit=1"]);
            let is_released = || log_lines(&run.path("p")).iter().any(|line| line["result"] == "released");
            cluster.until("the worker has left its units, or all are done", || {
                is_released() || status(run.dir())["done"] == status(run.dir())["units"]
            });
            format!("{task} reaches its time limit: {}", if is_released() { "released" } else { "too late" })
        }
    };
    cluster.until("all tasks have ended", || cluster.run("squeue", &["-h"]).is_empty());
    cluster.until("all nodes are idle", || cluster.idle_nodes() == NODES.len());
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["failed"]), (&now["units"], &0.into()), "round {seed}: {what}: {now}");
    site.is_in(&run.path("here"));
    let lines = log_lines(&run.path("p"));
    let done = lines.iter().filter(|line| line["result"] == "done").count() as u64;
    let units = now["units"].as_u64().unwrap();
    let sent = site.sent() - before;
    let work = RoundWork { rounds: 1, units, twice: done - units, stops: 0, bytes: site.size(), sent };
    println!("round {seed}: {what}; {work}, {:.1} s", began.elapsed().as_secs_f64());
    work
}
