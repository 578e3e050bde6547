//! Plans and their workers, against `longhaul serve`.

mod bad_plans;
mod kills;
mod workers;

use std::path::Path;

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

/// Returns the state of the plan `p`.
fn status(directory: &Path) -> serde_json::Value {
    of_plan(directory, "status", &["--json"]).ok().json().remove(0)
}
