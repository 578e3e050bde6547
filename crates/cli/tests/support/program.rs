//! `longhaul get` as a child process with a timeout.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{partial_files, same, skip};

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

    /// Writes a file, and its directory, into the working directory.
    pub(crate) fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), bytes).unwrap();
        self
    }

    /// Runs the program through another one, with the program's command line as its last arguments.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|w| (*w).to_owned()).collect();
        self
    }

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
        self.start_with(|command| command)
    }

    /// Starts the command with a change, such as of its streams.
    pub(crate) fn start_with(&self, change: impl FnOnce(&mut Command) -> &mut Command) -> Running {
        let mut command = self.command();
        change(&mut command);
        Running::new(command)
    }

    pub(crate) fn run(&self) -> Ended {
        self.start().end()
    }

    /// Sends `signal` to a run as soon as `condition` holds.
    pub(crate) fn signalled(&self, signal: Signal, what: &str, condition: impl FnMut() -> bool) -> Ended {
        let mut running = self.start();
        running.until(what, condition);
        running.signal(signal);
        running.end()
    }

    /// Runs; fails unless the run succeeds, and leaves `f` with `bytes` and no partial files.
    #[track_caller]
    pub(crate) fn fetches(&self, bytes: &[u8]) -> Ended {
        let ended = self.run().ok();
        self.fetched(bytes);
        ended
    }

    /// Fails unless `f` has these bytes, and there are no partial files.
    #[track_caller]
    pub(crate) fn fetched(&self, bytes: &[u8]) {
        same(self.path("f"), bytes);
        assert_eq!(partial_files(self.dir()), [""; 0]);
    }

    /// Like [`Ended::fails`]; also fails if the run leaves `f` or partial files.
    #[track_caller]
    pub(crate) fn fails_without_files(&self, code: i32, words: &[&str]) -> Ended {
        let ended = self.run().fails(code, words);
        assert!(!self.path("f").exists() && partial_files(self.dir()).is_empty(), "{ended:?}");
        ended
    }

    /// Like [`Ended::fails`]; also fails if the run leaves `f`.
    #[track_caller]
    pub(crate) fn fails_unnamed(&self, code: i32, words: &[&str]) -> Ended {
        let ended = self.run().fails(code, words);
        assert!(!self.path("f").exists(), "{ended:?}");
        ended
    }

    /// Like [`Ended::fails`]; also fails unless the run leaves the partial files of `f`.
    #[track_caller]
    pub(crate) fn fails_resumably(&self, code: i32, words: &[&str]) -> Ended {
        let ended = self.run().fails(code, words);
        self.is_resumable();
        ended
    }

    /// Fails unless the partial files of `f` exist, and `f` does not.
    #[track_caller]
    pub(crate) fn is_resumable(&self) {
        assert!(!self.path("f").exists());
        assert_eq!(partial_files(self.dir()), ["f.longhaul-journal", "f.longhaul-part"]);
    }
}

/// Copies the program to a directory that every user may read; its own may be private. Another
/// process copies it: a file that is open for writing in a child of this one cannot be run.
pub(crate) fn public_copy() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("longhaul");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_longhaul")).arg(&program).status().unwrap().success());
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    (dir, program)
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

/// Runs the program by a shell script, as `"$@"`, in a mount namespace of its own; `None` if not
/// permitted.
pub(crate) fn in_own_mounts(run: Get, script: &str) -> Option<Get> {
    let flag = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mut mount = Command::new("unshare");
    if !mount.args([flag, "mount", "-t", "tmpfs", "none", "/mnt"]).output().is_ok_and(|o| o.status.success())
    {
        skip("no mount namespace may be made here");
        return None;
    }
    Some(run.through(&["unshare", flag, "sh", "-c", script, "sh"]))
}

/// Runs the program in a PID namespace of its own, in which other processes cannot see its end, as
/// if it were on another host; on this one without root.
pub(crate) fn on_other_host(run: Get) -> Get {
    match super::is_root() {
        true => run.through(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]),
        false => run,
    }
}

/// A running program; killed on drop.
pub(crate) struct Running {
    child: Child,
    started: Instant,
    stdout: Output,
    stderr: Output,
}

/// A stream of output, which a thread collects.
struct Output {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn of(from: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let all = text.clone();
        let reader = from.map(|mut from| {
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(len @ 1..) = from.read(&mut piece) {
                    all.lock().unwrap().extend_from_slice(&piece[..len]);
                }
            })
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    /// Returns the text once the stream is closed.
    fn whole(&mut self) -> String {
        let _ = self.reader.take().map(JoinHandle::join);
        self.text()
    }
}

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (Output::of(child.stdout.take()), Output::of(child.stderr.take()));
        Self { child, started: Instant::now(), stdout, stderr }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal to the program that a wrapper has started, or to the wrapper if it has
    /// started none yet.
    pub(crate) fn signal_child(&self, signal: Signal) {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let child = children.split_whitespace().next().and_then(|child| Pid::from_raw(child.parse().ok()?));
        // It may have just ended.
        let _ = kill_process(child.unwrap_or(Pid::from_child(&self.child)), signal);
    }

    pub(crate) fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        // A thread may end during the listing.
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.map(|name| name.trim_end().to_owned()).collect()
    }

    /// Returns the number of bytes that the program has read from files and pipes; `None` once it
    /// has ended.
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

    /// Writes to the program's stdin, which stays open.
    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn until_open(&mut self, path: &Path) {
        let files = format!("/proc/{}/fd", self.child.id());
        // A file may be closed during the listing.
        let opened = || {
            std::fs::read_dir(&files).unwrap().filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
        };
        self.until("it opened the file", || opened().any(|open| open == path));
    }

    pub(crate) fn until_printed(&mut self, text: &str) {
        let deadline = Instant::now() + AGE;
        while !self.stdout.text().contains(text) && !self.stderr.text().contains(text) {
            assert!(Instant::now() < deadline, "no '{text}' in {}{}", self.stdout.text(), self.stderr.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn end(mut self) -> Ended {
        while !self.has_ended() {
            if self.started.elapsed() > AGE {
                let _ = self.child.kill();
                panic!("hangs: {}{}", self.stderr.whole(), self.stdout.whole());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ended {
            status: self.child.wait().unwrap(),
            stdout: self.stdout.whole(),
            stderr: self.stderr.whole(),
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

    /// Fails unless the command line was refused with a text that contains `word`.
    #[track_caller]
    pub(crate) fn is_misused(&self, word: &str) {
        assert_eq!(self.status.code(), Some(64), "{self:?}");
        assert!(self.stderr.contains(word), "'{word}' is missing: {self:?}");
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

    /// Returns the lines of `--json` of one event.
    #[track_caller]
    pub(crate) fn events(&self, event: &str) -> Vec<serde_json::Value> {
        self.json().into_iter().filter(|line| line["event"] == event).collect()
    }

    /// Returns the messages of the warnings of `--json`, one per line.
    #[track_caller]
    pub(crate) fn warnings(&self) -> String {
        self.events("warning").iter().map(|line| format!("{}\n", line["message"].as_str().unwrap())).collect()
    }

    /// Returns the last line of `--json`.
    #[track_caller]
    pub(crate) fn done(&self) -> serde_json::Value {
        let last = self.json().pop().unwrap_or_default();
        assert_eq!(last["event"], "done", "{self:?}");
        last
    }
}
