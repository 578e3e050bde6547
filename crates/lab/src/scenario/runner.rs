//! Runs a scenario: each run on a lab of its own, so that none inherits anything.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::results::{Ended, Results, RunResult};
use super::{Far, Run, Scenario};
use crate::clock::Clock;
use crate::error::LabError;
use crate::host::FarCommand;
use crate::lab::Lab;
use crate::model::Time;

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
    fs::create_dir_all(out).map_err(|cause| LabError::Create { path: out.to_owned(), cause })?;
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
        Some(Far { command, port }) => {
            let log = log("far");
            let mut far = FarCommand::start(&lab.far(), command, |shell| send_output(shell, &log))?;
            if let Some(port) = port {
                far.wait_until_listening(*port)?;
            }
            Some(far)
        }
        None => None,
    };
    let ended = measure(&lab, run, &log("near"))?;

    let stats = lab.stats()?;
    let mut warnings = stats.infidelities(lab.spec().one_way());
    if let Some(far) = far {
        warnings.extend(far.end()?.map(|status| format!("the far command ended early: {status}")));
    }
    Ok(RunResult::new(&run.name, repetition, &ended, stats, warnings))
}

/// Runs the command on the near host; ends it, with what it started, when its time is over.
fn measure(lab: &Lab, run: &Run, log: &Path) -> Result<Ended, LabError> {
    const GRACE: Duration = Duration::from_secs(1);
    let mut shell = lab.near().command("sh");
    shell.args(["-c", &run.command]).stdin(Stdio::null()).process_group(0);
    send_output(&mut shell, log)?;

    let clock = Clock::start();
    let wall = || clock.now().since(Time::START);
    let mut process = lab.near().spawn(shell)?;
    let Some(timeout) = run.timeout else {
        return Ok(Ended { finished: process.wait()?, wall: wall(), timed_out: false });
    };
    while let Some(left) = timeout.checked_sub(wall()) {
        if let Some(finished) = process.wait_for(left)? {
            return Ok(Ended { finished, wall: wall(), timed_out: false });
        }
    }
    process.terminate_group()?;
    if process.wait_for(GRACE)?.is_none() {
        process.kill()?;
    }
    Ok(Ended { finished: process.wait()?, wall: wall(), timed_out: true })
}

/// Sends a command's standard output and error to a file.
fn send_output(command: &mut Command, path: &Path) -> Result<(), LabError> {
    let failed = |cause: io::Error| LabError::Create { path: path.to_owned(), cause };
    let log = File::create(path).map_err(failed)?;
    command.stdout(log.try_clone().map_err(failed)?).stderr(log);
    Ok(())
}
