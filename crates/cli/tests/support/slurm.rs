//! A cluster of Slurm on this machine: a controller and four nodes. Its authentication is of its
//! own too: nothing of the system's Slurm or MUNGE is used.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server_process::{ServerProcess, free_port, installed, needs_root, skip, write_secret};

/// The longest time until the cluster does something, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

const SLURMCTLD: &str = "/usr/sbin/slurmctld";
const SLURMD: &str = "/usr/sbin/slurmd";

/// The names of the nodes, each of which executes one task.
pub(crate) const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// What runs a node in a PID namespace: what a job has started ends with its node, as on a host
/// that is lost.
const ALONE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// A cluster; its daemons and jobs are killed on drop, the nodes first.
pub(crate) struct Slurm {
    nodes: Vec<(&'static str, ServerProcess)>,
    controller: Option<ServerProcess>,
    port: u16,
    _munge: ServerProcess,
    dir: TempDir,
}

impl Slurm {
    /// Starts a cluster; `None` if Slurm is not installed, or without root.
    pub(crate) fn start() -> Option<Self> {
        let munged = installed(&["/usr/sbin/munged"])?;
        installed(&[SLURMCTLD])?;
        installed(&[SLURMD])?;
        needs_root("Slurm")?;
        let made = Command::new("unshare").args(ALONE).arg("true").output();
        if !made.is_ok_and(|made| made.status.success()) {
            skip("no PID namespace may be made here");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let munge = munge(munged, dir.path());
        let port = free_port();
        fs::create_dir(dir.path().join("state")).unwrap();
        fs::write(dir.path().join("slurm.conf"), configuration(dir.path(), port)).unwrap();
        NODES.iter().for_each(|name| fs::create_dir(dir.path().join(name)).unwrap());
        let mut cluster = Self { nodes: Vec::new(), controller: None, port, _munge: munge, dir };
        cluster.start_controller();
        NODES.iter().for_each(|name| cluster.start_node(name));
        cluster.until("all nodes are idle", || cluster.idle_nodes() == NODES.len());
        Some(cluster)
    }

    /// Returns the number of nodes that are idle, as far as the controller answers.
    pub(crate) fn idle_nodes(&self) -> usize {
        let states = self.output("sinfo", &["-h", "-N", "-o", "%T"]).stdout;
        String::from_utf8_lossy(&states).lines().filter(|state| *state == "idle").count()
    }

    /// Returns the path of the configuration, for the variable SLURM_CONF.
    pub(crate) fn conf(&self) -> String {
        self.dir.path().join("slurm.conf").display().to_string()
    }

    /// Runs a command of Slurm; returns what it prints.
    #[track_caller]
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn output(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program).args(args).env("SLURM_CONF", self.conf()).output().unwrap()
    }

    /// Starts the controller.
    pub(crate) fn start_controller(&mut self) {
        let mut controller = Command::new(SLURMCTLD);
        controller.args(["-D", "-f", &self.conf()]).stderr(Stdio::null());
        self.controller = Some(ServerProcess::listening(controller, self.port));
    }

    /// Kills the controller.
    pub(crate) fn lose_controller(&mut self) {
        self.controller = None;
    }

    /// Starts a node.
    pub(crate) fn start_node(&mut self, name: &'static str) {
        let pid_file = self.dir.path().join(format!("{name}.pid"));
        let _ = fs::remove_file(&pid_file);
        let mut node = Command::new("unshare");
        node.args(ALONE).args([SLURMD, "-D", "-N", name, "-f", &self.conf()]).stderr(Stdio::null());
        self.nodes.push((name, ServerProcess::ready(node, || pid_file.exists())));
    }

    /// Kills a node with all that runs on it, and makes it known, as a site's monitoring does.
    pub(crate) fn lose(&mut self, name: &str) {
        self.nodes.retain(|(node, _)| *node != name);
        self.run("scontrol", &["update", &format!("NodeName={name}"), "State=DOWN", "Reason=lost"]);
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            if Instant::now() > deadline {
                let log = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
                panic!("not before the deadline: {what}\n{}{}", log("slurmctld.log"), log("n1.log"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn munge(program: &str, dir: &Path) -> ServerProcess {
    let path = |name: &str| dir.join(name);
    write_secret(path("munge.key"), &format!("{:0128}", std::process::id()));
    let option = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
    let mut munged = Command::new(program);
    // --force: it runs as root, and its directory is a temporary one.
    munged.args(["--foreground", "--force", "--num-threads=2"]).args([
        option("key-file", path("munge.key")),
        option("socket", path("munge.socket")),
        option("pid-file", path("munged.pid")),
        option("seed-file", path("munged.seed")),
        option("log-file", path("munged.log")),
    ]);
    munged.stderr(Stdio::null());
    ServerProcess::ready(munged, || path("munge.socket").exists())
}

fn configuration(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap();
    // cred_expire is also the time that a task waits when it is queued again.
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={port}\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={dir}/munge.socket,cred_expire=8\nStateSaveLocation={dir}/state\n\
         SlurmdSpoolDir={dir}/%n\nSlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/%n.pid\n\
         SlurmctldLogFile={dir}/slurmctld.log\nSlurmdLogFile={dir}/%n.log\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
         AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\n\
         ReturnToService=2\nSlurmdParameters=config_overrides\nKillWait=20\nMailProg=/bin/true\n"
    );
    for name in NODES {
        text += &format!(
            "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1 RealMemory=1000\n",
            free_port()
        );
    }
    text + "PartitionName=all Nodes=ALL Default=YES State=UP\n"
}
