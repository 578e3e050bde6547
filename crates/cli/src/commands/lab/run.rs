//! `longhaul lab run`: the experiment that a scenario file describes.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use longhaul_lab::LabError;
use longhaul_lab::scenario::{
    Execution, FidelityPolicy, Results, ResultsDirectory, Scenario, Selection, SetParameter, run_scenario,
};

use crate::{say, stdout};

use super::watcher::{StopSignal, Terminal};
use super::{evidence, plots};

/// Run the experiment that a scenario file describes: every configuration, as often as it says.
///
/// DIR gets results.json (complete after each execution), results.csv, summary.md, the plots, and
/// below runs/ the commands' output and records. Repeating the command runs missing and failed
/// executions, also after Ctrl-C. Programs that the scenario names as its needs are checked first.
/// The exit status is 0 only where every execution has succeeded.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    scenario: PathBuf,

    /// Write the results to DIR [default: out/ and the scenario's name]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,

    /// Execute only the runs with these names
    #[arg(long, value_name = "RUN", value_delimiter = ',')]
    only: Vec<String>,

    /// Repeat every run this often, with each seed
    #[arg(long, value_name = "N")]
    repeat: Option<NonZeroU32>,

    /// Sweep NAME over these values instead of the scenario's; path.KEY=VALUE sets a value of the
    /// path
    #[arg(long, value_name = "NAME=VALUE[,VALUE..]")]
    set: Vec<SetParameter>,

    /// Repeat an execution at most this often if this machine did not hold the requested path
    #[arg(long, value_name = "N", default_value_t = FidelityPolicy::default().retries)]
    retries: u32,

    /// Fail if an execution did not have the requested path, after all retries
    #[arg(long)]
    strict: bool,

    /// Delete the results in DIR
    #[arg(long)]
    fresh: bool,

    /// Print the executions that would run, and run none
    #[arg(long)]
    list: bool,
}

/// Runs the remaining executions and writes the results.
///
/// # Errors
/// Fails if the scenario is invalid, this machine does not permit a lab, or results cannot be read
/// or written.
pub(super) fn run(args: RunArgs) -> Result<ExitCode> {
    let scenario = Scenario::load(&args.scenario, &args.set)?;
    let plan = scenario.plan(&Selection { only: args.only, repeat: args.repeat })?;
    let out = args.out.unwrap_or_else(|| Path::new("out").join(&scenario.name));
    let fidelity = FidelityPolicy { retries: args.retries, is_strict: args.strict };
    let earlier = |directory: &Path| {
        let found = match args.fresh {
            true => Ok(Results::new(&scenario)),
            false => Results::resume(&scenario, directory),
        };
        found.map(|mut results| {
            results.fidelity = fidelity;
            results
        })
    };
    if args.list {
        list(&plan, &earlier(&out)?);
        return Ok(ExitCode::SUCCESS);
    }
    scenario.check_needs(&earlier(&out)?.remaining(&plan))?;
    let output = ResultsDirectory::open(&out)?;
    let mut results = earlier(output.directory())?;
    let stop = StopSignal::listen().context("cannot watch for signals")?;
    let outcome = if results.remaining(&plan).is_empty() {
        say::line(format_args!("lab: all {} executions are done already", plan.len()));
        Ok(())
    } else {
        // The kernel requires it before the first thread starts.
        longhaul_lab::gain_privilege()?;
        if args.fresh {
            results.discard(&output)?;
        }
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut terminal = Terminal::new(stop.clone());
        run_scenario(&plan, &mut results, &output, &program, &mut terminal)
    };
    match (&outcome, present(&scenario, &results, &output)) {
        (Err(LabError::Interrupted), shown) => {
            shown?;
            say::line("lab: interrupted; the same command goes on from here");
            return Ok(stop.exit_code());
        }
        (Ok(()), shown) => shown?,
        // The first error counts.
        (Err(_), _) => {}
    }
    outcome?;
    Ok(if results.remaining(&plan).is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(plan: &[Execution<'_>], results: &Results) {
    let left = results.remaining(plan);
    for execution in &left {
        stdout::line(format_args!("{execution}"));
    }
    say::line(format_args!("lab: {} of {} executions would run", left.len(), plan.len()));
}

/// Writes tables and plots of all results, and prints the summary.
fn present(scenario: &Scenario, results: &Results, output: &ResultsDirectory) -> Result<()> {
    if results.runs.is_empty() {
        return Ok(());
    }
    let (table, page) = results.write_tables(output)?;
    // Printed before the drawing, which may be slow or fail.
    stdout::line(table.trim_end());
    stdout::line(format_args!("\n{}", page.display()));
    if let Some(differences) = results.differences() {
        say::line(format_args!("lab: WARNING: {differences}"));
    }
    for name in results.unknown_values() {
        let mut known: Vec<&str> =
            results.runs.iter().flat_map(|run| run.values.keys()).map(String::as_str).collect();
        known.sort_unstable();
        known.dedup();
        say::line(format_args!(
            "lab: WARNING: no execution gave '{name}'; there are wall_s, user_s, sys_s, cpu_s, {}",
            known.join(", ")
        ));
    }
    plots::write(scenario, results, output)?;
    evidence::draw_overlay(&results.records(output), &output.records_page())
}
