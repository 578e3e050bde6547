//! Executes a schedule of `put` to `longhaul serve --writable` through a relay.

pub(super) mod raw_client;

use std::cell::RefCell;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::faults::client::{self, Ended, RunMonitor, check_end, patience};
use crate::faults::content::{OLDER, composition};
use crate::faults::disk::{self, Disk};
use crate::faults::fault::{DiskFault, RelayFaultKind};
use crate::faults::relay::Relay;
use crate::faults::run::{Outcome, count, leftovers};
use crate::faults::schedule::{Build, PutSchedule, PutStep};
use crate::support::running::Running;
use crate::support::{names, reserved_port};

/// The end of a run that found the name locked.
const BUSY: Ended = Ended::Exit(75);
/// Hang guard of the server's recovery from an earlier run.
const RECOVERY: Duration = Duration::from_secs(60);

/// `longhaul serve --writable`, which can be killed and restarted.
struct Site {
    child: Running,
    dir: PathBuf,
    files: PathBuf,         // The files' directory, by its path outside the disk's namespace
    namespace: Option<u32>, // The process in whose mount namespace the server runs
    address: SocketAddr,
    _reserved: Socket,
}

impl Site {
    fn start(dir: &Path, disk: Option<&Disk>) -> Self {
        let files = disk.map_or_else(|| dir.to_owned(), Disk::path).join("files");
        fs::create_dir(&files).unwrap();
        fs::write(dir.join("token"), "sesame").unwrap();
        fs::set_permissions(dir.join("token"), fs::Permissions::from_mode(0o600)).unwrap();
        let namespace = disk.map(Disk::holder);
        let (reserved, address) = reserved_port();
        let child = Self::spawn(dir, namespace, address);
        Self { child, dir: dir.to_owned(), files, namespace, address, _reserved: reserved }
    }

    fn spawn(dir: &Path, namespace: Option<u32>, address: SocketAddr) -> Running {
        let program = env!("CARGO_BIN_EXE_longhaul");
        let mut command = Command::new(if namespace.is_some() { "nsenter" } else { program });
        if let Some(holder) = namespace {
            command.args(["-m", "-t", &holder.to_string(), "sh", "-c", "cd \"$0\" && exec \"$@\""]);
            command.arg(dir).arg(program);
        }
        let files = if namespace.is_some() { "disk/files" } else { "files" };
        command.current_dir(dir).args(["serve", files, "--writable", "--token", "token"]);
        command.args(["--listen", &address.to_string()]);
        let log = dir.join("server.log");
        command.stdin(Stdio::null()).stderr(File::options().create(true).append(true).open(&log).unwrap());
        let before = fs::read_to_string(&log).unwrap().len();
        let mut child = Running(command.spawn().unwrap());
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&log).unwrap();
            let mut lines = text[before..].lines().filter(|_| text.ends_with('\n'));
            if lines.any(|line| line.starts_with("serving ")) {
                return child;
            }
            let hangs = child.0.try_wait().unwrap().is_some() || began.elapsed().as_secs() > 60;
            assert!(!hangs, "no server: {text}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(&mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    /// Kills and restarts the server.
    fn restart(&mut self) {
        self.kill();
        self.child = Self::spawn(&self.dir, self.namespace, self.address);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }
}

pub(crate) fn play(schedule: &PutSchedule, dir: &Path) -> Outcome {
    let disk = match schedule.small_disk.then(|| Disk::mount(dir)).transpose() {
        Ok(disk) => disk,
        Err(why) => return Outcome::Skipped(why),
    };
    let site = Site::start(dir, disk.as_ref());
    let relay = Relay::start(site.address);
    fs::create_dir(dir.join("logs")).unwrap();
    fs::write(dir.join("f"), schedule.build.bytes()).unwrap();
    if schedule.older {
        fs::write(site.files.join("f"), OLDER).unwrap();
    }
    let play = ScheduleRun { schedule, dir, site: RefCell::new(site), relay, disk: RefCell::new(disk) };
    let result = play.all();
    Outcome::Played(result, play.site.borrow().log())
}

struct ScheduleRun<'a> {
    schedule: &'a PutSchedule,
    dir: &'a Path,
    site: RefCell<Site>,
    relay: Relay,
    disk: RefCell<Option<Disk>>,
}

impl ScheduleRun<'_> {
    fn all(&self) -> Result<(), String> {
        for (number, step) in self.schedule.steps.iter().enumerate() {
            if self.run(&format!("run {number}"), step)? == Ended::Exit(0) {
                return Ok(());
            }
        }
        let sound = PutStep::default();
        let (began, mut ended) = (Instant::now(), self.run("last run", &sound)?);
        while ended == BUSY && began.elapsed() < RECOVERY {
            std::thread::sleep(Duration::from_millis(100));
            ended = self.run("last run", &sound)?;
        }
        if ended == Ended::Exit(65) && self.schedule.steps.iter().any(PutStep::spoils) {
            // The digest has revealed wrong bytes of an earlier run, which the server then
            // discards.
            ended = self.run("last run", &sound)?;
        }
        if ended != Ended::Exit(0) {
            return Err(client::in_context("the last run", &self.dir.join("logs"))(format!("{ended:?}")));
        }
        let left = leftovers(&self.site.borrow().files);
        // A flip may have started an upload with another name.
        if !left.is_empty() && !self.schedule.steps.iter().any(PutStep::flips) {
            return Err(format!("the last run leaves {left:?}"));
        }
        Ok(())
    }

    fn run(&self, name: &str, step: &PutStep) -> Result<Ended, String> {
        let files = &self.site.borrow().files.clone();
        if let Some(disk) = self.disk.borrow().as_ref().filter(|_| step.disk.is_some()) {
            disk.sync();
        }
        let stood = fs::read(files.join("f")).ok();
        self.relay.begin(&step.relayed);
        let logs = self.dir.join("logs");
        let ended = self.run_monitored(step).map_err(client::in_context(name, &logs))?;
        if let Some(disk) = self.disk.borrow_mut().as_mut() {
            let cuts = step.disk.is_some_and(DiskFault::cuts_power);
            if cuts {
                self.site.borrow_mut().kill();
            }
            disk.recover(step.disk);
            if cuts {
                self.site.borrow_mut().restart();
            }
        }
        if step.source_changes.is_some() {
            fs::write(self.dir.join("f"), self.schedule.build.bytes()).unwrap();
        }
        let context = client::in_context(format!("{name}, {ended:?}"), &logs);
        self.judge(step, ended, stood, files).map_err(context)?;
        count(format!("put {ended:?}{}", if self.schedule.must_succeed(step) { ", as it must" } else { "" }));
        Ok(ended)
    }

    /// Runs the client through `step`, and kills and restarts the server.
    fn run_monitored(&self, step: &PutStep) -> Result<Ended, String> {
        let (mut dies, mut changes) = (step.server_dies, step.source_changes);
        let mut restarts: Option<Duration> = None;
        let moved = || self.relay.moved();
        let ended = disk::during(self.disk.borrow().as_ref(), step.disk, |is_disturbed| {
            let mut tick = |moved: u64, time: Duration| {
                if let Some((when, down)) = &mut dies
                    && when.is_reached(moved, time)
                {
                    let down = *down;
                    self.site.borrow_mut().kill();
                    (dies, restarts) = (None, Some(time + Duration::from_millis(down)));
                }
                if changes.as_mut().is_some_and(|when| when.is_reached(moved, time)) {
                    changes = None;
                    fs::write(self.dir.join("f"), self.schedule.other_build().bytes()).unwrap();
                }
                let is_disturbed = is_disturbed(moved);
                // A server cannot start on a hung disk.
                if restarts.is_some_and(|at| time >= at) && !is_disturbed {
                    self.site.borrow_mut().restart();
                    restarts = None;
                }
                is_disturbed
            };
            let watch = RunMonitor { moved: &moved, activity: &moved, tick: &mut tick };
            client::run(&mut self.command(step), step.stop, watch)
        });
        if restarts.is_some() {
            self.site.borrow_mut().restart();
        }
        ended
    }

    fn command(&self, step: &PutStep) -> Command {
        let mut command = client::longhaul(self.dir, &self.dir.join("logs"));
        let PutSchedule { reader, streams, retries, .. } = *self.schedule;
        let must_succeed = self.schedule.must_succeed(step);
        command.arg("put").args(patience(retries, 1, must_succeed, step.times_out()));
        command.args(["--reader", reader, "--streams", streams, "--token", "token"]);
        command.args(step.no_resume.then_some("--no-resume"));
        command.arg("f").arg(format!("http://{}/f", self.relay.address()));
        command
    }

    fn judge(
        &self,
        step: &PutStep,
        ended: Ended,
        stood: Option<Vec<u8>>,
        files: &Path,
    ) -> Result<(), String> {
        let bytes = self.schedule.build.bytes();
        let said = client::messages(&self.dir.join("logs"));
        let is_locked = said.contains(" 423 Locked");
        let messages = said + &self.site.borrow().log();
        check_end(ended, step.stop, &messages)?;
        // A flip may have changed the name; the file must still be whole.
        for name in names(files).iter().filter(|name| !name.contains(".longhaul-") && *name != "f") {
            let found = fs::read(files.join(name)).unwrap();
            if found != bytes {
                return Err(format!("{name:?} holds {}", composition(&found)));
            }
        }
        let found = fs::read(files.join("f")).ok();
        let is_other =
            step.source_changes.is_some() && found.as_deref() == Some(self.schedule.other_build().bytes());
        let there = found.as_deref() == Some(bytes) || is_other;
        // Killed before it has compared the digest in the response with its own.
        let is_unverified = ended == Ended::Killed && step.flips();
        // The response to a completed upload may be lost.
        if !there && !is_unverified && (ended == Ended::Exit(0) || found != stood) {
            let shown = found.map_or("nothing".to_owned(), |found| composition(&found));
            return Err(format!("the server holds {shown}"));
        }
        match ended {
            Ended::Exit(0) | Ended::Killed => Ok(()),
            // The server may still await bytes of an earlier run's upload.
            BUSY if is_locked => Ok(()),
            // Wrong bytes of an earlier run are detected at the end.
            Ended::Exit(65) if self.schedule.steps.iter().any(PutStep::spoils) => Ok(()),
            Ended::Exit(_) if self.schedule.must_succeed(step) => {
                Err("fails, though all that went wrong can be survived".to_owned())
            }
            Ended::Exit(_) => Ok(()),
        }
    }
}

impl PutStep {
    fn flips(&self) -> bool {
        self.relayed.iter().any(|relayed| matches!(relayed.what, RelayFaultKind::Flip(_)))
    }

    /// Returns whether the client notices a fault by a timeout.
    fn times_out(&self) -> bool {
        self.relayed.iter().any(|relayed| matches!(relayed.what, RelayFaultKind::Stall(_)))
    }

    /// Returns whether the server may keep bytes that differ from the source.
    fn spoils(&self) -> bool {
        self.flips() || self.source_changes.is_some()
    }
}

impl PutSchedule {
    fn other_build(&self) -> Build {
        Build { content: 1, ..self.build }
    }

    fn must_succeed(&self, step: &PutStep) -> bool {
        // A server that is down breaks connections, and is refused by the relay.
        let failures = step.relayed.len() + step.server_dies.map_or(0, |_| 4);
        step.stop.is_none() && step.disk.is_none() && !step.spoils() && failures <= self.retries as usize
    }
}
