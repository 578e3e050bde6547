//! `longhaul agent`.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use longhaul_agent::agent::{self, AgentOptions};
use longhaul_agent::client::{Client, ClientError};
use longhaul_agent::error::AgentError;
use longhaul_agent::farm::{self, FarmStatus};
use longhaul_agent::paths::{self, AgentPaths};
use longhaul_agent::queue::Stats;
use longhaul_agent::settings::FarmSettings;
use longhaul_agent::unit;
use longhaul_core::failure::FailureKind;
use longhaul_core::units::Rate;

use crate::exit;
use crate::values::listen;
use crate::{say, stdout};

/// Maximum time for an agent to open its queue.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval while an agent starts.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Options of the agent.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: Option<AgentCommand>,

    /// Stay in the foreground, as a service manager needs it
    #[arg(long)]
    foreground: bool,

    /// Leave the session of the terminal
    #[arg(long, hide = true)]
    detached: bool,

    #[command(flatten)]
    doors: DoorArgs,
}

/// What the agent serves at the dashboard's address. An agent that starts later without these
/// options serves the same.
#[derive(Debug, Clone, Args)]
struct DoorArgs {
    /// Serve the dashboard at this loopback address [default: that of the last agent, or port 6777
    /// of 127.0.0.1; a free port where that is taken]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen)]
    listen: Option<SocketAddr>,

    /// Answer aria2's JSON-RPC at /jsonrpc, for its clients; their secret is one of the agent's
    /// tokens [default: as the last agent did]
    #[arg(long, overrides_with = "no_aria2_rpc")]
    aria2_rpc: bool,

    /// Answer no JSON-RPC any more
    #[arg(long, overrides_with = "aria2_rpc")]
    no_aria2_rpc: bool,

    /// Share one queue with agents of other hosts in the database postgres://USER@HOST/DATABASE;
    /// PGPASSWORD or ~/.pgpass holds its password [default: as the last agent did]
    #[arg(long, value_name = "URL", conflicts_with = "no_farm")]
    farm: Option<String>,

    /// Give a host's transfers to others when it has not been heard of for this time
    #[arg(long, value_name = "SECONDS", requires = "farm", default_value_t = 30, value_parser = clap::value_parser!(u64).range(3..=3600))]
    farm_lease: u64,

    /// Share no queue any more
    #[arg(long)]
    no_farm: bool,
}

impl DoorArgs {
    fn farm(&self) -> Option<Option<FarmSettings>> {
        let farm = self.farm.clone().map(|url| FarmSettings { url, lease_seconds: self.farm_lease });
        (farm.is_some() || self.no_farm).then_some(farm)
    }

    fn aria2_rpc(&self) -> Option<bool> {
        (self.aria2_rpc || self.no_aria2_rpc).then_some(self.aria2_rpc)
    }

    /// Returns the options for another process.
    fn options(&self) -> Vec<String> {
        let listen = self.listen.map(|address| ["--listen".to_owned(), address.to_string()]);
        let aria2_rpc = self.aria2_rpc().map(|on| if on { "--aria2-rpc" } else { "--no-aria2-rpc" });
        let farm = self.farm.as_ref().map(|url| {
            ["--farm".to_owned(), url.clone(), "--farm-lease".to_owned(), self.farm_lease.to_string()]
        });
        let no_farm = self.no_farm.then(|| "--no-farm".to_owned());
        let doors = listen.into_iter().flatten().chain(aria2_rpc.map(str::to_owned));
        doors.chain(farm.into_iter().flatten()).chain(no_farm).collect()
    }
}

/// Subcommands of the agent.
#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Write a systemd unit, so that the agent starts with the user's session
    Install(DoorArgs),
    /// Remove that unit
    Uninstall,
    /// Stop the agent; active transfers continue when it runs again
    Stop,
    /// Show whether the agent runs, and its transfers
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the agent, or starts one in the background.
pub(crate) fn run(args: &AgentArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(AgentCommand::Install(doors)) => return install(doors),
        Some(AgentCommand::Uninstall) => return uninstall(),
        Some(AgentCommand::Stop) => return stop(),
        Some(AgentCommand::Status { json }) => return status(*json),
        None => {}
    }
    let paths = paths()?;
    if !args.foreground {
        let options = args.doors.options();
        stdout::line(match start(&paths, &options)? {
            true => "the agent runs".to_owned(),
            false if options.is_empty() => "the agent runs already".to_owned(),
            false => {
                format!(
                    "the agent runs already: for {}, stop it first: longhaul agent stop",
                    options.join(" ")
                )
            }
        });
        return Ok(ExitCode::SUCCESS);
    }
    if args.detached {
        // Fails only for a group leader, which has no controlling terminal to leave.
        let _ = rustix::process::setsid();
    }
    let options = AgentOptions {
        paths,
        listen: args.doors.listen,
        aria2_rpc: args.doors.aria2_rpc(),
        farm: args.doors.farm(),
        exit_code: exit::of,
    };
    agent::run(&options, |address| {
        say::line(format_args!("dashboard on http://{address}/; open it with longhaul queue open"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Stops the running agent, and waits until it has ended.
fn stop() -> anyhow::Result<ExitCode> {
    let client = Client::new(paths()?.socket());
    let Some(stats) = stats(&client)? else {
        stdout::line("no agent runs");
        return Ok(ExitCode::SUCCESS);
    };
    let pid = i32::try_from(stats.pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.context("the agent names no process")?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .with_context(|| format!("cannot stop the agent, process {}", stats.pid))?;
    let began = Instant::now();
    while rustix::process::test_kill_process(pid).is_ok() {
        if began.elapsed() > START_TIMEOUT {
            return Err(anyhow!("the agent, process {}, does not end: look into its log", stats.pid));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the agent's status; exits with 69 if none is running.
fn status(json: bool) -> anyhow::Result<ExitCode> {
    let Some(stats) = stats(&Client::new(paths()?.socket()))? else {
        return Ok(exit::said("no agent runs; start one with longhaul agent", FailureKind::Unavailable));
    };
    if json {
        stdout::line(serde_json::to_string(&stats)?);
    } else {
        let rate = Rate::bits_per_sec(stats.goodput_bps);
        stdout::line(format_args!(
            "process {}: {} running at {rate}, {} waiting",
            stats.pid, stats.active, stats.waiting
        ));
        if let Some(farm) =
            query::<Option<FarmStatus>>(&Client::new(paths()?.socket()), "/api/v1/farm")?.flatten()
        {
            stdout::line(format_args!("farm {}, with a lease of {} s", farm.database, farm.lease_seconds));
            for host in farm.hosts {
                let rate = Rate::bits_per_sec(host.goodput_bps);
                let seen = match host.is_alive {
                    true => format!("{} running at {rate}", host.running),
                    false => format!("not heard of for {} s", host.seen_seconds),
                };
                stdout::line(format_args!("host {}, version {}: {seen}", host.name, host.version));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Queries the agent; `None` if none is running.
fn stats(client: &Client) -> anyhow::Result<Option<Stats>> {
    query(client, "/api/v1/stats")
}

fn query<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.context("cannot start the runtime")?.block_on(client.get(path)) {
        Ok(answer) => Ok(Some(answer)),
        Err(ClientError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the paths of the agent's files.
pub(crate) fn paths() -> anyhow::Result<AgentPaths> {
    AgentPaths::of_user().ok_or_else(|| anyhow!(AgentError::NoHome))
}

/// Starts an agent in the background unless one is running; returns whether it did. The agent
/// outlives this command and its terminal.
pub(crate) fn start(paths: &AgentPaths, options: &[String]) -> anyhow::Result<bool> {
    // The socket's directory must belong to this user before any data is sent.
    paths.make().with_context(|| {
        format!("cannot make {}, which XDG_STATE_HOME=DIR puts elsewhere", paths.state.display())
    })?;
    let (client, began) = (Client::new(paths.socket()), Instant::now());
    if client.check().is_ok() {
        return Ok(false);
    }
    let log_path = paths.state.join(paths::LOG);
    let log = std::fs::File::options().create(true).append(true).mode(0o600).open(&log_path);
    let log = log.with_context(|| format!("cannot write {}", log_path.display()))?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(["agent", "--foreground", "--detached"]).args(options);
    let stderr = log.try_clone().context("cannot write the agent's log")?;
    command.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(stderr);
    let mut child = command.spawn().context("cannot start the agent")?;
    loop {
        let checked = client.check();
        if checked.is_ok() {
            // A native host lives as long as its browser: `stop` would wait for an agent that has
            // ended and is its zombie.
            std::thread::spawn(move || child.wait());
            return Ok(true);
        }
        let ended = child.try_wait().context("cannot wait for the agent")?;
        match ended {
            // Another agent started first or has not ended yet, or this one was killed.
            Some(status)
                if status.code().is_none_or(|code| code == i32::from(exit::of(FailureKind::Temporary)))
                    && began.elapsed() < START_TIMEOUT =>
            {
                std::thread::sleep(POLL_INTERVAL);
                child = command.spawn().context("cannot start the agent")?;
            }
            None if began.elapsed() < START_TIMEOUT => std::thread::sleep(POLL_INTERVAL),
            _ => {
                return Err(match checked {
                    Err(error @ ClientError::Silent { .. }) => error.into(),
                    _ => anyhow!("the agent does not start: {}", last_line(&log_path)),
                });
            }
        }
    }
}

/// Returns the last line of the agent's log.
fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
    last.unwrap_or_else(|| format!("{} is empty", log.display()))
}

fn install(doors: &DoorArgs) -> anyhow::Result<ExitCode> {
    if let Some(address) = doors.listen.filter(|address| !address.ip().is_loopback()) {
        bail!(AgentError::NotLoopback(address));
    }
    doors.farm.as_deref().map_or(Ok(()), farm::check_address)?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let directory = units()?;
    let path = unit::install(&directory, &program, &doors.options())
        .with_context(|| format!("cannot write the unit in {}", directory.display()))?;
    stdout::line(path.display());
    stdout::line(format_args!(
        "start it now and with each session: systemctl --user enable --now {}",
        unit::NAME
    ));
    if doors.farm.is_some() {
        stdout::line(
            "a password of the farm's database belongs into ~/.pgpass with mode 0600: the unit has none",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn uninstall() -> anyhow::Result<ExitCode> {
    let directory = units()?;
    let removed = unit::uninstall(&directory)
        .with_context(|| format!("cannot remove the unit in {}", directory.display()))?;
    if !removed {
        let message = format_args!("there is no {} in {}", unit::NAME, directory.display());
        return Ok(exit::said(message, FailureKind::NotFound));
    }
    stdout::line(format_args!("removed; stop one that runs: systemctl --user stop {}", unit::NAME));
    Ok(ExitCode::SUCCESS)
}

fn units() -> anyhow::Result<std::path::PathBuf> {
    unit::directory()
        .ok_or_else(|| anyhow!("no place for the unit: set HOME or XDG_CONFIG_HOME to an absolute path"))
}
