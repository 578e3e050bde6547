//! Plans and their workers, against `longhaul serve`.

mod bad_plans;
mod copies;
mod differing_hosts;
mod kills;
mod limits;
mod ranges;
mod slurm;
mod slurm_kills;
mod uploads;
mod workers;

use std::path::Path;
use std::process::Command;

use crate::support::{Ended, Get, longhaul};

/// Creates `longhaul plan` in an empty directory, which is that of its workers too.
fn plan() -> Get {
    longhaul("plan")
}

/// Creates a `longhaul work p` in the directory of a plan.
fn work(directory: &Path, options: &[&str]) -> Get {
    let plan = directory.join("p").display().to_string();
    longhaul("work").args([&plan]).args(options)
}

/// Runs another command of `plan` on the plan `p`.
fn of_plan(directory: &Path, command: &str, options: &[&str]) -> Ended {
    let plan = directory.join("p").display().to_string();
    plan_command(command, &plan, options)
}

fn plan_command(command: &str, plan: &str, options: &[&str]) -> Ended {
    self::plan().args([command, plan]).args(options).run()
}

/// Returns the lines of all logs of a plan.
fn log_lines(plan: &Path) -> Vec<serde_json::Value> {
    let found = Command::new("find").arg(plan).args(["-name", "*.log", "-exec", "cat", "{}", "+"]).output();
    let text = String::from_utf8(found.unwrap().stdout).unwrap();
    // The last line of a worker that was killed may have no end.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the state of the plan `p`.
fn status(directory: &Path) -> serde_json::Value {
    of_plan(directory, "status", &["--json"]).ok().json().remove(0)
}
