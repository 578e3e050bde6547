//! A job and its results, run by the lab's runner.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use longhaul_lab::scenario::{
    Execution, ExecutionPhase, ExecutionStart, FidelityPolicy, Results, ResultsDirectory, RunResult,
    Scenario, Selection, Watcher, run_scenario,
};
use longhaul_scope::figures;

use crate::bench_environment::BenchEnvironment;
use crate::bench_job::BenchJob;
use crate::bench_part::BenchPart;
use crate::bench_run::BenchRun;
use crate::report::BenchReport;
use crate::source_file::BenchFile;
use crate::streams::fairness::FairnessSessions;

/// A job, and its results in a directory of its own.
#[derive(Debug)]
pub(crate) struct PlannedJob {
    part: BenchPart,
    /// `None` for the sessions of [`BenchPart::StreamsFairness`].
    job: Option<BenchJob>,
    scenario: Scenario,
    selection: Selection,
    output: ResultsDirectory,
    results: Results,
}

impl PlannedJob {
    /// Plans a job, or sessions, as `name`.
    ///
    /// # Errors
    /// Fails if the directory is not writable, or another benchmark uses it.
    pub(crate) fn open(
        environment: &BenchEnvironment,
        name: &str,
        part: BenchPart,
        job: Option<BenchJob>,
        scenario: Scenario,
        selection: Selection,
        fidelity: FidelityPolicy,
    ) -> Result<Self> {
        let output = ResultsDirectory::open(&environment.dir.join(name))?;
        let mut results = Results::new(&scenario);
        results.fidelity = fidelity;
        Ok(Self { part, job, scenario, selection, output, results })
    }

    /// Runs the clients in turns, so that drift of the machine affects all of them equally; replaces results of an earlier benchmark.
    ///
    /// The report is complete after each run.
    ///
    /// # Errors
    /// Fails if a client fails, or has not transferred the whole file.
    pub(crate) fn run(&mut self, environment: &BenchEnvironment, report: &mut BenchReport) -> Result<()> {
        let Self { part, job, scenario, selection, output, results } = self;
        let plan = scenario.plan(selection)?;
        results.discard(output)?;
        if let Some(job) = job {
            BenchFile::new(job.size, job.files).create(&environment.www())?;
        }
        let mut watcher = JobWatcher {
            part: *part,
            job: job.as_ref(),
            plan: &plan,
            output,
            directory: &environment.dir,
            earlier: report.len(),
            report,
            failed: None,
        };
        let ran = run_scenario(&plan, results, output, &environment.longhaul, &mut watcher);
        // The reason why the watcher has stopped the runner.
        if let Some(failed) = watcher.failed {
            return Err(failed);
        }
        ran?;
        watcher.report(results)
    }
}

/// Reports each run; stops the runner at a failure.
struct JobWatcher<'a> {
    part: BenchPart,
    job: Option<&'a BenchJob>,
    plan: &'a [Execution<'a>],
    output: &'a ResultsDirectory,
    directory: &'a Path,
    /// The length of the report before this job.
    earlier: (usize, usize),
    report: &'a mut BenchReport,
    failed: Option<anyhow::Error>,
}

impl JobWatcher<'_> {
    /// Replaces the job's runs in the report.
    fn report(&mut self, results: &Results) -> Result<()> {
        self.report.truncate(self.earlier);
        for execution in self.plan {
            let is_done = |result: &&RunResult| result.is_of(execution) && result.succeeded();
            match (results.runs.iter().find(is_done), self.job) {
                (Some(result), Some(job)) => {
                    let run = self.run(job, execution, result)?;
                    self.report.add(run);
                }
                (Some(result), None) => self.report.add_sessions(FairnessSessions::of(result)?),
                (None, _) => {}
            }
        }
        self.report.write(self.directory)
    }

    fn run(&self, job: &BenchJob, execution: &Execution<'_>, result: &RunResult) -> Result<BenchRun> {
        let client = job.clients.iter().find(|client| client.run_name() == result.name);
        let client = client.with_context(|| format!("{execution}: the job has no such client"))?;
        BenchRun::of(self.part, job, *client, result, &self.output.client_output(execution))
            .with_context(|| format!("{}, {execution}", self.output.directory().display()))
    }
}

impl Watcher for JobWatcher<'_> {
    fn execution_started(&mut self, begun: &ExecutionStart<'_>) {
        self.failed = self.report(begun.results).err();
    }

    fn tick(&mut self, _: ExecutionPhase, _: Duration) -> ControlFlow<()> {
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn execution_ended(&mut self, execution: &Execution<'_>, result: &RunResult) {
        match (result.failure(), self.job) {
            (Some(why), _) => {
                self.failed = Some(anyhow!("{}, {execution}: {why}", self.output.directory().display()));
            }
            (None, Some(job)) => match self.run(job, execution, result) {
                Ok(run) => eprintln!("bench: {run}"),
                Err(why) => self.failed = Some(why),
            },
            (None, None) => eprintln!("bench: {execution}: {:.2} s", result.wall_s),
        }
        for remark in &result.remarks {
            eprintln!("bench: {remark}");
        }
    }

    fn execution_repeated(&mut self, time: u32, limit: u32) {
        eprintln!("bench: running it again, {time} of {limit} times at most");
    }

    fn read_record(&mut self, record: &Path) -> Result<Vec<(String, f64)>, String> {
        let values = figures::values_of_file(record);
        // A failure of the command itself is reported instead.
        if let Err(why) = &values {
            self.failed = Some(anyhow!("{why}"));
        }
        values
    }
}
