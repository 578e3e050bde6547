//! `longhaul slurm submit`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_farm::plan::Plan;
use longhaul_farm::status::PlanStatus;
use longhaul_farm::target_directory::TargetDirectory;
use longhaul_sys::atomic_file;
use longhaul_sys::if_exists::if_exists;
use rustix::process::geteuid;

use super::jobs::SlurmJobs;
use super::{PlanPath, io_failure, script};
use crate::stdout;

#[derive(Debug, Args)]
pub(super) struct SubmitArgs {
    #[command(flatten)]
    plan: PlanPath,

    /// Submit this many workers, which is 1 by default; a node may get several, see -- --exclusive
    #[arg(short = 'N', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Option<u32>,

    /// The time limit of a worker, as sbatch takes it: 30, 2:00:00; some minutes at least
    ///
    /// A minute before it ends the worker leaves its unit to the next one, and the task is queued
    /// again.
    #[arg(long, value_name = "TIME")]
    time: Option<String>,

    /// Submit to this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Write a new script to this file, and submit nothing
    #[arg(short, long, value_name = "SCRIPT", value_hint = ValueHint::FilePath, conflicts_with = "dry_run")]
    output: Option<PathBuf>,

    /// Print the script, and submit nothing
    #[arg(long)]
    dry_run: bool,

    /// Further options of sbatch
    #[arg(last = true, value_name = "OPTIONS OF SBATCH")]
    sbatch: Vec<String>,
}

impl SubmitArgs {
    /// Returns the options of sbatch that the command line states.
    fn options(&self) -> Vec<String> {
        let stated = [
            self.hosts.map(|hosts| format!("--array=1-{hosts}")),
            self.time.as_ref().map(|time| format!("--time={time}")),
            self.partition.as_ref().map(|name| format!("--partition={name}")),
        ];
        stated.into_iter().flatten().chain(self.sbatch.iter().cloned()).collect()
    }
}

/// Writes the script of a plan if there is none, and submits it.
pub(super) fn submit(args: &SubmitArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan::open(&args.plan.path)?;
    let shown = args.plan.path.display();
    let tally = PlanStatus::read(&plan)?.tally;
    if tally.done == tally.units {
        stdout::line(format_args!("all units of {shown} are done: nothing is submitted"));
        return Ok(ExitCode::SUCCESS);
    }
    // Every worker would end at once with this error.
    TargetDirectory::open(plan.header())?.map_or(Ok(()), |target| target.check_marker())?;
    let options = args.options();
    let jobs = SlurmJobs::of(&plan);
    let new = || script::text(plan.path(), jobs.name(), &options);
    if let Some(output) = &args.output {
        // For a script in it.
        jobs.make_directory()?;
        write_new(output, &new()?)?;
        stdout::line(format_args!("{} is written: sbatch submits it", output.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let path = jobs.script();
    let kept = if_exists(fs::read_to_string(&path)).map_err(io_failure("read", &path))?;
    if let Some(text) = &kept
        && !script::names(text, plan.path())?
    {
        let message = format!(
            "{} is of another plan, or of this one at another path: remove it for a new one, or write {shown} as an absolute path \
             into it",
            path.display()
        );
        return Err(Failure::new(FailureKind::Usage, message).into());
    }
    if args.dry_run {
        stdout::bytes(kept.map_or_else(new, Ok)?.as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    jobs.make_directory()?;
    let is_new = kept.is_none();
    let (note, options) = match kept {
        Some(_) if is_of_others(&path)? => {
            let message = format!(
                "{} is not yours, or others may write to it, and would run as you: chmod go-w it, or remove it for a new one",
                path.display()
            );
            return Err(Failure::new(FailureKind::Denied, message).into());
        }
        Some(_) => (format!(", by {} as it is; remove it for a new one", path.display()), options),
        None => {
            write_new(&path, &new()?)?;
            (String::new(), Vec::new())
        }
    };
    let submitted = jobs.submit(&path, &options);
    if is_new && submitted.is_err() {
        // Other options of the next attempt would be ignored.
        let _ = fs::remove_file(&path);
    }
    let job = submitted?;
    stdout::line(format_args!("job {job} is submitted{note}\nits state: longhaul slurm status {shown}"));
    Ok(ExitCode::SUCCESS)
}

/// Writes a script that does not exist yet, whole or not at all; only its user may read it, for it
/// may get logins.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let written = match fs::symlink_metadata(path) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => atomic_file::replace(path, text.as_bytes(), 0o700),
    };
    written.map_err(io_failure("write the script", path))
}

/// Returns whether others than this user and root may write a script.
fn is_of_others(path: &Path) -> Result<bool, Failure> {
    let found = fs::metadata(path).map_err(io_failure("read", path))?;
    Ok(found.mode() & 0o022 != 0 || ![0, geteuid().as_raw()].contains(&found.uid()))
}
