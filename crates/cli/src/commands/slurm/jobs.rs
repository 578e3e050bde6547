//! The jobs of a plan: their numbers in the plan's directory, and their tasks as Slurm lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_farm::plan::Plan;
use longhaul_sys::if_exists::if_exists;

use super::io_failure;

/// The directory of the script, the numbers and the logs, in that of the plan.
pub(super) const DIRECTORY: &str = "slurm";
/// The prefixes of variables that change what commands of Slurm list or cancel.
const FILTERS: [&str; 4] = ["SQUEUE_", "SCANCEL_", "SACCT_", "SLURM_CLUSTERS"];

/// The jobs that were submitted for a plan.
pub(super) struct SlurmJobs {
    directory: PathBuf,
    name: String,
}

/// A job as sbatch --parsable names it: `NUMBER`, or `NUMBER;CLUSTER` where several clusters share
/// a site's commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlurmJob {
    number: u32,
    cluster: Option<String>,
}

impl FromStr for SlurmJob {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, cluster) =
            text.split_once(';').map_or((text, None), |(number, cluster)| (number, Some(cluster)));
        // It becomes an argument.
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if cluster.is_some_and(|cluster| !is_name(cluster)) {
            return Err(());
        }
        Ok(Self { number: number.parse().map_err(drop)?, cluster: cluster.map(str::to_owned) })
    }
}

impl fmt::Display for SlurmJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cluster {
            Some(cluster) => write!(f, "{};{cluster}", self.number),
            None => self.number.fmt(f),
        }
    }
}

impl SlurmJobs {
    pub(super) fn of(plan: &Plan) -> Self {
        Self { directory: plan.path().join(DIRECTORY), name: format!("longhaul-{}", plan.header().id) }
    }

    /// Returns the name of the jobs, by which they are known as those of the plan.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the script.
    pub(super) fn script(&self) -> PathBuf {
        self.directory.join("job.sh")
    }

    /// Returns the path of the list of jobs, one a line.
    fn list_path(&self) -> PathBuf {
        self.directory.join("jobs")
    }

    pub(super) fn make_directory(&self) -> Result<(), Failure> {
        fs::create_dir_all(&self.directory).map_err(io_failure("make the directory", &self.directory))
    }

    /// Submits a script; returns its job, which is noted.
    pub(super) fn submit(&self, script: &Path, options: &[String]) -> Result<SlurmJob, Failure> {
        // Before the job exists: one that cannot be noted would be lost.
        self.numbers()?;
        let (path, before) = (self.list_path(), self.list()?);
        let list = File::options().append(true).create(true).open(&path);
        let mut list = list.map_err(io_failure("write", &path))?;
        if let Some(sound) = Some(sound(&before).len()).filter(|sound| *sound < before.len()) {
            // A line that a crash has cut off would become a part of the next one.
            list.set_len(sound as u64).map_err(io_failure("write", &path))?;
        }
        let mut sbatch = Command::new("sbatch");
        // Of options that are given twice, the last one counts.
        sbatch.arg("--parsable").args(options).arg(format!("--job-name={}", self.name)).arg(script);
        let answer = output("sbatch", sbatch)?;
        // The line may follow remarks of the site.
        let last = answer.lines().last().unwrap_or_default().trim();
        let job = last.parse();
        let job: SlurmJob =
            job.map_err(|()| refused("sbatch", &format!("it states no number of a job, but {last:?}")))?;
        let noted = list.write_all(format!("{job}\n").as_bytes()).and_then(|()| list.sync_all());
        noted.map_err(io_failure("note the job in", &path))?;
        Ok(job)
    }

    /// Reads the list of jobs.
    fn list(&self) -> Result<Vec<u8>, Failure> {
        let path = self.list_path();
        Ok(if_exists(fs::read(&path)).map_err(io_failure("read", &path))?.unwrap_or_default())
    }

    /// Returns the numbers of the jobs of each cluster; `None` is that of this host.
    fn numbers(&self) -> Result<BTreeMap<Option<String>, BTreeSet<u32>>, Failure> {
        let mut numbers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (index, line) in String::from_utf8_lossy(sound(&self.list()?)).lines().enumerate() {
            let job: SlurmJob = line.parse().map_err(|()| {
                let (path, line) = (self.list_path(), index + 1);
                let path = path.display();
                let message = format!(
                    "{path} is damaged: its line {line} is no number of a job; remove the line, and look for a lost job by squeue"
                );
                Failure::new(FailureKind::Data, message)
            })?;
            numbers.entry(job.cluster).or_default().insert(job.number);
        }
        Ok(numbers)
    }

    /// Returns the clusters that may have jobs of the plan, this host's in any case, with the
    /// numbers that were noted.
    fn clusters(&self) -> Result<BTreeMap<Option<String>, BTreeSet<u32>>, Failure> {
        let mut numbers = self.numbers()?;
        numbers.entry(None).or_default();
        Ok(numbers)
    }

    /// Returns a line for each task that Slurm lists, or for each group of tasks that wait.
    pub(super) fn rows(&self) -> Result<Vec<String>, Failure> {
        let mut rows = Vec::new();
        for (cluster, numbers) in self.clusters()? {
            let mut known = BTreeSet::new();
            for line in self.squeue(cluster.as_deref(), &numbers, &["-t", "all", "-o", "%i|%T|%N|%r"])? {
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
            // What has ended some minutes ago is known to the accounting alone, which many sites do
            // without.
            for line in self.accounted(cluster.as_deref(), &numbers) {
                if let Some((task, state)) = line.split_once('|')
                    && !known.contains(task)
                {
                    rows.push(format!("{task} {state}"));
                }
            }
        }
        Ok(rows)
    }

    /// Cancels the jobs that are queued or running; returns them.
    pub(super) fn cancel(&self) -> Result<Vec<String>, Failure> {
        let mut cancelled = Vec::new();
        for (cluster, numbers) in self.clusters()? {
            let lines = self.squeue(cluster.as_deref(), &numbers, &["-o", "%F|"])?;
            // A line for each task.
            let active: BTreeSet<&str> =
                lines.iter().filter_map(|line| Some(line.split_once('|')?.0)).collect();
            if !active.is_empty() {
                let mut scancel = self.command("scancel", cluster.as_deref());
                scancel.args(&active);
                output("scancel", scancel)?;
            }
            cancelled.extend(active.into_iter().map(str::to_owned));
        }
        Ok(cancelled)
    }

    /// Returns the command of a program that heeds only jobs of the plan's name, on a cluster.
    fn command(&self, program: &str, cluster: Option<&str>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if FILTERS.iter().any(|filter| name.as_encoded_bytes().starts_with(filter.as_bytes())) {
                command.env_remove(name);
            }
        }
        command.args(cluster.map(|cluster| format!("--clusters={cluster}")));
        command.arg(format!("--name={}", self.name));
        command
    }

    /// Returns the lines of squeue on these jobs, and on the user's ones that were not noted: of a
    /// script that was given to sbatch by hand. Fields end with a bar.
    fn squeue(
        &self,
        cluster: Option<&str>,
        numbers: &BTreeSet<u32>,
        options: &[&str],
    ) -> Result<Vec<String>, Failure> {
        let ask = |selection: &[&str]| {
            let mut squeue = self.command("squeue", cluster);
            squeue.arg("-h").args(selection).args(options);
            output("squeue", squeue)
        };
        let mut text = ask(&["--me"])?;
        if !numbers.is_empty() {
            match ask(&["-j", &listed(numbers)]) {
                // Slurm removes a job from its list some minutes after its end.
                Err(failure) if failure.to_string().contains("Invalid job id") => {}
                answer => text += &answer?,
            }
        }
        let mut known = BTreeSet::new();
        // A line without a bar names the cluster.
        let is_new =
            |line: &&str| line.split_once('|').is_some_and(|(task, _)| known.insert(task.to_owned()));
        Ok(text.lines().filter(is_new).map(str::to_owned).collect())
    }

    /// Returns the lines of sacct on these jobs; none if the site keeps no accounts.
    fn accounted(&self, cluster: Option<&str>, numbers: &BTreeSet<u32>) -> Vec<String> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let mut sacct = self.command("sacct", cluster);
        sacct.args(["-n", "-X", "-P", "-o", "JobID,State", "-j", &listed(numbers)]);
        output("sacct", sacct).map_or_else(|_| Vec::new(), |text| text.lines().map(str::to_owned).collect())
    }
}

/// Returns the lines of a list of jobs without a last one that has no end.
fn sound(list: &[u8]) -> &[u8] {
    &list[..list.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)]
}

fn listed(numbers: &BTreeSet<u32>) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_is_a_number_and_perhaps_a_cluster() {
        for (text, is_job) in [
            ("12", true),
            ("12;dtn-2", true),
            ("", false),
            ("12;", false),
            ("12;-x", false),
            ("12;a b", false),
            ("x;a", false),
        ] {
            let job = text.parse::<SlurmJob>().ok();
            assert_eq!(job.map(|job| job.to_string()).as_deref(), is_job.then_some(text));
        }
    }
}
