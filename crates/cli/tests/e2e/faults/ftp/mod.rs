//! `get` from an FTP server in MODE E and MODE S: runs with faults, each judged.

mod schedule;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use self::schedule::schedule;

use self::schedule::{FtpSchedule, FtpStep};
use self::server::FtpServer;
use crate::faults::client::{self, Ended, RunMonitor, check_end, patience};
use crate::faults::content::OLDER;
use crate::faults::invariant::{Partial, check_name};
use crate::faults::run::{Outcome, count, leftovers};

pub(crate) fn play(seed: u64, dir: &Path) -> Outcome {
    let schedule = schedule(seed);
    let play = ScheduleRun::new(&schedule, dir);
    let result = play.all();
    Outcome::Played(result, play.server.progress().log())
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

    fn all(&self) -> Result<(), String> {
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
            other => Err(format!("the last run: {other:?}, though nothing goes wrong any more")),
        }
    }

    fn run(&self, name: &str, step: &FtpStep) -> Result<Ended, String> {
        let before = Partial::read(&self.target, &self.schedule.builds, true)?;
        let of_size = |build: &usize| before.size == Some(self.schedule.builds[*build].len as u64);
        let partial = (before.total() > 0).then(|| before.build.filter(of_size).unwrap_or(usize::MAX));
        let must_succeed = self.schedule.must_succeed(step, partial.filter(|_| !step.no_resume));
        let stood = fs::read(&self.target).ok();
        let progress = self.server.progress();
        progress.note(&format!("{name} begins; committed {:?}", before.committed));
        self.server.begin(step);
        let watch = RunMonitor {
            moved: &|| progress.served(),
            activity: &|| progress.activity(),
            tick: &mut |_, _| false,
        };
        let is_judged = must_succeed || *step == FtpStep::sound(step.build);
        let context = client::in_context(name, &self.logs);
        let ended = client::run(&mut self.command(step, is_judged), step.stop, watch).map_err(&context)?;
        progress.note(&format!("{name} ends: {ended:?}"));
        self.judge(step, ended, stood.as_deref(), must_succeed).map_err(context)?;
        count(format!("ftp {ended:?}{}", if must_succeed { ", as it must" } else { "" }));
        Ok(ended)
    }

    fn judge(
        &self,
        step: &FtpStep,
        ended: Ended,
        stood: Option<&[u8]>,
        must_succeed: bool,
    ) -> Result<(), String> {
        check_end(ended, step.stop, &client::messages(&self.logs))?;
        let found = fs::read(&self.target).ok();
        check_name(ended, stood, found.as_deref(), &self.schedule.builds, false)?;
        if ended == Ended::Exit(0) && !leftovers(&self.work).is_empty() {
            return Err(format!("exit 0 leaves {:?}", leftovers(&self.work)));
        }
        if must_succeed && ended != Ended::Exit(0) {
            return Err(format!("{ended:?}, though all that went wrong can be survived"));
        }
        // If the run ended before it detected a changed file, the next run detects it.
        let may_mix = step.change.is_some() && ended != Ended::Exit(65);
        Partial::read(&self.target, &self.schedule.builds, may_mix)?;
        Ok(())
    }

    fn command(&self, step: &FtpStep, is_judged: bool) -> Command {
        let mut command = client::longhaul(&self.work, &self.logs);
        command.args(["get", "--no-memory", "-o", "f"]);
        command.args(patience(self.schedule.retries, 2, is_judged, step.times_out()));
        match self.schedule.streams {
            // The first chunk has Delta x window / RTT bytes.
            "apt" => command.args("--tuner apt --apt-n0 2 --apt-delta 20ms --recv-buffer 16KiB".split(' ')),
            streams => command.args(["--streams", streams]),
        };
        command.args(step.no_resume.then_some("--no-resume"));
        command.arg(format!("ftp://{}/f", self.server.address()));
        command
    }
}
