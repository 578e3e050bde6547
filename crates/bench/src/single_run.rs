//! One run: one client, once, on a fresh lab, so that runs are independent.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::scenario::progress;
use longhaul_lab::{DirectionStats, Lab, NO_CONFIG, ServerCommand, ServerCommandFailure};
use longhaul_scope::figures;
use longhaul_scope::record::Record;
use serde::Deserialize;

use crate::bench_job::BenchJob;
use crate::bench_part::BenchPart;
use crate::clients::{BenchClient, CommandWords};
use crate::nginx;
use crate::resource_usage::ResourceUsage;
use crate::run_result::RunResult;
use crate::server;
use crate::source_file::BenchFile;

/// The timeout of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1800);
/// Environment variables that would redirect a client.
pub(crate) const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// The environment of runs: programs and directory.
#[derive(Debug)]
pub(crate) struct BenchEnvironment {
    /// The directory of files and report.
    pub(crate) dir: PathBuf,
    /// The measured program.
    pub(crate) longhaul: PathBuf,
    bench: PathBuf,
}

impl BenchEnvironment {
    /// Prepares `dir`.
    ///
    /// # Errors
    /// Fails if a program is missing or `dir` is not writable.
    pub(crate) fn open(dir: &Path, longhaul: &Path, bench: &Path) -> Result<Self> {
        let longhaul = longhaul.canonicalize().with_context(|| {
            format!("cannot find {}; cargo build --release -p longhaul makes it", longhaul.display())
        })?;
        nginx::find()?;
        fs::create_dir_all(dir.join("copies")).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        Ok(Self { dir, longhaul, bench: bench.to_owned() })
    }

    /// Creates the source files if they are missing.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub(crate) fn source(&self, size: Bytes, files: usize) -> Result<BenchFile> {
        BenchFile::open(&self.dir.join("www"), size, files)
    }

    /// Returns the paths of the copies; several files share a directory.
    fn copies(&self, source: &BenchFile) -> (PathBuf, Vec<PathBuf>) {
        let several = self.dir.join("copies/several");
        match &source.names[..] {
            [_] => {
                let copy = self.dir.join("copies/copy");
                (copy.clone(), vec![copy])
            }
            names => {
                let copy = |name: &String| several.join(Path::new(name).file_name().unwrap_or_default());
                (several.clone(), names.iter().map(copy).collect())
            }
        }
    }

    /// Runs a client once from a clean state: no copy, no dirty pages, the source fully cached or not at all.
    ///
    /// # Errors
    /// Fails if the client fails, or has not transferred the whole file.
    pub(crate) fn run(
        &self,
        part: BenchPart,
        job: &BenchJob,
        client: BenchClient,
        repetition: u32,
        source: &BenchFile,
    ) -> Result<RunResult> {
        let (place, copies) = self.copies(source);
        for leftover in copies.iter().chain([&self.client_record(), &self.server_record()]) {
            remove(leftover)?;
        }
        if copies.len() > 1 {
            fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        }
        rustix::fs::sync();
        if job.warm {
            source.warm()?
        } else {
            source.cool()?
        }
        let lab = Lab::new(job.path.spec())?;
        let serve = |server: server::BenchServer| {
            server.start(&lab, &self.dir, &self.longhaul, &self.server_record())
        };
        let server = client.server().map(serve).transpose()?;
        let used = self.measure(&lab, client, source, &place)?;
        let stats = lab.stats()?;
        let warnings = stats.infidelities(lab.spec());
        // SIGTERM first, so that the server completes its record.
        match server.map(ServerCommand::end).transpose()?.flatten() {
            Some(end @ ServerCommandFailure::Early(_)) => bail!("the server {end}"),
            Some(end @ ServerCommandFailure::Killed) => eprintln!("bench: the server {end}"),
            None => {}
        }
        drop(lab);

        let to_receiver = if client.sends() { stats.client_to_server } else { stats.server_to_client };
        let mut run = RunResult {
            wall_s: used.wall_s,
            user_s: used.user_s,
            sys_s: used.sys_s,
            max_rss_bytes: used.max_rss_bytes,
            minor_faults: used.minor_faults,
            dropped: to_receiver.dropped_queue,
            background_loss: background_loss(&to_receiver),
            warnings,
            ..RunResult::new(part, job.path, client, repetition, source.total())
        };
        self.read_results(&mut run, source.size)?;
        if client.keeps_file() {
            run.verified = repetition == 1;
            for copy in &copies {
                run.flush_s += flush(copy)?;
            }
            copies.iter().try_for_each(|copy| check(source, copy, run.verified))?;
        }
        copies.iter().try_for_each(|copy| remove(copy))?;
        Ok(run)
    }

    fn client_record(&self) -> PathBuf {
        self.dir.join("client.jsonl")
    }

    fn server_record(&self) -> PathBuf {
        self.dir.join("server.jsonl")
    }

    fn measure(
        &self,
        lab: &Lab,
        client: BenchClient,
        source: &BenchFile,
        place: &Path,
    ) -> Result<ResourceUsage> {
        let server = server::address(lab).to_string();
        let (record, token) = (self.client_record(), server::token_file(&self.dir)?);
        let (list, root) = (self.dir.join("urls"), self.dir.join("www"));
        let words = CommandWords {
            longhaul: self.longhaul.as_os_str(),
            bench: self.bench.as_os_str(),
            server: &server,
            source: source.path.as_os_str(),
            paths: &source.names.iter().map(|name| format!("/{name}")).collect::<Vec<_>>(),
            root: &root,
            list: list.as_os_str(),
            file: place.as_os_str(),
            record: record.as_os_str(),
            token: token.as_os_str(),
            size: source.size,
        };
        fs::write(&list, client.list(&words)).with_context(|| format!("cannot write {}", list.display()))?;
        let result = self.dir.join("stopwatch.json");
        remove(&result)?;
        let mut command = lab.client().command(&self.bench);
        command.arg("stopwatch").arg(&result).arg("--").args(client.command(&words));
        command.env(NO_CONFIG, "1");
        PROXIES.iter().for_each(|name| {
            command.env_remove(name);
        });
        let output =
            |name: &str| File::create(self.dir.join(name)).with_context(|| format!("cannot write {name}"));
        command.stdin(Stdio::null()).stdout(output("client.out")?).stderr(output("client.err")?);
        let mut process = lab.client().spawn(command)?;
        let deadline = Instant::now() + CLIENT_TIMEOUT;
        // A signal interrupts the wait.
        while process.wait_for(deadline.saturating_duration_since(Instant::now()))?.is_none() {
            if Instant::now() > deadline {
                bail!("no end after {} s", CLIENT_TIMEOUT.as_secs());
            }
        }
        let used =
            fs::read(&result).ok().and_then(|json| serde_json::from_slice::<ResourceUsage>(&json).ok());
        match used {
            Some(used) if used.failure.is_empty() => Ok(used),
            Some(used) => bail!("{}: {}", used.failure, self.read_output("client.err")?.trim()),
            None => bail!("it did not run: {}", self.read_output("client.err")?.trim()),
        }
    }

    /// Adds the client's output and both records.
    fn read_results(&self, run: &mut RunResult, size: Bytes) -> Result<()> {
        if run.client == BenchClient::Fio {
            run.wall_s = seconds_of_fio(&self.read_output("client.out")?, size)?;
        }
        if run.client == BenchClient::GetFromServe {
            run.digest_s = digest_seconds(&self.read_output("client.out")?);
        }
        if run.client.prints_progress() {
            let samples = progress::samples(&self.dir.join("client.out"))?;
            run.steady_bps = progress::rate(&samples, size).map(Rate::as_bits_per_sec);
            if matches!(run.client, BenchClient::SmallSockets(_)) {
                run.by_second = progress::by_second(&samples, size);
            }
            run.left_share =
                run.path.spec().payload_capacity().and_then(|left| progress::share_of(&left, &samples, size));
        }
        for record in [self.client_record(), self.server_record()].iter().filter(|record| record.is_file()) {
            let record = Record::load(record)?;
            let values = figures::values(&record);
            let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            // Only a sender counts retransmits; burstiness matters at a receiver.
            match value("retransmits") {
                Some(retransmits) => run.retransmits = Some(retransmits),
                None => {
                    run.burstiness_1ms = value("burstiness_1ms");
                    let mostly = value("p99_1ms_bps").zip(value("mean_bps"));
                    run.mostly_1ms = mostly.map(|(p99, mean)| p99 / mean);
                }
            }
        }
        Ok(())
    }

    fn read_output(&self, name: &str) -> Result<String> {
        let path = self.dir.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

fn background_loss(direction: &DirectionStats) -> Option<f64> {
    let background = direction.background;
    (background.offered > 0).then(|| background.lost as f64 / background.offered as f64)
}

fn check(source: &BenchFile, copy: &Path, content: bool) -> Result<()> {
    let got = fs::metadata(copy).with_context(|| format!("cannot find {}", copy.display()))?.len();
    if got != source.size.get() {
        bail!("the copy has {got} bytes, the original {}", source.size.get());
    }
    if content && !source.equals(copy)? {
        bail!("the copy differs from the original");
    }
    Ok(())
}

/// Syncs the file; returns the duration in seconds.
fn flush(file: &Path) -> Result<f64> {
    let start = Instant::now();
    File::open(file)
        .and_then(|file| file.sync_all())
        .with_context(|| format!("cannot sync {}", file.display()))?;
    Ok(start.elapsed().as_secs_f64())
}

fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Returns fio's reported write time in seconds; the program's time also includes its preparation.
fn seconds_of_fio(report: &str, size: Bytes) -> Result<f64> {
    #[derive(Deserialize)]
    struct FioReport {
        jobs: Vec<FioJob>,
    }
    #[derive(Deserialize)]
    struct FioJob {
        write: Write,
    }
    #[derive(Deserialize)]
    struct Write {
        bw_bytes: u64,
    }
    let report: FioReport = serde_json::from_str(report).context("cannot read fio's report")?;
    let rate = report.jobs.first().map_or(0, |job| job.write.bw_bytes);
    if rate == 0 {
        bail!("fio wrote nothing");
    }
    Ok(size.get() as f64 / rate as f64)
}

/// Returns the seconds from the last byte to the end of a job, by the lines of `longhaul get --json`; `None` without a digest, or where no
/// line tells of the last byte.
fn digest_seconds(lines: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct EventLine {
        event: String,
        at: f64,
        bytes: Option<u64>,
        received: Option<u64>,
    }
    let events: Vec<EventLine> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = |name: &str| events.iter().rfind(|line| line.event == name);
    let (done, verifying) = (last("done")?, last("verifying")?);
    // Writers and hashers may end between the last byte and `verifying`.
    let whole = events.iter().find(|line| line.received.is_some() && line.received == done.bytes);
    Some(done.at - whole.map_or(verifying.at, |line| line.at.min(verifying.at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_takes_the_time_after_the_last_byte() {
        let verified = "{\"event\":\"progress\",\"at\":9.0,\"received\":5}\n{\"event\":\"verifying\",\"at\":9.5}\n\
                        {\"event\":\"done\",\"at\":9.75,\"bytes\":5}\n";
        assert_eq!(digest_seconds(verified), Some(0.75));
        assert_eq!(digest_seconds("{\"event\":\"done\",\"at\":9.75}\nno JSON\n"), None);
    }

    #[test]
    fn reads_fios_rate() {
        let report = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "write", "write": {"bw_bytes": 2000, "bw": 1}}]}"#;
        assert_eq!(seconds_of_fio(report, Bytes::new(4000)).unwrap(), 2.0);
        for bad in ["", "{}", r#"{"jobs": []}"#, r#"{"jobs": [{"write": {"bw_bytes": 0}}]}"#] {
            assert!(seconds_of_fio(bad, Bytes::new(4000)).is_err(), "{bad}");
        }
    }
}
