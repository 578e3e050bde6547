//! Workers of a plan as an array job, on a real controller with four nodes; and what is refused before Slurm sees it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{log_lines, of_plan, plan, status, work};
use crate::support::{Ended, Get, Slurm, Writable, age, assert_equal, content, longhaul, names};

#[test]
fn array_job_completes_a_plan_although_a_node_is_lost_and_a_task_reaches_its_time_limit() {
    let Some(mut cluster) = Slurm::start() else { return };
    let server = Writable::start();
    fs::create_dir(server.path("t")).unwrap();
    for number in 0..24 {
        fs::write(server.path("t").join(number.to_string()), content(600_000, number)).unwrap();
    }
    age(&server.path("t"), 1_100_000_000);
    let run =
        plan().args(["-r", "--unit-size", "1MiB", "--lease", "1s", "-o", "p", &server.url("/t/"), "here"]);
    run.run().ok();
    let slurm = |command: &str, plan: &Path, options: &[&str]| {
        let run = longhaul("slurm").env("SLURM_CONF", cluster.conf());
        run.args([command, plan.to_str().unwrap()]).args(options).run().ok()
    };
    let p = run.path("p");
    let with = |tasks: &str, words: &[&str]| {
        tasks.lines().filter(|task| words.iter().all(|word| task.contains(word))).count()
    };
    slurm("submit", &p, &["--time", "30", "-o", p.join("slurm/job.sh").to_str().unwrap()]);
    limit(&p, "5Mbit");
    let submitted = slurm("submit", &p, &["-N", "4"]);
    assert!(submitted.stdout.contains("as it is"), "{submitted:?}");
    let job = fs::read_to_string(p.join("slurm/jobs")).unwrap().trim().to_owned();
    cluster.until("four workers run", || {
        status(run.dir())["workers"].as_array().is_some_and(|workers| workers.len() == 4)
    });
    let shown = slurm("status", &p, &[]).stdout;
    assert!(shown.contains("units done") && shown.contains(&format!("{job}_1 RUNNING on n")), "{shown}");

    // What slurmctld does before the time limit.
    let stopped = cluster.run("squeue", &["-h", "-w", "n2", "-o", "%i"]);
    cluster.run("scancel", &["--batch", "--signal=TERM", stopped.trim()]);
    let conf = cluster.conf();
    cluster.lose("n1");
    let tasks = |job: &str| cluster.run("scontrol", &["show", "job", "-o", job]);
    cluster.until("both tasks are queued again", || with(&tasks(&job), &["Restarts=1"]) == 2);
    cluster.until("all tasks have ended", || with(&tasks(&job), &["COMPLETED", "ExitCode=0:0"]) == 4);
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["failed"]), (&now["units"], &0.into()), "{now}");
    assert!(log_lines(&p).iter().any(|line| line["result"] == "released"));
    of_plan(run.dir(), "verify", &[]).ok();
    assert_equal(&server.path("t"), &run.path("here"));
    assert!(
        names(&run.path("here")).iter().all(|name| !name.starts_with('.')),
        "a staging directory is left"
    );

    let slurm = |command: &str, plan: &Path, options: &[&str]| {
        let run = longhaul("slurm").env("SLURM_CONF", &conf);
        run.args([command, plan.to_str().unwrap()]).args(options).run().ok()
    };
    let run = run.again(["-r", "-o", "q", &server.url("/t/"), "there"]);
    run.run().ok();
    let q = run.path("q");
    slurm("submit", &q, &["-o", q.join("slurm/job.sh").to_str().unwrap()]);
    limit(&q, "1Mbit");
    slurm("submit", &q, &[]);
    let job = fs::read_to_string(q.join("slurm/jobs")).unwrap().trim().to_owned();
    let is_under_way = || names(&run.path("there")).iter().any(|name| name.starts_with(".longhaul"));
    cluster.until("a worker runs", || with(&tasks(&job), &["RUNNING"]) == 1 && is_under_way());
    let cancelled = slurm("cancel", &q, &[]);
    assert!(cancelled.stdout.contains(&format!("cancelled: {job}")), "{cancelled:?}");
    cluster.until("the task has ended", || with(&tasks(&job), &["CANCELLED", "Restarts=0"]) == 1);
    assert!(slurm("cancel", &q, &[]).stdout.contains("no job of the plan"));
}

/// Edits the script of a plan: gives its workers a rate limit.
fn limit(plan: &Path, rate: &str) {
    let script = plan.join("slurm/job.sh");
    let text = fs::read_to_string(&script).unwrap();
    let edited = text.replace("work -q", &format!("work -q --limit {rate}"));
    assert_ne!(text, edited);
    fs::write(script, edited).unwrap();
}

#[test]
fn what_cannot_be_submitted_or_shown_is_named() {
    let server = Writable::start();
    fs::write(server.path("f"), "f").unwrap();
    let run = plan().args(["-o", "p", &server.url("/f"), "here"]).file("programs/none", "");
    run.run().ok();
    let slurm = |args: &[&str]| -> Ended {
        let plan = run.path("p").display().to_string();
        let path = run.path("programs").display().to_string();
        longhaul("slurm").env("PATH", path).args([args[0], &plan]).args(&args[1..]).run()
    };
    slurm(&["submit"]).fails(69, &["cannot run sbatch", "-o SCRIPT"]);
    slurm(&["submit", "-N", "0"]).is_misused("0");
    slurm(&["submit", "--dry-run", "--", "--comment=it's"]).ok();
    fs::remove_dir_all(run.path("p/slurm")).unwrap();
    slurm(&["submit", "--dry-run", "--", "--comment=it's"]).fails(64, &["it's", "cannot hold"]);
    let dry = slurm(&["submit", "-N", "8", "--partition", "dtn", "--dry-run", "--", "-A", "x"]).ok();
    assert!(dry.stdout.contains("#SBATCH --array=1-8 --partition=dtn -A x\n"), "{dry:?}");
    assert!(!run.path("p/slurm").exists());
    let script = run.path("script").display().to_string();
    slurm(&["submit", "-o", &script]).ok();
    slurm(&["submit", "-o", &script]).fails(73, &["script", "exists"]);

    program(&run, "sbatch", "echo 'sbatch: error: invalid partition: x' >&2; exit 1");
    slurm(&["submit"]).fails(69, &["sbatch has failed", "invalid partition: x"]);
    program(&run, "sbatch", "echo Submitted");
    slurm(&["submit"]).fails(69, &["no number of a job", "Submitted"]);
    program(&run, "sbatch", "echo Welcome; echo '12;cluster'");
    slurm(&["submit"]).ok();
    slurm(&["status"]).fails(69, &["cannot run squeue"]);
    program(&run, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
    assert!(slurm(&["status"]).ok().stdout.contains("no job of Slurm is known"));
    program(&run, "sacct", "echo '12_1|COMPLETED'");
    assert!(slurm(&["status"]).ok().stdout.contains("task 12_1 COMPLETED"));
    fs::write(run.path("p/slurm/jobs"), "12\n1x\n").unwrap();
    for command in ["submit", "status", "cancel"] {
        slurm(&[command]).fails(65, &["slurm/jobs is damaged", "line 2"]);
    }

    // A plan that was copied from another machine.
    fs::rename(run.path("here"), run.path("elsewhere")).unwrap();
    slurm(&["submit"]).fails(66, &["here is missing", "mount"]);
    fs::rename(run.path("elsewhere"), run.path("here")).unwrap();
    work(run.dir(), &[]).run().ok();
    assert!(slurm(&["submit"]).ok().stdout.contains("nothing is submitted"));
    fs::remove_file(run.path("p/plan.json")).unwrap();
    slurm(&["submit"]).fails(66, &["is no plan"]);
}

/// Makes a program of a shell script. Another process writes it: a file that is open for writing in a child of this one
/// cannot be run.
fn program(run: &Get, name: &str, script: &str) {
    fs::write(run.path("source"), format!("#!/bin/sh\n{script}\n")).unwrap();
    let mut install = Command::new("install");
    let installed = install.args(["-m", "755", "source"]).arg(run.path("programs").join(name));
    assert!(installed.current_dir(run.dir()).status().unwrap().success());
}
