//! A private PostgreSQL server on a Unix socket.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{is_root, skip, text};

/// Maximum time for the server to start, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of Debian's unprivileged user and group: PostgreSQL refuses to run as root.
const UNPRIVILEGED: u32 = 65534;

/// A server that runs until it is dropped or the test is killed; its superuser is `farm`, `ann`
/// needs a password, and `tls` a connection with TLS.
pub(crate) struct Postgres {
    dir: TempDir,
    programs: PathBuf,
    server: Option<Child>,
}

impl Postgres {
    /// Starts a server; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            skip("PostgreSQL is not installed");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        if is_root() {
            chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let mut postgres = Self { dir, programs, server: None };
        let mut init = postgres.command("initdb");
        init.args(["-U", "farm", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        let output = init.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let hba = "local all ann scram-sha-256\nlocal all tls reject\nlocal all all trust\n";
        fs::write(postgres.dir.path().join("data/pg_hba.conf"), hba).unwrap();
        let settings = postgres.dir.path().join("data/postgresql.conf");
        let text = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, text + "listen_addresses = ''\nfsync = off\n").unwrap();
        postgres.run();
        Some(postgres)
    }

    /// Returns a command for the data as the server's user, which ends with this thread.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if is_root() {
            let user = UNPRIVILEGED.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg(self.programs.join(program));
        command.current_dir(self.dir.path()).arg("-D").arg(self.dir.path().join("data"));
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn run(&mut self) {
        let mut command = self.command("postgres");
        command.arg("-k").arg(self.dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let began = Instant::now();
        let mut server = command.spawn().unwrap();
        while !self.psql("SELECT 1").status.success() {
            assert!(began.elapsed() < PATIENCE, "the database does not start");
            std::thread::sleep(Duration::from_millis(50));
            // Processes of a killed server may still use its memory.
            if server.try_wait().unwrap().is_some() {
                server = command.spawn().unwrap();
            }
        }
        self.server = Some(server);
    }

    /// Returns the number of the server's first process.
    pub(crate) fn process(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// Kills the server's first process; the others see its end.
    pub(crate) fn kill_first_process(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Kills the server as a crash does, and waits for its end.
    pub(crate) fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let pid = Pid::from_raw(server.id().cast_signed()).unwrap();
        // QUIT ends its children too; the next start recovers.
        let _ = kill_process(pid, Signal::QUIT);
        server.wait().unwrap();
    }

    fn psql(&self, statement: &str) -> Output {
        let beside = self.programs.join("psql");
        let mut psql = Command::new(if beside.exists() { &beside } else { Path::new("psql") });
        psql.arg("-h")
            .arg(self.dir.path())
            .args(["-U", "farm", "-d", "postgres", "-X", "-A", "-t", "-q", "-c", statement]);
        psql.env("PGCONNECT_TIMEOUT", "20").env("PGOPTIONS", "-c statement_timeout=60s");
        psql.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a statement; returns its rows.
    pub(crate) fn sql(&self, statement: &str) -> String {
        let output = self.psql(statement);
        assert!(output.status.success(), "{statement}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Returns the address for a user.
    pub(crate) fn url(&self, user: &str) -> String {
        let host = self.dir.path().to_str().unwrap().replace('/', "%2F");
        format!("postgres://{user}@{host}/postgres")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the directory of the newest server's programs, where Debian, Red Hat or a build from
/// source has them.
fn programs() -> Option<PathBuf> {
    let of_version =
        |version| [format!("/usr/lib/postgresql/{version}/bin"), format!("/usr/pgsql-{version}/bin")];
    let usual = ["/usr/local/bin", "/usr/bin"].map(str::to_owned);
    let directories = (12..=18).rev().flat_map(of_version).chain(usual).map(PathBuf::from);
    directories.into_iter().find(|directory| directory.join("initdb").exists())
}
