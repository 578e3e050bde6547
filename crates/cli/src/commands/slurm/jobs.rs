//! The jobs of a plan: their ids in the plan's directory, and their tasks as Slurm knows them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longhaul_core::failure::{Failure, FailureKind};

use super::io_failure;

/// The directory of the script, the ids and the logs, in that of the plan.
pub(super) const DIRECTORY: &str = "slurm";

/// The jobs that were submitted for a plan.
pub(super) struct SlurmJobs {
    directory: PathBuf,
}

impl SlurmJobs {
    pub(super) fn of(plan: &Path) -> Self {
        Self { directory: plan.join(DIRECTORY) }
    }

    /// Returns the path of the script.
    pub(super) fn script(&self) -> PathBuf {
        self.directory.join("job.sh")
    }

    /// Returns the path of the ids, one a line.
    fn ids_path(&self) -> PathBuf {
        self.directory.join("jobs")
    }

    pub(super) fn make_directory(&self) -> Result<(), Failure> {
        fs::create_dir_all(&self.directory).map_err(io_failure("make the directory", &self.directory))
    }

    /// Submits a script; returns the id of its job, which is noted.
    pub(super) fn submit(&self, script: &Path, options: &[String]) -> Result<u32, Failure> {
        // Before the job exists: one that cannot be noted would be lost.
        let path = self.ids_path();
        self.ids()?;
        let ids = File::options().append(true).create(true).open(&path);
        let mut ids = ids.map_err(io_failure("write", &path))?;
        let mut sbatch = Command::new("sbatch");
        sbatch.arg("--parsable").args(options).arg(script);
        let answer = output("sbatch", sbatch)?;
        // JOB or JOB;CLUSTER; the line may follow remarks of the site.
        let last = answer.lines().last().unwrap_or_default();
        let job = last.split(';').next().unwrap_or_default().trim().parse();
        let job: u32 =
            job.map_err(|_| refused("sbatch", &format!("it states no number of a job, but {last:?}")))?;
        let noted = ids.write_all(format!("{job}\n").as_bytes()).and_then(|()| ids.sync_all());
        noted.map_err(io_failure("note the job in", &path))?;
        Ok(job)
    }

    /// Reads the ids of the jobs.
    fn ids(&self) -> Result<BTreeSet<u32>, Failure> {
        let path = self.ids_path();
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            read => read.map_err(io_failure("read", &path))?,
        };
        let text = String::from_utf8_lossy(&text);
        let id = |(index, line): (usize, &str)| {
            line.parse().map_err(|_| {
                let (path, line) = (path.display(), index + 1);
                let message = format!(
                    "{path} is damaged: its line {line} is no number of a job; remove the line, and look for a lost job by squeue"
                );
                Failure::new(FailureKind::Data, message)
            })
        };
        text.lines().enumerate().map(id).collect()
    }

    /// Returns a line for each task that Slurm knows, or for each group of tasks that wait.
    pub(super) fn rows(&self) -> Result<Vec<String>, Failure> {
        let ids = self.ids()?;
        let mut rows = Vec::new();
        let mut known = BTreeSet::new();
        for line in squeue(&ids, &["-t", "all", "-o", "%i|%T|%N|%r"])? {
            let mut fields = line.split('|');
            let mut next = || fields.next().unwrap_or_default().to_owned();
            let (task, state, node, reason) = (next(), next(), next(), next());
            rows.push(match (node.as_str(), reason.as_str()) {
                ("", _) => format!("{task} {state} ({reason})"),
                (_, "" | "None") => format!("{task} {state} on {node}"),
                _ => format!("{task} {state} on {node} ({reason})"),
            });
            known.insert(task);
        }
        // What has ended some minutes ago is known to the accounting alone, which many sites do without.
        for line in accounted(&ids) {
            if let Some((task, state)) = line.split_once('|')
                && !known.contains(task)
            {
                rows.push(format!("{task} {state}"));
            }
        }
        Ok(rows)
    }

    /// Cancels the jobs that are queued or running; returns their ids.
    pub(super) fn cancel(&self) -> Result<Vec<String>, Failure> {
        let active: BTreeSet<String> = squeue(&self.ids()?, &["-o", "%F"])?.into_iter().collect();
        if !active.is_empty() {
            let mut scancel = Command::new("scancel");
            scancel.args(&active);
            output("scancel", scancel)?;
        }
        Ok(active.into_iter().collect())
    }
}

fn listed(ids: &BTreeSet<u32>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the lines of squeue on these jobs.
fn squeue(ids: &BTreeSet<u32>, options: &[&str]) -> Result<Vec<String>, Failure> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut squeue = Command::new("squeue");
    squeue.args(["-h", "-j", &listed(ids)]).args(options);
    match output("squeue", squeue) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        // Slurm forgets a job some minutes after its end.
        Err(failure) if failure.to_string().contains("Invalid job id") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the lines of sacct on these jobs; none if the site keeps no accounts.
fn accounted(ids: &BTreeSet<u32>) -> Vec<String> {
    if ids.is_empty() {
        return Vec::new();
    }
    let mut sacct = Command::new("sacct");
    sacct.args(["-n", "-X", "-P", "-o", "JobID,State", "-j", &listed(ids)]);
    output("sacct", sacct).map_or_else(|_| Vec::new(), |text| text.lines().map(str::to_owned).collect())
}

/// Runs a command of Slurm, which has time limits of its own; returns what it prints.
fn output(program: &'static str, mut command: Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        let message = format!(
            "cannot run {program}: {error}; use a host that has Slurm's commands, or write the script by slurm submit -o SCRIPT"
        );
        Failure::new(FailureKind::Unavailable, message)
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().replace(char::is_control, " ");
    let words = if words.is_empty() { output.status.to_string() } else { words };
    Err(refused(program, &words))
}

fn refused(program: &str, words: &str) -> Failure {
    Failure::new(FailureKind::Unavailable, format!("{program} has failed: {words}"))
}
