//! One run: one client, once, on a lab of its own, so that none inherits anything.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::Lab;
use serde::{Deserialize, Serialize};

use crate::nginx::{self, Nginx};
use crate::paths::BenchPath;
use crate::peers::{Client, Words};
use crate::source_file::SourceFile;
use crate::steady;
use crate::stopwatch::Used;
use crate::tcp_memory;

/// No client takes so long, unless it hangs.
const LONGEST: Duration = Duration::from_secs(1800);
/// Each would lead a client elsewhere.
const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// Clients that take turns on one path.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) path: BenchPath,
    pub(crate) clients: Vec<Client>,
}

/// What one run gave: times in seconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) path: BenchPath,
    pub(crate) client: Client,
    /// From 1.
    pub(crate) repetition: u32,
    /// The file's size.
    pub(crate) bytes: u64,
    /// From the program's start to its end; of fio, from its first byte.
    pub(crate) wall_s: f64,
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
    pub(crate) max_rss_bytes: u64,
    /// What an fsync of the file took after the program's end.
    pub(crate) flush_s: f64,
    /// The rate of payload after the ramp-up, in bits per second, of a longhaul long enough to have one.
    pub(crate) steady_bps: Option<u64>,
    /// Whether the file's content was compared with the original: in the first repetition.
    pub(crate) verified: bool,
    /// Packets towards the client that met a full queue.
    pub(crate) dropped: u64,
    /// Why the path was not what was asked for; empty where it was.
    pub(crate) warnings: Vec<String>,
}

impl Run {
    /// Returns the rate of the file over the time of the program.
    pub(crate) fn goodput(&self) -> Rate {
        Rate::over(Bytes::new(self.bytes), Duration::from_secs_f64(self.wall_s))
    }

    /// Returns the rate of the file until it was on the disk.
    pub(crate) fn goodput_to_disk(&self) -> Rate {
        Rate::over(Bytes::new(self.bytes), Duration::from_secs_f64(self.wall_s + self.flush_s))
    }

    /// Returns the CPU seconds, user and system, for each GiB.
    pub(crate) fn cpu_per_gib(&self) -> f64 {
        (self.user_s + self.sys_s) * Bytes::gib(1).get() as f64 / self.bytes as f64
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, client, repetition, wall_s, .. } = self;
        let (goodput, cpu) = (self.goodput(), self.cpu_per_gib());
        write!(f, "{path}: {client}, {repetition}: {wall_s:.2} s, {goodput}, CPU {cpu:.3} s/GiB")?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nbench: WARNING: {warning}"))
    }
}

/// Where runs happen: the programs, the directory, the file that is served.
#[derive(Debug)]
pub(crate) struct Workshop {
    dir: PathBuf,
    longhaul: PathBuf,
    bench: PathBuf,
    nginx: PathBuf,
    source: SourceFile,
}

impl Workshop {
    /// Prepares `dir`, making the source file where it is missing.
    ///
    /// # Errors
    /// Fails where a program is missing or `dir` cannot be written.
    pub(crate) fn open(dir: &Path, longhaul: &Path, bench: &Path, size: Bytes) -> Result<Self> {
        let longhaul = longhaul.canonicalize().with_context(|| {
            format!("cannot find {}; cargo build --release -p longhaul makes it", longhaul.display())
        })?;
        let nginx = nginx::find()?;
        fs::create_dir_all(dir.join("nginx-tmp"))
            .with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        let source = SourceFile::open(&dir.join("www"), size)?;
        Ok(Self { dir, longhaul, bench: bench.to_owned(), nginx, source })
    }

    /// Runs `client` on `path`, from a clean start: no file there, nothing dirty, the source in the page cache.
    ///
    /// # Errors
    /// Fails where the client does, or has not fetched the whole file.
    pub(crate) fn run(&self, path: BenchPath, client: Client, repetition: u32) -> Result<Run> {
        let copy = self.dir.join("copy");
        remove(&copy)?;
        rustix::fs::sync();
        self.source.warm()?;
        let lab = Lab::new(path.spec())?;
        let nginx = client.uses_network().then(|| Nginx::start(&lab, &self.nginx, &self.dir)).transpose()?;
        let server = nginx.as_ref().map(|nginx| nginx.server.to_string()).unwrap_or_default();
        let used = self.measure(&lab, client, &server, &copy)?;
        let stats = lab.stats()?;
        let mut warnings = stats.infidelities(lab.spec().one_way());
        if tcp_memory::shortages(&lab.near())? + tcp_memory::shortages(&lab.far())? > 0 {
            warnings.push(
                "the kernel ran short of TCP memory (net.ipv4.tcp_mem), which both hosts share".to_owned(),
            );
        }
        drop((nginx, lab));

        let size = self.source.size;
        let mut run = Run {
            path,
            client,
            repetition,
            bytes: size.get(),
            wall_s: used.wall_s,
            user_s: used.user_s,
            sys_s: used.sys_s,
            max_rss_bytes: used.max_rss_bytes,
            flush_s: 0.0,
            steady_bps: None,
            verified: false,
            dropped: stats.far_to_near.dropped_queue,
            warnings,
        };
        match client {
            Client::Longhaul(_) => {
                let told = steady::samples(&self.read_output("client.out")?);
                run.steady_bps = steady::rate(&told, size).map(Rate::as_bits_per_sec);
            }
            Client::Fio => run.wall_s = seconds_of_fio(&self.read_output("client.out")?, size)?,
            _ => {}
        }
        if client.keeps_file() {
            run.flush_s = flush(&copy)?;
            run.verified = repetition == 1;
            self.check(&copy, run.verified)?;
        }
        remove(&copy)?;
        Ok(run)
    }

    fn measure(&self, lab: &Lab, client: Client, server: &str, copy: &Path) -> Result<Used> {
        let words = Words {
            longhaul: self.longhaul.as_os_str(),
            bench: self.bench.as_os_str(),
            server,
            path: &format!("/{}", self.source.name),
            file: copy.as_os_str(),
            size: self.source.size,
        };
        let result = self.dir.join("stopwatch.json");
        remove(&result)?;
        let mut command = lab.near().command(&self.bench);
        command.arg("stopwatch").arg(&result).arg("--").args(client.command(&words));
        PROXIES.iter().for_each(|name| {
            command.env_remove(name);
        });
        let output =
            |name: &str| File::create(self.dir.join(name)).with_context(|| format!("cannot write {name}"));
        command.stdin(Stdio::null()).stdout(output("client.out")?).stderr(output("client.err")?);
        let mut process = lab.near().spawn(command)?;
        let deadline = Instant::now() + LONGEST;
        // A signal cuts a wait short.
        while process.wait_for(deadline.saturating_duration_since(Instant::now()))?.is_none() {
            if Instant::now() > deadline {
                bail!("no end after {} s", LONGEST.as_secs());
            }
        }
        let used = fs::read(&result).ok().and_then(|json| serde_json::from_slice::<Used>(&json).ok());
        match used {
            Some(used) if used.failure.is_empty() => Ok(used),
            Some(used) => bail!("{}: {}", used.failure, self.read_output("client.err")?.trim()),
            None => bail!("it did not run: {}", self.read_output("client.err")?.trim()),
        }
    }

    fn read_output(&self, name: &str) -> Result<String> {
        let path = self.dir.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn check(&self, copy: &Path, content: bool) -> Result<()> {
        let got = fs::metadata(copy).with_context(|| format!("cannot find {}", copy.display()))?.len();
        if got != self.source.size.get() {
            bail!("the copy has {got} bytes, the original {}", self.source.size.get());
        }
        if content && !self.source.equals(copy)? {
            bail!("the copy differs from the original");
        }
        Ok(())
    }
}

/// Makes the file durable; returns the seconds that took.
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

/// Returns how long fio wrote by its own account: it also prepares for a while, which is no writing.
fn seconds_of_fio(report: &str, size: Bytes) -> Result<f64> {
    #[derive(Deserialize)]
    struct Report {
        jobs: Vec<Job>,
    }
    #[derive(Deserialize)]
    struct Job {
        write: Write,
    }
    #[derive(Deserialize)]
    struct Write {
        bw_bytes: u64,
    }
    let report: Report = serde_json::from_str(report).context("cannot read fio's report")?;
    let rate = report.jobs.first().map_or(0, |job| job.write.bw_bytes);
    if rate == 0 {
        bail!("fio wrote nothing");
    }
    Ok(size.get() as f64 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fios_rate() {
        let report = r#"{"fio version": "fio-3.33", "jobs": [{"jobname": "write", "write": {"bw_bytes": 2000, "bw": 1}}]}"#;
        assert_eq!(seconds_of_fio(report, Bytes::new(4000)).unwrap(), 2.0);
        for bad in ["", "{}", r#"{"jobs": []}"#, r#"{"jobs": [{"write": {"bw_bytes": 0}}]}"#] {
            assert!(seconds_of_fio(bad, Bytes::new(4000)).is_err(), "{bad}");
        }
    }
}
