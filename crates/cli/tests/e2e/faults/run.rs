//! Executes a schedule of `get`: consecutive runs of the client, each judged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::faults::client::{self, Ended, RunMonitor, patience};
use crate::faults::content::OLDER;
use crate::faults::disk::{self, Disk};
use crate::faults::invariant::{Partial, judge};
use crate::faults::relay::Relay;
use crate::faults::schedule::{GetSchedule, Labels, Mirror, Step};
use crate::faults::server::Server;
use crate::support::{names, server_config};

/// A run, with the state before and after it.
pub(crate) struct Run {
    pub(crate) ended: Ended,
    pub(crate) must_succeed: bool,
    pub(crate) stands_in_the_way: bool, // A file in the output directory is never replaced
    pub(crate) stood: Option<Vec<u8>>,  // Content of the final name before the run
    pub(crate) found: Option<Vec<u8>>,
    pub(crate) leftovers: Vec<String>,
    pub(crate) before: Partial,
    pub(crate) after: Partial,
    pub(crate) asked: Vec<(u64, u64)>,
    pub(crate) stderr: String,
}

pub(crate) enum Outcome {
    /// The violation of an invariant, if there is one, and the server's log.
    Played(Result<(), String>, String),
    Skipped(&'static str), // Why this machine cannot execute the schedule
}

/// Number of runs by end: the coverage of the seeds.
pub(crate) static RUNS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

pub(crate) fn count(run: String) {
    *RUNS.lock().unwrap().entry(run).or_default() += 1;
}

pub(crate) fn play(schedule: &GetSchedule, dir: &Path) -> Outcome {
    let disk =
        match schedule.steps.iter().any(|step| step.disk.is_some()).then(|| Disk::mount(dir)).transpose() {
            Ok(disk) => disk,
            Err(why) => return Outcome::Skipped(why),
        };
    let mut play = ScheduleRun::new(schedule, dir, disk);
    let result = play.all();
    Outcome::Played(result, play.server.progress().log())
}

struct ScheduleRun<'a> {
    schedule: &'a GetSchedule,
    server: Server,
    relay: Option<Relay>,
    mirror: Option<Server>,
    disk: Option<Disk>,
    work: PathBuf, // The directory of the client, its messages and the final name
    logs: PathBuf,
    target: PathBuf,
}

impl<'a> ScheduleRun<'a> {
    fn new(schedule: &'a GetSchedule, dir: &Path, disk: Option<Disk>) -> Self {
        let tls = schedule.tls.then(|| server_config(dir));
        let server = Server::start(schedule.builds.clone(), schedule.labels, schedule.odd_heads, tls);
        let relayed = schedule.steps.iter().any(|step| !step.relayed.is_empty());
        let relay = relayed.then(|| Relay::start(server.address()));
        let work = disk.as_ref().map_or_else(|| dir.join("work"), Disk::path);
        let logs = dir.join("logs");
        fs::create_dir_all(work.join("out")).unwrap();
        fs::create_dir(&logs).unwrap();
        let target = work.join("out/f");
        if schedule.older {
            fs::write(&target, OLDER).unwrap();
        }
        let mirror = match schedule.mirror {
            Some(Mirror::Has(build)) => {
                let mirror = Server::start(schedule.builds.clone(), Labels::OwnTags, false, None);
                mirror.begin(&Step::sound(build), true);
                Some(mirror)
            }
            Some(Mirror::Down) | None => None,
        };
        Self { schedule, server, relay, mirror, disk, work, logs, target }
    }

    fn all(&mut self) -> Result<(), String> {
        let schedule = self.schedule;
        for (number, step) in schedule.steps.iter().enumerate() {
            if self.run(&format!("run {number}"), step)? == Ended::Exit(0) {
                return Ok(());
            }
        }
        self.settle()
    }

    /// Runs against the sound server, which must succeed if possible.
    fn settle(&mut self) -> Result<(), String> {
        let settled = self.schedule.settled;
        let stands = self.target.exists() && self.schedule.options.into_directory;
        let before = self.partial()?;
        let ended = self.run("last run", &Step::sound(settled))?;
        // Data of another build is discarded only with --no-resume.
        let of_size = before.size == Some(self.schedule.builds[settled].len as u64);
        let foreign = before.total() > 0 && (before.build != Some(settled) || !of_size);
        let ended = match ended {
            Ended::Exit(65) if foreign => {
                self.run("last run", &Step { no_resume: true, ..Step::sound(settled) })?
            }
            other => other,
        };
        match ended {
            Ended::Exit(0) if !self.schedule.can_succeed() => {
                Err("the last run cannot succeed, and exits 0".to_owned())
            }
            Ended::Exit(0) => Ok(()),
            _ if stands || !self.schedule.can_succeed() => Ok(()),
            other => {
                let context = client::in_context("the last run", &self.logs);
                Err(context(format!("{other:?}, though nothing goes wrong any more")))
            }
        }
    }

    fn partial(&self) -> Result<Partial, String> {
        let may_mix = self.schedule.labels == Labels::LyingTag;
        Partial::read(&self.target, &self.schedule.builds, may_mix)
    }

    fn run(&mut self, name: &str, step: &Step) -> Result<Ended, String> {
        if let Some(disk) = self.disk.as_ref().filter(|_| step.disk.is_some()) {
            // Only data written by this run may be lost.
            disk.sync();
        }
        let before = self.partial()?;
        let stood = fs::read(&self.target).ok();
        let stands_in_the_way = self.schedule.options.into_directory && stood.is_some();
        let partial = before.build.or((before.total() > 0).then_some(usize::MAX));
        let must_succeed = self.schedule.must_succeed(step, partial) && !stands_in_the_way;
        let progress = self.server.progress();
        progress
            .note(&format!("{name} begins; committed {:?} of build {:?}", before.committed, before.build));
        self.server.begin(step, before.total() > 0 && !step.no_resume);
        if let Some(relay) = &self.relay {
            relay.begin(&step.relayed);
        }
        let is_judged = must_succeed || step.only_changes();
        let ended = self.run_monitored(step, is_judged).map_err(client::in_context(name, &self.logs))?;
        progress.note(&format!("{name} ends: {ended:?}"));
        if let Some(disk) = &mut self.disk {
            disk.recover(step.disk);
        }
        let context = client::in_context(format!("{name}, {ended:?}"), &self.logs);
        let run = Run {
            ended,
            must_succeed,
            stands_in_the_way,
            stood,
            found: fs::read(&self.target).ok(),
            leftovers: leftovers(&self.work.join("out")),
            before,
            after: self.partial().map_err(&context)?,
            asked: self.server.asked(),
            stderr: client::messages(&self.logs),
        };
        judge(self.schedule, step, &run).map_err(context)?;
        let resumed = if run.before.total() > 0 { ", resumed" } else { "" };
        let asked = if run.must_succeed { ", as it must" } else { "" };
        count(format!("get {ended:?}{asked}{resumed}"));
        Ok(ended)
    }

    fn run_monitored(&self, step: &Step, is_judged: bool) -> Result<Ended, String> {
        let progress = self.server.progress();
        let activity = || {
            let mirrored = self.mirror.as_ref().map_or(0, |mirror| mirror.progress().activity());
            progress.activity() + mirrored + self.relay.as_ref().map_or(0, Relay::moved)
        };
        disk::during(self.disk.as_ref(), step.disk, |is_disturbed| {
            let mut tick = |moved: u64, _| is_disturbed(moved);
            let watch = RunMonitor { moved: &|| progress.served(), activity: &activity, tick: &mut tick };
            client::run(&mut self.command(step, is_judged), step.stop, watch)
        })
    }

    fn command(&self, step: &Step, is_judged: bool) -> Command {
        let options = &self.schedule.options;
        let mut command = client::longhaul(&self.work, &self.logs);
        command.args(["get", "--no-memory"]).args(patience(options.retries, 1, is_judged, step.times_out()));
        command.args(["--streams", options.streams, "--writer", options.writer]);
        if let Some(buffer) = options.app_buffer {
            command.args(["--app-buffer", buffer]);
        }
        if let Some(build) = options.checksum {
            let digest = blake3::hash(self.schedule.builds[build].bytes());
            command.args(["--checksum", &format!("blake3:{digest}")]);
        }
        command.args(options.assume_unchanged.then_some("--assume-unchanged"));
        command.args(step.no_resume.then_some("--no-resume"));
        command.args(["-o", if options.into_directory { "out/" } else { "out/f" }]);
        if self.schedule.mirror.is_some() {
            // Port 9 (discard) represents a server that is down.
            let port = self.mirror.as_ref().map_or(9, |mirror| mirror.address().port());
            command.arg("--mirror").arg(format!("http://127.0.0.1:{port}/f"));
        }
        let port = self.relay.as_ref().map_or_else(|| self.server.address(), Relay::address).port();
        let scheme = if self.schedule.tls { "https" } else { "http" };
        if self.schedule.tls {
            command.arg("--cacert").arg(self.logs.parent().unwrap().join("ca.pem"));
        }
        command.arg(format!("{scheme}://localhost:{port}/f"));
        command
    }
}

/// Returns the names of files that a transfer leaves for the next run.
pub(crate) fn leftovers(dir: &Path) -> Vec<String> {
    let all = if dir.exists() { names(dir) } else { Vec::new() };
    all.into_iter().filter(|name| name.contains(".longhaul-")).collect()
}
