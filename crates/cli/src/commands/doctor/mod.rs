//! `longhaul doctor`: what on this host would slow a transfer, and the fix.

mod device_setting;
mod fix;
mod fix_step;
mod governor;
mod kernel_module;
mod kernel_setting;
mod setting;
mod start_file;
mod text;
mod undo;
mod undo_file;

use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::host_check::{
    self, Diagnosis, Finding, Fix, HostFacts, Origin, Reading, Severity, Target, Unread,
};
use longhaul_core::units::{Rate, Rtt};
use longhaul_engine::probe::{handshake_rtt, reach};
use longhaul_scope::host_facts;
use serde_json::{Value, json};
use url::Url;

use crate::exit;
use crate::{say, stdout};

/// Check what on this host would slow a transfer of a rate and an RTT.
///
/// Each finding names the measured value, the needed one with its arithmetic, the commands that
/// change it now and the lines that make it last. Nothing is changed without --fix.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DoctorArgs {
    /// The server of the transfer: its route names the network device, and a TCP handshake measures
    /// the RTT
    #[arg(value_name = "URL", value_parser = server_url)]
    url: Option<Url>,

    /// Aim at this rate [default: that of the device's link, else 10Gbit]
    #[arg(long, value_parser = some_rate)]
    rate: Option<Rate>,

    /// Assume this round-trip time of the path [default: measured where there is a URL, else 200ms]
    #[arg(long, value_name = "TIME", value_parser = crate::values::time)]
    rtt: Option<Duration>,

    /// Check the disk of this directory, which files are written to
    #[arg(long, value_name = "PATH", default_value = ".")]
    disk: PathBuf,

    /// Do not measure the disk, which takes up to 2 s and writes up to 4 GiB to a file without a
    /// name
    #[arg(long)]
    no_disk_test: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Write the settings that findings ask for, after showing and asking; the old values are saved
    #[arg(long)]
    fix: bool,

    /// Also make them last, by lines in files of their own below /etc (after an earlier --fix,
    /// --undo that first)
    #[arg(long, requires = "fix")]
    permanent: bool,

    /// Write them without asking
    #[arg(long, requires = "fix")]
    yes: bool,

    /// Restore the values from before --fix
    #[arg(long, conflicts_with_all = ["url", "rate", "rtt", "no_disk_test", "fix", "yes", "permanent"])]
    undo: bool,
}

const EXIT_CODES: &str = "Exit code: 0 without a problem, 1 with one. With --fix or --undo: 0 if all modules, settings and files were \
     changed, whatever problems remain; 77 if one could not be, for whatever reason, though the others were; \
     66 if nothing is to be undone. docs/doctor.md describes each finding.";

/// Reads a URL of a protocol that transfers know.
fn server_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}: write it as in https://example.org/"))?;
    if !longhaul_engine::source::is_known_scheme(url.scheme()) {
        return Err(format!(
            "{}: is no protocol of transfers: write it as in https://example.org/",
            url.scheme()
        ));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it names no host: write it as in https://example.org/".to_owned());
    }
    Ok(url)
}

fn some_rate(text: &str) -> Result<Rate, String> {
    match Rate::with_unit(text) {
        Ok(rate) if rate > Rate::default() => Ok(rate),
        Ok(_) => Err("nothing is transferred at a rate of zero".to_owned()),
        Err(error) => Err(error),
    }
}

/// The rate where neither the command line nor the link gives one: that of the hosts that ESnet's
/// advice is for.
const ASSUMED_RATE: Rate = Rate::bits_per_sec(10_000_000_000);
/// The RTT where neither the command line nor a server gives one: that of UsadaFox's experiment,
/// half around the world.
const ASSUMED_RTT: Rtt = Rtt::new(Duration::from_millis(200));
/// How long the disk is measured.
const DISK_TIME: Duration = Duration::from_millis(1500);

/// Checks, prints, and writes what is asked for.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    Ok(if args.undo { undo::run(args.json)? } else { examine(args)? })
}

fn examine(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if args.fix && !args.yes && !io::stdin().is_terminal() {
        let message = "--fix asks on a terminal, and there is none: add --yes";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let disk = directory(&args.disk)?;
    let peer = args.url.as_ref().map(|url| Peer::find(url, args.rtt.is_none()));
    let address = peer.as_ref().and_then(|peer| peer.address.as_ref().ok());
    let mut facts = host_facts::read(address.copied(), &disk);
    if !args.no_disk_test {
        if !args.json && io::stderr().is_terminal() {
            let seconds = DISK_TIME.as_secs_f64();
            say::line(format_args!("Measuring the disk for {seconds} s; --no-disk-test skips that"));
        }
        facts.disk.write_test = Some(host_facts::measure_disk(&disk, DISK_TIME));
    }
    let target = target(args, &facts, peer.as_ref());
    let mut diagnosis = host_check::check(&facts, &target);
    if let Some(peer) = &peer {
        add_peer(&mut diagnosis, peer);
    }
    let route = match &peer {
        Some(Peer { host, address: Ok(_), .. }) => format!("route to {host}"),
        _ => "default route".to_owned(),
    };
    let device = facts.device.as_ref().map(|device| device.name.as_str());
    if !args.json {
        text::print(&diagnosis, device, &route);
    }
    let fixed = if args.fix { Some(fix::run(&diagnosis, args)?) } else { None };
    if args.json {
        stdout::line(as_json(&diagnosis, (device.ok(), &route), fixed.as_ref()));
    }
    Ok(match fixed {
        Some(fixed) => fixed.exit_code(diagnosis.worst()),
        None => exit_code(diagnosis.worst()),
    })
}

/// Returns the directory of a path: its own where it is one.
fn directory(path: &Path) -> Result<PathBuf, Failure> {
    let kind = path.metadata().map_err(|error| {
        let kind = exit::of_chain(&io::Error::from(error.kind()).into());
        Failure::new(kind, format!("--disk {}: {error}", path.display()))
    })?;
    let parent = || path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(if kind.is_dir() { path } else { parent() }.to_owned())
}

fn target(args: &DoctorArgs, facts: &HostFacts, peer: Option<&Peer>) -> Target {
    let link = facts.device.as_ref().ok().and_then(|device| device.speed.clone().ok());
    let (rate, rate_origin) = match (args.rate, link) {
        (Some(rate), _) => (rate, Origin::Given),
        (None, Some(speed)) => (speed, Origin::Measured),
        (None, None) => (ASSUMED_RATE, Origin::Assumed),
    };
    let measured = peer.and_then(|peer| peer.rtt.as_ref()?.as_ref().ok());
    let (rtt, rtt_origin) = match (args.rtt, measured) {
        (Some(rtt), _) => (Rtt::new(rtt), Origin::Given),
        (None, Some(rtt)) => (*rtt, Origin::Measured),
        (None, None) => (ASSUMED_RTT, Origin::Assumed),
    };
    Target { rate, rate_origin, rtt, rtt_origin }
}

/// How long the name service may take, and the choice among several addresses; the whole command is
/// to end within 3 s.
const REACH: Duration = Duration::from_millis(900);

/// What was found of the server.
#[derive(Debug)]
struct Peer {
    host: String,
    address: Reading<IpAddr>,
    /// `None` where it was not asked for, or where there is no address.
    rtt: Option<Reading<Rtt>>,
}

impl Peer {
    /// Resolves the host of `url`, and measures the RTT to it where that is asked for.
    fn find(url: &Url, measure: bool) -> Self {
        let host = url.host_str().unwrap_or_default().to_owned();
        let found = reach(url, REACH).map_err(|error| error.to_string());
        let rtt = found.as_ref().ok().filter(|_| measure).map(|address| {
            handshake_rtt(*address).map_err(|error| format!("TCP handshake with {host} ({address}): {error}"))
        });
        Self { host, address: found.map(|address| address.ip()), rtt }
    }
}

/// Adds what was found of the server.
fn add_peer(diagnosis: &mut Diagnosis, peer: &Peer) {
    let source = "getaddrinfo(3)";
    let finding = match &peer.address {
        Ok(address) => Finding::new(Severity::Ok, format!("{} is {address}", peer.host), source),
        Err(reason) => Finding::new(Severity::Problem, reason.clone(), source)
            .needs("an address", "the device below is that of the default route")
            .fixed_by(Fix::command(format!("getent hosts {}", peer.host)).noted(
                "this asks as transfers do: if it finds none, the name is wrong, or the name service (/etc/resolv.conf) does not answer",
            )),
    };
    diagnosis.add("server address", finding);
    if let Some(Err(reason)) = &peer.rtt {
        let would_show = "the RTT of the path, and with it all that depends on it";
        diagnosis.unread.push(Unread { name: "RTT", reason: reason.clone(), would_show });
    }
}

fn exit_code(worst: Severity) -> ExitCode {
    if worst == Severity::Problem { exit::FOUND.into() } else { ExitCode::SUCCESS }
}

fn as_json(
    diagnosis: &Diagnosis,
    (device, route): (Option<&str>, &str),
    fixed: Option<&fix::Fixed>,
) -> Value {
    let mut object =
        json!({ "event": "doctor", "worst": diagnosis.worst(), "device": device, "route": route });
    // A diagnosis is an object of plain values.
    if let Ok(Value::Object(fields)) = serde_json::to_value(diagnosis) {
        fields.into_iter().for_each(|(name, value)| object[name] = value);
    }
    if let Some(fixed) = fixed {
        fixed.add_to_json(&mut object);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_transfers_and_directories_of_files_are_accepted() {
        for good in ["http://h/", "https://[::1]:8443/x", "gsiftp://h/", "ftp://h"] {
            assert!(server_url(good).is_ok(), "{good}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(directory(&file).unwrap(), dir.path());
        assert_eq!(directory(dir.path()).unwrap(), dir.path());
        let error = directory(&dir.path().join("none")).unwrap_err();
        let is_missing = error.kind == FailureKind::NotFound;
        assert!(error.to_string().contains("none: No such file") && is_missing, "{error}");
    }
}
