//! Runs a scenario: each run on a lab of its own, so that none inherits anything.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::results::{Results, RunResult};
use super::{Run, Scenario};
use crate::clock::Clock;
use crate::error::LabError;
use crate::host::FarCommand;
use crate::lab::Lab;

/// Runs all of a scenario; writes `results.json` and each run's output below `out`.
///
/// `on_result` hears of each execution as it ends. `results.json` is complete after each.
///
/// # Errors
/// Fails where a lab cannot be built or `out` cannot be written; a command that fails is a result.
pub fn run_scenario(
    scenario: &Scenario,
    out: &Path,
    mut on_result: impl FnMut(&RunResult),
) -> Result<Results, LabError> {
    fs::create_dir_all(out).map_err(|cause| LabError::File {
        what: "make the directory",
        path: out.to_owned(),
        cause,
    })?;
    let mut results = Results::new(scenario);
    for (repetition, run) in scenario.schedule() {
        let result = execute(scenario, run, repetition, out)?;
        on_result(&result);
        results.runs.push(result);
        results.write(&out.join("results.json"))?;
    }
    Ok(results)
}

fn execute(scenario: &Scenario, run: &Run, repetition: u32, out: &Path) -> Result<RunResult, LabError> {
    let lab = Lab::new(scenario.path.clone())?;
    let log = |end: &str| out.join(format!("{}-{repetition}-{end}.log", run.name));
    let far = match &scenario.far {
        Some(command) => {
            let log = log("far");
            Some(FarCommand::start(&lab.far(), command, |shell| send_output(shell, &log))?)
        }
        None => None,
    };
    let mut shell = lab.near().command("sh");
    shell.args(["-c", &run.command]).stdin(Stdio::null());
    send_output(&mut shell, &log("near"))?;

    let clock = Clock::start();
    let finished = lab.near().spawn(shell)?.wait()?;
    let wall = clock.now().since(crate::model::Time::START);

    let stats = lab.stats()?;
    let mut warnings = stats.infidelities(lab.spec().one_way());
    if let Some(far) = far {
        warnings.extend(far.end()?.map(|status| format!("the far command ended early: {status}")));
    }
    Ok(RunResult::new(&run.name, repetition, wall, &finished, stats, warnings))
}

/// Sends a command's standard output and error to a file.
fn send_output(command: &mut Command, path: &Path) -> Result<(), LabError> {
    let failed = |cause: io::Error| LabError::File { what: "write", path: path.to_owned(), cause };
    let log = File::create(path).map_err(failed)?;
    command.stdout(log.try_clone().map_err(failed)?).stderr(log);
    Ok(())
}
