//! An agent with its own home directory, and the commands that control it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::running::Running;

const BIN: &str = env!("CARGO_BIN_EXE_longhaul");
/// Timeout for the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A home directory and its agent, which is stopped on drop.
pub(crate) struct Home {
    dir: TempDir,
    program: PathBuf,
    env: Vec<(&'static str, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        Self::of(Path::new(BIN), options)
    }

    /// Creates a home whose agent is another build with these options.
    pub(crate) fn of(program: &Path, options: &[&str]) -> Self {
        let mut home = Self::without_agent();
        program.clone_into(&mut home.program);
        // The default port may be in use by another test.
        home.agent(&[&["--listen", "127.0.0.1:0"], options].concat());
        home
    }

    pub(crate) fn without_agent() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("files")).unwrap();
        fs::create_dir_all(dir.path().join("state/longhaul/agent")).unwrap();
        Self { dir, program: BIN.into(), env: Vec::new() }
    }

    /// Adds variables to the environment of all commands and the agent.
    pub(crate) fn env(mut self, variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.env.extend(variables);
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path of a file of the agent's state.
    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.path("state/longhaul/agent").join(name)
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.path("files")
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().stdin(Stdio::null()).current_dir(self.dir.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("XDG_STATE_HOME", self.path("state"));
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("XDG_CONFIG_HOME", self.path("config"));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn agent(&self, args: &[&str]) {
        let output = self.command().arg("agent").args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }

    pub(crate) fn queue(&self, args: &[&str]) -> Output {
        self.command().arg("queue").args(args).output().unwrap()
    }

    /// Runs a queue command that must succeed; returns its output.
    pub(crate) fn queue_ok(&self, args: &[&str]) -> String {
        let output = self.queue(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Adds a URL with the directory of files as output; returns the transfer's number.
    pub(crate) fn add(&self, url: &str, more: &[&str]) -> i64 {
        self.added(&[&["add", url, "-o", &format!("{}/", self.files().display())], more].concat())
    }

    /// Runs a command that adds a transfer; returns its number.
    pub(crate) fn added(&self, args: &[&str]) -> i64 {
        self.queue_ok(args).split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn transfer(&self, id: i64) -> Value {
        let all = self.list();
        all.into_iter().find(|transfer| transfer["id"] == id).unwrap()
    }

    pub(crate) fn list(&self) -> Vec<Value> {
        let list = self.queue_ok(&["list", "--json"]);
        list.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until `is` holds for a transfer; returns it.
    pub(crate) fn wait_for(&self, id: i64, is: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let transfer = self.transfer(id);
            if is(&transfer) {
                return transfer;
            }
            assert!(began.elapsed() < PATIENCE, "{transfer}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    pub(crate) fn done(&self, id: i64) -> Value {
        self.wait_for_state(id, "done")
    }

    pub(crate) fn wait_for_state(&self, id: i64, state: &str) -> Value {
        self.wait_for(id, |transfer| transfer["state"] == state)
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.state("agent.lock")).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        // The id may belong to another process by now.
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
        name.starts_with("longhaul").then_some(pid)
    }

    /// Kills the agent, and waits for its end; a new agent may already have started.
    pub(crate) fn kill(&self, signal: Signal) {
        let Some(pid) = self.pid() else { return };
        // The agent may end by itself before.
        let _ = kill_process(pid, signal);
        let began = Instant::now();
        while is_alive(pid) {
            assert!(began.elapsed() < PATIENCE, "the agent does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Changes the settings over the loopback address, like a browser.
    pub(crate) fn set(&self, settings: &Value) {
        let (status, body) = self.http("PATCH", "/api/v1/settings", &[], Some(settings));
        assert_eq!(status, 200, "{body}");
    }

    pub(crate) fn dashboard(&self) -> (String, String) {
        let url = self.queue_ok(&["open", "--print"]);
        let rest = url.trim().strip_prefix("http://").unwrap().to_owned();
        let (address, _) = rest.split_once("/login?code=").unwrap();
        (address.to_owned(), fs::read_to_string(self.state("agent.token")).unwrap())
    }

    /// Sends a request with the token over the loopback address; `headers` replace the default
    /// ones. Returns status and body.
    pub(crate) fn http(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> (u16, String) {
        let answer = self.answer(method, path, headers, &body.map(Value::to_string).unwrap_or_default());
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    /// Like [`Self::http`]; returns the whole response.
    pub(crate) fn answer(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
        let (address, token) = self.dashboard();
        let (bearer, length) = (format!("Bearer {token}"), body.len().to_string());
        let mut all = vec![
            ("Host", address.as_str()),
            ("Authorization", &bearer),
            ("Connection", "close"),
            ("Content-Type", "application/json"),
            ("Content-Length", &length),
        ];
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        all.extend(headers.iter().filter(|(_, value)| !value.is_empty()));
        let fields: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\n{fields}\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
    }
}

/// Starts the agents of homes with these options of a farm; all use the key of the first.
pub(crate) fn join_farm(homes: &[Home], options: &[&str]) {
    for (number, home) in homes.iter().enumerate() {
        if number > 0 {
            fs::copy(homes[0].state("farm.key"), home.state("farm.key")).unwrap();
        }
        home.agent(&[&["--listen", "127.0.0.1:0"], options].concat());
    }
}

/// Returns whether a process is running; a zombie is not.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Returns the complete output of a command.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `longhaul serve` on a directory; returns it and its URL.
pub(crate) fn serve(directory: &Path, args: &[&str]) -> (Running, String) {
    let mut command = Command::new(BIN);
    command.arg("serve").arg(directory).args(["--listen", "127.0.0.1:0"]).args(args).stdin(Stdio::null());
    let (server, address) = Running::server(&mut command);
    (server, format!("http://{address}"))
}
