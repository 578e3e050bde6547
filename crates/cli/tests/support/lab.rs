//! `longhaul lab` as a child process, scenarios, and checks for leftovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::program::Ended;
use super::server_process::skip;

/// Creates a command of the program in its own home: the user's path memory is unaffected. Its
/// shell commands find the program by its name.
pub(crate) fn longhaul_in(home: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    let mut command = Command::new(program);
    let search =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    command.env("HOME", home).env("PATH", search).current_dir(home);
    command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program in its own home.
pub(crate) fn ran_in(home: &Path, args: &[&str]) -> Ended {
    let mut command = longhaul_in(home);
    command.args(args);
    ran(command)
}

pub(crate) fn exec_in(home: &Path, options: &[&str], shell: &str) -> Command {
    let mut command = longhaul_in(home);
    command.args(["lab", "exec"]).args(options).args(["--", "sh", "-c", shell]);
    command
}

pub(crate) fn exec(options: &[&str], shell: &str) -> Command {
    exec_in(env!("CARGO_TARGET_TMPDIR").as_ref(), options, shell)
}

pub(crate) fn ran(mut command: Command) -> Ended {
    ended(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

pub(crate) fn ended(child: Child) -> Ended {
    let started = Instant::now();
    let output = child.wait_with_output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Ended { status: output.status, stdout, stderr, time: started.elapsed() }
}

/// Returns the JSON objects among the lines of an output.
pub(crate) fn objects(ended: &Ended) -> Vec<Value> {
    let lines = ended.stdout.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the last JSON object of an output.
#[track_caller]
pub(crate) fn last_object(ended: &Ended) -> Value {
    objects(ended).pop().unwrap_or_else(|| panic!("no object: {ended:?}"))
}

/// Reports that no lab can be built here; that is a failure under CI.
pub(crate) fn needs_lab() -> Option<()> {
    static REFUSAL: LazyLock<Option<String>> = LazyLock::new(|| {
        let ended = ran(exec(&[], "true"));
        assert!(matches!(ended.status.code(), Some(0 | 77)), "{ended:?}");
        (!ended.status.success()).then_some(ended.stderr)
    });
    match REFUSAL.as_deref() {
        Some(why) => skip(why),
        None => return Some(()),
    }
    None
}

/// Reports that one of the programs is missing, or that no lab can be built by root; that is a
/// failure under CI.
pub(crate) fn needs_lab_with(programs: &[&str]) -> Option<()> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: stock servers need root");
        return None;
    }
    for program in programs {
        let line = format!("PATH=$PATH:/usr/sbin command -v {program}");
        if !Command::new("sh").args(["-c", &line]).output().unwrap().status.success() {
            skip(&format!("{program} is missing"));
            return None;
        }
    }
    needs_lab()
}

pub(crate) fn processes_with(word: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(holds).collect()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Sends a signal again and again until the process ends: the kernel merges signals of one kind
/// that are pending.
pub(crate) fn send_until_end(child: &mut Child, signal: Signal) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain: {signal:?}");
        // Fails if the process has just ended.
        let _ = kill_process(Pid::from_child(child), signal);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns a shell command that runs nginx with these directives of `http`, whose relative paths
/// begin in the command's directory.
pub(crate) fn nginx(user: &str, http: &str) -> String {
    format!(
        "cat > nginx.conf <<'END'
daemon off; user {user}; pid pid; error_log stderr; events {{ }}
http {{
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  {http}
}}
END
PATH=$PATH:/usr/sbin exec nginx -p $PWD -c $PWD/nginx.conf"
    )
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A scenario in its own directory, for `longhaul lab run`.
pub(crate) struct Scenario {
    /// Holds the results, and the scenario if it is written by the test; the programs' home.
    dir: TempDir,
    file: PathBuf,
}

impl Scenario {
    pub(crate) fn new(toml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scenario = Self { file: dir.path().join("small.toml"), dir };
        scenario.rewrite(toml);
        scenario
    }

    /// Uses one of Longhaul's scenarios in place.
    pub(crate) fn own(name: &str) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), file: root().join("scenarios").join(name) }
    }

    pub(crate) fn rewrite(&self, toml: &str) {
        fs::write(&self.file, toml).unwrap();
    }

    /// Returns a path beside the scenario, in LAB_DIR.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a path in the results directory.
    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.path("out").join(name)
    }

    /// Returns an absolute path in the results directory, as in the program's messages.
    pub(crate) fn real_out(&self, name: &str) -> PathBuf {
        self.out(name).canonicalize().unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = longhaul_in(self.dir.path());
        command.args(["lab", "run"]).arg(&self.file).arg("--out").arg(self.path("out"));
        // Tests judge the path of a busy machine themselves.
        if !args.contains(&"--retries") {
            command.args(["--retries", "0"]);
        }
        command.args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        ran(self.command(args))
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.out(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn results(&self) -> Vec<Value> {
        let json: Value = serde_json::from_str(&self.read("results.json")).unwrap();
        json["runs"].as_array().unwrap().clone()
    }

    /// Returns the executions as "name repetition".
    pub(crate) fn executed(&self) -> Vec<String> {
        let label = |run: &Value| format!("{} {}", run["name"].as_str().unwrap(), run["repetition"]);
        self.results().iter().map(label).collect()
    }

    /// Runs one of Longhaul's scenarios; returns its results. Fails if any has a remark, or a file
    /// is left.
    pub(crate) fn measure(&self, args: &[&str]) -> Vec<Value> {
        self.run(args).ok();
        let runs = self.results();
        assert!(runs.iter().all(|run| run["remarks"].as_array().is_some_and(Vec::is_empty)), "{runs:?}");
        let left = ["file", "progress"].map(|name| self.out(name)).into_iter().chain([self.data()]);
        let left: Vec<_> = left.filter(|path| path.exists()).collect();
        assert!(left.is_empty(), "{left:?}");
        runs
    }

    /// Returns the data directory: the command that prints it also creates it, so removes an empty
    /// one.
    fn data(&self) -> PathBuf {
        let data = PathBuf::from(scenario_tool(&self.real_out("."), &["data"]));
        // Fails if the directory has content, which is then older.
        let _ = fs::remove_dir(&data);
        data
    }
}

#[track_caller]
pub(crate) fn value(run: &Value, name: &str) -> f64 {
    run["values"][name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"))
}

/// Runs a tool of the scenarios on the results in `out`; returns what it prints.
#[track_caller]
pub(crate) fn scenario_tool(out: &Path, words: &[&str]) -> String {
    let mut command = Command::new(root().join("scenarios/tools").join(words[0]));
    command.args(&words[1..]).env("LAB_OUT", out);
    ran(command).ok().stdout
}
