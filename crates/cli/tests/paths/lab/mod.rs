//! Transfers and scenarios on emulated paths.
mod apt;
mod scenarios;
mod streams;

use serde_json::Value;

use crate::support::held_path::until_held;
use crate::support::lab::Scenario;

/// Runs one of Longhaul's scenarios until its results are right or this machine held their paths.
fn measure(
    name: &str,
    args: &[&str],
    is_right: impl Fn(&Scenario, &[Value]) -> bool,
) -> Option<(Scenario, Vec<Value>)> {
    let attempt = || {
        let scenario = Scenario::own(&format!("{name}.toml"));
        let runs = scenario.measure(args);
        (scenario, runs)
    };
    let is_held = |run: &Value| run["infidelities"].as_array().is_some_and(Vec::is_empty);
    let is_held = |(_, runs): &(Scenario, Vec<Value>)| runs.iter().all(is_held);
    until_held(name, attempt, is_held, |(scenario, runs)| is_right(scenario, runs))
}
