//! The sign of life of a worker: a small file that is replaced at each beat.

use std::fs;
use std::path::Path;

use longhaul_core::units::Bytes;
use longhaul_engine::input_file;
use longhaul_sys::atomic_file;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::budget::HostUse;
use crate::error::FarmError;
use crate::lenient;
use crate::store::WorkerProgress;
use crate::unit::UnitId;

/// The largest heartbeat: a worker executes few units at once, and announces some hundred hosts at
/// most.
const MAX_HEARTBEAT: Bytes = Bytes::kib(64);
/// The longest part of a host's name that a worker's has.
const MAX_HOST: usize = 40;

/// A worker and what it does. Unknown fields are those of another version, and are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    worker: String,
    host: String,
    process: ProcessIdentity,
    /// The version of the program.
    program: String,
    pub(crate) beat: u64,
    /// Whether the worker has ended by itself.
    #[serde(default)]
    pub(crate) ended: bool,
    #[serde(default)]
    pub(crate) units: Vec<UnitId>,
    #[serde(default)]
    pub(crate) progress: WorkerProgress,
    /// What it uses of each host; `None` in one of another version, which may use any part of a
    /// limit.
    #[serde(default, deserialize_with = "lenient::if_readable")]
    pub(crate) uses: Option<Vec<HostUse>>,
}

/// What identifies a process on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    /// The boot of the kernel and the PID namespace, which `id` belongs to; empty if unknown.
    machine: String,
    pub(crate) id: u32,
    /// The time of its start, in ticks since boot: distinguishes it from a later process of the
    /// same number.
    started: u64,
}

impl ProcessIdentity {
    fn this() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let id = std::process::id();
        let machine = match (boot.trim(), namespace.display().to_string()) {
            (boot, namespace) if boot.is_empty() || namespace.is_empty() => String::new(),
            (boot, namespace) => format!("{boot} {namespace}"),
        };
        Self { machine, id, started: start_of(id).unwrap_or_default() }
    }

    /// Returns whether the process certainly has ended: it was one of this machine.
    pub(crate) fn has_ended(&self) -> bool {
        if self.started == 0 || self.machine.is_empty() || self.machine != Self::this().machine {
            return false;
        }
        // That /proc cannot be read says nothing: hidepid, or no free descriptor.
        start_of(self.id).map_or_else(
            || {
                let pid = self.id.try_into().ok().and_then(Pid::from_raw);
                pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
            },
            |started| started != self.started,
        )
    }
}

/// Reads the start time of a process (proc(5), stat, field 22), 0 for a zombie; the second field
/// may hold spaces.
fn start_of(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return Some(0);
    }
    fields.nth(18)?.parse().ok()
}

fn is_plain(c: &char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '.')
}

/// Returns whether a text, which a file of the state may hold, can be the name of a worker: it
/// becomes a part of paths.
pub(crate) fn is_worker_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| is_plain(&c)) && !text.contains("..")
}

impl Heartbeat {
    /// Creates that of a new worker in this process.
    pub(crate) fn of_this_process() -> Self {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host: String = name.chars().filter(is_plain).take(MAX_HOST).collect();
        let process = ProcessIdentity::this();
        Self {
            // Not of the host and process alone: a host may be cloned, with its name.
            worker: format!("{host}-{}-{:08x}", process.id, fastrand::u32(..)),
            host,
            process,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            beat: 0,
            ended: false,
            units: Vec::new(),
            progress: WorkerProgress::default(),
            uses: Some(Vec::new()),
        }
    }

    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn process(&self) -> &ProcessIdentity {
        &self.process
    }

    /// Makes this heartbeat the next one.
    pub(crate) fn advance(&mut self, progress: WorkerProgress, units: Vec<UnitId>) {
        self.beat += 1;
        (self.progress, self.units) = (progress, units);
    }

    /// Makes this heartbeat the last one.
    pub(crate) fn end(&mut self) {
        self.advance(WorkerProgress { bytes: self.progress.bytes, ..WorkerProgress::default() }, Vec::new());
        (self.ended, self.uses) = (true, Some(Vec::new()));
    }

    /// Replaces the worker's file in `directory`.
    pub(crate) fn store(&self, directory: &Path) -> Result<(), FarmError> {
        let path = directory.join(&self.worker);
        let written = |heartbeat: &Self| {
            serde_json::to_vec(heartbeat).map_err(|error| FarmError::io("write", &path)(error.into()))
        };
        let mut text = written(self)?;
        if text.len() as u64 > MAX_HEARTBEAT.get() {
            // Unreadable, it would be silence, and the units would be taken over.
            text = written(&Self { uses: None, ..self.clone() })?;
        }
        atomic_file::replace(&path, &text, 0o644).map_err(FarmError::io("write the heartbeat", &path))
    }

    /// Reads the heartbeat of a worker.
    pub(crate) fn read(directory: &Path, worker: &str) -> Option<Self> {
        let path =
            Some(worker).filter(|worker| is_worker_name(worker)).map(|worker| directory.join(worker))?;
        let text = input_file::read_again(&path, MAX_HEARTBEAT).ok()?;
        serde_json::from_slice(&text).ok().filter(|found: &Self| found.worker == worker)
    }

    /// Reads the heartbeats of all workers; leaves out what is no heartbeat, or is being replaced.
    pub(crate) fn all(directory: &Path) -> Result<Vec<Self>, FarmError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(directory).map_err(FarmError::io("list", directory))? {
            let name = entry.map_err(FarmError::io("list", directory))?.file_name();
            all.extend(name.to_str().and_then(|worker| Self::read(directory, worker)));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_has_ended_only_if_that_is_certain() {
        let this = ProcessIdentity::this();
        assert!(!this.has_ended());
        assert!(ProcessIdentity { started: this.started + 1, ..this.clone() }.has_ended(), "a later process");
        assert!(!ProcessIdentity { machine: String::new(), started: 1, ..this.clone() }.has_ended());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let process = ProcessIdentity { id, started: start_of(id).unwrap(), ..this };
        assert!(!process.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(
            !is_worker_name("../w")
                && !is_worker_name("a..b")
                && !is_worker_name("")
                && is_worker_name("n-1.x")
        );
    }

    #[test]
    fn heartbeat_is_readable_however_long_the_names_of_hosts_are() {
        let dir = tempfile::tempdir().unwrap();
        let mut heartbeat = Heartbeat::of_this_process();
        heartbeat.uses = Some(vec![HostUse { host: "h".repeat(1000), ..HostUse::default() }; 100]);
        heartbeat.store(dir.path()).unwrap();
        let read = Heartbeat::read(dir.path(), heartbeat.worker()).unwrap();
        assert_eq!((read.beat, read.uses), (heartbeat.beat, None));
        // Neither do uses of another version make it silent.
        let mut other = serde_json::to_value(Heartbeat::of_this_process()).unwrap();
        for (uses, expected) in
            [(r#"[{"host":7}]"#, None), (r#"[{"later":7}]"#, Some(vec![HostUse::default()]))]
        {
            other["uses"] = serde_json::from_str(uses).unwrap();
            let read: Heartbeat = serde_json::from_value(other.clone()).unwrap();
            assert_eq!(read.uses, expected, "{uses}");
        }
        other.as_object_mut().unwrap().remove("uses");
        assert_eq!(serde_json::from_value::<Heartbeat>(other).unwrap().uses, None);
    }
}
