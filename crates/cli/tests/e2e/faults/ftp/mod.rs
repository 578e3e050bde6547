//! `get` from an FTP server in MODE E and MODE S: runs with faults, each judged.

mod schedule;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use self::schedule::schedule;

use self::schedule::{FtpSchedule, FtpStep};
use self::server::FtpServer;
use crate::faults::client::{self, RunMonitor};
use crate::faults::content::{OLDER, composition};
use crate::faults::invariant::Partial;
use crate::faults::run::{Ended, Outcome, Violation, count, leftovers};

/// Executes the schedule of `seed` in the empty directory `dir`.
pub(crate) fn play(seed: u64, dir: &Path) -> Outcome {
    let schedule = schedule(seed);
    // Builds the contents in advance, which takes longer than the client's timeout.
    let _: usize = schedule.builds.iter().map(|build| build.bytes().len()).sum();
    let play = ScheduleRun::new(&schedule, dir);
    match play.all() {
        Ok(()) => Outcome::Held(play.server.log()),
        Err(violation) => Outcome::Broken { violation, log: play.server.log() },
    }
}

struct ScheduleRun<'a> {
    schedule: &'a FtpSchedule,
    server: FtpServer,
    work: PathBuf,
    logs: PathBuf,
    target: PathBuf,
}

impl<'a> ScheduleRun<'a> {
    fn new(schedule: &'a FtpSchedule, dir: &Path) -> Self {
        let (work, logs) = (dir.join("work"), dir.join("logs"));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&logs).unwrap();
        let target = work.join("f");
        if schedule.older {
            fs::write(&target, OLDER).unwrap();
        }
        Self { schedule, server: FtpServer::start(schedule), work, logs, target }
    }

    fn all(&self) -> Result<(), Violation> {
        for (number, step) in self.schedule.steps.iter().enumerate() {
            if self.run(&format!("run {number}"), step)? == Ended::Exit(0) {
                return Ok(());
            }
        }
        let settled = FtpStep::sound(self.schedule.settled);
        let ended = self.run("last run", &settled)?;
        let ended = match ended {
            // A part of another build is discarded only with --no-resume.
            Ended::Exit(65) => self.run("last run", &FtpStep { no_resume: true, ..settled })?,
            other => other,
        };
        match ended {
            Ended::Exit(0) => Ok(()),
            other => {
                let what = format!("the last run: {other:?}, though nothing goes wrong any more");
                Err(Violation::of_failed_run(other, what))
            }
        }
    }

    /// Executes one run and judges it.
    fn run(&self, name: &str, step: &FtpStep) -> Result<Ended, Violation> {
        let before = Partial::read(&self.target, &self.schedule.builds, true)?;
        let of_size = |build: &usize| before.size == Some(self.schedule.builds[*build].len as u64);
        let partial = (before.total() > 0).then(|| before.build.filter(of_size).unwrap_or(usize::MAX));
        let must_succeed = self.schedule.must_succeed(step, partial.filter(|_| !step.no_resume));
        let stood = fs::read(&self.target).ok();
        self.server.note(&format!("{name} begins; committed {:?}", before.committed));
        self.server.begin(step);
        let watch = RunMonitor {
            moved: &|| self.server.served(),
            activity: &|| self.server.activity(),
            tick: &mut |_, _| false,
        };
        let ended = client::run(&mut self.command(step), step.stop, watch);
        let messages = client::messages(&self.logs);
        let context = |what: String| format!("{name}: {what}\n  stderr: {messages}");
        let ended = ended.map_err(context)?;
        self.server.note(&format!("{name} ends: {ended:?}"));
        let judged = self.judge(step, ended, stood.as_deref(), must_succeed, &messages);
        judged.map_err(|violation| violation.map(context))?;
        count(format!("ftp {ended:?}{}", if must_succeed { ", as it must" } else { "" }));
        Ok(ended)
    }

    /// Returns what is wrong with a run.
    fn judge(
        &self,
        step: &FtpStep,
        ended: Ended,
        stood: Option<&[u8]>,
        must_succeed: bool,
        messages: &str,
    ) -> Result<(), Violation> {
        if let Some(line) = messages.lines().find(|line| line.contains("panicked at")) {
            return Err(format!("a thread panics: {line}").into());
        }
        let found = fs::read(&self.target).ok();
        let untouched = found.as_deref() == stood;
        let is_build = |found: &Vec<u8>| self.schedule.builds.iter().any(|build| build.bytes() == found);
        let is_whole = found.as_ref().is_some_and(is_build);
        let holds = match ended {
            Ended::Exit(0) => is_whole,
            Ended::Killed => is_whole || untouched,
            Ended::Exit(130) => step.stop.is_some() && untouched,
            Ended::Exit(65..=69 | 71..=78) => untouched,
            Ended::Exit(_) => false,
        };
        if !holds {
            let shown = found.as_deref().map_or_else(|| "nothing".to_owned(), composition);
            return Err(format!("{ended:?}, and the final name holds {shown}").into());
        }
        if ended == Ended::Exit(0) && !leftovers(&self.work).is_empty() {
            return Err(format!("exit 0 leaves {:?}", leftovers(&self.work)).into());
        }
        if must_succeed && ended != Ended::Exit(0) {
            let what = format!("{ended:?}, though all that went wrong can be survived");
            return Err(Violation::of_failed_run(ended, what));
        }
        // If the run ended before it detected a changed file, the next run detects it.
        let may_mix = step.change.is_some() && ended != Ended::Exit(65);
        Partial::read(&self.target, &self.schedule.builds, may_mix)?;
        Ok(())
    }

    fn command(&self, step: &FtpStep) -> Command {
        let mut command = client::longhaul(&self.work, &self.logs);
        let retries = self.schedule.retries.to_string();
        command.args(["get", "--no-memory", "--stall-timeout", "2s", "--connect-timeout", "5s"]);
        command.args(["--retries", &retries, "-o", "f"]);
        match self.schedule.streams {
            // The first chunk has Delta x window / RTT bytes.
            "apt" => command.args("--tuner apt --apt-n0 2 --apt-delta 20ms --recv-buffer 16KiB".split(' ')),
            streams => command.args(["--streams", streams]),
        };
        if step.no_resume {
            command.arg("--no-resume");
        }
        command.arg(format!("ftp://{}/f", self.server.address()));
        command
    }
}
