//! Workers of a plan as an array job, on a real controller with four nodes; and what is refused
//! before Slurm sees it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::{log_lines, of_plan, plan, plan_command, status, work};
use crate::support::{Ended, Get, Running, Slurm, Writable, age, assert_equal, content, longhaul, names};

#[test]
fn array_job_completes_a_plan_although_a_node_is_lost_and_a_task_reaches_its_time_limit() {
    let Some(mut cluster) = Slurm::start() else { return };
    let server = Writable::start();
    fs::create_dir(server.path("t")).unwrap();
    // Units of two files take a worker ten seconds, so that what happens to it happens within one.
    for number in 0..16 {
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
    let script = p.join("slurm/job.sh");
    slurm("submit", &p, &["--time", "30", "-o", script.to_str().unwrap()]);
    // No worker has more than two of the eight units at once.
    let edited = fs::read_to_string(&script).unwrap().replace("work -q", "work -q --parallel 1");
    fs::write(&script, edited).unwrap();
    limit(&p, "1Mbit");
    let submitted = slurm("submit", &p, &["-N", "4"]);
    assert!(submitted.stdout.contains("as it is"), "{submitted:?}");
    let job = fs::read_to_string(p.join("slurm/jobs")).unwrap().trim().to_owned();
    cluster.until("four workers run", || {
        status(run.dir())["workers"].as_array().is_some_and(|workers| workers.len() == 4)
    });
    let shown = slurm("status", &p, &[]).stdout;
    assert!(shown.contains("units done") && shown.contains(&format!("{job}_1 RUNNING on n")), "{shown}");

    // What slurmctld does before the time limit.
    let stopped = cluster.run("squeue", &["-h", "-w", "n2", "-o", "%i"]).trim().to_owned();
    assert!(stopped.starts_with(&format!("{job}_")), "{stopped:?}");
    cluster.run("scancel", &["--batch", "--signal=TERM", &stopped]);
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
    // A partition that is down holds what is submitted.
    cluster.run("scontrol", &["update", "PartitionName=all", "State=DOWN"]);
    slurm("submit", &q, &[]);
    cluster
        .until("the reason is shown", || slurm("status", &q, &[]).stdout.contains("PENDING (PartitionDown)"));
    cluster.run("scontrol", &["update", "PartitionName=all", "State=UP"]);
    // The number of a job that is not of the plan, as after Slurm has begun to count anew.
    let sleeps = ["--parsable", "--job-name=longhaul", "--output=/dev/null", "--wrap", "sleep 600"];
    let other = cluster.run("sbatch", &sleeps).trim().to_owned();
    let job = fs::read_to_string(q.join("slurm/jobs")).unwrap().trim().to_owned();
    fs::write(q.join("slurm/jobs"), format!("{job}\n{other}\n{job}1")).unwrap();
    assert!(!slurm("status", &q, &[]).stdout.contains(&format!("task {other}")));
    let is_under_way = || {
        let status = plan_command("status", q.to_str().unwrap(), &["--json"]).ok().json();
        status[0]["workers"].as_array().is_some_and(|workers| !workers.is_empty())
    };
    cluster.until("a worker runs", || with(&tasks(&job), &["RUNNING"]) == 1 && is_under_way());
    let cancelled = slurm("cancel", &q, &[]);
    assert!(cancelled.stdout.contains(&format!("cancelled: {job}\n")), "{cancelled:?}");
    cluster.until("the task has ended", || with(&tasks(&job), &["CANCELLED", "Restarts=0"]) == 1);
    // Its worker has left its unit, although Slurm has signalled it too.
    cluster.until("the unit is released", || log_lines(&q).iter().any(|line| line["result"] == "released"));
    assert!(slurm("cancel", &q, &[]).stdout.contains("no job of the plan"));
    assert_eq!(with(&tasks(&other), &["CANCELLED"]), 0, "the job of others");
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
fn script_signals_its_worker_once_and_is_queued_again_although_slurm_is_busy() {
    let server = Writable::start();
    fs::write(server.path("f"), "f").unwrap();
    let run = plan().args(["-o", "p", &server.url("/f"), "here"]).file("programs/none", "");
    run.run().ok();
    let at = |name: &str| run.path(name).display().to_string();
    // Before the worker can heed a signal, the first one ends it.
    for heeds in [true, false] {
        script_ends(&run, &at, heeds);
    }
}

fn script_ends(run: &Get, at: &dyn Fn(&str) -> String, heeds: bool) {
    for name in ["signals", "busy", "queued"] {
        let _ = fs::remove_file(run.path(name));
    }
    let text = longhaul("slurm").args(["submit", &at("p"), "--dry-run"]).run().ok().stdout;
    let worker = text.lines().find(|line| line.contains(" work -q ")).unwrap();
    let script = text.replace(worker, &format!("bash {} &", at("worker")));
    fs::write(run.path("script"), script).unwrap();
    let signals = at("signals");
    let stops_at_once = format!("echo ready >{signals}; while sleep 0.1; do :; done\n");
    let stops_late = format!(
        "trap 'echo TERM >>{signals}' TERM; echo ready >{signals}\n\
         until grep -q TERM {signals}; do sleep 0.1; done; sleep 1; exit 75\n"
    );
    fs::write(run.path("worker"), if heeds { stops_late } else { stops_at_once }).unwrap();
    let busy = format!("[ -e {0} ] || {{ touch {0}; exit 1; }}; echo $SQUEUE_FORMAT RUNNING", at("busy"));
    program(run, "squeue", &busy);
    program(run, "scontrol", &format!("echo $* >>{}", at("queued")));
    let mut bash = Command::new("bash");
    let path = format!("{}:{}", at("programs"), std::env::var("PATH").unwrap());
    bash.arg(run.path("script")).env("PATH", path).env("SQUEUE_FORMAT", "%i");
    bash.env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", "2");
    let mut running = Running::new(bash);
    running
        .until("the worker runs", || fs::read_to_string(&signals).is_ok_and(|text| text.contains("ready")));
    running.signal(Signal::TERM);
    if heeds {
        running
            .until("the worker has got a signal", || fs::read_to_string(&signals).unwrap().contains("TERM"));
        running.signal(Signal::TERM);
    }
    assert_eq!(running.end().status.code(), Some(75));
    assert_eq!(fs::read_to_string(&signals).unwrap(), if heeds { "ready\nTERM\n" } else { "ready\n" });
    assert_eq!(fs::read_to_string(run.path("queued")).unwrap(), "requeue 7_2\n");
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
        let filters = longhaul("slurm").env("SQUEUE_STATES", "PD").env("SCANCEL_USER", "ann");
        filters.env("SLURM_CLUSTERS", "x").env("PATH", path).args([args[0], &plan]).args(&args[1..]).run()
    };
    slurm(&["submit"]).fails(69, &["cannot run sbatch", "-o SCRIPT"]);
    slurm(&["submit", "-N", "0"]).is_misused("0");
    assert!(!run.path("p/slurm/job.sh").exists(), "a next attempt would ignore its options");
    fs::remove_dir_all(run.path("p/slurm")).unwrap();
    slurm(&["submit", "--dry-run", "--", "--comment=it's"]).fails(64, &["it's", "cannot hold"]);
    let dry = slurm(&["submit", "-N", "8", "--partition", "dtn", "--dry-run", "--", "-A", "x"]).ok();
    assert!(dry.stdout.contains("#SBATCH --array=1-8 --partition=dtn -A x\n"), "{dry:?}");
    assert!(!run.path("p/slurm").exists());
    let script = run.path("script").display().to_string();
    slurm(&["submit", "-o", &script]).ok();
    slurm(&["submit", "-o", &script]).fails(73, &["script", "exists"]);
    slurm(&["submit", "-o", &run.path("p/slurm/job.sh").display().to_string()]).ok();
    let kept = run.path("p/slurm/job.sh");
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, text.replace("/p &", "/older &")).unwrap();
    slurm(&["submit", "--dry-run"]).fails(64, &["job.sh is of another plan", "remove it"]);
    fs::write(&kept, text).unwrap();
    slurm(&["submit", "--dry-run", "--", "--comment=it's"]).ok();

    program(&run, "sbatch", "echo 'sbatch: error: invalid partition: x' >&2; exit 1");
    slurm(&["submit"]).fails(69, &["sbatch has failed", "invalid partition: x"]);
    program(&run, "sbatch", "echo Submitted");
    slurm(&["submit"]).fails(69, &["no number of a job", "Submitted"]);
    program(&run, "sbatch", "echo Welcome; echo '12;cluster'");
    slurm(&["submit"]).ok();
    let unknown = slurm(&["status"]).fails(69, &["cannot run squeue"]);
    assert!(unknown.stdout.contains("0 of 1 units done"), "{unknown:?}");
    let forgotten = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
    program(&run, "squeue", &format!("case \" $*\" in *\" -j \"*) {forgotten};; esac"));
    assert!(slurm(&["status"]).ok().stdout.contains("no job of Slurm is known"));
    program(&run, "sacct", "echo '12_1|COMPLETED'");
    assert!(slurm(&["status"]).ok().stdout.contains("task 12_1 COMPLETED"));
    // Without accounting, and of a job that was not noted.
    program(&run, "sacct", "exit 1");
    program(
        &run,
        "squeue",
        "case \" $*\" in *\" --clusters=\"*) ;; *\" --me \"*) echo '14|RUNNING|n1|None';; *) echo 'Invalid job id' >&2; exit 1;; esac",
    );
    program(&run, "scancel", r#"case " $*" in *" --name=longhaul-"*" 14") ;; *) exit 1;; esac"#);
    assert!(slurm(&["status"]).ok().stdout.contains("task 14 RUNNING on n1"));
    assert!(slurm(&["cancel"]).ok().stdout.contains("cancelled: 14\n"));
    // Each command names cluster and jobs, whatever the user's variables say.
    let ours = r#"[ -z "$SQUEUE_STATES$SCANCEL_USER$SLURM_CLUSTERS" ] && case " $*" in *" --clusters=cluster --name=longhaul-"*12*) "#;
    program(
        &run,
        "squeue",
        &format!(
            "{ours} echo CLUSTER: cluster; echo '12|PENDING||Priority';; *\" --me \"*) ;; *) exit 1;; esac"
        ),
    );
    program(&run, "scancel", &format!("{ours} ;; *) exit 1;; esac"));
    let shown = slurm(&["status"]).ok().stdout;
    assert!(shown.contains("task 12 PENDING (Priority)") && !shown.contains("CLUSTER"), "{shown}");
    assert!(slurm(&["cancel"]).ok().stdout.contains("cancelled: 12\n"));
    program(&run, "sbatch", "echo 13");
    // A last line that a crash has cut off.
    fs::write(run.path("p/slurm/jobs"), "12;cluster\n1").unwrap();
    slurm(&["submit"]).ok();
    assert_eq!(fs::read_to_string(run.path("p/slurm/jobs")).unwrap(), "12;cluster\n13\n");
    let script = run.path("p/slurm/job.sh");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o720)).unwrap();
    slurm(&["submit"]).fails(77, &["job.sh is not yours, or others may write", "chmod go-w"]);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
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

/// Makes a program of a shell script. Another process writes it: a file that is open for writing in
/// a child of this one cannot be run.
fn program(run: &Get, name: &str, script: &str) {
    fs::write(run.path("source"), format!("#!/bin/sh\n{script}\n")).unwrap();
    let mut install = Command::new("install");
    let installed = install.args(["-m", "755", "source"]).arg(run.path("programs").join(name));
    assert!(installed.current_dir(run.dir()).status().unwrap().success());
}
