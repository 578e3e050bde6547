//! `longhaul get` as a child process with a timeout.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::skip::skip;

const BIN: &str = env!("CARGO_BIN_EXE_longhaul");

/// Timeout of a run, for a busy machine.
const AGE: Duration = Duration::from_secs(40);

/// A `longhaul get`, or another command, in its own directory.
pub(crate) struct Get {
    dir: TempDir,
    program: String,
    command: &'static str,
    /// The command line before the program: how to run it.
    wrapper: Vec<String>,
    env: Vec<(&'static str, String)>,
    args: Vec<std::ffi::OsString>,
}

/// Creates a `longhaul get` in an empty directory, which is its home and working directory.
pub(crate) fn get() -> Get {
    longhaul("get")
}

/// Creates a `longhaul put` in an empty directory, which is its home and working directory.
pub(crate) fn put() -> Get {
    longhaul("put")
}

/// Creates a `longhaul COMMAND` in an empty directory, which is its home and working directory.
pub(crate) fn longhaul(command: &'static str) -> Get {
    // On the disk, not in a tmpfs: the writers must run on a real file system.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    Get { dir, program: BIN.to_owned(), command, wrapper: Vec::new(), env: Vec::new(), args: Vec::new() }
}

impl Get {
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Replaces the arguments, for the next run in this directory.
    pub(crate) fn again<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.clear();
        self.args(args)
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Runs the program through another one, with the program's command line as its last arguments.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|w| (*w).to_owned()).collect();
        self
    }

    /// Returns the path of `name` in the working directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn command(&self) -> Command {
        let mut words = self.wrapper.iter().map(String::as_str).chain([self.program.as_str(), self.command]);
        let mut command = Command::new(words.next().unwrap_or(&self.program));
        command.args(words).args(&self.args).current_dir(self.dir.path());
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "NETRC"] {
            command.env_remove(name);
        }
        command.env_remove("LONGHAUL_LOG").env("HOME", self.dir.path());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self) -> Running {
        Running::new(self.command())
    }

    pub(crate) fn run(&self) -> Ended {
        self.start().end()
    }
}

/// Returns a wrapper that runs a command without cachestat(2), like an older kernel.
pub(crate) fn old_kernel() -> Option<String> {
    let program = Path::new(BIN).with_file_name("examples").join("old_kernel");
    if program.exists() {
        return program.into_os_string().into_string().ok();
    }
    skip("an example of longhaul-sys is needed: cargo build -p longhaul-sys --examples");
    None
}

/// A running program; killed on drop.
pub(crate) struct Running {
    child: Child,
    started: Instant,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self { child, started: Instant::now(), stdout, stderr }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the names of the program's threads.
    pub(crate) fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        // A thread may end during the listing.
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).map(|name| name.trim_end().to_owned()).collect()
    }

    /// Returns the number of bytes that the program has read from files and pipes; `None` once it has ended.
    pub(crate) fn bytes_read(&self) -> Option<usize> {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).ok()?;
        io.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until `condition` holds, while the program is running.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        while !condition() {
            assert!(!self.has_ended(), "ended before {what}");
            assert!(self.started.elapsed() < AGE, "too long before {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        while !self.has_ended() {
            if self.started.elapsed() > AGE {
                let _ = self.child.kill();
                panic!("hangs; stderr: {}", self.stderr.take().map_or_else(String::new, text));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ended {
            status: self.child.wait().unwrap(),
            stdout: self.stdout.take().map_or_else(String::new, text),
            stderr: self.stderr.take().map_or_else(String::new, text),
            time: self.started.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn text(reader: JoinHandle<String>) -> String {
    reader.join().unwrap_or_default()
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) time: Duration,
}

impl Ended {
    /// Fails unless the run succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// Fails unless the run failed with `code` and one error on stderr that contains all `words`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        let error = self.error();
        for word in words {
            assert!(error.contains(word), "'{word}' is missing: {self:?}");
        }
        self
    }

    /// Returns the last error on stderr, which the results of other files may follow.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        let error = self.stderr.lines().rfind(|line| line.starts_with("longhaul: "));
        error.unwrap_or_else(|| panic!("no error on stderr: {self:?}"))
    }

    /// Parses the lines of `--json`.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let lines = self.stdout.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the last line of `--json`.
    #[track_caller]
    pub(crate) fn done(&self) -> serde_json::Value {
        let last = self.json().pop().unwrap_or_default();
        assert_eq!(last["event"], "done", "{self:?}");
        last
    }
}
